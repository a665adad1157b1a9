"""The log's current rows: those of the file versions the manifest names, each chunk once.

A file version is (doc_id, content_hash, run_id). The log may hold more: superseded versions, files a
killed run never finished, rows a retried task wrote twice. Knows nothing of the table.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from rag_pipeline.records import ManifestRow
from rag_pipeline.store import Layout
from rag_pipeline.store.parquet import list_parts, read_parts
from rag_pipeline.store.vectors import MISSING, KeyMap, to_keys


def current_rows(layout: Layout, rows: Iterable[ManifestRow], columns: list[str] | None = None) -> Iterator[pa.Table]:
    """Yields the current rows a part at a time; see `part_mask`.

    Raises:
        StoreError: A part is damaged.
    """
    versions = versions_of(rows)
    seen = KeyMap()
    parts = (part for part in list_parts(layout) if part.split("/")[0].removeprefix("run=") in versions)
    needed = columns and list({*columns, "chunk_id", "doc_id", "content_hash", "run_id"})
    for _, table in read_parts(layout, parts, needed):
        mask = part_mask(table, versions, seen)
        if mask.any():
            found = table.filter(pa.array(mask))
            yield found.select(columns) if columns else found


def versions_of(rows: Iterable[ManifestRow]) -> dict[str, dict[str, str]]:
    """Run id to doc id to content hash, of every file that has chunks."""
    versions: dict[str, dict[str, str]] = defaultdict(dict)
    for row in rows:
        if row.chunks:
            versions[row.run_id][row.doc_id] = row.content_hash
    return versions


def part_mask(table: pa.Table, versions: Mapping[str, Mapping[str, str]], seen: KeyMap) -> np.ndarray:
    """Which rows of a part are current and not in `seen` yet, bool [rows]; adds them to `seen`."""
    columns = (table[name].to_pylist() for name in ("run_id", "doc_id", "content_hash"))
    mask = np.array([versions.get(run, {}).get(doc) == content for run, doc, content in zip(*columns, strict=True)])
    keys = to_keys(table["chunk_id"])
    first = np.zeros(len(keys), dtype=bool)
    first[np.unique(keys, return_index=True)[1]] = True
    mask = mask.astype(bool) & first & (seen.find(keys) == MISSING)
    seen.add(keys[mask], np.zeros(int(mask.sum()), dtype=np.uint64))
    return np.asarray(mask)


def digest_rows(tables: Iterable[pa.Table], counts: Counter[str]) -> dict[str, int]:
    """Doc id to an order-independent digest of its rows, vectors included, the run that wrote them left out.

    Adds the number of rows per doc id to `counts`.
    """
    digests: dict[str, int] = defaultdict(int)
    for table in tables:
        vectors = np.ascontiguousarray(table["vector"].combine_chunks().flatten(), dtype=np.float32)
        size = vectors.nbytes // max(1, table.num_rows)
        data = vectors.tobytes()
        for number, row in enumerate(table.drop_columns(["vector", "run_id"]).to_pylist()):
            digest = hashlib.blake2b(json.dumps(row, sort_keys=True).encode(), digest_size=16)
            digest.update(data[number * size : (number + 1) * size])
            counts[row["doc_id"]] += 1
            digests[row["doc_id"]] += int.from_bytes(digest.digest(), "little")
    return dict(digests)
