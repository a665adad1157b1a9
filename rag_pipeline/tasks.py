"""What the graph's tasks do to one block of rows: prepare files, recognize known prompts, write parts.

Everything here runs in worker processes, once a block, on Arrow tables of `schema.stream_schema`; it is
safe to run twice. Knows nothing of Ray or of what is committed.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_pipeline import schema
from rag_pipeline.config import RecipeConfig, document_fingerprints
from rag_pipeline.embedding.model import Model
from rag_pipeline.embedding.tokenizer import load_tokenizer
from rag_pipeline.errors import StoreError
from rag_pipeline.records import Chunk, Document, File, Prepared, Tokenizer, Verdict, short_hash
from rag_pipeline.source import Source
from rag_pipeline.source.ahead import reading_ahead
from rag_pipeline.store import Layout
from rag_pipeline.store.documents import recall_document, write_documents
from rag_pipeline.store.parquet import write_part
from rag_pipeline.store.vectors import KeyMap, VectorIndex, fetch_vectors, to_keys

ROWS_PER_TABLE = 1024


@dataclass(frozen=True, slots=True)
class Job:
    """What every task of a run needs to know; small, and the same for all.

    Attributes:
        fingerprints: Recipe fingerprint per media type, for the manifest.
        parse_limits: What a file may take of its parser: ``timeout_s`` and ``memory_mb``.
    """

    source: Source
    recipe: RecipeConfig
    model: Model
    fingerprints: dict[str, str]
    layout: Layout
    run_id: str
    parse_limits: dict[str, Any]


Prepare = Callable[[File, Job, Tokenizer], Prepared]


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


def files_to_table(files: Sequence[File]) -> pa.Table:
    """Listed files as a block for the graph to start from."""
    return pa.Table.from_pylist([{"file": json.dumps(asdict(file))} for file in files])


def prepare_block(block: pa.Table, job: Job, prepare: Prepare, keep_documents: bool = True) -> Iterator[pa.Table]:
    """Runs `pipeline.prepare` on every file of a block; yields rows in tables of bounded size.

    Documents made anew are written to the log, so that another chunk size or filter need not parse again.
    """
    documents: dict[tuple[str, str], Document] = {}
    prints = document_fingerprints(job.recipe)
    tokenizer = load_tokenizer(job.model)
    stream = schema.stream_schema(job.model.dimension)
    rows: list[dict[str, Any]] = []
    for prepared in _prepared(block, job, prepare, tokenizer):
        verdict = prepared.verdict
        if prepared.document and verdict.chunks + sum(verdict.rejects.values()):
            documents[verdict.content_hash, prints[verdict.media_type]] = prepared.document
        for row in (*_chunk_rows(prepared.chunks, verdict), _verdict_row(verdict)):
            rows.append(row)
            if len(rows) >= ROWS_PER_TABLE:
                yield schema.rows_to_table(rows, stream)
                rows = []
    if documents and keep_documents:
        write_documents(job.layout, job.run_id, uuid.uuid4().hex, documents)
    if rows:
        yield schema.rows_to_table(rows, stream)


def _prepared(block: pa.Table, job: Job, prepare: Prepare, tokenizer: Tokenizer) -> Iterator[Prepared]:
    """Prepares a block's files one after the other, while the next ones are being read."""
    files = [File(**json.loads(text)) for text in block["file"].to_pylist()]
    with reading_ahead(job.source, [file for file in files if not file.recall]) as source:
        for file in files:
            yield prepare(file, replace(job, source=source), tokenizer)


