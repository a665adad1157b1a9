"""One writer at a time: an OS lock that dies with its process, and a note that says who holds it; on S3 a lease.

Knows nothing of what is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from datetime import UTC, datetime

from rag_pipeline.errors import LockedError
from rag_pipeline.store import LOCK, Layout, store_errors


@contextlib.contextmanager
def writer_lock(layout: Layout) -> Iterator[None]:
    """Holds the index for writing while the block runs.

    Raises:
        LockedError: Another process holds it; the message names host, process and start.
    """
    if layout.root.startswith("s3://"):
        from rag_pipeline.store.lease import hold
        from rag_pipeline.store.s3_files import bucket_at

        with hold(bucket_at(layout.root), LOCK):
            yield
        return
    path = layout.files.where(LOCK)
    with store_errors("opening the writer's lock", path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LockedError(f"index {layout.root}: {_holder(handle)} is writing it; wait for it to end") from None
        note = {"host": socket.gethostname(), "pid": os.getpid(), "started_at": datetime.now(UTC).isoformat()}
        os.ftruncate(handle, 0)
        os.pwrite(handle, json.dumps(note).encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)  # releases the lock


def check_lock(layout: Layout) -> None:
    """Makes sure, before a write, that the lock is still this process's, if it took it.

    Raises:
        LockedError: It was lost, which an OS lock cannot be.
    """
    if layout.root.startswith("s3://"):
        from rag_pipeline.store.lease import check_held

        check_held(layout.root)


def _holder(handle: int) -> str:
    try:
        note = json.loads(os.pread(handle, 4096, 0))
        return f"process {note['pid']} on {note['host']}, started {note['started_at']},"
    except (ValueError, KeyError, OSError):
        return "another process"
