"""A local folder as a source: our own walk, where every odd entry is counted and nothing is followed twice.

Knows nothing of file formats or of what was indexed before.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from rag_pipeline.config import SourceConfig
from rag_pipeline.errors import DocumentError, SourceError
from rag_pipeline.records import File, FileBytes, Listing
from rag_pipeline.source.selection import skip_verdict


def encode_path(name: str) -> str:
    """Turns an `os.fsdecode`d relative path into valid Unicode: bytes that are not UTF-8 become ``%XX``."""
    if not any("\udc80" <= char <= "\udcff" for char in name):
        return name
    return "".join(f"%{ord(char) - 0xDC00:02X}" if "\udc80" <= char <= "\udcff" else char for char in name)


class LocalSource:
    """Lists and reads a folder; links to files are read, links to folders only if asked, never in a loop."""

    requests_in_flight = 1

    def __init__(self, config: SourceConfig) -> None:
        self._config = config
        self._root = os.path.abspath(os.path.expanduser(config.path))

    @property
    def root(self) -> str:
        """The folder's absolute path."""
        return self._root

    def list(self) -> Listing:
        """Walks the folder; see `Source.list`."""
        root = Path(self._root)
        if not root.exists():
            raise SourceError(f"source {self._root}: no such folder; check the path, or mount it")
        if not root.is_dir():
            raise SourceError(f"source {self._root}: not a folder; name the folder that holds the file")
        walk = _Walk(self._config, self._root)
        found: dict[str, File] = {}
        for file in walk.files():
            while file.path in found:  # a name with a literal %XX and one with that raw byte
                raw = file.path.replace("%", "%25")
                file = File(raw, file.location, file.size_bytes, file.mtime_ns, file.skip, file.reason)
            found[file.path] = file
        return Listing(tuple(found[path] for path in sorted(found)), tuple(walk.unreadable))

    def read(self, file: File) -> FileBytes:
        """Reads one file; a file that changes while it is read is read again, then refused."""
        for _ in range(3):
            try:
                with open(file.location, "rb") as handle:
                    before = os.fstat(handle.fileno())
                    data = handle.read()
                    after = os.fstat(handle.fileno())
            except FileNotFoundError:
                raise DocumentError("failed:vanished", "listed, but gone when it was read; run again") from None
            except OSError as error:
                raise DocumentError("failed:unreadable", f"{error.strerror}; check its permissions") from None
            if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size) and len(
                data
            ) == after.st_size:
                digest = hashlib.sha256(data).hexdigest()
                return FileBytes(file.path, data, digest, len(data), after.st_mtime_ns)
        raise DocumentError("failed:unreadable", "kept changing while it was read; run again when it is complete")


class _Walk:
    """One walk over one folder."""

    def __init__(self, config: SourceConfig, root: str) -> None:
        self._config = config
        self._root = root
        self.unreadable: list[str] = []

    def files(self) -> Iterator[File]:
        """Yields every entry that is not a plain folder; linked folders come last, each at most once."""
        walked: set[tuple[int, int]] = set()
        pending = [self._root]
        links: list[str] = []
        while pending or links:
            folder = pending.pop() if pending else links.pop(0)
            try:
                info = os.stat(folder)
            except OSError as error:
                prefix = self._relative(folder) + "/"
                self.unreadable.append(prefix)
                yield File(prefix, folder, skip="failed:unreadable", reason=f"cannot be listed: {error.strerror}")
                continue
            if (info.st_dev, info.st_ino) in walked:
                yield self._skipped(folder, "symlink", "leads to a folder that is already listed")
                continue
            walked.add((info.st_dev, info.st_ino))
            try:
                with os.scandir(folder) as entries:
                    listed = sorted(entries, key=lambda entry: entry.name, reverse=True)
            except OSError as error:
                if folder == self._root:
                    raise SourceError(f"source {folder}: cannot be listed: {error.strerror}") from None
                prefix = self._relative(folder) + "/"
                self.unreadable.append(prefix)
                yield File(prefix, folder, skip="failed:unreadable", reason=f"cannot be listed: {error.strerror}")
                continue
            while listed:
                entry = listed.pop()  # each is let go of, since it keeps what `stat` said
                found = self._entry(entry)
                if isinstance(found, File):
                    yield found
                elif entry.is_symlink():
                    links.append(entry.path)
                else:
                    pending.append(entry.path)

    def _entry(self, entry: os.DirEntry[str]) -> File | None:
        """A file record for one entry, or ``None`` for a folder to walk into."""
        path = self._relative(entry.path)
        try:
            info = entry.stat()
        except OSError as error:
            kind = (
                ("skipped:symlink", "the link leads nowhere")
                if entry.is_symlink()
                else ("failed:unreadable", str(error.strerror))
            )
            if not entry.is_symlink():
                self.unreadable.append(path + "/")
            return File(path, entry.path, skip=kind[0], reason=kind[1])
        if stat.S_ISDIR(info.st_mode):
            verdict = skip_verdict(self._config, path + "/", 0)
            if verdict:
                return File(path + "/", entry.path, skip=verdict[0], reason=verdict[1])
            if entry.is_symlink() and not self._config.follow_symlinks:
                return self._skipped(entry.path, "symlink", "a link to a folder; source.follow_symlinks walks into it")
            return None
        if not stat.S_ISREG(info.st_mode):
            return File(path, entry.path, skip="skipped:special", reason="not a regular file")
        skip, reason = skip_verdict(self._config, path, info.st_size) or (None, "")
        return File(path, entry.path, info.st_size, info.st_mtime_ns, skip, reason)

    def _skipped(self, folder: str, state: str, reason: str) -> File:
        return File(self._relative(folder) + "/", folder, skip=f"skipped:{state}", reason=reason)

    def _relative(self, path: str) -> str:
        relative = os.path.relpath(path, self._root)
        return encode_path(relative.replace(os.sep, "/"))
