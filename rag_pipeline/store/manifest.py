"""The manifest: one row per known file, in the LanceDB table `files`, written after everything else.

A snapshot of it in Arrow's IPC format, stamped with the table version it was taken from, spares a run
with nothing to do the second that importing lancedb takes; a stamp that does not match is ignored.
Knows nothing of how rows come about.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pyarrow as pa

from rag_pipeline.records import ManifestRow
from rag_pipeline.schema import FILES_SCHEMA, conform
from rag_pipeline.store import Layout, doc_filter, store_errors
from rag_pipeline.store.database import commit, committing, connect, restore_version

TABLE = "files"
_STAMP = b"table_version"
_BATCH = 500
_JSON = ("rejects", "metadata")
_ADDED = {"characters": 0, "repaired": False, "ocr_pages": 0, "etag": ""}  # not in tables of earlier releases


class Manifest:
    """The known files; reads need no lock, writes need the writer's."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._handle: Any = None

    def exists(self) -> bool:
        """Whether anything was ever committed."""
        return self._layout.newest_version(TABLE) is not None

    def load(self) -> dict[str, ManifestRow]:
        """All rows by path.

        Raises:
            StoreError: The table cannot be read.
        """
        if not self.exists():
            return {}
        table = self._read_snapshot()
        if table is None:
            with store_errors("reading the manifest", self._folder):
                self._table.checkout_latest()
                table = self._table.to_arrow()
        return {row["path"]: _from_row(row) for row in conform(table, FILES_SCHEMA).to_pylist()}

    def put(self, rows: Iterable[ManifestRow]) -> None:
        """Inserts or replaces rows, as one version per 500."""
        pending = [_to_row(row) for row in rows]
        if pending and self._table.schema.names != FILES_SCHEMA.names:  # of an earlier release
            self.overwrite(self.load().values())
        for first in range(0, len(pending), _BATCH):
            batch = pa.Table.from_pylist(pending[first : first + _BATCH], schema=FILES_SCHEMA)
            merge = self._table.merge_insert("doc_id").when_matched_update_all().when_not_matched_insert_all()
            commit("writing the manifest", self._layout, self._table, functools.partial(merge.execute, batch))

    def delete(self, doc_ids: Sequence[str]) -> None:
        """Forgets files."""
        for first in range(0, len(doc_ids), _BATCH):
            condition = doc_filter(doc_ids[first : first + _BATCH])
            delete = functools.partial(self._table.delete, condition)
            commit("writing the manifest", self._layout, self._table, delete)

    @property
    def version(self) -> int:
        """Number of the current version."""
        return int(self._table.version)

    def restore(self, version: int) -> None:
        """Makes an earlier version the current one.

        Raises:
            StoreError: That version is no longer kept.
        """
        restore_version(self._table, version, self._layout)

    def overwrite(self, rows: Iterable[ManifestRow]) -> None:
        """Replaces all rows, as one version."""
        table = pa.Table.from_pylist([_to_row(row) for row in rows], schema=FILES_SCHEMA)
        with committing("replacing the manifest", self._layout):
            self._handle = connect(self._layout).create_table(TABLE, data=table, schema=FILES_SCHEMA, mode="overwrite")

    def snapshot(self, keep: timedelta) -> None:
        """Compacts the table, keeping versions this young, and writes the snapshot that the next run reads first."""
        with committing("compacting the manifest", self._layout):
            if self._table.stats()["fragment_stats"]["num_fragments"] > 1:
                self._table.optimize(cleanup_older_than=keep, delete_unverified=not keep)
            table = self._table.to_arrow()
        self._write_snapshot(table.replace_schema_metadata({_STAMP: self._version().encode()}))

    def _write_snapshot(self, table: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        with store_errors("writing the manifest's snapshot", self._folder):
            self._layout.files.write(self._snapshot, memoryview(sink.getvalue()))

    @property
    def _folder(self) -> str:
        """Where the table lies, for messages."""
        return self._layout.files.where(self._layout.table(TABLE))

    @property
    def _snapshot(self) -> str:
        return f"{self._layout.database}/files.arrow"

    @property
    def _table(self) -> Any:
        if self._handle is None:
            with store_errors("opening the manifest", self._folder):
                database = connect(self._layout)
                exists = self.exists()
                self._handle = (
                    database.open_table(TABLE) if exists else database.create_table(TABLE, schema=FILES_SCHEMA)
                )
        return self._handle

    def _version(self) -> str:
        """Names the table's newest version without opening it."""
        return (self._layout.newest_version(TABLE) or ("", ""))[0]

    def _read_snapshot(self) -> pa.Table | None:
        try:
            table = pa.ipc.open_file(self._layout.files.read(self._snapshot)).read_all()
        except (OSError, pa.ArrowInvalid):
            return None
        fresh = (table.schema.metadata or {}).get(_STAMP, b"").decode() == self._version()
        return table if fresh and table.schema.equals(FILES_SCHEMA, check_metadata=False) else None


def _to_row(row: ManifestRow) -> dict[str, Any]:
    return {**asdict(row), **{name: json.dumps(getattr(row, name)) for name in _JSON}}


def _from_row(row: dict[str, Any]) -> ManifestRow:
    absent = {name: zero for name, zero in _ADDED.items() if row[name] is None}
    return ManifestRow(**{**row, **absent, **{name: json.loads(row[name] or "{}") for name in _JSON}})
