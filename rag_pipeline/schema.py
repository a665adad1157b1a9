"""The Arrow schemas: the chunk row both sinks carry, the manifest row, and the row that streams between them.

Also the two conversions every writer needs: vectors to a fixed-size list, and any table to one schema.
Knows nothing of where rows come from or go to.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# What a row of the stream is about. A file's rows travel together: its chunks, then its verdict.
EMBED = "embed"  # a chunk whose prompt must go to the engine
EMBEDDED = "embedded"  # a chunk whose vector the engine made in this run
REUSED = "reused"  # a chunk whose vector the log has, in row `part_row` of `part`
TWIN = "twin"  # a chunk whose prompt is being embedded elsewhere in this run
REJECTED = "rejected"  # a chunk the engine refused; `reason` says why
VERDICT = "verdict"  # the end of a file: `verdict` holds its records.Verdict as JSON

_IDENTITY = [
    pa.field("chunk_id", pa.string()),
    pa.field("doc_id", pa.string()),
    pa.field("path", pa.string()),
    pa.field("content_hash", pa.string()),
    pa.field("ordinal", pa.int32()),
    pa.field("page", pa.int32()),
    pa.field("section", pa.list_(pa.string())),
    pa.field("start_char", pa.int64()),
    pa.field("end_char", pa.int64()),
    pa.field("text", pa.string()),
    pa.field("token_count", pa.int32()),
    pa.field("prompt_hash", pa.string()),
]


def chunk_schema(dimension: int, storage: str = "float32", metadata: dict[str, str] | None = None) -> pa.Schema:
    """The row of `chunks.lance` and of the Parquet log; `vector` is fixed_size_list<storage>[dimension].

    `storage` is ``float32`` or ``float16``; vectors are float32 wherever they are computed with.
    """
    fields = [
        *_IDENTITY,
        pa.field("embedding_fingerprint", pa.string()),
        pa.field("vector", pa.list_({"float32": pa.float32(), "float16": pa.float16()}[storage], dimension)),
        pa.field("run_id", pa.string()),
    ]
    return pa.schema(fields, metadata=metadata)


def stream_schema(dimension: int) -> pa.Schema:
    """The row that flows through the graph: a chunk on its way, or a file's verdict."""
    return pa.schema(
        [
            *_IDENTITY,
            pa.field("kind", pa.string()),
            pa.field("token_ids", pa.list_(pa.int32())),
            pa.field("vector", pa.list_(pa.float32(), dimension)),
            pa.field("part", pa.string()),
            pa.field("part_row", pa.int64()),
            pa.field("reason", pa.string()),
            pa.field("verdict", pa.string()),
            pa.field("engine", pa.string()),
            pa.field("engine_start", pa.float64()),
            pa.field("engine_end", pa.float64()),
        ]
    )


