"""The read stage over S3 beside plain boto3 in as many threads: same objects, same server, turn by turn.

    python scripts/bench/read_s3.py --objects 2000 --kilobytes 20 --delay-ms 30

The server is a few lines of our own in a process of its own: it waits as S3 does before the first byte and costs
little, so that clients are compared and not servers. `--moto` takes moto's instead.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import multiprocessing
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

KEYS = {"AWS_ACCESS_KEY_ID": "made", "AWS_SECRET_ACCESS_KEY": "up", "AWS_REGION": "us-east-1"}


def serve(pipe: Connection, objects: int, size_bytes: int, delay_s: float) -> None:
    """Answers GETs of objects and of one page listing; keeps connections open."""
    data = os.urandom(size_bytes)
    etag = hashlib.md5(data).hexdigest()
    stamps = f'ETag: "{etag}"\r\nLast-Modified: Mon, 05 Jan 2026 10:00:00 GMT\r\nAccept-Ranges: bytes\r\n'
    item = (
        f"<Size>{size_bytes}</Size><ETag>&quot;{etag}&quot;</ETag><LastModified>2026-01-05T10:00:00.000Z</LastModified>"
    )
    items = "".join(f"<Contents><Key>docs/{number:06}.md</Key>{item}</Contents>" for number in range(objects))
    listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body, fields = (listing, "") if b"list-type=2" in head.split(b"\r\n", 1)[0] else (data, stamps)
                await asyncio.sleep(delay_s)
                writer.write(f"HTTP/1.1 200 OK\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


def serve_moto(pipe: Connection, objects: int, size_bytes: int, delay_s: float) -> None:
    """The same objects in moto; `delay_s` is not used."""
    import logging

    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    backend.create_bucket("bench", "us-east-1")
    for number in range(objects):
        backend.put_object("bench", f"docs/{number:06}.md", os.urandom(size_bytes))
    pipe.send(server.get_host_and_port()[1])
    time.sleep(3600)


def plain(keys: list[str], threads: int) -> tuple[float, float]:
    """What anybody would write: get_object in threads. Seconds of wall and CPU time, its client made before."""
    import boto3
    from botocore.config import Config

    client = boto3.session.Session().client("s3", config=Config(max_pool_connections=threads))
    begun = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(threads) as pool:
        read = list(pool.map(lambda key: len(client.get_object(Bucket="bench", Key=key)["Body"].read()), keys))
    assert len(read) == len(keys)
    return time.perf_counter() - begun[0], time.process_time() - begun[1]


def ours(keys: list[str], threads: int) -> tuple[float, float]:
    """The read stage as a task runs it, bytes hashed; listed before the time is taken."""
    from rag_pipeline.config import SourceConfig
    from rag_pipeline.source.ahead import reading_ahead
    from rag_pipeline.source.s3 import S3Source

    source = S3Source(SourceConfig(path="s3://bench/docs"))
    source.requests_in_flight = threads
    files = source.list().files
    begun = time.perf_counter(), time.process_time()
    with reading_ahead(source, files) as ahead:
        read = [ahead.read(file).size_bytes for file in files]
    assert len(read) == len(keys)
    return time.perf_counter() - begun[0], time.process_time() - begun[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=2000)
    parser.add_argument("--kilobytes", type=int, default=20)
    parser.add_argument("--delay-ms", type=float, default=30)
    parser.add_argument("--threads", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--moto", action="store_true")
    args = parser.parse_args()
    here, there = multiprocessing.Pipe()
    target = serve_moto if args.moto else serve
    spec = (there, args.objects, args.kilobytes * 1000, args.delay_ms / 1000)
    server = multiprocessing.get_context("spawn").Process(target=target, args=spec, daemon=True)
    server.start()
    os.environ.update(KEYS, AWS_ENDPOINT_URL=f"http://127.0.0.1:{here.recv()}")
    keys = [f"docs/{number:06}.md" for number in range(args.objects)]
    rates: dict[str, list[tuple[float, float]]] = {"plain boto3": [], "read stage": []}
    for number in range(args.rounds + 1):
        for name in rates if number % 2 else reversed(list(rates)):
            wall_s, cpu_s = (plain if name == "plain boto3" else ours)(keys, args.threads)
            if number:  # the first round warms both up
                rates[name].append((args.objects / wall_s, cpu_s / args.objects * 1000))
    for name, found in rates.items():
        rate, cpu_ms = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{name:<12} {rate:7.0f} objects/s {rate * args.kilobytes / 1000:7.1f} MB/s {cpu_ms:6.2f} ms of CPU each")
    pairs = zip(rates["read stage"], rates["plain boto3"], strict=True)
    print(f"read stage / plain boto3, median of {args.rounds}: {statistics.median(a[0] / b[0] for a, b in pairs):.0%}")
    server.terminate()


if __name__ == "__main__":
    main()
