"""The error tree: every failure a user can act on, with the exit code the command line returns for it.

Each message says what went wrong, where, and what to do next. The errors hold nothing but their
arguments, so they cross process boundaries by pickling. Knows nothing of who raises or prints them.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_UNEXPECTED = 1
EXIT_REFUSED = 2
EXIT_FILES_FAILED = 3
EXIT_STOPPED = 4
EXIT_INCONSISTENT = 5
EXIT_LOCKED = 6
EXIT_DELETES_WITHHELD = 7
EXIT_REGRESSED = 8


class RagPipelineError(Exception):
    """Base of all errors this package raises on purpose."""

    exit_code = EXIT_UNEXPECTED


class ConfigError(RagPipelineError):
    """A setting, argument or model is refused before any work starts."""

    exit_code = EXIT_REFUSED


class SourceError(RagPipelineError):
    """The source cannot be listed at all (missing root, no permission, no files)."""

    exit_code = EXIT_REFUSED


class DocumentError(RagPipelineError):
    """One file cannot be turned into text; it becomes that file's state, never the run's end.

    Args:
        state: The file's final state, such as ``failed:encrypted`` or ``no_text``.
        message: What is wrong with the file and what its owner can do.
    """

    def __init__(self, state: str, message: str) -> None:
        super().__init__(state, message)
        self.state = state
        self.message = message

    def __str__(self) -> str:
        return f"{self.state}: {self.message}"


class EmbeddingError(RagPipelineError):
    """The embedding engine cannot start or stopped; what is committed stays, run again to resume."""

    exit_code = EXIT_STOPPED


class StoreError(RagPipelineError):
    """The index cannot be written or read; what is committed stays, run again to resume."""

    exit_code = EXIT_STOPPED


class UnreachableError(StoreError):
    """The place of the index does not answer or lets nobody in, which says nothing of what lies there."""


class IndexNotWritableError(StoreError):
    """The index location refuses writing before any work starts."""

    exit_code = EXIT_REFUSED


class IndexMissingError(StoreError):
    """There is no index where one is to be read."""

    exit_code = EXIT_REFUSED


class InconsistentIndexError(StoreError):
    """The index's parts disagree with each other."""

    exit_code = EXIT_INCONSISTENT


class LockedError(StoreError):
    """Another process is writing this index."""

    exit_code = EXIT_LOCKED


class StoppedError(RagPipelineError):
    """The run was asked to stop (Ctrl-C, SIGTERM) before its end; run again to resume."""

    exit_code = EXIT_STOPPED
