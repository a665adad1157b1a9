"""Audit: do log, manifest and table of an index agree, row by row? Reads everything, writes nothing.

Knows nothing of why an index is audited or of how to mend it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rag_pipeline.errors import StoreError, UnreachableError
from rag_pipeline.records import ManifestRow
from rag_pipeline.schema import from_vectors
from rag_pipeline.store import Layout
from rag_pipeline.store.current import current_rows, digest_rows
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.store.manifest import Manifest
from rag_pipeline.store.parquet import list_temporary
from rag_pipeline.store.vectors import MISSING, KeyMap, to_keys


@dataclass(frozen=True, slots=True)
class Problem:
    """One way in which an index disagrees with itself.

    Attributes:
        kind: ``duplicate``, ``orphan``, ``missing``, ``different``, ``vector``, ``mixed``, ``damaged`` or ``leftover``.
        what: What, where, in words.
    """

    kind: str
    what: str


def audit(layout: Layout) -> list[Problem]:
    """Compares log, manifest and table row by row, vectors included.

    Returns:
        What is wrong; empty when all agree.

    Raises:
        UnreachableError: The place of the index does not answer.
    """
    manifest = Manifest(layout)
    try:
        rows = list(manifest.load().values())
    except UnreachableError:
        raise
    except StoreError as error:
        return [Problem("damaged", str(error))]
    problems = [Problem("leftover", f"{file}: half-written by a killed run") for file in list_temporary(layout)]
    counts: Counter[str] = Counter()
    try:
        in_table = digest_rows(_checked(ChunkTable.open(layout), problems), counts) if ChunkTable.exists(layout) else {}
        in_log = digest_rows(current_rows(layout, rows), Counter())
    except UnreachableError:
        raise
    except StoreError as error:
        return [*problems, Problem("damaged", str(error))]
    problems += _check_manifest(rows, counts)
    by_id = {row.doc_id: row for row in rows}
    for doc_id in sorted(set(in_table) | set(in_log) | {row.doc_id for row in rows if row.chunks}):
        problem = _compare(doc_id, by_id.get(doc_id), in_table.get(doc_id), in_log.get(doc_id))
        if problem:
            problems.append(problem)
    return problems


def _checked(table: ChunkTable, problems: list[Problem]) -> Iterator[pa.Table]:
    """The table's rows; notes doubled ids, vectors that can never be found and other models' rows on the way."""
    seen = KeyMap()
    fingerprint = table.embedding.get("fingerprint")
    for rows in table.scan():
        keys = to_keys(rows["chunk_id"])
        doubled = len(keys) - len(np.unique(keys)) + int((seen.find(keys) != MISSING).sum())
        seen.add(keys, np.zeros(len(keys), dtype=np.uint64))
        if doubled:
            problems.append(Problem("duplicate", f"table chunks: {doubled} rows have the chunk_id of another"))
        vectors = from_vectors(rows["vector"])
        bad = int((~np.isfinite(vectors).all(axis=1) | ~vectors.any(axis=1)).sum())
        if bad:
            problems.append(Problem("vector", f"table chunks: {bad} vectors are zero or not finite"))
        others = sum(value != fingerprint for value in rows["embedding_fingerprint"].to_pylist())
        if others:
            problems.append(Problem("mixed", f"table chunks: {others} rows are of another model"))
        yield rows
    for name, count in table.unindexed_rows().items():
        if count > len(seen) // 2:
            problems.append(Problem("leftover", f"index {name}: {count} of {len(seen)} rows are not in it yet"))


def _compare(doc_id: str, row: ManifestRow | None, in_table: int | None, in_log: int | None) -> Problem | None:
    if row is None:
        return Problem("orphan", f"table chunks: rows of a file the manifest does not know (doc_id {doc_id})")
    if not row.chunks:
        return Problem("orphan", f"{row.path}: rows in the table, none by the manifest") if in_table else None
    if in_log is None:
        return Problem("missing", f"{row.path}: its rows are not in the log")
    if in_table is None:
        return Problem("missing", f"{row.path}: its rows are not in the table")
    if in_table != in_log:
        return Problem("different", f"{row.path}: its rows in the table are not those of the log")
    return None


def _check_manifest(rows: list[ManifestRow], counts: Counter[str]) -> list[Problem]:
    doubled = [path for path, count in Counter(row.path for row in rows).items() if count > 1]
    problems = [Problem("duplicate", f"{path}: twice in the manifest") for path in doubled]
    for row in rows:
        if row.chunks and counts[row.doc_id] not in (0, row.chunks):
            problems.append(
                Problem("different", f"{row.path}: {counts[row.doc_id]} rows, {row.chunks} by the manifest")
            )
    return problems
