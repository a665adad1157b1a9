"""The Parquet log: whole parts that appear under their final name only, page checksums on.

A part holds chunk rows of one run and one embedding fingerprint, which stands in its footer. Knows
nothing of which rows are current: the manifest says that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rag_pipeline.errors import StoreError
from rag_pipeline.store import Layout, store_errors, sync_folder

_EMBEDDING = b"rag_pipeline.embedding"
_TEMP_PREFIX = ".tmp-"


def write_part(folder: Path, table: pa.Table, embedding: str) -> str:
    """Writes rows as one durable part; `embedding` (JSON of the model) goes into its footer.

    Returns:
        The part's name within the log, ``run=<id>/part-<unique>-<hash of its footer>.parquet``: pages have
        checksums of their own, and the name vouches for the footer.

    Raises:
        StoreError: The disk refused; no part of that name exists then.
    """
    unique = uuid.uuid4().hex[:16]
    temp = folder / f"{_TEMP_PREFIX}part-{unique}"
    table = table.replace_schema_metadata({_EMBEDDING: embedding.encode()})
    with store_errors("writing a Parquet part", folder):
        try:
            with temp.open("wb") as handle:
                pq.write_table(
                    table,
                    handle,
                    compression="zstd",
                    compression_level=1,
                    use_dictionary=False,
                    column_encoding={"vector.list.element": "BYTE_STREAM_SPLIT"},
                    write_page_checksum=True,
                )
                handle.flush()
                os.fsync(handle.fileno())
            final = folder / f"part-{unique}-{_footer_hash(temp)}.parquet"
            temp.rename(final)
            sync_folder(folder)
        finally:
            temp.unlink(missing_ok=True)
    return f"{folder.name}/{final.name}"


def _footer_hash(file: Path) -> str:
    """Hashes a Parquet file's footer, its length and its closing mark."""
    with file.open("rb") as handle:
        handle.seek(-8, os.SEEK_END)
        length = int.from_bytes(handle.read(4), "little")
        handle.seek(-min(length + 8, file.stat().st_size), os.SEEK_END)
        return hashlib.blake2b(handle.read(), digest_size=8).hexdigest()


def read_part(layout: Layout, part: str, columns: list[str] | None = None) -> pa.Table:
    """Reads a part, its checksums verified.

    Raises:
        StoreError: The part is gone or damaged.
    """
    path = layout.parquet / part
    with store_errors("reading a Parquet part", path):
        if _footer_hash(path) != path.stem.rsplit("-", 1)[-1]:
            raise StoreError(f"{path}: damaged: its footer is not the one that was written; run `rag-pipeline repair`")
        return pq.ParquetFile(path, page_checksum_verification=True).read(columns=columns)


def part_embedding(layout: Layout, part: str) -> dict[str, Any]:
    """The model of a part's vectors as its footer records it; see `embedding.model.Model.to_json`."""
    path = layout.parquet / part
    with store_errors("reading a Parquet part", path):
        metadata = pq.read_schema(path).metadata or {}
    return dict(json.loads(metadata.get(_EMBEDDING, b"{}")))


def delete_part(layout: Layout, part: str) -> None:
    """Removes a part, and its run's folder with the last one."""
    path = layout.parquet / part
    with store_errors("deleting a Parquet part", path):
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def list_parts(layout: Layout) -> Iterator[str]:
    """Names of all parts, oldest run first."""
    for folder in sorted(layout.parquet.glob("run=*")):
        for file in sorted(folder.glob("part-*.parquet")):
            yield f"{folder.name}/{file.name}"


def list_temporary(layout: Layout) -> list[Path]:
    """What a killed writer left half-written."""
    return [*layout.parquet.glob(f"run=*/{_TEMP_PREFIX}*"), *layout.root.glob(f"*/{_TEMP_PREFIX}*")]


def sweep_temporary(layout: Layout) -> None:
    """Deletes what a killed writer left half-written. Needs the writer's lock."""
    for file in list_temporary(layout):
        file.unlink(missing_ok=True)
