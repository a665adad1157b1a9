"""Reading ahead: the next files of a task are under way before the current one is parsed.

Small objects are a matter of waiting, not of bandwidth. Knows nothing of where bytes come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from rag_pipeline.records import File, FileBytes, Listing
from rag_pipeline.source import Source

MAX_BYTES_AHEAD = 128_000_000


@contextmanager
def reading_ahead(source: Source, files: Sequence[File]) -> Iterator[Source]:
    """A source that reads these files in threads, as they will be asked for, in this order.

    Args:
        source: Whose `requests_in_flight` says how many at once; one that reads one at a time is given back as it is.
        files: What will be read; their listed sizes bound what is held in memory.
    """
    if source.requests_in_flight == 1 or len(files) < 2:
        yield source
        return
    with_threads = _AheadSource(source, files)
    try:
        yield with_threads
    finally:
        with_threads.close()


class _AheadSource:
    """Any source, with files under way in threads."""

    requests_in_flight = 1

    def __init__(self, source: Source, files: Sequence[File]) -> None:
        self._source = source
        self._waiting = {file.path: file for file in files}
        self._under_way: dict[str, tuple[File, Future[FileBytes]]] = {}
        self._bytes_ahead = 0
        self._threads = ThreadPoolExecutor(source.requests_in_flight, "read")

    @property
    def root(self) -> str:
        return self._source.root

    def list(self) -> Listing:
        return self._source.list()

    def read(self, file: File) -> FileBytes:
        self._start_more()
        if file.path in self._under_way:
            started, future = self._under_way.pop(file.path)
            self._bytes_ahead -= started.size_bytes
            self._start_more()
            return future.result()
        self._waiting.pop(file.path, None)
        return self._source.read(file)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start_more(self) -> None:
        while self._waiting:
            path, file = next(iter(self._waiting.items()))
            if self._under_way and self._bytes_ahead + file.size_bytes > MAX_BYTES_AHEAD:
                return
            del self._waiting[path]
            self._bytes_ahead += file.size_bytes
            self._under_way[path] = file, self._threads.submit(self._source.read, file)