def recall(file: File, job: Job) -> Document | None:
    """The file's cleaned document from the log, or ``None`` where it must be read and parsed."""
    try:
        return recall_document(job.layout, file.recall, file.path)
    except StoreError:  # damaged or gone: the file itself still has it
        return None


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

    def __init__(self, job: Job) -> None:
        self._known = VectorIndex.of_log(job.layout, job.model.fingerprint)
        self._owners = KeyMap()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Sets `kind` to `reused` (with `part` and `part_row`) or `twin` where it applies."""
        rows = schema.rows_of_kind(table, schema.EMBED)
        if not len(rows):
            return table
        hashes = table["prompt_hash"].take(pa.array(rows))
        parts, at = self._known.locate(hashes)
        reused = parts != None  # noqa: E711, an elementwise comparison
        prompts = to_keys(hashes)
        ids = to_keys(table["chunk_id"].take(pa.array(rows)))
        self._owners.add(prompts[~reused], ids[~reused])
        twins = ~reused & (self._owners.find(prompts) != ids)
        kinds = np.array(table["kind"].to_pylist(), dtype=object)
        kinds[rows[reused]] = schema.REUSED
        kinds[rows[twins]] = schema.TWIN
        all_parts = np.full(table.num_rows, None, dtype=object)
        all_parts[rows] = parts
        all_rows = np.zeros(table.num_rows, dtype=np.int64)
        all_rows[rows] = at
        table = schema.set_column(table, "kind", pa.array(kinds, pa.string()))
        table = schema.set_column(table, "part", pa.array(all_parts, pa.string()))
        return schema.set_column(table, "part_row", pa.array(all_rows, pa.int64()))


def write_block(table: pa.Table, job: Job) -> pa.Table:
    """Writes a block's rows that have a vector as one Parquet part.

    Returns:
        One receipt: `receipt` (JSON: part, ordinals per file, verdicts, rejects, counts, timings),
        `hashes` (the part's prompt hashes in row order) and `twins` (rows whose vector another block
        brings, as Arrow IPC).
    """
    started = time.perf_counter()
    reused = schema.rows_of_kind(table, schema.REUSED)
    if len(reused):
        places = table.select(["part", "part_row"]).take(pa.array(reused))
        parts = np.array(places["part"].to_pylist(), dtype=object)
        vectors = fetch_vectors(job.layout, parts, places["part_row"].to_numpy(), job.model.dimension)
        table = schema.fill_vectors(table, reused, vectors)
    rows = table.filter(pc.is_valid(table["vector"]))
    engine = table.filter(pc.equal(table["kind"], schema.EMBEDDED))
    rejected = table.filter(pc.equal(table["kind"], schema.REJECTED))
    twins = table.filter(pc.equal(table["kind"], schema.TWIN))
    receipt = {
        "part": write_rows(rows, job) if rows.num_rows else None,
        "ordinals": ordinals_by_doc(rows),
        "verdicts": [text for text in table["verdict"].to_pylist() if text],
        "rejects": rejected.select(["doc_id", "ordinal", "reason", "prompt_hash"]).to_pylist(),
        "embedded": engine.num_rows,
        "reused": len(reused),
        "twins": twins.num_rows,
        "tokens": pc.sum(engine["token_count"]).as_py() or 0,
        "engines": engine_times(engine),
        "write_s": time.perf_counter() - started,
    }
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
    full = schema.conform(rows, schema.chunk_schema(job.model.dimension, job.model.storage))
    return write_part(job.layout.files, job.layout.run_parts(job.run_id), full, job.model.to_json())


def ordinals_by_doc(rows: pa.Table) -> dict[str, list[int]]:
    """Which chunks of which file a table holds."""
    found: dict[str, list[int]] = defaultdict(list)
    for doc_id, ordinal in zip(rows["doc_id"].to_pylist(), rows["ordinal"].to_pylist(), strict=True):
        found[doc_id].append(ordinal)
    return found


def engine_times(rows: pa.Table) -> list[tuple[str, float, float]]:
    """Engine, begin and end of the batches that embedded rows came from, in seconds since the epoch."""
    times = rows.group_by("engine").aggregate([("engine_start", "min"), ("engine_end", "max")])
    return [tuple(one.values()) for one in times.to_pylist()]


def to_ipc(table: pa.Table) -> bytes:
    """A table as Arrow IPC bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def from_ipc(data: bytes) -> pa.Table:
    """The table that `to_ipc` wrote."""
    return pa.ipc.open_stream(data).read_all()
