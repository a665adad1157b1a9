"""An S3 prefix as a source: what it holds by one listing, each object read as one version.

Knows nothing of file formats or of what was indexed before.
"""

from __future__ import annotations

import hashlib

from rag_pipeline.config import SourceConfig
from rag_pipeline.errors import DocumentError, SourceError
from rag_pipeline.records import File, FileBytes, Listing
from rag_pipeline.s3 import Bucket, S3Error, S3Object
from rag_pipeline.source.selection import skip_verdict


class S3Source:
    """Lists and reads the objects below ``s3://bucket/prefix/``; a file's path is its key, to the letter."""

    requests_in_flight = 32

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._bucket = Bucket(config.path)

    @property
    def root(self) -> str:
        """The prefix as a URL."""
        return self._bucket.url

    def list(self) -> Listing:
        """Lists every object; see `Source.list`. One page that cannot be had fails the whole listing."""
        try:
            found = list(self._bucket.list())
        except S3Error as error:
            raise SourceError(f"source {self.root}: cannot be listed: {error}") from None
        if not found:
            raise SourceError(f"source {self.root}: no such bucket or prefix; check the URL")
        files = [self._file(item) for item in found if item.key or item.size_bytes]  # no key: the prefix's own marker
        return Listing(tuple(sorted(files, key=lambda file: file.path)))

    def read(self, file: File) -> FileBytes:
        """Reads one object whole, in the version listed or, if that is gone, in the newest one."""
        try:
            data, version = self._fetch(file)
        except S3Error as error:
            if error.kind == "missing":
                raise DocumentError("failed:vanished", "listed, but gone when it was read; run again") from None
            raise DocumentError("failed:unreadable", error.message) from None
        return FileBytes(file.path, data, hashlib.sha256(data).hexdigest(), len(data), version.mtime_ns, version.etag)

    def _fetch(self, file: File) -> tuple[bytes, S3Object]:
        max_bytes = int(self._config.max_file_mb * 1e6)
        try:
            return self._bucket.fetch(file.path, etag=file.etag or None, max_bytes=max_bytes)
        except S3Error as error:
            if error.kind != "changed":
                raise
        return self._bucket.fetch(file.path, max_bytes=max_bytes)

    def _file(self, item: S3Object) -> File:
        location = f"{self.root}/{item.key}"
        if item.key.endswith("/") and not item.size_bytes:
            return File(item.key, location, skip="skipped:special", reason="an empty object that stands for a folder")
        skip, reason = skip_verdict(self._config, item.key, item.size_bytes) or (None, "")
        return File(item.key, location, item.size_bytes, item.mtime_ns, skip, reason, etag=item.etag)
