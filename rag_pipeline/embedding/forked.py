"""One engine in a process a core, started once and forked: what computes on a machine without a GPU.

Threads of one engine wait for each other at every layer, so that whoever takes one core for a moment, and Ray's
processes do so a thousand times a second, stops them all. Processes of a thread each lose that moment alone; a fork
takes no start and shares what is loaded. The engine starts in a process of its own, where nothing of Ray's is forked.
Knows nothing of rows.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn, TypeAlias, cast

import numpy as np

from rag_pipeline.embedding.engine_core import CoreEncoder

_Wire: TypeAlias = "Connection[Any, Any]"
_PIECE = range(8, 65)  # prompts handed to a process at once: fewer towards the end, so that all end together


class ForkedEncoder:
    """The processes of an engine, which end with this one; asked as `engine_core.CoreEncoder` is.

    Threads take turns.

    Args:
        model: The model's folder.
        arguments: vLLM's engine arguments.
        processes: How many.

    Raises:
        ChildProcessError: A process died.
        Exception: What vLLM raises when it cannot start, by its name; its failures have no common type.
    """

    def __init__(self, model: str, arguments: dict[str, Any], processes: int) -> None:
        pairs = [socket.socketpair() for _ in range(processes)]
        theirs = [their.fileno() for _, their in pairs]
        self._host = subprocess.Popen(
            [sys.executable, "-c", "from rag_pipeline.embedding.forked import host; host()", *map(str, theirs)],
            pass_fds=theirs,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        for _, their in pairs:
            their.close()
        self._connections: list[_Wire] = [Connection(our.detach()) for our, _ in pairs]
        self._turn = threading.Lock()
        with self._ended_by_a_death():
            self._connections[0].send((model, arguments))
            failure = self._connections[0].recv()
        if failure:
            self.close()
            raise failure.as_exception()

    def encode(self, prompts: list[list[int]]) -> np.ndarray:
        """Pooled vectors of token ids, in their order; float32 [prompts, the model's dimension].

        Quickest with the longest prompts last.

        Raises:
            ChildProcessError: A process died, now or before; the others are ended.
            Exception: What the engine raises, by its name; it keeps none of the prompts and can be asked again.
        """
        with self._turn, self._ended_by_a_death():
            answer = self._ask(prompts)
        if isinstance(answer, Failure):
            raise answer.as_exception()
        return answer

    def close(self) -> None:
        """Ends the processes."""
        for connection in self._connections:
            connection.close()  # the forks end when they look
        self._host.kill()
        self._host.wait()

    def _ask(self, prompts: list[list[int]]) -> np.ndarray | Failure:
        waiting = len(prompts)
        least = min(_PIECE[0], -(-waiting // len(self._connections)))
        idle, busy = list(self._connections), dict[_Wire, int]()
        made: dict[int, np.ndarray] = {}
        failure: Failure | None = None
        while busy or (waiting and not failure):  # all must have answered before the next call
            while idle and waiting and not failure:
                share = waiting // (2 * len(self._connections))
                size = min(waiting, max(least, min(_PIECE[-1], share)))
                waiting, connection = waiting - size, idle.pop()
                connection.send(prompts[waiting : waiting + size])
                busy[connection] = waiting
            for connection in cast("list[_Wire]", wait(list(busy))):
                answer, first = connection.recv(), busy.pop(connection)
                idle.append(connection)
                if isinstance(answer, Failure):
                    failure = answer
                else:
                    made[first] = answer
        return failure or np.concatenate([made[first] for first in sorted(made)])

    @contextlib.contextmanager
    def _ended_by_a_death(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, OSError) as error:
            self.close()
            raise ChildProcessError("a process of the engine died") from error
        except BaseException:  # an interrupt: answers that may still come belong to no call
            self.close()
            raise


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception on its way to another process, which may know nothing of its type."""

    name: str
    text: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """What can be told of it."""
        return cls(type(error).__name__, str(error))

    def as_exception(self) -> Exception:
        """One of the same name and text."""
        kind: type[Exception] = type(self.name, (RuntimeError,), {})
        return kind(self.text)


def host() -> None:
    """The life of the first process: starts the engine, forks it, then computes as the forks do."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    connections: list[_Wire] = [Connection(int(number)) for number in sys.argv[1:]]
    first = connections[0]
    # In a thread that ends: the threads it computes with end with it, and a fork misses none.
    with ThreadPoolExecutor(1) as starter:
        engine = starter.submit(_start, *first.recv()).result()
    if isinstance(engine, Failure):
        first.send(engine)
        return
    for connection in connections[1:]:
        if os.fork() == 0:
            _serve(engine, connection, connections)
    first.send(None)
    _serve(engine, first, connections)


def _start(model: str, arguments: dict[str, Any]) -> CoreEncoder | Failure:
    try:
        return CoreEncoder(model, arguments)
    except Exception as error:  # vLLM's failures have no common type
        return Failure.of(error)


def _serve(engine: CoreEncoder, own: _Wire, connections: list[_Wire]) -> NoReturn:
    """Token ids in, vectors or failures out, until the parent hangs up."""
    for connection in connections:
        if connection is not own:
            connection.close()  # else nobody would notice the end of the process it belongs to
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            prompts = own.recv()
            try:
                answer: np.ndarray | Failure = engine.encode(prompts)
            except Exception as error:  # vLLM's refusals have no common type
                answer = Failure.of(error)
            own.send(answer)
    os._exit(0)
