"""What is on disk: where each part of an index lies, and one way to report that a disk said no.

One module per part: `parquet` (the log), `lance` (the table), `manifest`, `reports`, `lock`, `vectors`
(which prompts have a vector, and where). Knows nothing of stages, engines or Ray.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rag_pipeline.errors import ConfigError, IndexNotWritableError, RagPipelineError, StoreError

_STAGING = "lancedb-next-"
_HEX = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of one index; see README.md, "What is on disk"."""

    root: Path
    database: str = "lancedb"

    @classmethod
    def at(cls, path: str) -> Layout:
        """The layout under a path.

        Raises:
            ConfigError: The path is a URL nothing here can write.
        """
        if "://" in path:
            raise ConfigError(f"index {path}: only local folders can hold an index; use a path")
        return cls(Path(os.path.abspath(os.path.expanduser(path))))

    @property
    def lancedb(self) -> Path:
        """The LanceDB database with the tables `chunks` and `files`."""
        return self.root / self.database

    def staging(self, embedding_fingerprint: str) -> Layout:
        """The same index with a database beside the serving one, where another model's table is built."""
        return replace(self, database=f"{_STAGING}{embedding_fingerprint[:16]}")

    @property
    def is_staging(self) -> bool:
        """Whether this is the layout of a table under construction."""
        return self.database.startswith(_STAGING)

    def stagings(self) -> list[Path]:
        """Databases under construction, of this model or others."""
        return sorted(self.root.glob(f"{_STAGING}*"))

    @property
    def parquet(self) -> Path:
        """The append-only log, one folder a run."""
        return self.root / "parquet"

    @property
    def runs(self) -> Path:
        """One report a run."""
        return self.root / "runs"

    @property
    def lock(self) -> Path:
        """The writer's lock."""
        return self.root / "writer.lock"

    def run_parts(self, run_id: str) -> Path:
        """The folder of one run's Parquet parts."""
        return self.parquet / f"run={run_id}"

    def make(self) -> None:
        """Creates the folders.

        Raises:
            IndexNotWritableError: The place refuses writing.
        """
        try:
            for folder in (self.root, self.lancedb, self.parquet, self.runs):
                folder.mkdir(parents=True, exist_ok=True)
            probe = self.root / ".write-probe"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise IndexNotWritableError(
                f"index {self.root}: cannot be written: {error.strerror}; choose another --index or fix its permissions"
            ) from None


@contextlib.contextmanager
def store_errors(doing: str, where: Path) -> Iterator[None]:
    """Turns what a disk or a store library raises into one StoreError; ours pass through."""
    try:
        yield
    except RagPipelineError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise StoreError(
            f"{where}: {doing} failed: {reason}; nothing committed is lost, run again to resume"
        ) from error


def doc_filter(doc_ids: Iterable[str]) -> str:
    """A SQL filter by hex ids only, at least one, so that no name of a file can reach SQL."""
    ids = list(doc_ids)
    if not ids or not all(_HEX.fullmatch(doc_id) for doc_id in ids):
        raise ValueError("doc ids are 32 hex digits, at least one")
    return "doc_id IN ({})".format(", ".join(f"'{doc_id}'" for doc_id in ids))


def restore_version(table: Any, version: int, where: Path) -> None:
    """Makes an earlier version of a LanceDB table the current one, as a new version.

    Raises:
        StoreError: That version is no longer kept.
    """
    with store_errors(f"restoring version {version} of {table.name}", where):
        table.checkout(version)
        table.restore()


def write_durably(path: Path, data: bytes) -> None:
    """Writes a whole file under its final name or not at all: temp name, fsync, rename, fsync of the folder."""
    temp = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    with store_errors("writing", path):
        try:
            with temp.open("wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            temp.replace(path)
            sync_folder(path.parent)
        finally:
            temp.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
