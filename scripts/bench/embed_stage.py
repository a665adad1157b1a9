"""The embedding stage beside its peers, on the same chunks, one after another in one run.

usage: .venv/bin/python scripts/bench/embed_stage.py [FOLDER] [--chunks N] [--gpu] [--ways WAY ...] [--rounds N]
       [--model DIR] [--replicas N] [--batch-rows N] [--args JSON]

Takes FOLDER's chunks, or N synthetic ones of 153 tokens, and embeds them in a fresh process a way:

stage         our default: in-process vLLM actors on a Ray Dataset of the stream schema, as many as `auto` says
ray-llm       the same seam over ray.data.llm's processor, token ids in
documented    ray.data.llm's processor as its documentation shows it: text in, batch_size 32
text, ids     `vllm.LLM.embed` alone, in its default processes, with texts or token ids
inproc        the engine's core alone, token ids in, in one process without Ray
ceiling       as many such processes as the stage has engines, each with its share of the chunks
st            sentence-transformers, batch 256

Start-up is not counted: rates of Datasets are from when the last engine began, those of processes from when all are
warm. `--model DIR` with a config and a tokenizer but no weights runs random ones. Prints a line a measurement, then
medians and the stage's share of the best.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from growth import WORDS_PER_CHUNK, vocabulary

from rag_pipeline import schema
from rag_pipeline.config import Config
from rag_pipeline.embedding import embed
from rag_pipeline.embedding.engine_args import count_engines, engine_environment, engine_kwargs
from rag_pipeline.embedding.engine_core import CoreEncoder
from rag_pipeline.embedding.model import load_model
from rag_pipeline.embedding.tokenizer import load_tokenizer
from rag_pipeline.pipeline import prepare
from rag_pipeline.records import NO_LIMITS, short_hash
from rag_pipeline.run import Run
from rag_pipeline.session import ray_session
from rag_pipeline.tasks import files_to_table, prepare_block

WARM_UP = 512
UNIQUE = 60_000


def main() -> None:
    """Runs all ways, or one of them as a child."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--chunks", type=int, default=2000)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--ways", nargs="+", default=["stage", "ray-llm", "text", "ids", "inproc"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--model")
    parser.add_argument("--replicas", type=int)
    parser.add_argument("--args", default="{}", help="runtime.engine_args, as JSON")
    parser.add_argument("--batch-rows", type=int, help="runtime.embed_batch_rows; default: auto")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        way, file, share = args.child
        print(json.dumps(WAYS[way](config_of(args), *pickle.loads(Path(file).read_bytes()), args.gpu, share)))
        return
    config, rates = config_of(args), {way: [] for way in args.ways}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "chunks.pickle"
        table, texts = chunks_of(config, args.folder, args.chunks)
        file.write_bytes(pickle.dumps((table, texts)))
        tokens = sum(map(len, table["token_ids"].to_pylist())) / table.num_rows
        print(f"{table.num_rows} chunks of {tokens:.0f} tokens", flush=True)
        for _ in range(args.rounds):
            for way in args.ways:
                rate = measure(way, file, config, args.gpu)
                rates[way].append(rate)
                print(f"{way:<11} {rate:10.1f} chunks/s {rate * tokens:12.0f} tokens/s", flush=True)
    medians = {way: statistics.median(found) for way, found in rates.items()}
    print("medians:", {way: round(value, 1) for way, value in medians.items()})
    others = [value for way, value in medians.items() if way != "stage"]
    if "stage" in medians and others:
        print(f"stage / best of the others: {medians['stage'] / max(others):.2f}")


def config_of(args: argparse.Namespace) -> Config:
    """What the arguments say, as the product's own settings."""
    embedding: dict[str, Any] = {}
    if args.model:
        embedding |= {"model": args.model, "dtype": "bfloat16" if args.gpu else "float32"}
        if not list(Path(args.model).glob("*.safetensors")):
            embedding["engine_args"] = {"load_format": "dummy"}
    runtime: dict[str, Any] = {"engine_args": json.loads(args.args)}
    runtime |= {"replicas": args.replicas} if args.replicas else {}
    runtime |= {"embed_batch_rows": args.batch_rows} if args.batch_rows else {}
    return Config.model_validate({"recipe": {"embedding": embedding}, "runtime": runtime})


