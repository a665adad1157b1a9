"""The Parquet log: whole parts that appear under their final name only, page checksums on.

A part holds chunk rows of one run and one embedding fingerprint, which stands in its footer. Knows
nothing of which rows are current: the manifest says that.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rag_pipeline.errors import StoreError
from rag_pipeline.store import LOG, Layout, store_errors
from rag_pipeline.store.files import Files, read_ahead

_EMBEDDING = b"rag_pipeline.embedding"


def write_part(files: Files, folder: str, table: pa.Table, embedding: str) -> str:
    """Writes rows as one durable part in a folder; `embedding` (JSON of the model) goes into its footer.

    Returns:
        The part's name within the log, ``run=<id>/part-<unique>-<hash of its footer>.parquet``: pages have
        checksums of their own, and the name vouches for the footer.

    Raises:
        StoreError: The place refused; no part of that name exists then.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata({_EMBEDDING: embedding.encode()}),
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        column_encoding={"vector.list.element": "BYTE_STREAM_SPLIT"},
        write_page_checksum=True,
    )
    data = sink.getvalue()
    name = f"part-{uuid.uuid4().hex[:16]}-{_footer_hash(pa.BufferReader(data))}.parquet"
    with store_errors("writing a Parquet part", files.where(folder)):
        files.write(f"{folder}/{name}" if folder else name, memoryview(data))
    return f"{folder.removeprefix(LOG + '/')}/{name}"


def _footer_hash(handle: pa.NativeFile) -> str:
    """Hashes a Parquet file's footer, its length and its closing mark."""
    size = handle.size()
    handle.seek(max(0, size - 8))
    length = int.from_bytes(handle.read(4), "little")
    handle.seek(max(0, size - length - 8))
    return hashlib.blake2b(handle.read(), digest_size=8).hexdigest()


def read_part(layout: Layout, part: str, columns: list[str] | None = None) -> pa.Table:
    """Reads a part, its checksums verified; the schema's metadata is that of the footer.

    Raises:
        StoreError: The part is gone or damaged.
    """
    name = f"{LOG}/{part}"
    where = layout.files.where(name)
    with store_errors("reading a Parquet part", where), layout.files.open(name) as handle:
        if not _vouched(handle, part):
            raise StoreError(f"{where}: damaged: its footer is not the one that was written; run `rag-pipeline repair`")
        return _read(handle, columns)


def read_parts(
    layout: Layout, parts: Iterable[str], columns: list[str] | None = None
) -> Iterator[tuple[str, pa.Table]]:
    """Reads parts one after the other, the next ones ahead; see `read_part`."""
    # A disk is not waited for: more whole parts than the next one would only be memory.
    at_once = 8 if columns or layout.root.startswith("s3://") else 2
    return read_ahead(lambda part: read_part(layout, part, columns), parts, at_once)


def is_damaged(layout: Layout, part: str) -> bool:
    """Whether a part cannot be read for good.

    Raises:
        StoreError: The place does not answer, which says nothing of the part.
    """
    try:
        handle = pa.BufferReader(layout.files.read(f"{LOG}/{part}"))
        if not _vouched(handle, part):
            return True
        _read(handle, None)
    except (OSError, ValueError):  # what a disk and Arrow raise; S3 that does not answer is a StoreError
        return True
    return False


def _vouched(handle: pa.NativeFile, part: str) -> bool:
    return _footer_hash(handle) == part.removesuffix(".parquet").rsplit("-", 1)[-1]


def _read(handle: pa.NativeFile, columns: list[str] | None) -> pa.Table:
    return pq.ParquetFile(handle, page_checksum_verification=True, pre_buffer=True).read(columns=columns)


def part_embedding(layout: Layout, part: str) -> dict[str, Any]:
    """The model of a part's vectors as its footer records it; see `embedding.model.Model.to_json`."""
    name = f"{LOG}/{part}"
    with store_errors("reading a Parquet part", layout.files.where(name)), layout.files.open(name) as handle:
        return embedding_of(pq.read_schema(handle))


def embedding_of(schema: pa.Schema) -> dict[str, Any]:
    """The model that a part's schema records."""
    return dict(json.loads((schema.metadata or {}).get(_EMBEDDING, b"{}")))


def delete_part(layout: Layout, part: str) -> None:
    """Removes a part, and its run's folder with the last one."""
    with store_errors("deleting a Parquet part", layout.files.where(f"{LOG}/{part}")):
        layout.files.delete([f"{LOG}/{part}"])


def list_parts(layout: Layout, run_id: str = "") -> Iterator[str]:
    """Names of all parts, or of one run's, oldest run first."""
    return (f"{run}/{name}" for run, name in log_files(layout, "part-", run_id))


def log_files(layout: Layout, prefix: str, run_id: str = "") -> list[tuple[str, str]]:
    """Folder (``run=<id>``) and name of the log's Parquet files whose name begins so, oldest run first."""
    paths = (file.name.split("/") for file in layout.files.walk(f"{LOG}/run={run_id}"))
    return sorted(
        (path[1], path[2])
        for path in paths
        if len(path) == 3 and path[2].startswith(prefix) and path[2].endswith(".parquet")
    )


def list_temporary(layout: Layout) -> list[str]:
    """What a killed writer left half-written."""
    return [layout.files.where(name) for name in layout.files.temporary()]


def sweep_temporary(layout: Layout) -> None:
    """Deletes what a killed writer left half-written. Needs the writer's lock."""
    layout.files.delete(layout.files.temporary())
