"""An S3 prefix as a source, through pyarrow's own S3 client. Credentials and region by the AWS chain.

Knows nothing of file formats or of what was indexed before.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

from rag_pipeline.config import SourceConfig
from rag_pipeline.errors import DocumentError, SourceError
from rag_pipeline.records import File, FileBytes, Listing
from rag_pipeline.source.selection import skip_verdict


class S3Source:
    """Lists and reads the objects below ``s3://bucket/prefix/``; a neighbour ``prefix2/`` is not below it."""

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._base = config.path.removeprefix("s3://").strip("/")

    @property
    def root(self) -> str:
        """The prefix as a URL."""
        return f"s3://{self._base}"

    def list(self) -> Listing:
        """Lists every object; see `Source.list`."""
        from pyarrow.fs import FileSelector, FileType

        try:
            found = self._client().get_file_info(FileSelector(self._base, recursive=True))
        except FileNotFoundError:
            raise SourceError(f"source {self.root}: no such bucket or prefix; check the URL") from None
        except OSError as error:
            raise SourceError(f"source {self.root}: cannot be listed: {_reason(error)}") from None
        files = []
        for info in found:
            if info.type != FileType.File:
                continue
            path = info.path[len(self._base) + 1 :]
            skip, reason = skip_verdict(self._config, path, info.size) or (None, "")
            files.append(File(path, info.path, info.size, info.mtime_ns or 0, skip, reason))
        return Listing(tuple(sorted(files, key=lambda file: file.path)))

    def read(self, file: File) -> FileBytes:
        """Reads one object whole; a body of another length than listed is refused."""
        try:
            with self._client().open_input_stream(file.location) as stream:
                data = stream.read()
        except FileNotFoundError:
            raise DocumentError("failed:vanished", "listed, but gone when it was read; run again") from None
        except OSError as error:
            raise DocumentError("failed:unreadable", _reason(error)) from None
        if len(data) != file.size_bytes:
            what = f"{len(data)} bytes read, {file.size_bytes} listed"
            raise DocumentError("failed:unreadable", f"{what}: it changed meanwhile; run again")
        return FileBytes(file.path, data, hashlib.sha256(data).hexdigest(), len(data), file.mtime_ns)

    def _client(self) -> Any:
        """A client of this process, by AWS_ENDPOINT_URL where that is set; region as the AWS variables say."""
        from pyarrow.fs import S3FileSystem

        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return S3FileSystem(endpoint_override=endpoint, region=region)


def _reason(error: OSError) -> str:
    return " ".join(str(error).split())[:300]
