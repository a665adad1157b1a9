"""The documents behind the rows: where each lies, and whether it is still what was indexed.

Only files the manifest knows can be read, and only as long as their bytes are the indexed ones, so no name
in a request can lead anywhere else. Knows nothing of queries.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote_to_bytes

from rag_pipeline.config import SourceConfig
from rag_pipeline.errors import DocumentError, SourceError
from rag_pipeline.records import File, ManifestRow
from rag_pipeline.source import open_source
from rag_pipeline.store import Layout
from rag_pipeline.store.manifest import TABLE, Manifest
from rag_pipeline.store.reports import newest_reports

_LOOK_EVERY_S = 1.0


class Files:
    """The manifest as last read, and the source it was made from."""

    def __init__(self, layout: Layout, source: SourceConfig) -> None:
        self._manifest = Manifest(layout)
        self._newest = NewestVersion(layout, TABLE)
        self._stamp: tuple[str, str] | None = None
        self._rows: dict[str, ManifestRow] = {}
        if not source.path:
            recorded = next((report["source"] for report in newest_reports(layout) if report.get("source")), "")
            source = source.model_copy(update={"path": recorded})
        self._source = source

    def rows(self) -> dict[str, ManifestRow]:
        """Every known file by path; read again when a run has written."""
        stamp = self._newest()
        if stamp != self._stamp:
            self._rows, self._stamp = self._manifest.load(), stamp
        return self._rows

    def location(self, path: str) -> str:
        """The whole path or URL of a known file; the path alone where the source is not known."""
        if not self._source.path:
            return path
        if "://" in self._source.path:
            return f"{self._source.path.rstrip('/')}/{path}"
        return str(_local_path(self._source.path, path))

    def is_stale(self, path: str, rows: Mapping[str, ManifestRow] | None = None) -> bool | None:
        """Whether a file has changed or gone since it was indexed; ``None`` where that cannot be told cheaply.

        Args:
            path: The file.
            rows: What `rows` gave, to look for a new manifest once for many files.
        """
        row = (self.rows() if rows is None else rows).get(path)
        if row is None or not self._source.path or "://" in self._source.path:
            return None
        file = _local_path(self._source.path, path)
        try:
            info = file.stat()
            if (info.st_size, info.st_mtime_ns) == (row.size_bytes, row.mtime_ns):
                return False
            if info.st_size != row.size_bytes:
                return True
            return _hash_of(file, info.st_size, info.st_mtime_ns) != row.content_hash
        except OSError:
            return True

    def read(self, path: str) -> bytes:
        """The bytes of a known file, exactly those that were indexed.

        Raises:
            SourceError: The index does not know the file, the source is not known, or the file has changed.
        """
        row = self.rows().get(path)
        if row is None:
            raise SourceError(f"{path}: the index knows no such file")
        if not self._source.path:
            raise SourceError(f"{path}: the source is not known; pass -c with the config the index was made with")
        location = self.location(path).removeprefix("s3://")
        try:
            found = open_source(self._source).read(File(path, location, row.size_bytes, row.mtime_ns))
        except DocumentError as error:
            raise SourceError(f"{path}: {error.message}") from None
        if found.content_hash != row.content_hash:
            raise SourceError(f"{path}: it has changed since it was indexed; run `rag-pipeline index`")
        return found.data


@functools.lru_cache(maxsize=1024)
def _hash_of(file: Path, size_bytes: int, mtime_ns: int) -> str:
    """SHA-256 of a file as it is at that size and time; read once however often it is hit."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


class NewestVersion:
    """Tells when a table has a new version, without opening it; on S3, where a look is a request, a second late."""

    def __init__(self, layout: Layout, table: str) -> None:
        self._layout = layout
        self._table = table
        self._look_every_s = _LOOK_EVERY_S if "://" in layout.root else 0.0
        self._looked_at_s = -math.inf
        self._stamp: tuple[str, str] | None = None

    def __call__(self) -> tuple[str, str] | None:
        """What changes with every version; ``None`` where there is no table."""
        now_s = time.monotonic()
        if now_s - self._looked_at_s >= self._look_every_s:
            self._stamp = self._layout.newest_version(self._table)
            self._looked_at_s = now_s
        return self._stamp


def _local_path(root: str, path: str) -> Path:
    """The file of a path; names that are not UTF-8 are known by their bytes as ``%XX``."""
    folder = Path(os.path.abspath(os.path.expanduser(root)))
    file = folder / path
    if "%" in path and not file.exists():
        return folder / os.fsdecode(unquote_to_bytes(path))
    return file
