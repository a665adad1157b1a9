"""The writer's lock on S3: an object that its holder renews, and that others may take once it has expired.

Every step is one conditional put, so of two that take it one wins. Ages are told by S3's clock alone. Knows
nothing of what is written.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rag_pipeline.errors import LockedError, StoreError
from rag_pipeline.s3 import Bucket, S3Error
from rag_pipeline.store import store_errors

RENEW_EVERY_S = 20.0
EXPIRES_AFTER_S = 120.0  # longer than a put is repeated for, see `rag_pipeline.s3`

_held: dict[str, Lease] = {}  # by the index's URL: what this process holds


@contextlib.contextmanager
def hold(bucket: Bucket, name: str) -> Iterator[None]:
    """Holds the lock while the block runs, renewed by a thread beside it.

    Raises:
        LockedError: Another process holds it; the message names host, process and start.
        StoreError: S3 refuses, or cannot put conditionally.
    """
    lease = Lease(bucket, name)
    try:
        with store_errors("taking the writer's lock", bucket.url):
            lease.take()
        _held[bucket.url] = lease
        yield
    finally:
        _held.pop(bucket.url, None)
        lease.release()


def check_held(url: str) -> None:
    """Makes sure, before a write, that a lock that this process took is still its own.

    Raises:
        LockedError: It is another's by now.
    """
    if url in _held:
        _held[url].check()


class Lease:
    """One holder's view of the lock; see `hold`."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        self._bucket = bucket
        self._name = name
        self._note = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started_at": datetime.now(UTC).isoformat(),
            "token": uuid.uuid4().hex,
            "process": _process_here(os.getpid()),
            "expires_after_s": EXPIRES_AFTER_S,
        }
        self._etag = ""
        self._renewed = (0.0, 0.0)
        self._lost = ""
        self._one_at_a_time = threading.Lock()
        self._ended = threading.Event()

    def take(self) -> None:
        """Takes the lock where it is free, expired, or left by a dead process of this machine."""
        for _ in range(3):
            if self._put(if_absent=True):
                self._refuse_careless_store()
                break
            found = self._read()
            if found is None:
                continue
            note, etag, written_ns = found
            if not _is_dead(note):
                age_s, expires_s = self._now_s() - written_ns / 1e9, note.get("expires_after_s", EXPIRES_AFTER_S)
                if age_s <= expires_s:
                    raise LockedError(
                        f"index {self._bucket.url}: {_holder(note)} is writing it; wait for it to end, or, if it was"
                        f" killed, {expires_s - age_s:.0f} s more"
                    )
            if self._put(if_etag=etag):
                break
        else:
            raise LockedError(f"index {self._bucket.url}: others take its lock at this moment; run again")
        threading.Thread(target=self._keep, daemon=True, name="writer-lock").start()

    def check(self) -> None:
        """Raises where the lock is lost; renews it at once where the thread did not come to it."""
        if self._age_s() > EXPIRES_AFTER_S / 2:
            self._renew()
        if self._lost:
            raise LockedError(f"index {self._bucket.url}: {self._lost}; nothing more was written, run again to resume")

    def release(self) -> None:
        """Gives the lock up; one that cannot be deleted in time is left to expire."""
        self._ended.set()
        with self._one_at_a_time, contextlib.suppress(S3Error):
            if not self._lost and self._age_s() < EXPIRES_AFTER_S / 2:  # nobody else can have it
                self._bucket.delete([self._name])

    def _keep(self) -> None:
        while not self._ended.wait(RENEW_EVERY_S):
            self._renew()

    def _renew(self) -> None:
        with self._one_at_a_time:
            if self._lost or self._ended.is_set():
                return
            try:
                if self._put(if_etag=self._etag):
                    return
                found = self._read()
                if found and found[0].get("token") == self._note["token"]:  # an earlier answer did not reach us
                    self._etag = found[1]
                    self._put(if_etag=self._etag)
                else:
                    self._lost = f"{_holder(found[0]) if found else 'somebody'} took over the writer's lock"
            except S3Error as error:  # the next time may go well, while it has not expired
                if self._age_s() > EXPIRES_AFTER_S:
                    self._lost = f"the writer's lock expired, it could not be renewed: {error}"

    def _put(self, **condition: Any) -> bool:
        """Writes the note if the condition holds."""
        moment = (time.time(), time.monotonic())  # one may be set back, the other stands still in a sleeping machine
        note = {**self._note, "renewed_at": datetime.now(UTC).isoformat()}
        try:
            self._etag = self._bucket.put(self._name, json.dumps(note).encode(), **condition)
        except S3Error as error:
            if error.kind == "changed":
                return False
            raise
        self._renewed = moment
        return True

    def _age_s(self) -> float:
        return max(time.time() - self._renewed[0], time.monotonic() - self._renewed[1])

    def _read(self) -> tuple[dict[str, Any], str, int] | None:
        """Note, ETag and time of the lock as it is now."""
        try:
            data, found = self._bucket.fetch(self._name)
        except S3Error as error:
            if error.kind == "missing":
                return None
            raise
        try:
            note = dict(json.loads(data))
        except (ValueError, TypeError):
            note = {}
        return note, found.etag, found.mtime_ns

    def _now_s(self) -> float:
        """S3's own time: that of an object written now."""
        probe = f".{self._name}-{self._note['token']}"
        self._bucket.put(probe, b"")
        try:
            return self._bucket.fetch(probe)[1].mtime_ns / 1e9
        finally:
            self._bucket.delete([probe])

    def _refuse_careless_store(self) -> None:
        """A store that ignores conditions would let two writers in, and LanceDB's commits overwrite each other."""
        if self._put(if_absent=True) or self._put(if_etag="0" * 32):
            self._bucket.delete([self._name])
            raise StoreError(
                f"index {self._bucket.url}: this S3 store ignores If-None-Match or If-Match, without which an index is"
                " not safe there; use one that honours conditional puts, or a local folder"
            )


def _holder(note: dict[str, Any]) -> str:
    if not {"pid", "host", "started_at"} <= set(note):
        return "another process"
    return f"process {note['pid']} on {note['host']}, started {note['started_at']},"


def _is_dead(note: dict[str, Any]) -> bool:
    """Whether the holder was a process of this machine and is no more."""
    there, here = note.get("process") or {}, _process_here(int(note.get("pid", 0)))
    return bool(here) and there.get("machine") == here["machine"] and there.get("began") != here["began"]


def _process_here(pid: int) -> dict[str, str]:
    """What tells a process of this machine from all others: boot, namespace of process ids, moment it began.

    Empty where the system does not tell; ``began`` is empty where there is no such process.
    """
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip() + str(
            Path("/proc/self/ns/pid").readlink()
        )
    except OSError:
        return {}
    try:
        state, *numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return {"machine": machine, "began": ""}
    return {"machine": machine, "began": "" if state == "Z" else numbers[18]}  # Z: ended, not yet collected
