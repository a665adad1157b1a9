"""The real engine: vLLM through ray.data.llm with the real MiniLM weights. Slow, few, and never mocked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import vllm_config

from rag_pipeline import errors, pipeline, schema, search
from rag_pipeline.config import EmbeddingConfig
from rag_pipeline.embedding import embed
from rag_pipeline.embedding.encoder import encode_prompts
from rag_pipeline.embedding.engine_args import engine_environment
from rag_pipeline.embedding.model import load_model
from rag_pipeline.embedding.tokenizer import load_tokenizer
from rag_pipeline.records import NO_LIMITS, Report
from rag_pipeline.run import Run
from rag_pipeline.schema import from_vectors
from rag_pipeline.store import Layout
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.tasks import Job, files_to_table, prepare_block

pytestmark = pytest.mark.engine


def stream_of(folder: Path, dtype: str) -> tuple[Job, pa.Table, list[str]]:
    """A folder's rows as they reach the engine, and the prompts of its chunks."""
    config = vllm_config(folder, folder.parent / "unused", dtype)
    model = load_model(config.recipe.embedding)
    run = Run(config, NO_LIMITS)
    job, files = run.job("test"), [file for file in run.list().files if not file.skip]
    tokenizer = load_tokenizer(model)
    prompts = [chunk.prompt for file in files for chunk in pipeline.prepare(file, job, tokenizer).chunks]
    return (
        job,
        pa.concat_tables(prepare_block(files_to_table(files), job, pipeline.prepare, keep_documents=False)),
        prompts,
    )


@pytest.mark.parametrize(
    ("engine", "dtype", "least"),
    [
        ("ray-llm", "float32", 0.99999),
        ("vllm", "float32", 0.99999),
        ("vllm", "bfloat16", 0.999),
        ("sentence-transformers", "float32", 0.99999),
    ],
)
def test_vectors_equal_sentence_transformers(
    engine: str, dtype: str, least: float, sample_docs: Path, tmp_path: Path, ray_once: None
) -> None:
    """The engine's vectors have a cosine of at least this with sentence-transformers fp32 on the same prompts."""
    import ray

    shutil.copy(sample_docs / "notes" / "faq.md", tmp_path)
    job, table, prompts = stream_of(tmp_path, dtype)
    # A prompt the engine must refuse, and rows that must pass it by.
    broken = table.slice(0, 1).to_pylist()[0] | {"token_ids": list(range(1000, 1400)), "ordinal": 9999}
    table = pa.concat_tables([table, schema.rows_to_table([broken], table.schema)])
    config = vllm_config(tmp_path, tmp_path, dtype, engine)
    dataset = embed(ray.data.from_arrow(table), job.model, config.recipe.embedding, config.runtime)
    out = pa.concat_tables(dataset.iter_batches(batch_size=None, batch_format="pyarrow"))
    assert out.schema.equals(schema.stream_schema(384))
    by_kind: dict[str, list[dict[str, object]]] = {}
    for row in out.to_pylist():
        by_kind.setdefault(row["kind"], []).append(row)
    assert {kind: len(rows) for kind, rows in by_kind.items()} == {
        schema.EMBEDDED: len(prompts),
        schema.REJECTED: 1,
        schema.VERDICT: 1,
    }
    assert by_kind[schema.REJECTED][0]["ordinal"] == 9999
    assert str(by_kind[schema.REJECTED][0]["reason"]).startswith("engine: ")
    made = out.filter(pa.compute.equal(out["kind"], schema.EMBEDDED)).sort_by("ordinal")
    cosines = np.sum(from_vectors(made["vector"]) * encode_prompts(job.model, prompts), axis=1)
    assert cosines.min() >= least


def test_the_model_is_recorded_on_the_table(real_index: tuple[Path, Report]) -> None:
    """Model, revision, dimension, pooling, normalization and prefixes stand on the table itself."""
    recorded = ChunkTable.open(Layout.at(real_index[0])).embedding
    model = load_model(EmbeddingConfig())
    assert recorded["name"] == "sentence-transformers/all-MiniLM-L6-v2"
    assert recorded["revision"] == model.revision and recorded["fingerprint"] == model.fingerprint
    assert (recorded["dimension"], recorded["pooling"], recorded["normalize"]) == (384, "mean", True)
    assert recorded["document_prefix"] == recorded["query_prefix"] == "" and recorded["path"] == ""


@pytest.mark.parametrize(
    ("question", "path", "words"),
    [
        ("How often is the tide gauge calibrated?", "handbook/instrument-handbook.pdf", "90 days"),
        ("What do I do when the sensor freezes?", "handbook/instrument-handbook.pdf", "freez"),
        ("How many good minutes does an hourly mean need?", "notes/data-tool.md", "45"),
    ],
)
def test_questions_find_the_cited_place(question: str, path: str, words: str, real_index: tuple[Path, Report]) -> None:
    """A question's first hit is the passage that answers it, with page and section."""
    hits = search.query(vllm_config(real_index[0], real_index[0]), question, k=3)
    assert hits[0].path == path and words in hits[0].text
    assert hits[0].section and (hits[0].page is not None) == path.endswith(".pdf")
    assert hits[0].score > hits[1].score > 0


def test_the_report_tells_the_engine_s_throughput(real_index: tuple[Path, Report]) -> None:
    """A real run embeds every chunk once and reports chunks and tokens per second."""
    report = real_index[1]
    assert report.exit_code == errors.EXIT_FILES_FAILED
    assert report.chunks["written"] == report.chunks["embedded"] > 80
    assert report.throughput["chunks_per_s"] > 0 and report.throughput["tokens_per_s"] > 0
    assert report.stages["embed"]["rows"] == report.chunks["embedded"]
    stored = json.loads((real_index[0] / "runs" / f"{report.run_id}.json").read_text())
    assert stored["throughput"] == report.throughput


_THREADS = """
import json, pathlib
from rag_pipeline.config import EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding.engine_args import engine_kwargs
from rag_pipeline.embedding.engine_core import CoreEncoder
from rag_pipeline.embedding.golden import check_golden
from rag_pipeline.embedding.model import load_model

config = EmbeddingConfig(dtype="float32")
model = load_model(config)
engine = CoreEncoder(model.path, engine_kwargs(model, config, RuntimeConfig(), on_gpu=False))
check_golden(model, engine.encode, "the engine")
print(json.dumps([file.read_text().strip() for file in pathlib.Path("/proc/self/task").glob("*/comm")]))
"""


def test_an_engine_of_one_process_keeps_no_threads_that_wait_for_other_processes() -> None:
    """On a CPU vLLM's process groups are ended after the start, and the engine still makes the right vectors."""
    variables = os.environ | engine_environment(on_gpu=False)
    command = [sys.executable, "-c", _THREADS]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)
    threads = next((json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")), None)
    assert threads, done.stderr[-2000:]
    assert not [name for name in threads if "gloo" in name]