def measure(way: str, file: Path, config: Config, gpu: bool) -> float:
    """Chunks/s of one way; the ceiling's is the sum of processes that run at once."""
    shares = ["0/1"]
    if way == "ceiling":
        model = load_model(config.recipe.embedding)
        count = count_engines(model, config.recipe.embedding, config.runtime, int(gpu))[0]
        shares = [f"{number}/{count}" for number in range(count)]
    command = [sys.executable, __file__, *sys.argv[1:], "--child", way, str(file)]
    children = [subprocess.Popen([*command, share], stdout=subprocess.PIPE, text=True) for share in shares]
    results = [json.loads(child.communicate()[0].strip().splitlines()[-1]) for child in children]
    done, began, ended = (list(column) for column in zip(*results, strict=True))
    return float(sum(done) / (max(ended) - min(began)))


def chunks_of(config: Config, folder: str | None, count: int) -> tuple[pa.Table, list[str]]:
    """Chunks as rows of the stream schema, and their prompts."""
    if folder is None:
        return synthetic(config, count)
    run = Run(config.with_paths(source=folder), NO_LIMITS)
    job, files = run.job("bench"), [file for file in run.list().files if not file.skip]
    table = pa.concat_tables(prepare_block(files_to_table(files), job, prepare, keep_documents=False))
    table = table.filter(pa.compute.equal(table["kind"], schema.EMBED)).slice(0, count)
    tokenizer = load_tokenizer(run.model)
    prompts = [chunk.prompt for file in files for chunk in prepare(file, job, tokenizer).chunks]
    return table, prompts[:count]


