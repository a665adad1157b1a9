"""Maintenance: look after an index without touching its source. Knows nothing of Ray or engines.

The log and the manifest are the truth, the LanceDB table is made from them: `verify` compares the three,
`repair` makes the table anew, `export` writes what is current, `vacuum` drops all else, `rollback` goes back.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from rag_pipeline.config import Config
from rag_pipeline.errors import ConfigError, InconsistentIndexError, IndexMissingError, StoreError
from rag_pipeline.records import ManifestRow
from rag_pipeline.schema import chunk_schema, conform
from rag_pipeline.store import LOG, Layout, store_errors
from rag_pipeline.store.audit import Problem, audit
from rag_pipeline.store.current import current_rows, part_mask, versions_of
from rag_pipeline.store.documents import drop_documents
from rag_pipeline.store.files import LocalFiles, read_ahead
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.store.lock import writer_lock
from rag_pipeline.store.manifest import Manifest
from rag_pipeline.store.parquet import (
    delete_part,
    is_damaged,
    list_parts,
    part_embedding,
    read_parts,
    sweep_temporary,
    write_part,
)
from rag_pipeline.store.reports import load_reports
from rag_pipeline.store.vectors import KeyMap

_DAMAGED = "damaged"


def status(config: Config) -> list[ManifestRow]:
    """Every file the index knows, sorted by path.

    Raises:
        IndexMissingError: There is no index.
    """
    known = _manifest(config).load()
    return [known[path] for path in sorted(known)]


def verify(config: Config) -> list[Problem]:
    """Compares log, manifest and table row by row; writes nothing; see `store.audit`.

    Returns:
        What is wrong; empty when all agree.

    Raises:
        IndexMissingError: There is no index.
    """
    _manifest(config)
    return audit(Layout.at(config.output.path))


def repair(config: Config) -> list[str]:
    """Makes the LanceDB table anew from log and manifest, without an engine.

    Table versions and log parts that cannot be read are set aside in `damaged/`; files whose rows the log no
    longer holds whole become ``failed:lost``, and the next `index` does them again.

    Returns:
        What was done, one sentence each.

    Raises:
        IndexMissingError: There is no index.
        StoreError: A store refused.
    """
    manifest, layout = _manifest(config), Layout.at(config.output.path)
    with writer_lock(layout):
        sweep_temporary(layout)
        done = [f"{file}: set aside, cannot be read" for file in _set_aside_damaged(layout)]
        rows = list(manifest.load().values())
        found = Counter(doc for table in current_rows(layout, rows, ["doc_id"]) for doc in table["doc_id"].to_pylist())
        lost = [row for row in rows if row.chunks and found[row.doc_id] != row.chunks]
        if lost:
            manifest.put(_as_lost(row) for row in lost)
            done += [f"{row.path}: its rows are no longer in the log; run index" for row in lost]
        kept = [row for row in rows if row not in lost]
        embedding = _embedding_of(layout)
        if embedding:
            table = ChunkTable.overwrite(layout, _reader(layout, kept, embedding), json.dumps(embedding))
            done.append(f"table chunks: {table.count()} rows written from the log")
        manifest.snapshot(timedelta(days=config.runtime.keep_days))
        return done


def export(config: Config, target: Path) -> int:
    """Writes exactly the current rows as clean Parquet parts into an empty folder.

    Returns:
        How many rows.

    Raises:
        ConfigError: The folder is not empty.
        IndexMissingError: There is no index.
    """
    rows = _manifest(config).load().values()
    layout = Layout.at(config.output.path)
    files = LocalFiles(target)
    if any(files.walk("")):
        raise ConfigError(f"export {target}: the folder is not empty; name a new one")
    embedding = json.dumps(_embedding_of(layout))
    written = 0
    for table in current_rows(layout, rows):
        write_part(files, "", table, embedding)
        written += table.num_rows
    return written


def vacuum(config: Config) -> dict[str, int]:
    """Drops what is superseded: old table versions, and log rows that no current file version has.

    A deleted document's text and vectors are nowhere on disk afterwards; earlier states can no longer be
    rolled back to, and a return to an old recipe embeds again. Needs that no reader is at work.

    Returns:
        ``rows_dropped`` and ``bytes_freed``.

    Raises:
        IndexMissingError: There is no index.
        InconsistentIndexError: Log, manifest and table disagree; repair first.
    """
    manifest, layout = _manifest(config), Layout.at(config.output.path)
    with writer_lock(layout):
        problems = [problem for problem in audit(layout) if problem.kind != "leftover"]
        if problems:
            raise InconsistentIndexError(f"index {layout.root}: {problems[0].what}; run `rag-pipeline repair` first")
        before = _size_bytes(layout)
        sweep_temporary(layout)
        rows = list(manifest.load().values())
        dropped = _rewrite_log(layout, rows)
        drop_documents(layout, {row.content_hash for row in rows})
        for folder in (*layout.stagings(), _DAMAGED):
            layout.files.delete_folder(folder)
        if ChunkTable.exists(layout):
            embedding = ChunkTable.open(layout).embedding
            reader = _reader(layout, rows, embedding)
            ChunkTable.overwrite(layout, reader, json.dumps(embedding)).drop_history()
        manifest.overwrite(rows)
        manifest.snapshot(timedelta(0))
        return {"rows_dropped": dropped, "bytes_freed": before - _size_bytes(layout)}


def rollback(config: Config, run_id: str) -> dict[str, int]:
    """Goes back to the state after a run: its table and manifest become the current ones, as new versions.

    The next `index` goes forward again, by what the source then holds.

    Returns:
        The versions restored.

    Raises:
        ConfigError: No such run, or it changed nothing and so has no state of its own.
        StoreError: Its versions are no longer kept.
    """
    manifest, layout = _manifest(config), Layout.at(config.output.path)
    versions = {report["run_id"]: report.get("versions") for report in load_reports(layout)}
    if not versions.get(run_id):
        known = ", ".join(run for run, found in versions.items() if found) or "none"
        raise ConfigError(f"rollback {run_id}: no run of that name left a state; runs with one: {known}")
    with writer_lock(layout):
        wanted = dict(versions[run_id] or {})
        ChunkTable.open(layout).restore(wanted["chunks"])
        manifest.restore(wanted["files"])
        manifest.snapshot(timedelta(days=config.runtime.keep_days))
        return wanted


def _manifest(config: Config) -> Manifest:
    layout = Layout.at(config.output.path)
    manifest = Manifest(layout)
    if not manifest.exists():
        raise IndexMissingError(f"index {layout.root}: nothing is indexed here; run `rag-pipeline index` first")
    return manifest


def _as_lost(row: ManifestRow) -> ManifestRow:
    return replace(
        row, state="failed:lost", reason="its rows in the log are damaged; run index", chunks=0, fingerprint=""
    )


def _set_aside_damaged(layout: Layout) -> list[str]:
    """Moves to `damaged/` every table version and log part that cannot be read; returns their names."""
    unreadable = [
        file.name
        for file in layout.files.walk(f"{layout.database}/")
        if "/_versions/" in file.name and file.name.endswith(".manifest") and not file.size_bytes
    ]
    checked = read_ahead(lambda part: is_damaged(layout, part), list_parts(layout))
    unreadable += [f"{LOG}/{part}" for part, damaged in checked if damaged]
    for name in unreadable:
        with store_errors("setting aside", layout.files.where(name)):
            layout.files.move(name, f"{_DAMAGED}/{name.replace('/', '~')}")
    return unreadable


def _embedding_of(layout: Layout) -> dict[str, Any]:
    """The serving table's model, from the table, else from the newest part of the log."""
    with contextlib.suppress(StoreError):
        recorded = ChunkTable.open(layout).embedding
        if recorded:
            return recorded
    return part_embedding(layout, parts[-1]) if (parts := list(list_parts(layout))) else {}


def _reader(layout: Layout, rows: Iterable[ManifestRow], embedding: dict[str, Any]) -> pa.RecordBatchReader:
    schema = chunk_schema(embedding["dimension"], embedding.get("storage", "float32"))
    tables = (conform(table, schema) for table in current_rows(layout, rows))
    return pa.RecordBatchReader.from_batches(schema, (batch for table in tables for batch in table.to_batches()))


def _rewrite_log(layout: Layout, rows: list[ManifestRow]) -> int:
    """Drops parts without current rows and rewrites those with some; returns how many rows went.

    A kill in between leaves a row in two parts, which counts once; see `store.current`.
    """
    versions, seen, dropped = versions_of(rows), KeyMap(), 0
    for part, table in read_parts(layout, list_parts(layout)):
        mask = part_mask(table, versions, seen)
        if mask.all():
            continue
        if mask.any():
            embedding = json.dumps(part_embedding(layout, part))
            write_part(layout.files, f"{LOG}/{part.split('/')[0]}", table.filter(pa.array(mask)), embedding)
        delete_part(layout, part)
        dropped += int((~mask).sum())
    return dropped


def _size_bytes(layout: Layout) -> int:
    return sum(file.size_bytes for file in layout.files.walk(""))
