"""What the graph's tasks do to one block of rows: prepare files, recognize known prompts, write parts.

Everything here runs in worker processes, once a block, on Arrow tables of `schema.stream_schema`; it is
safe to run twice. Knows nothing of Ray or of what is committed.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_pipeline import schema
from rag_pipeline.config import RecipeConfig
from rag_pipeline.embedding.model import Model
from rag_pipeline.embedding.tokenizer import load_tokenizer
from rag_pipeline.records import Chunk, File, Verdict, short_hash
from rag_pipeline.source import Source
from rag_pipeline.store import Layout
from rag_pipeline.store.parquet import write_part
from rag_pipeline.store.vectors import KeyMap, VectorIndex, to_keys

ROWS_PER_TABLE = 1024


@dataclass(frozen=True, slots=True)
class Job:
    """What every task of a run needs to know; small, and the same for all.

    Attributes:
        fingerprints: Recipe fingerprint per media type, for the manifest.
    """

    source: Source
    recipe: RecipeConfig
    model: Model
    fingerprints: dict[str, str]
    layout: Layout
    run_id: str


class Clock:
    """Busy seconds per stage."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Times a block, also one that raises."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - started


def files_to_table(files: list[File]) -> pa.Table:
    """Listed files as a block for the graph to start from."""
    return pa.Table.from_pylist([{"file": json.dumps(asdict(file))} for file in files])


def prepare_block(block: pa.Table, job: Job, prepare: Any) -> Iterator[pa.Table]:
    """Runs `pipeline.prepare` on every file of a block; yields rows in tables of bounded size."""
    tokenizer = load_tokenizer(job.model)
    stream = schema.stream_schema(job.model.dimension)
    rows: list[dict[str, Any]] = []
    for text in block["file"].to_pylist():
        file = File(**json.loads(text))
        chunks, verdict = prepare(file, job, tokenizer)
        for row in (*_chunk_rows(chunks, verdict), _verdict_row(verdict)):
            rows.append(row)
            if len(rows) >= ROWS_PER_TABLE:
                yield schema.rows_to_table(rows, stream)
                rows = []
    if rows:
        yield schema.rows_to_table(rows, stream)


def _chunk_rows(chunks: list[Chunk], verdict: Verdict) -> Iterator[dict[str, Any]]:
    """Rows of a file's chunks. A chunk's id survives edits elsewhere in its file: it counts equal prompts only."""
    seen: Counter[str] = Counter()
    for ordinal, chunk in enumerate(chunks):
        prompt_hash = chunk.prompt_hash
        seen[prompt_hash] += 1
        yield {
            "chunk_id": short_hash(verdict.doc_id, prompt_hash, str(seen[prompt_hash])),
            "doc_id": verdict.doc_id,
            "path": verdict.path,
            "content_hash": verdict.content_hash,
            "ordinal": ordinal,
            "page": chunk.page,
            "section": list(chunk.section),
            "start_char": chunk.start_char,
            "end_char": chunk.end_char,
            "text": chunk.text,
            "token_count": len(chunk.token_ids),
            "prompt_hash": prompt_hash,
            "kind": schema.EMBED,
            "token_ids": chunk.token_ids,
        }


def _verdict_row(verdict: Verdict) -> dict[str, Any]:
    return {"kind": schema.VERDICT, "doc_id": verdict.doc_id, "verdict": json.dumps(asdict(verdict))}


class Reuse:
    """Marks chunks whose prompt needs no engine: known to the log, or under way elsewhere in this run.

    One instance sees every block of a run. The first chunk with a prompt owns it, the others are its
    twins; who owns what is remembered by chunk id, so that a block that runs twice is judged alike.
    """

    def __init__(self, known: VectorIndex) -> None:
        self._known = known
        self._owners = KeyMap()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Sets `kind` to `reused` or `twin` where it applies and drops those rows' token ids."""
        rows = np.flatnonzero(pc.equal(table["kind"], schema.EMBED).to_numpy(zero_copy_only=False))
        if not len(rows):
            return table
        hashes = table["prompt_hash"].take(pa.array(rows))
        reused = self._known.contains(hashes)
        prompts = to_keys(hashes)
        ids = to_keys(table["chunk_id"].take(pa.array(rows)))
        self._owners.add(prompts[~reused], ids[~reused])
        twins = ~reused & (self._owners.find(prompts) != ids)
        kinds = table["kind"].to_pylist()
        for mask, kind in ((reused, schema.REUSED), (twins, schema.TWIN)):
            for row in rows[mask]:
                kinds[row] = kind
        table = schema.set_column(table, "kind", pa.array(kinds, pa.string()))
        embed = pc.equal(table["kind"], schema.EMBED)
        ids_column = pc.if_else(embed, table["token_ids"], pa.scalar(None, table["token_ids"].type))
        return schema.set_column(table, "token_ids", ids_column)


