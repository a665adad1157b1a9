"""The files of an index by name: in a local folder, or as objects below an s3:// prefix.

A name is relative to the index, with slashes: ``parquet/run=…/part-….parquet``. A file appears whole under its
name or not at all; there are no empty folders to be seen. Knows nothing of what the files hold.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import pyarrow as pa

from rag_pipeline.errors import ConfigError, IndexNotWritableError
from rag_pipeline.s3 import Bucket

_TEMP_PREFIX = ".tmp-"
_Item = TypeVar("_Item")
_Read = TypeVar("_Read")


class Stored(NamedTuple):
    """One file as it is listed."""

    name: str
    size_bytes: int


class Files(Protocol):
    """The files below one place; small enough to pickle into every task, equal when the place is.

    A method that finds no file raises `FileNotFoundError`; other refusals are an `OSError` or a `StoreError`.
    """

    def where(self, name: str = "") -> str:
        """The whole path or URL, as a person would type it."""
        ...

    def check_writable(self) -> None:
        """Writes and deletes an empty file.

        Raises:
            IndexNotWritableError: The place refuses writing.
        """
        ...

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Writes a whole file, durably, or nothing; replaces what has its name."""
        ...

    def read(self, name: str) -> bytes:
        """A whole file."""
        ...

    def open(self, name: str) -> pa.NativeFile:
        """A file to be read here and there; to be closed."""
        ...

    def walk(self, prefix: str) -> Iterator[Stored]:
        """Every file whose name begins so, however deep, in no order."""
        ...

    def first(self, folder: str) -> tuple[str, str] | None:
        """The first name in order right in a folder, and what tells that file from an earlier one of its name."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Deletes files; those that are gone already are fine."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Deletes all files below a folder."""
        ...

    def move(self, name: str, to: str) -> None:
        """Gives a file another name."""
        ...

    def temporary(self) -> list[str]:
        """Names of files that killed writers left half-written."""
        ...


def files_at(root: str) -> Files:
    """The files of an index at an absolute path or URL."""
    if str(root).startswith("s3://"):
        from rag_pipeline.store.s3_files import S3Files

        return S3Files(root)
    return LocalFiles(Path(root))


def absolute(path: str) -> str:
    """The place of an index as it is known everywhere: an absolute path, or an s3:// URL without a closing slash.

    Raises:
        ConfigError: A URL that nothing here can write, or that names no bucket.
    """
    if path.startswith("s3://"):
        return Bucket(path.rstrip("/")).url
    if "://" in path:
        scheme = path.split("://", 1)[0]  # not the rest of it: credentials may have been typed into it
        raise ConfigError(f"index {scheme}://...: only a local folder or s3://bucket/prefix can hold an index")
    return os.path.abspath(os.path.expanduser(path))


def read_ahead(
    read: Callable[[_Item], _Read], items: Iterable[_Item], at_once: int = 8
) -> Iterator[tuple[_Item, _Read]]:
    """Reads items in their order, the next ones while one is used: on S3 it is the waiting that takes the time."""
    waiting: deque[tuple[_Item, Future[_Read]]] = deque()
    with ThreadPoolExecutor(at_once, thread_name_prefix="read-ahead") as pool:
        for item in items:
            waiting.append((item, pool.submit(read, item)))
            if len(waiting) == at_once:
                first, reading = waiting.popleft()
                yield first, reading.result()
        for first, reading in waiting:
            yield first, reading.result()


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Files in a local folder; see `Files`."""

    root: Path

    def where(self, name: str = "") -> str:
        """See `Files.where`."""
        return str(self.root / name)

    def check_writable(self) -> None:
        """See `Files.check_writable`."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / ".write-probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise IndexNotWritableError(
                f"index {self.root}: cannot be written: {error.strerror}; choose another --index or fix its permissions"
            ) from None

    def write(self, name: str, data: bytes | memoryview) -> None:
        """By a temporary name, fsync, rename, fsync of the folder."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temp = path.with_name(f"{_TEMP_PREFIX}{os.getpid()}-{path.name}")
        try:
            with temp.open("wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            temp.rename(path)
            _sync_folder(path.parent)
        finally:
            temp.unlink(missing_ok=True)

    def read(self, name: str) -> bytes:
        """See `Files.read`."""
        return (self.root / name).read_bytes()

    def open(self, name: str) -> pa.NativeFile:
        """See `Files.open`."""
        return pa.OSFile(str(self.root / name))

    def walk(self, prefix: str) -> Iterator[Stored]:
        """See `Files.walk`."""
        folder, _, start = prefix.rpartition("/")
        top = os.path.join(self.root, folder)
        for at, folders, names in os.walk(top):
            if at == top:
                folders[:] = [name for name in folders if name.startswith(start)]
                names = [name for name in names if name.startswith(start)]
            inside = os.path.relpath(at, self.root)
            for name in names:
                try:
                    size_bytes = os.stat(os.path.join(at, name)).st_size
                except FileNotFoundError:  # deleted meanwhile
                    continue
                yield Stored(name if inside == "." else f"{inside}/{name}", size_bytes)

    def first(self, folder: str) -> tuple[str, str] | None:
        """See `Files.first`; a folder made anew has another inode, and so have its files."""
        path = self.root / folder
        try:
            name = min((name for name in os.listdir(path) if not name.startswith(".")), default="")
            return (name, str(path.stat().st_ino)) if name else None
        except (FileNotFoundError, NotADirectoryError):
            return None

    def delete(self, names: Iterable[str]) -> None:
        """See `Files.delete`; folders that become empty go too."""
        for name in names:
            path = self.root / name
            path.unlink(missing_ok=True)
            try:
                while path.parent != self.root:
                    path = path.parent
                    path.rmdir()
            except OSError:  # it holds something else
                continue

    def delete_folder(self, folder: str) -> None:
        """See `Files.delete_folder`."""
        shutil.rmtree(self.root / folder, ignore_errors=True)

    def move(self, name: str, to: str) -> None:
        """See `Files.move`."""
        (self.root / to).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).rename(self.root / to)

    def temporary(self) -> list[str]:
        """See `Files.temporary`."""
        patterns = (f"parquet/run=*/{_TEMP_PREFIX}*", f"*/{_TEMP_PREFIX}*")
        return [str(file.relative_to(self.root)) for pattern in patterns for file in self.root.glob(pattern)]


def _sync_folder(folder: Path) -> None:
    """Makes renames in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
