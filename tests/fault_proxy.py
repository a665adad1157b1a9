"""An HTTP proxy on loopback that counts what passes and, by a plan, lets it go wrong as networks and servers do."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

CODES = {"403": "AccessDenied", "404": "NoSuchKey", "500": "InternalError", "503": "SlowDown"}
SLOW_S = 0.1


@dataclass(frozen=True)
class Request:
    """One request as it came; `nth` counts equal ones before it."""

    method: str
    path: str
    query: str
    nth: int

    @property
    def is_list(self) -> bool:
        """Whether S3 is asked for a page of a listing."""
        return self.method == "GET" and "list-type=2" in self.query


# What is to happen to a request: a key of `CODES`: that status; `reset`: the connection, before anything is done;
# `lost`: the same after the server did it; `hang`: no answer; `cut`: half the body; `flip`: one wrong bit in it;
# `slow`: an answer in pieces; `whole`: all of an object where a range was asked for; None: nothing unusual.
Plan = Callable[[Request], str | None]


def random_faults(seed: int, share: float, kinds: Sequence[str]) -> Plan:
    """Faults on a share of requests; whether and which depends on the request alone, not on who comes first."""

    def plan(request: Request) -> str | None:
        chance = random.Random(f"{seed} {request}")
        return chance.choice(kinds) if chance.random() < share else None

    return plan


class FaultProxy:
    """A proxy before one server; `plan` may be exchanged at any time."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self._upstream = (str(parts.hostname), int(parts.port or 80))
        self.url = ""
        self.reset()

    def reset(self) -> None:
        """Forgets what passed, and lets everything pass."""
        self.plan: Plan = lambda _: None
        self.requests: list[Request] = []
        self.faults: Counter[str] = Counter()
        self._seen: Counter[tuple[str, str]] = Counter()

    @contextlib.contextmanager
    def running(self) -> Iterator[FaultProxy]:
        """Listens on a free port in a thread of its own."""
        loop = asyncio.new_event_loop()
        server = loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(_end(server), loop).result(timeout=5)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def count(self, method: str) -> int:
        """How many requests of a method came that were no listing."""
        return sum(request.method == method and not request.is_list for request in self.requests)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            await self._answer(head, reader, writer)
        with contextlib.suppress(ConnectionError):
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        path, _, query = target.partition("?")
        request = Request(method, path, query, self._seen[method, target])
        self._seen[method, target] += 1
        self.requests.append(request)
        body = await _read_body(head, reader, writer)
        fault = self.plan(request)
        self.faults[fault or "none"] += 1
        if fault in CODES:
            writer.write(_error(fault))
        elif fault == "reset":
            _reset(writer)
        elif fault == "hang":
            await reader.read()  # until the client gives up
        else:
            answer = await self._ask(head, body, (b"connection:", b"expect:") + (b"range:",) * (fault == "whole"))
            if fault == "lost":
                _reset(writer)
            else:
                await _send(answer, fault, writer)

    async def _ask(self, head: bytes, body: bytes, dropped: tuple[bytes, ...]) -> bytes:
        """The server's whole answer to a request without these fields."""
        first, _, fields = head.partition(b"\r\n")
        reader, writer = await asyncio.open_connection(*self._upstream)
        kept = [line for line in fields.split(b"\r\n") if not line.lower().startswith(dropped)]
        writer.write(first + b"\r\nConnection: close\r\n" + b"\r\n".join(kept) + body)
        answer = await reader.read()
        writer.close()
        return answer


async def _end(server: asyncio.Server) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


async def _read_body(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:] if b": " in line)
    if b"100-continue" in fields.get(b"expect", b""):
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    return await reader.readexactly(int(fields.get(b"content-length", b"0")))


async def _send(answer: bytes, fault: str | None, writer: asyncio.StreamWriter) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    if fault == "cut":
        body = body[: len(body) // 2]
    elif fault == "flip" and body:
        body = bytes([body[0] ^ 1]) + body[1:]
    writer.write(head + b"\r\n\r\n")
    if fault == "slow":
        for piece in (body[: len(body) // 2], body[len(body) // 2 :]):
            await asyncio.sleep(SLOW_S / 2)
            writer.write(piece)
    else:
        writer.write(body)
    await writer.drain()


def _error(status: str) -> bytes:
    said = f"<Error><Code>{CODES[status]}</Code><Message>Said by the proxy</Message></Error>".encode()
    head = f"HTTP/1.1 {status} Fault\r\nContent-Type: application/xml\r\nConnection: close\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(said) + said


def _reset(writer: asyncio.StreamWriter) -> None:
    """Ends a connection so that the other side reads "connection reset", not an orderly end."""
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