def synthetic(config: Config, count: int) -> tuple[pa.Table, list[str]]:
    """Random words, 100 to 206 tokens a chunk; after `UNIQUE` of them the same ones again."""
    model = load_model(config.recipe.embedding)
    tokenizer, dice, words = load_tokenizer(model), random.Random(1), vocabulary()
    unique = min(count, UNIQUE)
    texts = [
        " ".join(dice.choices(words, k=dice.randint(WORDS_PER_CHUNK - 43, WORDS_PER_CHUNK + 63))) for _ in range(unique)
    ]
    ids = [[*tokenizer.head_ids, *one.ids, *tokenizer.tail_ids] for one in tokenizer.encode(texts)]
    columns = {
        "kind": pa.repeat(pa.scalar(schema.EMBED), unique),
        "token_ids": pa.array(ids, pa.list_(pa.int32())),
        "text": pa.array(texts),
        "prompt_hash": pa.array([short_hash(text) for text in texts]),
    }
    table = schema.conform(pa.table(columns), schema.stream_schema(model.dimension))
    times = -(-count // unique)
    return pa.concat_tables([table] * times).slice(0, count), (texts * times)[:count]


Times = tuple[int, float, float]  # chunks, and the begin and end of their embedding in seconds since the epoch


def on_dataset(config: Config, table: pa.Table, engine: str) -> Times:
    """The seam itself, from a materialized Dataset to Arrow vectors."""
    import ray

    embedding = config.recipe.embedding.model_copy(update={"engine": engine})
    with ray_session(config, verbose=False):
        blocks = [table.slice(first, 512) for first in range(0, table.num_rows, 512)]
        dataset = embed(ray.data.from_blocks(blocks), load_model(embedding), embedding, config.runtime)
        receipts = dataset.map_batches(receipt, batch_size=None, batch_format="pyarrow", num_cpus=0.1).take_all()
    begins: dict[str, float] = {}
    for row in receipts:
        begins[row["engine"]] = min(row["start"], begins.get(row["engine"], row["start"]))
    all_up, end = max(begins.values()), max(row["end"] for row in receipts)
    done = sum(
        row["chunks"] * (row["end"] - max(row["start"], all_up)) / (row["end"] - row["start"])
        for row in receipts
        if row["end"] > all_up
    )
    return round(done), all_up, end


def receipt(block: pa.Table) -> pa.Table:
    """What the driver hears of a block whose vectors stay in the workers, as in a run."""
    start, end = pa.compute.min(block["engine_start"]).as_py(), pa.compute.max(block["engine_end"]).as_py()
    facts = {
        "start": start,
        "end": end,
        "engine": block["engine"][0].as_py(),
        "chunks": len(block["vector"].drop_null()),
    }
    return pa.Table.from_pylist([facts])


def documented(config: Config, texts: list[str], gpu: bool) -> Times:
    """ray.data.llm as its documentation shows it."""
    import ray
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig

    model = load_model(config.recipe.embedding)
    with ray_session(config, verbose=False):
        settings = vLLMEngineProcessorConfig(
            model_source=model.path,
            task_type="embed",
            engine_kwargs={"max_model_len": model.max_tokens, **config.recipe.embedding.engine_args},
            batch_size=32,
            concurrency=1,
            log_engine_metrics=False,  # wants a metrics package that ray[data] does not bring
            chat_template_stage=False,
            tokenize_stage=False,
            detokenize_stage=False,
            runtime_env={"env_vars": engine_environment(on_gpu=gpu)},
            **({} if gpu else {"placement_group_config": {"bundle_per_worker": {"CPU": 1}}}),
        )
        processor = build_processor(
            settings,
            preprocess=lambda row: {"prompt": row["item"]},
            postprocess=lambda row: {"vector": row["embeddings"], "at": time.time(), "took": row["time_taken_llm"]},
        )
        rows = processor(ray.data.from_items(texts)).take_all()
    return len(rows), min(row["at"] - row["took"] for row in rows), max(row["at"] for row in rows)


def alone(
    config: Config, table: pa.Table, texts: list[str] | None, gpu: bool, share: str = "0/1", one: bool = False
) -> Times:
    """`vllm.LLM` by itself, warm; `one`: in one process, by its engine core as the stage does."""
    os.environ.update(engine_environment(on_gpu=gpu))
    number, count = map(int, share.split("/"))
    if one:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    from vllm import LLM

    embedding = config.recipe.embedding
    model = load_model(embedding)
    arguments = engine_kwargs(model, embedding, config.runtime, on_gpu=gpu)
    if count > 1:
        arguments["gpu_memory_utilization"] = round(0.9 / count, 3)
    engine = None if one else LLM(model=model.path, runner="pooling", **arguments)
    core = CoreEncoder(model.path, arguments) if one else None
    rows = range(number, table.num_rows, count)
    prompts: list[Any] = [texts[row] for row in rows] if texts else table["token_ids"].take(pa.array(rows)).to_pylist()

    def run(some: list[Any]) -> None:
        if engine is not None:
            engine.embed(some if texts else [{"prompt_token_ids": ids} for ids in some], use_tqdm=False)
            return
        assert core is not None
        for first in range(0, len(some), 2048):
            core.encode(sorted(some[first : first + 2048], key=len))

    run(prompts[:WARM_UP])
    if count > 1:
        rendezvous(count)
    started = time.time()
    run(prompts)
    return len(prompts), started, time.time()


def rendezvous(count: int) -> None:
    """Waits until all processes of one parent are warm."""
    folder = Path(tempfile.gettempdir()) / f"warm-{os.getppid()}"
    folder.mkdir(exist_ok=True)
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < count:
        time.sleep(0.05)


def with_sentence_transformers(config: Config, texts: list[str], gpu: bool) -> Times:
    """sentence-transformers by itself, warm."""
    from rag_pipeline.embedding.encoder import load_sentence_transformer

    model = load_sentence_transformer(load_model(config.recipe.embedding).path).to("cuda" if gpu else "cpu")
    model.encode(texts[:WARM_UP], batch_size=256)
    started = time.time()
    model.encode(texts, batch_size=256)
    return len(texts), started, time.time()


WAYS = {
    "stage": lambda config, table, texts, gpu, share: on_dataset(config, table, "vllm"),
    "ray-llm": lambda config, table, texts, gpu, share: on_dataset(config, table, "ray-llm"),
    "documented": lambda config, table, texts, gpu, share: documented(config, texts, gpu),
    "text": lambda config, table, texts, gpu, share: alone(config, table, texts, gpu),
    "ids": lambda config, table, texts, gpu, share: alone(config, table, None, gpu),
    "inproc": lambda config, table, texts, gpu, share: alone(config, table, None, gpu, one=True),
    "ceiling": lambda config, table, texts, gpu, share: alone(config, table, None, gpu, share, one=True),
    "st": lambda config, table, texts, gpu, share: with_sentence_transformers(config, texts, gpu),
}

if __name__ == "__main__":
    main()
