"""The connection to an index's LanceDB database, on a disk or on S3, and the guard around every commit to it.

Knows nothing of what its tables hold.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from rag_pipeline.store import Layout, store_errors
from rag_pipeline.store.lock import check_lock

_ATTEMPTS = 3
_WAIT_S = 1.0
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3  # of glibc's mallopt(3)
_AWS_ITSELF = re.compile(r"https://s3(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?")


def connect(layout: Layout) -> Any:
    """Connects to the database, which need not exist yet.

    On S3 with the same credentials, region and endpoint as `rag_pipeline.s3`: LanceDB reads the AWS variables and
    profiles itself, and is told what it would not find there. Connecting is four requests, so it is done once.
    """
    if layout.root.startswith("s3://"):
        variables = tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_")))
        return _connect_s3(layout.lancedb, os.getpid(), hash(variables))
    import lancedb

    return lancedb.connect(layout.lancedb)


@functools.lru_cache(maxsize=8)
def _connect_s3(url: str, pid: int, variables: int) -> Any:
    """A connection of this process and these AWS variables."""
    import boto3
    import lancedb

    session = boto3.session.Session()
    options = {"client_max_retries": "10", "client_retry_timeout": "60"}
    if region := os.environ.get("AWS_REGION") or session.region_name:
        options["region"] = region
    endpoint = session.client("s3", region_name=region or "us-east-1").meta.endpoint_url
    if not _AWS_ITSELF.fullmatch(endpoint):
        options |= {"endpoint": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
        options.setdefault("region", "us-east-1")
    return lancedb.connect(url, storage_options=options)


def keep_heaps_small() -> None:
    """Gives the memory that a commit took back after it, in this process; for writers, which make a commit at a time.

    By themselves Arrow's threads keep what they once had, glibc has up to 128 heaps on a machine of 16 cores, and once
    a buffer of some megabytes was freed the next ones come from a heap, in whose holes they soon fit no more. Threads
    that allocate much at once would wait for each other.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    with contextlib.suppress(AttributeError, OSError):  # another C library has no such heaps
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_ARENA_MAX, 2)
        libc.mallopt(_M_MMAP_THRESHOLD, 2**20)


@contextlib.contextmanager
def committing(doing: str, layout: Layout) -> Iterator[None]:
    """Runs a commit to the database if the writer's lock, where this process took it, is still its own.

    Raises:
        LockedError: The lock is another's by now.
        StoreError: The commit failed.
    """
    check_lock(layout)
    with store_errors(doing, layout.lancedb):
        yield


def commit(doing: str, layout: Layout, table: Any, change: Callable[[], object]) -> None:
    """Makes one change to a table; on S3 again, if its failure left no new version.

    Lance repeats what it reads, but not a commit whose answer was lost: it may have gone well. There is one
    writer, so the table's version tells.

    Raises:
        LockedError, StoreError: As for `committing`.
    """
    attempts = _ATTEMPTS if layout.root.startswith("s3://") else 1
    while True:
        with committing(doing, layout):
            version = _newest(table) if attempts > 1 else 0
            try:
                change()
                return
            except (OSError, RuntimeError, ValueError):
                attempts -= 1
                if not attempts:
                    raise
            if _newest(table) > version:
                return
        time.sleep(_WAIT_S)


def _newest(table: Any) -> int:
    table.checkout_latest()
    return int(table.version)


def restore_version(table: Any, version: int, layout: Layout) -> None:
    """Makes an earlier version of a table the current one, as a new version.

    Raises:
        StoreError: That version is no longer kept.
    """
    with committing(f"restoring version {version} of {table.name}", layout):
        table.checkout(version)
        table.restore()
