"""The LanceDB table `chunks`: what queries read. Files are swapped whole, each swap one version.

Knows nothing of files on disk or of why rows change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from rag_pipeline.errors import ConfigError, IndexMissingError
from rag_pipeline.schema import chunk_schema
from rag_pipeline.store import Layout, store_errors

TABLE = "chunks"
_METADATA = "rag_pipeline.embedding"
_HEX = re.compile(r"[0-9a-f]{32}")
_OPTIMIZE_AFTER_FRAGMENTS = 32


class ChunkTable:
    """The table of current chunks."""

    def __init__(self, layout: Layout, table: Any) -> None:
        self._layout = layout
        self._table = table

    @classmethod
    def open(cls, layout: Layout) -> ChunkTable:
        """Opens the table for reading.

        Raises:
            IndexMissingError: There is none.
        """
        if not (layout.lancedb / f"{TABLE}.lance").exists():
            raise IndexMissingError(
                f"index {layout.root}: holds no table; run `rag-pipeline index` first, or check --index"
            )
        import lancedb

        with store_errors("opening the table", layout.lancedb):
            return cls(layout, lancedb.connect(str(layout.lancedb)).open_table(TABLE))

    @classmethod
    def create(cls, layout: Layout, dimension: int, embedding: str) -> ChunkTable:
        """Creates an empty table; `embedding` (JSON of the model) is recorded on it."""
        import lancedb

        schema = chunk_schema(dimension, {_METADATA: embedding})
        with store_errors("creating the table", layout.lancedb):
            return cls(layout, lancedb.connect(str(layout.lancedb)).create_table(TABLE, schema=schema))

    @classmethod
    def exists(cls, layout: Layout) -> bool:
        """Whether there is a table."""
        return (layout.lancedb / f"{TABLE}.lance").exists()

    @property
    def embedding(self) -> dict[str, Any]:
        """The model the table was made with, as recorded."""
        recorded = (self._table.schema.metadata or {}).get(_METADATA.encode())
        return dict(json.loads(recorded)) if recorded else {}

    @property
    def schema(self) -> pa.Schema:
        """The table's Arrow schema."""
        return self._table.schema

    def count(self) -> int:
        """Rows of the current version."""
        return int(self._table.count_rows())

    def doc_ids(self) -> set[str]:
        """Files that have rows."""
        if not self.count():
            return set()
        rows = self._table.search().select(["doc_id"]).limit(self.count()).to_arrow()
        return set(rows.column("doc_id").unique().to_pylist())

    def add(self, rows: pa.RecordBatchReader) -> None:
        """Appends rows of files that have none yet, as one version."""
        with store_errors("adding rows to the table", self._layout.lancedb):
            self._table.add(rows)

    def swap(self, doc_ids: Iterable[str], rows: pa.RecordBatchReader) -> None:
        """Replaces all rows of these files by the given ones, as one version. Rows must have unique chunk ids."""
        condition = _doc_filter(doc_ids)
        with store_errors("swapping rows in the table", self._layout.lancedb):
            (
                self._table.merge_insert("chunk_id")
                .when_matched_update_all()
                .when_not_matched_insert_all()
                .when_not_matched_by_source_delete(condition)
                .execute(rows)
            )

    def delete_all(self, doc_ids: Sequence[str]) -> None:
        """Removes all rows of these files, 500 files a version."""
        for first in range(0, len(doc_ids), 500):
            condition = _doc_filter(doc_ids[first : first + 500])
            with store_errors("deleting rows from the table", self._layout.lancedb):
                self._table.delete(condition)

    def optimize(self) -> None:
        """Compacts when there are many small fragments; versions of the last day stay for open readers."""
        with store_errors("compacting the table", self._layout.lancedb):
            if self._table.stats()["fragment_stats"]["num_fragments"] > _OPTIMIZE_AFTER_FRAGMENTS:
                self._table.optimize(cleanup_older_than=timedelta(days=1))

    def nearest(self, vector: np.ndarray, k: int, where: str | None, columns: list[str]) -> pa.Table:
        """The k rows nearest by cosine distance, nearest first, filtered before they are ranked.

        Raises:
            ConfigError: The filter is not a SQL expression over the table's columns.
        """
        if where is not None:
            check_where(where)
        query = self._table.search(vector).distance_type("cosine").select([*columns, "_distance"]).limit(k)
        if where is None:
            return query.to_arrow()
        try:
            return query.where(where, prefilter=True).to_arrow()
        except (ValueError, RuntimeError) as error:
            reason = str(error).strip().split("\n")[0][:300]
            raise ConfigError(f"--where {where!r}: {reason}") from None


def check_where(where: str) -> None:
    """Refuses what LanceDB would ignore silently: anything after a semicolon outside quotes."""
    if ";" in re.sub(r"'(?:[^']|'')*'", "", where):
        raise ConfigError(f"--where {where!r}: one expression only, ';' is not allowed outside quotes")
    if not where.strip():
        raise ConfigError("--where: the filter is empty")


def _doc_filter(doc_ids: Iterable[str]) -> str:
    """A filter by hex ids only, so that no name of a file can reach SQL."""
    ids = list(doc_ids)
    if not ids or not all(_HEX.fullmatch(doc_id) for doc_id in ids):
        raise ValueError("doc ids are 32 hex digits, at least one")
    return "doc_id IN ({})".format(", ".join(f"'{doc_id}'" for doc_id in ids))
