"""What a question costs on a large table: milliseconds by mode, recall of the vector index, time of upkeep.

usage: python scripts/bench/query.py INDEX QUERIES.jsonl [--rows N] [--add N] [--at DIR]

Takes the rows of a real index and makes N of them: texts are sentences of different rows put together, vectors
mixtures of real ones with noise. The questions are real (lines with `query`, as `eval` reads them).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from rag_pipeline.config import Config
from rag_pipeline.evaluate import load_questions
from rag_pipeline.records import doc_id_of, short_hash
from rag_pipeline.schema import chunk_schema, conform, from_vectors, to_vectors
from rag_pipeline.search import MODES, Searcher
from rag_pipeline.store import Layout
from rag_pipeline.store.lance import ChunkTable

_BATCH = 10_000
_ROWS_OF_A_FILE = 10


def main() -> None:
    """Builds the table, or takes the one built before, and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("index")
    parser.add_argument("queries", type=Path)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--add", type=int, default=1000, help="rows added afterwards, to time upkeep with a tail")
    parser.add_argument("--at", help="where to build, or a table built before")
    args = parser.parse_args()
    questions = [question.query for question in load_questions(args.queries)]
    layout = Layout.at(args.at or tempfile.mkdtemp())
    layout.make()
    config = Config.model_validate({"output": str(layout.root)})
    if ChunkTable.exists(layout):
        ChunkTable.open(layout).upkeep(config.runtime)  # its index may be one of other settings
    else:
        build(ChunkTable.open(Layout.at(args.index)), layout, args.rows, args.add, config)
    searcher = Searcher(config)
    table = searcher.table()
    print(f"{table.count()} rows, not in the vector index: {table.unindexed_rows()}")
    vectors = [searcher.vector(table, question) for question in questions]
    print_times("encoder", [timed(lambda q=q: searcher.vector(table, q)) for q in questions])
    print_times("nearest", [timed(lambda v=v: table.nearest(v, 10, None, ["chunk_id"])) for v in vectors])
    for mode in MODES:
        print_times(mode, [timed(lambda q=q, m=mode: searcher.query(q, k=10, mode=m)) for q in questions])
    print(f"recall@10 of the vector index: {recall(table, vectors):.4f}")


def build(source: ChunkTable, layout: Layout, rows: int, add: int, config: Config) -> None:
    """Fills the table and times upkeep: first all indexes, then a tail of `add` rows."""
    real = pa.concat_tables(source.scan())
    embedding = json.dumps(source.embedding)
    table = ChunkTable.create(layout, source.embedding["dimension"], embedding)
    dice = np.random.default_rng(0)
    for first in range(0, rows, _BATCH):
        table.add(synthetic(real, first, min(_BATCH, rows - first), dice))
    print(f"upkeep of {rows} new rows: {timed(lambda: table.upkeep(config.runtime)) / 1e3:.1f} s")
    table.add(synthetic(real, rows, add, dice))
    print(f"upkeep of {add} more: {timed(lambda: table.upkeep(config.runtime)) / 1e3:.1f} s")


def synthetic(real: pa.Table, start: int, count: int, dice: np.random.Generator) -> pa.RecordBatchReader:
    """Rows that are like the real ones and no two alike."""
    vectors = from_vectors(real["vector"])
    sentences = [part.strip() for text in real["text"].to_pylist() for part in text.split(" . ") if part.strip()]
    one, two = dice.integers(0, len(vectors), (2, count))
    mixed = 0.7 * vectors[one] + 0.3 * vectors[two] + dice.normal(0, 0.02, (count, vectors.shape[1]))
    mixed = (mixed / np.linalg.norm(mixed, axis=1, keepdims=True)).astype(np.float32)
    numbers = range(start, start + count)
    texts = [" . ".join(sentences[n] for n in dice.integers(0, len(sentences), 6)) for _ in numbers]
    begins = real["start_char"].to_numpy()[one]
    columns = {
        "chunk_id": [short_hash("chunk", str(n)) for n in numbers],
        "doc_id": [doc_id_of(f"file{n // _ROWS_OF_A_FILE}.txt") for n in numbers],
        "path": [f"file{n // _ROWS_OF_A_FILE}.txt" for n in numbers],
        "ordinal": pa.array([n % _ROWS_OF_A_FILE for n in numbers], pa.int32()),
        "page": real["page"].take(pa.array(one)),
        "section": real["section"].take(pa.array(one)),
        "start_char": pa.array(begins),
        "end_char": pa.array(begins + [len(text) for text in texts]),
        "text": texts,
        "vector": to_vectors(mixed),
    }
    table = conform(pa.table(columns), chunk_schema(vectors.shape[1]))
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())


def recall(table: ChunkTable, vectors: list[np.ndarray]) -> float:
    """Share of the ten truly nearest that the index finds."""
    everything = pa.concat_tables(table.scan())
    matrix, ids = from_vectors(everything["vector"]), np.array(everything["chunk_id"].to_pylist())
    found = 0
    for vector in vectors:
        wanted = set(ids[np.argpartition(-(matrix @ vector), 10)[:10]])
        found += len(wanted & set(table.nearest(vector, 10, None, ["chunk_id"])["chunk_id"].to_pylist()))
    return found / (10 * len(vectors))


def timed(work: object) -> float:
    """Milliseconds of one call."""
    started = time.perf_counter()
    work()  # type: ignore[operator]
    return (time.perf_counter() - started) * 1e3


def print_times(name: str, times_ms: list[float]) -> None:
    """One line; the first few calls, which warm caches, are left out."""
    low, p50, p95 = np.percentile(times_ms[5:], [5, 50, 95])
    print(f"{name:<8} p5 {low:6.1f}  p50 {p50:6.1f}  p95 {p95:6.1f} ms")


if __name__ == "__main__":
    main()