FILES_SCHEMA = pa.schema(
    [
        pa.field("path", pa.string()),
        pa.field("doc_id", pa.string()),
        pa.field("state", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("media_type", pa.string()),
        pa.field("title", pa.string()),
        pa.field("size_bytes", pa.int64()),
        pa.field("mtime_ns", pa.int64()),
        pa.field("etag", pa.string()),
        pa.field("content_hash", pa.string()),
        pa.field("pages", pa.int32()),
        pa.field("chunks", pa.int32()),
        pa.field("tokens", pa.int64()),
        pa.field("rejects", pa.string()),
        pa.field("characters", pa.int64()),
        pa.field("replaced_chars", pa.int64()),
        pa.field("repaired", pa.bool_()),
        pa.field("ocr_pages", pa.int32()),
        pa.field("metadata", pa.string()),
        pa.field("fingerprint", pa.string()),
        pa.field("run_id", pa.string()),
        pa.field("indexed_at", pa.timestamp("us", tz="UTC")),
    ]
)


def to_vectors(values: np.ndarray, mask: np.ndarray | None = None) -> pa.FixedSizeListArray:
    """Wraps float32 [rows, dimension] as an Arrow fixed-size list without copying; mask is true where null."""
    flat = pa.array(np.ascontiguousarray(values, dtype=np.float32).reshape(-1))
    nulls = None if mask is None else pa.array(mask)
    return pa.FixedSizeListArray.from_arrays(flat, values.shape[1], mask=nulls)


def from_vectors(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Reads a fixed-size list column of any float type, without nulls, as float32 [rows, dimension]."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    dimension = array.type.list_size
    return np.asarray(array.flatten(), dtype=np.float32).reshape(-1, dimension)


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Gives a table exactly this schema: columns added as null, surplus dropped, types cast."""
    columns = []
    for wanted in schema:
        if wanted.name in table.column_names:
            column = table.column(wanted.name)
            columns.append(column if column.type == wanted.type else column.cast(wanted.type))
        else:
            columns.append(pa.nulls(table.num_rows, wanted.type))
    return pa.Table.from_arrays(columns, schema=schema)


def rows_to_table(rows: Iterable[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Builds a table of one schema from dicts; missing keys become null."""
    return pa.Table.from_pylist(list(rows), schema=schema)


def rows_of_kind(table: pa.Table, kind: str) -> np.ndarray:
    """Row numbers of one kind, int64."""
    return np.flatnonzero(pc.equal(table["kind"], kind).to_numpy(zero_copy_only=False))


def set_column(table: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Replaces a column by name."""
    position = table.column_names.index(name)
    return table.set_column(position, table.schema.field(position), column)


def fill_vectors(table: pa.Table, rows: np.ndarray, vectors: np.ndarray) -> pa.Table:
    """Puts float32 [len(rows), dimension] into the vector column at these row numbers; the others stay."""
    dimension = vectors.shape[1]
    column = table["vector"].combine_chunks()
    values = np.zeros((table.num_rows, dimension), dtype=np.float32)
    known = ~column.is_null().to_numpy(zero_copy_only=False)
    values[known] = from_vectors(column.drop_null())
    values[rows] = vectors
    known[rows] = True
    return set_column(table, "vector", to_vectors(values, ~known))


def reject_rows(table: pa.Table, reasons: dict[int, str]) -> pa.Table:
    """Marks rows, by number, as refused by the engine."""
    if not reasons:
        return table
    kinds, texts = table["kind"].to_pylist(), table["reason"].to_pylist()
    for row, reason in reasons.items():
        kinds[row], texts[row] = REJECTED, reason
    table = set_column(table, "kind", pa.array(kinds, pa.string()))
    return set_column(table, "reason", pa.array(texts, pa.string()))


def put_vectors(
    table: pa.Table, rows: np.ndarray, vectors: np.ndarray, started: float, ended: float, engine: str = ""
) -> pa.Table:
    """Marks rows as embedded: vector, kind, the engine and its time, in seconds since the epoch; ids are dropped.

    `engine` tells engines of one run apart; without it they count as one.
    """
    table = fill_vectors(table, rows, vectors)
    mask = np.zeros(table.num_rows, dtype=bool)
    mask[rows] = True
    table = set_column(table, "kind", pc.if_else(pa.array(mask), EMBEDDED, table["kind"]))
    for name, value in (("engine", engine), ("engine_start", started), ("engine_end", ended)):
        table = set_column(table, name, pc.if_else(pa.array(mask), value, table[name]))
    return set_column(table, "token_ids", pa.nulls(table.num_rows, table.schema.field("token_ids").type))


def put_results(
    table: pa.Table, rows: np.ndarray, vectors: np.ndarray, refused: dict[int, str], started: float, engine: str = ""
) -> pa.Table:
    """What an engine made of these rows until now: vectors float32 [len(rows), dimension], and reasons by position."""
    made = np.array([number for number in range(len(rows)) if number not in refused], dtype=np.int64)
    table = put_vectors(table, rows[made], vectors[made], started, time.time(), engine)
    return reject_rows(table, {int(rows[number]): reason for number, reason in refused.items()})
