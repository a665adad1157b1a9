"""Watch: one run after another, each when the source has changed since the one before.

A folder tells by itself (inotify and the like); a URL, or a folder on a network mount, is listed at an interval.
Neither reads a file, starts Ray or writes anything. Knows nothing of what a run does.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from rag_pipeline import errors
from rag_pipeline.config import SourceConfig
from rag_pipeline.errors import SourceError
from rag_pipeline.source import open_source
from rag_pipeline.source.selection import skip_verdict

INTERVAL_S = 60.0
_QUIET_MS = 500  # changes end when none came for so long ...
_PATIENCE_MS = 30_000  # ... or have gone on for so long
_FINISHED = (errors.EXIT_OK, errors.EXIT_FILES_FAILED, errors.EXIT_DELETES_WITHHELD)


def watch(source: SourceConfig, run: Callable[[], int], interval_s: float | None, tell: Callable[[str], None]) -> int:
    """Runs once, then after every change, until an interrupt; a run that did not finish is tried again.

    Args:
        source: What is watched.
        run: Brings the index in step and returns an exit code; changes that come meanwhile cause another run.
        interval_s: List the source so often; ``None`` leaves a folder to its events, and is a minute for a URL.
        tell: Is told what a person should know.

    Returns:
        The first run's exit code, if it was refused: nothing would become better by itself.
    """
    path, retry_s = source.path, interval_s or INTERVAL_S
    changes: _Changes = (
        _Events(source) if interval_s is None and "://" not in path else _Listings(source, retry_s, tell)
    )
    refused_is_final = True
    while True:
        changes.mark()
        code = run()
        if code == errors.EXIT_REFUSED and refused_is_final:
            return code
        refused_is_final = False
        if code not in _FINISHED:
            tell(f"watch: the run ended with exit code {code}; the next is in {retry_s:g} s, or after a change")
        changes.wait(None if code in _FINISHED else retry_s)


class _Changes(Protocol):
    """A way to learn of changes."""

    def mark(self) -> None:
        """From here on changes count."""
        ...

    def wait(self, timeout_s: float | None) -> None:
        """Returns when there are changes since the mark, or when the time is over."""
        ...


class _Listings:
    """Compares listings: all that is known of every file without reading it."""

    def __init__(self, source: SourceConfig, interval_s: float, tell: Callable[[str], None]) -> None:
        self._source = open_source(source)
        self._interval_s = interval_s
        self._tell = tell
        self._seen = self._now = ""

    def mark(self) -> None:
        """Takes what was listed last for what the next run will find."""
        with contextlib.suppress(SourceError):  # the run will say so
            self._now = self._now or self._digest()
        self._seen = self._now

    def wait(self, timeout_s: float | None) -> None:
        """Lists until something differs."""
        give_up = time.monotonic() + timeout_s if timeout_s else None
        while give_up is None or time.monotonic() < give_up:
            time.sleep(self._interval_s)
            try:
                self._now = self._digest()
            except SourceError as error:
                self._tell(f"watch: {error}")
            if self._now != self._seen:
                return

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for file in self._source.list().files:
            digest.update(repr(file).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


class _Events:
    """Listens to the file system, also while a run is under way."""

    def __init__(self, source: SourceConfig) -> None:
        self._root = open_source(source).root
        # What may be a folder is not held against source.include: a renamed one tells nothing of its files.
        self._config = source.model_copy(update={"include": ()})
        self._events: Iterator[set[Any]] | None = None
        self._watched: tuple[int, int] | None = None

    def mark(self) -> None:
        """Listens to the folder of this name, which may be another one by now; a missing one is waited for."""
        if self._events is None or self._identity() != self._watched:
            self._watched = self._identity()
            self._events = self._listen() if self._watched else None

    def wait(self, timeout_s: float | None) -> None:
        """Waits for events of files that could be read."""
        give_up = time.monotonic() + timeout_s if timeout_s else None
        while give_up is None or time.monotonic() < give_up:
            if self._identity() != self._watched:
                return
            if self._events is None:
                time.sleep(_QUIET_MS / 1000)
            elif next(self._events):
                return

    def _listen(self) -> Iterator[set[Any]]:
        """Yields sets of changes, empty ones when there were none for a moment; hears from now on."""
        from watchfiles import watch as listen

        events = listen(
            self._root,
            watch_filter=self._matters,
            step=_QUIET_MS,
            debounce=_PATIENCE_MS,
            rust_timeout=_QUIET_MS,
            yield_on_timeout=True,
            ignore_permission_denied=True,
        )
        try:
            next(events)  # it begins to hear when it is first asked
        except OSError as error:
            what = f"source {self._root}: cannot be watched: {error}"
            raise SourceError(f"{what}; --interval SECONDS lists it instead") from None
        return events

    def _matters(self, _: Any, path: str) -> bool:
        relative = os.path.relpath(path, self._root).replace(os.sep, "/") + "/" * Path(path).is_dir()
        return relative.startswith("..") or relative == "./" or skip_verdict(self._config, relative, 0) is None

    def _identity(self) -> tuple[int, int] | None:
        with contextlib.suppress(OSError):
            info = os.stat(self._root)
            return info.st_dev, info.st_ino
        return None
