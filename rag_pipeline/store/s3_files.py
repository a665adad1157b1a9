"""The files of an index as objects below an s3:// prefix; see `files.Files`. Each call is a request or two.

Knows nothing of what the files hold.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rag_pipeline.errors import IndexMissingError, IndexNotWritableError, StoreError, UnreachableError
from rag_pipeline.s3 import NO_ANSWER, Bucket, S3Error, S3Object
from rag_pipeline.store.files import Stored
from rag_pipeline.store.lease import check_held

_TAIL_BYTES = 1 << 18  # what the first request of an opened file brings: its end, where Parquet has its footer


@functools.lru_cache(maxsize=16)
def bucket_at(root: str) -> Bucket:
    """The bucket and prefix of an index, by its URL."""
    return Bucket(root)


@dataclass(frozen=True, slots=True)
class S3Files:
    """Objects below a prefix; an object appears whole by itself, so nothing temporary is ever left."""

    root: str

    def where(self, name: str = "") -> str:
        """See `Files.where`."""
        return f"{self.root}/{name}" if name else self.root

    def check_writable(self) -> None:
        """See `Files.check_writable`."""
        try:
            self._bucket.put(".write-probe", b"")
            self._bucket.delete([".write-probe"])
        except S3Error as error:
            raise IndexNotWritableError(f"index {self.root}: cannot be written: {error}") from None

    def write(self, name: str, data: bytes | memoryview) -> None:
        """By one PutObject."""
        check_held(self.root)
        with _translated():
            self._bucket.put(name, bytes(data))

    def read(self, name: str) -> bytes:
        """See `Files.read`."""
        with _translated():
            return self._bucket.get(name)

    def open(self, name: str) -> pa.NativeFile:
        """See `Files.open`; every range that is read is of the version that was there when it was opened."""
        with _translated():
            found = next((found for found in self._bucket.list(name) if found.key == name), None)
            if found is None:
                raise FileNotFoundError(f"{self.where(name)}: no such object")
            return pa.PythonFile(_Ranges(self._bucket, found), mode="r")

    def walk(self, prefix: str) -> Iterator[Stored]:
        """See `Files.walk`."""
        with _translated():
            for found in self._bucket.list(prefix):
                yield Stored(found.key, found.size_bytes)

    def first(self, folder: str) -> tuple[str, str] | None:
        """See `Files.first`; S3 lists in order, so that one page is enough."""
        with _translated():
            found = next(self._bucket.list(f"{folder}/"), None)
            return (found.key.removeprefix(f"{folder}/"), found.etag) if found else None

    def delete(self, names: Iterable[str]) -> None:
        """See `Files.delete`."""
        check_held(self.root)
        with _translated():
            self._bucket.delete(names)

    def delete_folder(self, folder: str) -> None:
        """See `Files.delete_folder`."""
        self.delete([file.name for file in self.walk(f"{folder}/")])

    def move(self, name: str, to: str) -> None:
        """By a copy and a delete: a kill in between leaves both."""
        self.write(to, self.read(name))
        self.delete([name])

    def temporary(self) -> list[str]:
        """See `Files.temporary`."""
        return []

    @property
    def _bucket(self) -> Bucket:
        return bucket_at(self.root)


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Turns what S3 says into what `Files` promises."""
    try:
        yield
    except S3Error as error:
        if error.kind == "missing" and "NoSuchBucket" in str(error):
            raise IndexMissingError(str(error)) from error
        if error.kind == "missing":
            raise FileNotFoundError(str(error)) from error
        kind = UnreachableError if error.kind in NO_ANSWER else StoreError
        raise kind(f"{error}; nothing committed is lost, run again to resume") from error


class _Ranges(io.RawIOBase):
    """One version of an object, read by ranges; its end, for most small files all of it, comes with the first."""

    def __init__(self, bucket: Bucket, found: S3Object) -> None:
        self._bucket = bucket
        self._found = found
        self._at = 0
        self._tail_from = max(0, found.size_bytes - _TAIL_BYTES)
        self._tail = self._get(self._tail_from, found.size_bytes) if found.size_bytes else b""

    def _get(self, first: int, end: int) -> bytes:
        return self._bucket.get(self._found.key, etag=self._found.etag, first=first, last=end - 1)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._found.size_bytes}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._found.size_bytes)
        if end <= self._at:
            return 0
        with _translated():
            if self._at >= self._tail_from:
                data = self._tail[self._at - self._tail_from : end - self._tail_from]
            else:
                data = self._get(self._at, end)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
