"""The LanceDB table `chunks`: what queries read. Files are swapped whole, each swap one version.

Knows nothing of files on disk or of why rows change.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from rag_pipeline.config import RuntimeConfig
from rag_pipeline.errors import ConfigError, IndexMissingError
from rag_pipeline.schema import chunk_schema
from rag_pipeline.store import Layout, doc_filter, restore_version, store_errors

TABLE = "chunks"
_METADATA = "rag_pipeline.embedding"
_PROBES, _REFINE = 64, 20  # recall first: an approximate candidate list, ranked again by the exact distance
_INDEX = "vector_trained_on_"


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
    def overwrite(cls, layout: Layout, rows: pa.RecordBatchReader, embedding: str) -> ChunkTable:
        """Replaces the whole table, its schema included, as one version; readers see the old one till then."""
        import lancedb

        schema = rows.schema.with_metadata({_METADATA: embedding})
        with store_errors("replacing the table", layout.lancedb):
            database = lancedb.connect(str(layout.lancedb))
            return cls(layout, database.create_table(TABLE, data=rows, schema=schema, mode="overwrite"))

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

    @property
    def version(self) -> int:
        """Number of the current version."""
        return int(self._table.version)

    def restore(self, version: int) -> None:
        """Makes an earlier version the current one, as a new version.

        Raises:
            StoreError: That version is no longer kept.
        """
        restore_version(self._table, version, self._layout.lancedb)

    def scan(self) -> Iterator[pa.Table]:
        """Yields all rows in batches, without the index's own columns."""
        query = self._table.search().select(self._table.schema.names).limit(max(1, self.count()))
        for batch in query.to_batches():
            yield pa.Table.from_batches([batch])

    def unindexed_rows(self) -> dict[str, int]:
        """Index name to rows it does not cover yet."""
        names = [index.name for index in self._table.list_indices()]
        return {name: int(self._table.index_stats(name).num_unindexed_rows) for name in names}

    def count(self) -> int:
        """Rows of the current version."""
        return int(self._table.count_rows())

    def run_of_doc(self) -> dict[str, str]:
        """Files that have rows, and the run that wrote them."""
        if not self.count():
            return {}
        rows = self._table.search().select(["doc_id", "run_id"]).limit(self.count()).to_arrow()
        pairs = rows.group_by(["doc_id", "run_id"]).aggregate([])
        return dict(zip(pairs["doc_id"].to_pylist(), pairs["run_id"].to_pylist(), strict=True))

    def reader(self) -> pa.RecordBatchReader:
        """All rows as a stream."""
        schema = self._table.schema.remove_metadata()
        batches = (batch.replace_schema_metadata() for table in self.scan() for batch in table.to_batches())
        return pa.RecordBatchReader.from_batches(schema, batches)

    def add(self, rows: pa.RecordBatchReader) -> None:
        """Appends rows of files that have none yet, as one version."""
        with store_errors("adding rows to the table", self._layout.lancedb):
            self._table.add(rows)

    def swap(self, doc_ids: Iterable[str], rows: pa.RecordBatchReader) -> None:
        """Replaces all rows of these files by the given ones, as one version. Rows must have unique chunk ids."""
        condition = doc_filter(doc_ids)
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
            condition = doc_filter(doc_ids[first : first + 500])
            with store_errors("deleting rows from the table", self._layout.lancedb):
                self._table.delete(condition)

    def upkeep(self, settings: RuntimeConfig) -> None:
        """Compacts, prunes versions and keeps a vector index fresh, each by its threshold; readers go on meanwhile.

        The index is trained when the table reaches `index_above_rows`, takes in new rows when they are more
        than `index_tail_share`, and is trained anew when the table has doubled since.
        """
        keep = timedelta(days=settings.keep_days)
        with store_errors("looking after the table", self._layout.lancedb):
            rows = self.count()
            if rows >= max(settings.index_above_rows, 2 * self._trained_rows):
                self._train()
            elif (
                self._trained_rows and max(self.unindexed_rows().values(), default=0) > settings.index_tail_share * rows
            ) or self._table.stats()["fragment_stats"]["num_fragments"] > settings.compact_after_fragments:
                self._table.optimize(cleanup_older_than=keep)

    @property
    def _trained_rows(self) -> int:
        """Rows the vector index was trained on: its name says it, so that index and number cannot part."""
        names = [index.name for index in self._table.list_indices() if index.name.startswith(_INDEX)]
        return max((int(name.removeprefix(_INDEX)) for name in names), default=0)

    def _train(self) -> None:
        from lancedb.index import IvfRq

        older = [index.name for index in self._table.list_indices() if index.name.startswith(_INDEX)]
        name = f"{_INDEX}{self.count()}"
        self._table.create_index("vector", config=IvfRq(distance_type="cosine"), name=name, replace=True)
        for old in older:
            if old != name:
                self._table.drop_index(old)

    def drop_history(self) -> None:
        """Drops every version but the current one, and the files only they need. Needs that nobody reads them."""
        with store_errors("dropping old versions of the table", self._layout.lancedb), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of readers, as our own docstring does
            self._table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)

    def nearest(self, vector: np.ndarray, k: int, where: str | None, columns: list[str]) -> pa.Table:
        """The k rows nearest by cosine distance, nearest first, filtered before they are ranked.

        Raises:
            ConfigError: The filter is not a SQL expression over the table's columns.
        """
        if where is not None:
            check_where(where)
        query = self._table.search(vector).distance_type("cosine").select([*columns, "_distance"]).limit(k)
        if self._trained_rows:
            query = query.nprobes(_PROBES).refine_factor(_REFINE)
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
