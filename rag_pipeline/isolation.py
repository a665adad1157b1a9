"""Isolation: `stages.parse` in a child process, so that one bad file costs itself only.

A parser in native code can crash, hang or eat all memory; no exception tells of it. The child is killed for it,
the file is tried once more in a fresh one, and files before and after it are not parsed twice. Knows nothing of
formats: what the child calls is handed over by name.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from rag_pipeline.config import ParseConfig
from rag_pipeline.errors import DocumentError, StoppedError
from rag_pipeline.records import Document, FileBytes

_PARSE = "rag_pipeline.stages.parse:parse"
_RECYCLE_AFTER_FILES = 500
_POLL_S = 0.05
_START_S = 120
_MIB = 2**20
_PR_SET_PDEATHSIG = 1


def parse(file: FileBytes, settings: ParseConfig, *, timeout_s: float, memory_mb: int) -> Document:
    """Parses a file as `stages.parse.parse` does, in this process's own child, which lives on for the next file.

    Raises:
        DocumentError: As the parser does, and ``failed:timeout``, ``failed:memory`` or ``failed:crash``.
        StoppedError: No child can be started.
    """
    return _own_parser(timeout_s, memory_mb).parse(file, settings)


class IsolatedParser:
    """One child process that parses, replaced whenever it must be killed; use it as a context manager.

    Args:
        timeout_s: Wall time a file may take.
        memory_mb: Resident memory the child may take, MiB.
        function: What the child calls with file and settings, as ``module:name``.
    """

    def __init__(self, timeout_s: float, memory_mb: int, function: str = _PARSE) -> None:
        self._timeout_s = timeout_s
        self._memory_bytes = memory_mb * _MIB
        self._function = function
        self._child: subprocess.Popen[bytes] | None = None
        self._watched: psutil.Process | None = None
        self._connection: Connection[Any, Any] | None = None
        self._files = 0

    def __enter__(self) -> IsolatedParser:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def parse(self, file: FileBytes, settings: ParseConfig) -> Document:
        """Parses a file; a child that dies of it gets a successor, which tries once more.

        Raises:
            DocumentError: As the parser does, and ``failed:timeout``, ``failed:memory`` or ``failed:crash``.
        """
        try:
            return self._ask(file, settings)
        except _ChildLostError:
            pass
        try:
            return self._ask(file, settings)
        except _ChildLostError as lost:
            raise DocumentError(lost.state, f"{lost.reason}, twice") from None

    def close(self) -> None:
        """Ends the child; SIGKILL, since it may be deep in native code."""
        if self._connection is not None:
            self._connection.close()
        if self._child is not None:
            self._child.kill()
            self._child.wait()
        self._child = self._connection = None

    def _ask(self, file: FileBytes, settings: ParseConfig) -> Document:
        connection = self._ready()
        self._files += 1
        try:
            connection.send((file, settings))
            self._await_answer(connection)
            kind, value = connection.recv()
        except (EOFError, OSError):
            raise self._lost("failed:crash", "") from None
        except BaseException:  # an interrupt: the answer that may still come belongs to no question
            self.close()
            raise
        if kind == "memory":
            raise self._lost("failed:memory", self._too_much())
        if kind == "document":
            return value  # type: ignore[no-any-return]
        raise value

    def _await_answer(self, connection: Connection[Any, Any]) -> None:
        """Returns when there is an answer, or the end of the child, to be read."""
        assert self._watched is not None
        deadline = time.monotonic() + self._timeout_s
        while not connection.poll(_POLL_S):
            with contextlib.suppress(psutil.Error):
                if self._watched.memory_info().rss > self._memory_bytes:
                    raise self._lost("failed:memory", self._too_much())
            if time.monotonic() > deadline:
                raise self._lost("failed:timeout", f"its parser did not end within {self._timeout_s:g} s")

    def _too_much(self) -> str:
        return f"its parser took more than {self._memory_bytes // _MIB} MiB of memory"

    def _lost(self, state: str, reason: str) -> _ChildLostError:
        """Buries the child; says how it ended if nobody knows better."""
        assert self._child is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._child.wait(timeout=0 if reason else 2)
            name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            reason = reason or f"its parser died ({name})"
        self.close()
        return _ChildLostError(state, reason or "its parser closed the connection")

    def _ready(self) -> Connection[Any, Any]:
        """The connection to a child that can take a file."""
        if self._files >= _RECYCLE_AFTER_FILES or (self._child and self._child.poll() is not None):
            self.close()
        if self._connection is None:
            ours, theirs = socket.socketpair()
            arguments = [str(theirs.fileno()), self._function, str(self._memory_bytes), str(os.getpid())]
            self._child = subprocess.Popen(
                [sys.executable, "-c", "from rag_pipeline.isolation import serve; serve()", *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            theirs.close()
            self._watched = psutil.Process(self._child.pid)
            self._connection = Connection(ours.detach())
            self._files = 0
            self._await_start(self._connection)
        return self._connection

    def _await_start(self, connection: Connection[Any, Any]) -> None:
        """Waits until the child has imported what it needs: the time of that is no file's."""
        try:
            if connection.poll(_START_S) and connection.recv():
                return
            why = f"no sign of life within {_START_S} s"
        except (EOFError, OSError):
            why = "it ended at once"
        self.close()
        raise StoppedError(f"the process that parses files cannot start: {why}; free memory, then run again")


class _ChildLostError(Exception):
    """The child is gone, and with it the file's first or second chance."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(state, reason)
        self.state = state
        self.reason = reason


@functools.lru_cache(maxsize=1)
def _own_parser(timeout_s: float, memory_mb: int) -> IsolatedParser:
    parser = IsolatedParser(timeout_s, memory_mb)
    atexit.register(parser.close)
    return parser


def serve() -> None:
    """The child's life: files in, documents or errors out, until the parent hangs up."""
    descriptor, function, memory_bytes, parent = sys.argv[1:]
    die_with(int(parent))
    _limit_memory(int(memory_bytes))
    module, name = function.split(":")
    call = getattr(__import__(module, fromlist=[name]), name)
    connection: Connection[Any, Any] = Connection(int(descriptor))
    with contextlib.suppress(EOFError, ConnectionError):
        connection.send("ready")
        while True:
            file, settings = connection.recv()
            connection.send(_answer(call, file, settings, int(memory_bytes)))


def _answer(call: Any, file: FileBytes, settings: ParseConfig, memory_bytes: int) -> tuple[str, Any]:
    try:
        return "document", call(file, settings)
    except MemoryError:
        return "memory", None
    except DocumentError as error:
        # Native code that is refused memory gives reasons of its own.
        return ("memory", None) if _peak_bytes() > memory_bytes else ("error", error)
    except Exception as error:  # one bad file costs itself only, whatever a parser raises
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return "error", DocumentError("failed:parse", text)


def die_with(parent: int) -> None:
    """Asks the kernel to kill this process with its parent, even in native code (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _limit_memory(memory_bytes: int) -> None:
    """A hard limit behind the parent's watch, for what grows faster than it looks."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes * 3 // 2, resource.RLIM_INFINITY))


def _peak_bytes() -> int:
    """The most memory this process ever had; what the kernel reports of a child begins with its parent's."""
    with contextlib.suppress(OSError):
        line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return 0
