"""What is on disk: where each part of an index lies, and one way to report that a disk said no.

One module per part: `parquet` (the log), `lance` (the table), `manifest`, `reports`, `lock`, `vectors`
(which prompts have a vector, and where); `files` reaches them all, on a disk or on S3. Knows nothing of
stages, engines or Ray.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from rag_pipeline.errors import RagPipelineError, StoreError, UnreachableError
from rag_pipeline.s3 import NO_ANSWER, S3Error
from rag_pipeline.store.files import Files, absolute, files_at

LOG = "parquet"
RUNS = "runs"
LOCK = "writer.lock"
_STAGING = "lancedb-next-"
_S3_ANSWER = re.compile(r"<Code>(.{1,100}?)</Code>.*?<Message>(.{1,300}?)</Message>")  # as LanceDB passes it on
_NO_ANSWER = re.compile(r"Generic S3 error|lacked the necessary privileges")  # LanceDB's words; missing is another
_HEX = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Layout:
    """The places of one index, as names within it; see README.md, "What is on disk".

    Attributes:
        root: A folder's absolute path, or an s3:// URL.
        database: Folder of the LanceDB database with the tables `chunks` and `files`.
    """

    root: str
    database: str = "lancedb"

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Layout:
        """The layout under a path or URL.

        Raises:
            ConfigError: The path is a URL nothing here can write.
        """
        return cls(absolute(os.fspath(path)))

    @property
    def files(self) -> Files:
        """The index's files."""
        return files_at(self.root)

    @property
    def lancedb(self) -> str:
        """Path or URL of the LanceDB database."""
        return self.files.where(self.database)

    def staging(self, embedding_fingerprint: str) -> Layout:
        """The same index with a database beside the serving one, where another model's table is built."""
        return replace(self, database=f"{_STAGING}{embedding_fingerprint[:16]}")

    @property
    def is_staging(self) -> bool:
        """Whether this is the layout of a table under construction."""
        return self.database.startswith(_STAGING)

    def stagings(self) -> list[str]:
        """Databases under construction, of this model or others."""
        return sorted({file.name.split("/")[0] for file in self.files.walk(_STAGING)})

    def table(self, name: str) -> str:
        """The folder of a LanceDB table."""
        return f"{self.database}/{name}.lance"

    def newest_version(self, table: str) -> tuple[str, str] | None:
        """What changes with every version of a table, without opening it; ``None`` where there is no table.

        The first of the two alone names the version: Lance's names put the newest first.
        """
        return self.files.first(f"{self.table(table)}/_versions")

    def run_parts(self, run_id: str) -> str:
        """The folder of one run's Parquet parts in the log, which is append-only."""
        return f"{LOG}/run={run_id}"

    def make(self) -> None:
        """Makes sure that the index can be written.

        Raises:
            IndexNotWritableError: The place refuses writing.
        """
        self.files.check_writable()


@contextlib.contextmanager
def store_errors(doing: str, where: str) -> Iterator[None]:
    """Turns what a disk, S3 or a store library raises into one StoreError; ours pass through."""
    try:
        yield
    except RagPipelineError:
        raise
    except (OSError, RuntimeError, ValueError, S3Error) as error:
        said = _S3_ANSWER.search(text := " ".join(str(error).split()))
        reason = ": ".join(said.groups()) if said else text[:300]
        silent = _NO_ANSWER.search(text) or (isinstance(error, S3Error) and error.kind in NO_ANSWER)
        kind = UnreachableError if silent else StoreError
        raise kind(f"{where}: {doing} failed: {reason}; nothing committed is lost, run again to resume") from error


def doc_filter(doc_ids: Iterable[str]) -> str:
    """A SQL filter by hex ids only, at least one, so that no name of a file can reach SQL."""
    ids = list(doc_ids)
    if not ids or not all(_HEX.fullmatch(doc_id) for doc_id in ids):
        raise ValueError("doc ids are 32 hex digits, at least one")
    return "doc_id IN ({})".format(", ".join(f"'{doc_id}'" for doc_id in ids))