def write_block(table: pa.Table, job: Job, known: VectorIndex) -> pa.Table:
    """Writes a block's rows that have a vector as one Parquet part.

    Returns:
        One receipt: `receipt` (JSON: part, rows and ordinals per file, verdicts, rejects, timings),
        `hashes` (the part's prompt hashes in row order) and `twins` (rows whose vector another block
        brings, as Arrow IPC).
    """
    started = time.perf_counter()
    reused = np.flatnonzero(pc.equal(table["kind"], schema.REUSED).to_numpy(zero_copy_only=False))
    lost = np.zeros(0, dtype=np.int64)
    if len(reused):
        vectors, found = known.fetch(table["prompt_hash"].take(pa.array(reused)), job.model.dimension)
        table = schema.fill_vectors(table, reused[found], vectors[found])
        lost = reused[~found]
    kind = table["kind"]
    rows = table.filter(pc.is_valid(table["vector"]))
    part = write_rows(rows, job) if rows.num_rows else None
    engine = table.filter(pc.equal(kind, schema.EMBEDDED))
    rejected = table.filter(pc.equal(kind, schema.REJECTED)).select(["doc_id", "ordinal", "reason", "prompt_hash"])
    receipt = {
        "part": part,
        "ordinals": ordinals_by_doc(rows),
        "verdicts": [text for text in table["verdict"].to_pylist() if text],
        "rejects": [list(row.values()) for row in rejected.to_pylist()]
        + [[*row.values(), "its vector left the log", ""] for row in table.take(lost).select(["doc_id", "ordinal"]).to_pylist()],
        "embedded": engine.num_rows,
        "reused": len(reused),
        "twins": pc.sum(pc.equal(kind, schema.TWIN)).as_py() or 0,
        "tokens": pc.sum(engine["token_count"]).as_py() or 0,
        "engine": [pc.min(engine["engine_start"]).as_py(), pc.max(engine["engine_end"]).as_py()],
        "write_s": time.perf_counter() - started,
    }
    twins = table.filter(pc.equal(kind, schema.TWIN))
    return pa.table(
        {
            "receipt": [json.dumps(receipt)],
            "hashes": ["".join(rows["prompt_hash"].to_pylist())],
            "twins": pa.array([to_ipc(twins) if twins.num_rows else None], pa.binary()),
        }
    )


def write_rows(rows: pa.Table, job: Job) -> str:
    """Writes stream rows with vectors as one part of the run, in the log's schema; returns its name."""
    constants = {"embedding_fingerprint": job.model.fingerprint, "run_id": job.run_id}
    for name, value in constants.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.string()), rows.num_rows))
    full = schema.conform(rows, schema.chunk_schema(job.model.dimension))
    return write_part(job.layout.run_parts(job.run_id), full, job.model.fingerprint)


def ordinals_by_doc(rows: pa.Table) -> dict[str, list[int]]:
    """Which chunks of which file a table holds."""
    found: dict[str, list[int]] = defaultdict(list)
    for doc_id, ordinal in zip(rows["doc_id"].to_pylist(), rows["ordinal"].to_pylist(), strict=True):
        found[doc_id].append(ordinal)
    return found


def to_ipc(table: pa.Table) -> bytes:
    """A table as Arrow IPC bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def from_ipc(data: bytes) -> pa.Table:
    """The table that `to_ipc` wrote."""
    return pa.ipc.open_stream(data).read_all()


