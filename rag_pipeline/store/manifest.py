"""The manifest: one row per known file, in the LanceDB table `files`, written after everything else.

A snapshot of it in Arrow's IPC format, stamped with the table version it was taken from, spares a run
with nothing to do the second that importing lancedb takes; a stamp that does not match is ignored.
Knows nothing of how rows come about.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from rag_pipeline.records import ManifestRow
from rag_pipeline.schema import FILES_SCHEMA, conform
from rag_pipeline.store import Layout, doc_filter, restore_version, store_errors, write_durably

TABLE = "files"
_STAMP = b"table_version"
_BATCH = 500
_JSON = ("rejects", "metadata")
_ADDED = {"characters": 0, "repaired": False, "ocr_pages": 0}  # columns that an earlier release's tables lack


class Manifest:
    """The known files; reads need no lock, writes need the writer's."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._handle: Any = None

    def exists(self) -> bool:
        """Whether anything was ever committed."""
        return self._folder.exists()

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
            with store_errors("writing the manifest", self._folder):
                merge = self._table.merge_insert("doc_id").when_matched_update_all()
                merge.when_not_matched_insert_all().execute(batch)

    def delete(self, doc_ids: Sequence[str]) -> None:
        """Forgets files."""
        for first in range(0, len(doc_ids), _BATCH):
            condition = doc_filter(doc_ids[first : first + _BATCH])
            with store_errors("writing the manifest", self._folder):
                self._table.delete(condition)

    @property
    def version(self) -> int:
        """Number of the current version."""
        return int(self._table.version)

    def restore(self, version: int) -> None:
        """Makes an earlier version the current one.

        Raises:
            StoreError: That version is no longer kept.
        """
        restore_version(self._table, version, self._folder)

    def overwrite(self, rows: Iterable[ManifestRow]) -> None:
        """Replaces all rows, as one version."""
        import lancedb

        table = pa.Table.from_pylist([_to_row(row) for row in rows], schema=FILES_SCHEMA)
        with store_errors("replacing the manifest", self._folder):
            database = lancedb.connect(str(self._layout.lancedb))
            self._handle = database.create_table(TABLE, data=table, schema=FILES_SCHEMA, mode="overwrite")

    def snapshot(self, keep: timedelta) -> None:
        """Compacts the table, keeping versions this young, and writes the snapshot that the next run reads first."""
        with store_errors("compacting the manifest", self._folder):
            if self._table.stats()["fragment_stats"]["num_fragments"] > 1:
                self._table.optimize(cleanup_older_than=keep, delete_unverified=not keep)
            table = self._table.to_arrow()
        stamped = table.replace_schema_metadata({_STAMP: self._version().encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, stamped.schema) as writer:
            writer.write_table(stamped)
        write_durably(self._snapshot_path, sink.getvalue().to_pybytes())

    @property
    def _folder(self) -> Path:
        return self._layout.lancedb / f"{TABLE}.lance"

    @property
    def _snapshot_path(self) -> Path:
        return self._layout.lancedb / "files.arrow"

    @property
    def _table(self) -> Any:
        if self._handle is None:
            import lancedb

            with store_errors("opening the manifest", self._folder):
                database = lancedb.connect(str(self._layout.lancedb))
                exists = self.exists()
                self._handle = (
                    database.open_table(TABLE) if exists else database.create_table(TABLE, schema=FILES_SCHEMA)
                )
        return self._handle

    def _version(self) -> str:
        """Names the table's newest version without opening it: Lance lists newest first."""
        return min((file.name for file in (self._folder / "_versions").glob("*.manifest")), default="")

    def _read_snapshot(self) -> pa.Table | None:
        try:
            with pa.memory_map(str(self._snapshot_path)) as source:
                table = pa.ipc.open_file(source).read_all()
        except (OSError, pa.ArrowInvalid):
            return None
        fresh = (table.schema.metadata or {}).get(_STAMP, b"").decode() == self._version()
        return table if fresh and table.schema.equals(FILES_SCHEMA, check_metadata=False) else None


def _to_row(row: ManifestRow) -> dict[str, Any]:
    return {**asdict(row), **{name: json.dumps(getattr(row, name)) for name in _JSON}}


def _from_row(row: dict[str, Any]) -> ManifestRow:
    absent = {name: zero for name, zero in _ADDED.items() if row[name] is None}
    return ManifestRow(**{**row, **absent, **{name: json.loads(row[name] or "{}") for name in _JSON}})
