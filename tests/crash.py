"""A counted fail-point layer: runs one command in a process of its own and kills it at a named point.

usage: python tests/crash.py POINT COUNT WHOM -- COMMAND [ARG ...]

At the COUNT-th arrival at POINT the process of the command (WHOM `driver`) or its whole process group
(`group`) gets SIGKILL. Points in Ray's workers are reached through Ray's own worker set-up hook; nothing of
the product knows of them.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

# Point: (module, attribute, kill before or after it ran, where it runs)
POINTS: dict[str, tuple[str, str, str, str]] = {
    "after listing": ("rag_pipeline.run", "Run.list", "after", "driver"),
    "mid-parse": ("rag_pipeline.pipeline", "parse", "before", "worker"),
    "mid-embed": ("rag_pipeline.embedding.hash", "hash_vector", "before", "worker"),
    "before a part's rename": ("rag_pipeline.store.files", "os.fsync", "before", "worker"),
    "after a part's rename": ("rag_pipeline.store.files", "_sync_folder", "before", "worker"),
    "before the add": ("rag_pipeline.store.lance", "ChunkTable.add", "before", "driver"),
    "after the add": ("rag_pipeline.store.lance", "ChunkTable.add", "after", "driver"),
    "before the swap": ("rag_pipeline.store.lance", "ChunkTable.swap", "before", "driver"),
    "after the swap": ("rag_pipeline.store.lance", "ChunkTable.swap", "after", "driver"),
    "before the manifest": ("rag_pipeline.store.manifest", "Manifest.put", "before", "driver"),
    "after the manifest": ("rag_pipeline.store.manifest", "Manifest.put", "after", "driver"),
    "after the deletes": ("rag_pipeline.store.lance", "ChunkTable.delete_all", "after", "driver"),
    "during optimize": ("rag_pipeline.store.lance", "ChunkTable.upkeep", "before", "driver"),
    "before the snapshot": ("rag_pipeline.store.manifest", "Manifest._write_snapshot", "before", "driver"),
    "before the report": ("rag_pipeline.run", "write_report", "before", "driver"),
    "during the model switch": ("rag_pipeline.store.lance", "ChunkTable.overwrite", "after", "driver"),
    "before the switched manifest": ("rag_pipeline.store.manifest", "Manifest.overwrite", "before", "driver"),
    "during repair": ("rag_pipeline.store.lance", "ChunkTable.overwrite", "before", "driver"),
    "during vacuum, log": ("rag_pipeline.maintenance", "delete_part", "before", "driver"),
    "during vacuum, table": ("rag_pipeline.store.lance", "ChunkTable.drop_history", "before", "driver"),
    "during rollback": ("rag_pipeline.store.manifest", "Manifest.restore", "before", "driver"),
}
_SPEC = "RAG_PIPELINE_TEST_CRASH"


def install(where: str) -> None:
    """Wraps the point that the environment names, if it lies in this kind of process."""
    point, count, whom, pid = os.environ[_SPEC].split("|")
    module_name, path, when, place = POINTS[point]
    if place != where:
        return
    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    wrapped = _wrap(getattr(owner, name), when, _Counter(int(count)), whom, int(pid))
    raw = vars(owner).get(name) if isinstance(owner, type) else None
    setattr(owner, name, classmethod(_unbound(wrapped)) if isinstance(raw, classmethod) else wrapped)


def _unbound(bound: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _cls, *args, **kwargs: bound(*args, **kwargs)


class _Counter:
    """Says when the n-th call of this process is there."""

    def __init__(self, count: int) -> None:
        self._left = count

    def hit(self) -> bool:
        self._left -= 1
        return self._left == 0


def _wrap(function: Callable[..., Any], when: str, counter: _Counter, whom: str, pid: int) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        hit = counter.hit()
        if hit and when == "before":
            kill(whom, pid)
        result = function(*args, **kwargs)
        if hit and when == "after":
            kill(whom, pid)
        return result

    return wrapper


def kill(whom: str, pid: int) -> None:
    """SIGKILL, at once."""
    if whom == "group":
        os.killpg(os.getpgid(pid), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    signal.pause()  # a worker waits here for its own end


def _worker_hook() -> None:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import crash

    crash.install("worker")


def main() -> int:
    """Installs the point and runs the command."""
    point, count, whom = sys.argv[1:4]
    command = sys.argv[5:]
    os.environ[_SPEC] = f"{point}|{count}|{whom}|{os.getpid()}"
    install("driver")
    if POINTS[point][3] == "worker":
        import ray

        from rag_pipeline.session import _hush

        _hush()
        ray.init(
            address="local",
            include_dashboard=False,
            log_to_driver=False,
            runtime_env={"worker_process_setup_hook": _worker_hook, "env_vars": {_SPEC: os.environ[_SPEC]}},
        )
    from rag_pipeline.cli import main as run

    return run(command)


if __name__ == "__main__":
    sys.exit(main())
