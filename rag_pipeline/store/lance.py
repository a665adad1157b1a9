"""The LanceDB table `chunks`: what queries read. Files are swapped whole, each swap one version.

Knows nothing of files on disk or of why rows change.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from rag_pipeline.config import RuntimeConfig
from rag_pipeline.errors import ConfigError, IndexMissingError, UnreachableError
from rag_pipeline.schema import chunk_schema
from rag_pipeline.store import Layout, doc_filter, store_errors
from rag_pipeline.store.database import commit, committing, connect, restore_version

TABLE = "chunks"
_METADATA = "rag_pipeline.embedding"
_PROBES = 64  # recall first: many partitions, and more candidates than asked for are ranked by the exact distance
_RANKED_EXACTLY = 50
_BITS = 6  # per dimension: ranking more candidates exactly costs more than the bits that make it needless
_INDEX = f"vector_in_{_BITS}_bits_trained_on_"
_TEXT_INDEX = "words"
_SMALL_FRAGMENT = 20_000  # rows: smaller ones are joined once an index is made anew: each costs a question 0.3 ms
_SEGMENTS = 8  # of the vector index: each run that adds to it leaves one, which costs a question 0.6 ms
_TEXT_TAIL = 500  # rows a text query may have to read beside the index: about 10 ms


class ChunkTable:
    """The table of current chunks."""

    def __init__(self, layout: Layout, table: Any) -> None:
        self._layout = layout
        self._table = table
        self._is_trained: bool | None = None  # looked up once: each look costs a question 0.2 ms

    @classmethod
    def open(cls, layout: Layout) -> ChunkTable:
        """Opens the table for reading.

        Raises:
            IndexMissingError: There is none.
        """
        if not cls.exists(layout):
            raise IndexMissingError(
                f"index {layout.root}: holds no table; run `rag-pipeline index` first, or check --index"
            )
        with store_errors("opening the table", layout.lancedb):
            return cls(layout, connect(layout).open_table(TABLE))

    @classmethod
    def create(cls, layout: Layout, dimension: int, embedding: str, storage: str = "float32") -> ChunkTable:
        """Creates an empty table; `embedding` (JSON of the model) is recorded on it.

        Its text index is there from the start, so that every row is found by its words as soon as it is added.
        """
        schema = chunk_schema(dimension, storage, {_METADATA: embedding})
        with committing("creating the table", layout):
            table = cls(layout, connect(layout).create_table(TABLE, schema=schema))
            table._index_text()
        return table

    @classmethod
    def overwrite(cls, layout: Layout, rows: pa.RecordBatchReader, embedding: str) -> ChunkTable:
        """Replaces the whole table, its schema included, as one version; readers see the old one till then."""
        schema = rows.schema.with_metadata({_METADATA: embedding})
        with committing("replacing the table", layout):
            table = cls(layout, connect(layout).create_table(TABLE, data=rows, schema=schema, mode="overwrite"))
            table._index_text()
        return table

    @classmethod
    def exists(cls, layout: Layout) -> bool:
        """Whether there is a table."""
        return layout.newest_version(TABLE) is not None

    @functools.cached_property
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

    def refresh(self) -> None:
        """Sees what another process did to the table since it was opened."""
        self._table.checkout_latest()

    def restore(self, version: int) -> None:
        """Makes an earlier version the current one, as a new version.

        Raises:
            StoreError: That version is no longer kept.
        """
        restore_version(self._table, version, self._layout)

    def scan(self) -> Iterator[pa.Table]:
        """Yields all rows in batches, without the index's own columns."""
        with store_errors("reading the table", self._layout.lancedb):
            query = self._table.search().select(self._table.schema.names).limit(max(1, self.count()))
            for batch in query.to_batches():
                yield pa.Table.from_batches([batch])

    def unindexed_rows(self) -> dict[str, int]:
        """Name of the vector index to rows it does not cover yet; empty where there is none."""
        return {index.name: self._tail(index.name) for index in self._vector_indices()}

    @property
    def has_text_index(self) -> bool:
        """Whether words are matched by the index; without it they are matched as they are, and slowly."""
        return _TEXT_INDEX in self._indices()

    def _indices(self) -> list[str]:
        return [str(index.name) for index in self._table.list_indices()]

    def _vector_indices(self) -> list[Any]:
        """The vector index of today's settings, and none of other ones: LanceDB's description of each."""
        return [index for index in self._table.list_indices() if index.name.startswith(_INDEX)]

    @property
    def _segments(self) -> int:
        """Parts the vector index consists of; 0 where there is none."""
        return max((int(index.num_segments) for index in self._vector_indices()), default=0)

    def _tail(self, name: str) -> int:
        return int(self._table.index_stats(name).num_unindexed_rows)

    def count(self) -> int:
        """Rows of the current version."""
        with store_errors("reading the table", self._layout.lancedb):
            return int(self._table.count_rows())

    @functools.cached_property
    def rows(self) -> int:
        """Rows of the version a reader's handle stays at, counted once: a count costs a question 0.3 ms."""
        return self.count()

    def run_of_doc(self) -> dict[str, str]:
        """Files that have rows, and the run that wrote them."""
        if not self.count():
            return {}
        with store_errors("reading the table", self._layout.lancedb):
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
        data = self._repeatable(rows)
        commit("adding rows to the table", self._layout, self._table, lambda: self._table.add(data))

    def swap(self, doc_ids: Iterable[str], rows: pa.RecordBatchReader) -> None:
        """Replaces all rows of these files by the given ones, as one version. Rows must have unique chunk ids."""
        condition, data = doc_filter(doc_ids), self._repeatable(rows)
        merge = self._table.merge_insert("chunk_id").when_matched_update_all().when_not_matched_insert_all()
        merge = merge.when_not_matched_by_source_delete(condition)
        commit("swapping rows in the table", self._layout, self._table, lambda: merge.execute(data))

    def _repeatable(self, rows: pa.RecordBatchReader) -> pa.RecordBatchReader | pa.Table:
        """Rows that can be sent again, where a commit may be repeated; a stream can be read once."""
        with store_errors("reading the rows of a commit", self._layout.lancedb):
            return rows.read_all() if self._layout.root.startswith("s3://") else rows

    def delete_all(self, doc_ids: Sequence[str]) -> None:
        """Removes all rows of these files, 500 files a version."""
        for first in range(0, len(doc_ids), 500):
            condition = doc_filter(doc_ids[first : first + 500])
            delete = functools.partial(self._table.delete, condition)
            commit("deleting rows from the table", self._layout, self._table, delete)

    def rows_to_index(self, settings: RuntimeConfig) -> int:
        """How many rows `upkeep` would have to index: all, where one of the indexes is due to be made anew."""
        with store_errors("looking after the table", self._layout.lancedb):
            rows = self.count()
            anew = self._is_text_due(rows) or self._is_training_due(rows, settings)
            return rows if anew else self._tail(_TEXT_INDEX)

    def _is_text_due(self, rows: int) -> bool:
        return not self.has_text_index or self._tail(_TEXT_INDEX) > rows / 2

    def _is_training_due(self, rows: int, settings: RuntimeConfig) -> bool:
        outgrown = rows >= 2 * self._trained_rows or self._segments > _SEGMENTS
        return rows >= settings.index_above_rows and outgrown

    def upkeep(self, settings: RuntimeConfig) -> None:
        """Compacts, prunes versions and keeps both indexes fresh, each by its threshold; readers go on meanwhile.

        The vector index is trained when the table reaches `index_above_rows`, takes in new rows when they are
        more than `index_tail_share`, and is trained anew when the table has doubled since or the index is in too
        many parts, which LanceDB would never join. The text index takes in new rows when they are more than that
        share or `_TEXT_TAIL`, and is made anew, which all cores share, when they are more than half of the table.
        """
        keep = timedelta(days=settings.keep_days)
        with committing("looking after the table", self._layout):
            rows = self.count()
            indexing = [self._index_text] if self._is_text_due(rows) else []
            indexing += [self._train] if self._is_training_due(rows, settings) else []
            with ThreadPoolExecutor() as pool:  # side by side, since each leaves cores idle at times
                list(pool.map(lambda make: make(), indexing))
            share = settings.index_tail_share * rows
            fragments = self._table.stats()["fragment_stats"]["num_fragments"]
            if (
                max(self.unindexed_rows().values(), default=0) > share
                or self._tail(_TEXT_INDEX) > min(share, _TEXT_TAIL)
                or fragments > settings.compact_after_fragments
                or (indexing and fragments > max(1, rows // _SMALL_FRAGMENT))
            ):
                self._table.optimize(cleanup_older_than=keep)

    def _index_text(self) -> None:
        """Indexes words as ICU finds them, so that Chinese and Japanese have words too; English is stemmed."""
        from lancedb.index import FTS

        self._table.create_index("text", config=FTS(base_tokenizer="icu"), name=_TEXT_INDEX, replace=True)

    @property
    def _trained_rows(self) -> int:
        """Rows the vector index was trained on: its name says it, so that index and number cannot part."""
        return max((int(index.name.removeprefix(_INDEX)) for index in self._vector_indices()), default=0)

    def _train(self) -> None:
        from lancedb.index import IvfRq

        older = [str(index.name) for index in self._table.list_indices() if index.columns == ["vector"]]
        name = f"{_INDEX}{self.count()}"
        config = IvfRq(distance_type="cosine", num_bits=_BITS)
        self._table.create_index("vector", config=config, name=name, replace=True)
        self._is_trained = None
        for old in older:
            if old != name:
                self._table.drop_index(old)

    def drop_history(self) -> None:
        """Drops every version but the current one, and the files only they need. Needs that nobody reads them."""
        with committing("dropping old versions of the table", self._layout), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of readers, as our own docstring does
            self._table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)

    def nearest(self, vector: np.ndarray, k: int, where: str | None, columns: list[str]) -> pa.Table:
        """The k rows nearest by cosine distance, nearest first, filtered before they are ranked; `take` has the rest.

        An index made by other settings than today's is not used: until the next upkeep the search is exact.

        Raises:
            ConfigError: The filter is not a SQL expression over the table's columns.
        """
        query = self._query().nearest_to(vector).column("vector").distance_type("cosine")
        if self._is_trained is None:
            self._is_trained = self._trained_rows > 0
        if self._is_trained:
            query = query.nprobes(_PROBES).maximum_nprobes(0).refine_factor(max(1, _RANKED_EXACTLY // k))
        else:
            query = query.bypass_vector_index()
        return self._answer(query.select([*columns, "_distance"]).limit(k).with_row_id(), where)

    def matching(self, text: str, k: int, where: str | None, columns: list[str]) -> pa.Table:
        """The k rows whose words match best by BM25, best first, filtered before they are ranked.

        Raises:
            ConfigError: The filter is not a SQL expression over the table's columns.
        """
        from lancedb.query import MatchQuery

        query = self._query().nearest_to_text(MatchQuery(text, "text"))
        return self._answer(query.select([*columns, "_score"]).limit(k).with_row_id(), where)

    def _query(self) -> Any:
        """A query of LanceDB's asynchronous kind: the other one asks its thread five times, which takes 1 ms longer.

        Made without its table, whose schema it would look up each time, to see that there are no blobs: 0.4 ms.
        """
        from lancedb.query import AsyncQuery

        return AsyncQuery(self._table._table._inner.query())

    def take(self, row_ids: list[int], columns: list[str]) -> pa.Table:
        """Rows by the `_rowid` that `nearest` and `matching` of this version gave, in no order."""
        from lancedb.query import AsyncTakeQuery

        query = AsyncTakeQuery(self._table._table._inner.take_row_ids(row_ids))
        return self._answer(query.select(columns).with_row_id(), None)

    def select(self, where: str, columns: list[str], limit: int) -> pa.Table:
        """At most `limit` rows that pass a filter, in no order.

        Raises:
            ConfigError: The filter is not a SQL expression over the table's columns.
        """
        return self._answer(self._query().select(columns).limit(limit), where)

    def _answer(self, query: Any, where: str | None) -> pa.Table:
        """Runs a query, on its filtered rows only: a filter comes before the ranking."""
        from lancedb.query import BaseQueryBuilder

        expression = None if where is None else checked_where(where)
        try:
            with store_errors("searching the table", self._layout.lancedb):
                return BaseQueryBuilder(query.where(expression) if expression else query).to_arrow()
        except UnreachableError:
            raise
        except Exception as error:  # LanceDB has a type of its own for filters it did not expect
            if expression is None:
                raise
            reason = str(error.__cause__ or error).strip().split("\n")[0][:300]
            raise ConfigError(f"--where {where!r}: {reason}") from None


def checked_where(where: str) -> str:
    """Returns a filter in parentheses, so that LanceDB's own parser refuses all that is not one expression.

    By itself it ignores silently whatever follows an expression: a semicolon, ORDER BY, a stray word.

    Raises:
        ConfigError: Blank, or what would get out of the parentheses: a comment, one parenthesis too many.
    """
    if not where.strip():
        raise ConfigError("--where: the filter is empty")
    bare = re.sub(r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`", "''", where)
    for sign in (";", "--", "/*", "$", "?", "\0"):
        if sign in bare:
            raise ConfigError(f"--where {where!r}: one expression only, {sign!r} is not allowed outside quotes")
    depths = list(itertools.accumulate({"(": 1, ")": -1}.get(char, 0) for char in bare))
    if min(depths) < 0 or depths[-1]:
        raise ConfigError(f"--where {where!r}: its parentheses do not match")
    return f"({where})"
