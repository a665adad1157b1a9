"""The embedding stage beside `vllm.LLM.embed` alone, on the same chunks, in one run.

usage: python scripts/bench/embed_stage.py FOLDER [--rounds N] [--limit CHUNKS]

Prepares FOLDER's chunks once, then in turn: the pipeline's own embedding stage (`embedding.embed` on a Ray
Dataset of the stream schema; rate by its engine-busy seconds, as runs report it; `stage` is engine `vllm`,
`offline` is `vllm-offline`) and `vllm.LLM.embed` on the
same prompts as text and as token ids, each in a fresh process with the same engine arguments and thread
binding; start-up is not counted. Prints one line a measurement and the ratios of the medians.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from rag_pipeline import schema
from rag_pipeline.commit import BusyTime
from rag_pipeline.config import Config
from rag_pipeline.embedding import embed
from rag_pipeline.embedding.model import load_model
from rag_pipeline.embedding.tokenizer import load_tokenizer
from rag_pipeline.embedding.vllm import engine_environment, engine_kwargs
from rag_pipeline.pipeline import prepare
from rag_pipeline.records import NO_LIMITS
from rag_pipeline.run import Run
from rag_pipeline.session import ray_session
from rag_pipeline.tasks import files_to_table, prepare_block


def main() -> None:
    """Runs all measurements, or one of them as a child."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=int, default=10**9)
    parser.add_argument("--child", choices=list(CHILDREN))
    parser.add_argument("--gpu", action="store_true")
    args = parser.parse_args()
    if args.child:
        print(json.dumps(CHILDREN[args.child](args.folder, args.gpu)))
        return
    table, prompts = chunks_of(args.folder, args.limit)
    tokens = sum(table["token_count"].to_pylist())
    print(f"{table.num_rows} chunks, {tokens / table.num_rows:.0f} tokens on average", flush=True)
    rates: dict[str, list[float]] = {name: [] for name in CHILDREN}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "chunks.pickle"
        file.write_bytes(pickle.dumps((table, prompts)))
        for _ in range(args.rounds):
            for name in CHILDREN:
                command = [sys.executable, __file__, str(file), "--child", name, *(["--gpu"] if args.gpu else [])]
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
                result = json.loads(done.stdout.strip().splitlines()[-1])
                rates[name].append(result["chunks_per_s"])
                print(name, json.dumps(result), flush=True)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    print("medians, chunks/s:", {name: round(value, 1) for name, value in medians.items()})
    for name in ("stage", "offline"):
        print(
            f"{name} / LLM.embed text: {medians[name] / medians['text']:.2f}, ids: {medians[name] / medians['ids']:.2f}"
        )


def chunks_of(folder: str, limit: int) -> tuple[pa.Table, list[str]]:
    """A folder's chunks as rows of the stream schema, and their prompts."""
    config = Config().with_paths(source=folder)
    model = load_model(config.recipe.embedding)
    run = Run(config, NO_LIMITS)
    job, files = run.job("bench"), [file for file in run.list().files if not file.skip]
    table = pa.concat_tables(prepare_block(files_to_table(files), job, prepare, keep_documents=False))
    table = table.filter(pa.compute.equal(table["kind"], schema.EMBED)).slice(0, limit)
    tokenizer = load_tokenizer(model)
    prompts = [chunk.prompt for file in files for chunk in prepare(file, job, tokenizer).chunks]
    return table, prompts[:limit]


def run_stage(file: str, engine: str) -> dict[str, float]:
    """The seam itself, from a materialized Dataset to Arrow vectors."""
    import ray

    table, _ = pickle.loads(Path(file).read_bytes())
    config = Config.model_validate({"recipe": {"embedding": {"engine": engine}}})
    model = load_model(config.recipe.embedding)
    with ray_session(config, verbose=False):
        blocks = [table.slice(first, 240) for first in range(0, table.num_rows, 240)]
        dataset = embed(ray.data.from_arrow(blocks), model, config.recipe.embedding, config.runtime)
        started = time.time()
        engine, chunks = BusyTime(), 0
        for block in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
            for span in set(zip(block["engine_start"].to_pylist(), block["engine_end"].to_pylist(), strict=True)):
                engine.add(*span)
            chunks += block.num_rows
        ended = time.time()
    return {"chunks_per_s": chunks / engine.seconds, "busy_s": engine.seconds, "wall_with_start_s": ended - started}


def run_llm(file: str, gpu: bool, as_text: bool) -> dict[str, float]:
    """`vllm.LLM.embed` alone, on a warm engine."""
    os.environ.update(engine_environment(on_gpu=gpu))
    from vllm import LLM

    table, texts = pickle.loads(Path(file).read_bytes())
    config = Config()
    model = load_model(config.recipe.embedding)
    engine = LLM(model=model.path, runner="pooling", **engine_kwargs(model, config.recipe.embedding, on_gpu=gpu))
    prompts = texts if as_text else [{"prompt_token_ids": ids} for ids in table["token_ids"].to_pylist()]
    engine.embed(prompts[:64], use_tqdm=False)
    started = time.time()
    engine.embed(prompts, use_tqdm=False)
    seconds = time.time() - started
    return {"chunks_per_s": len(prompts) / seconds, "seconds": seconds}


CHILDREN = {
    "stage": lambda file, gpu: run_stage(file, "vllm"),
    "offline": lambda file, gpu: run_stage(file, "vllm-offline"),
    "text": lambda file, gpu: run_llm(file, gpu, as_text=True),
    "ids": lambda file, gpu: run_llm(file, gpu, as_text=False),
}

if __name__ == "__main__":
    main()
