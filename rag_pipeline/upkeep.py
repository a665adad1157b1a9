"""Upkeep of the table: here where it is little work, else in a process of its own, whose memory goes when it ends.

Indexing and compacting many rows takes memory that LanceDB's process keeps; a run's own stays small this way. The
caller waits for it: the table has one writer. Knows nothing of runs.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

from rag_pipeline.config import RuntimeConfig
from rag_pipeline.errors import StoreError
from rag_pipeline.isolation import die_with
from rag_pipeline.store import Layout
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.store.lock import check_lock


def look_after(table: ChunkTable, layout: Layout, settings: RuntimeConfig) -> None:
    """Runs `ChunkTable.upkeep`, apart where it has `runtime.upkeep_rows` or more to index.

    Raises:
        LockedError: The writer's lock was lost.
        StoreError: It failed; no row is lost by that.
    """
    if table.rows_to_index(settings) < settings.upkeep_rows:
        table.upkeep(settings)
        return
    check_lock(layout)
    command = [sys.executable, "-c", "from rag_pipeline.upkeep import serve; serve()"]
    task = pickle.dumps((layout, settings, os.getpid()))
    done = subprocess.run(command, input=task, capture_output=True, check=False, env={**_all_cores(), **os.environ})
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().split("\n")[-1][:300]
        raise StoreError(f"{layout.lancedb}: looking after the table failed: {reason or done.returncode}; run again")
    table.refresh()


def _all_cores() -> dict[str, str]:
    """LanceDB leaves two cores idle by itself, and half of them while it indexes words, 2 GB for each at most."""
    cores = str(len(os.sched_getaffinity(0)))
    return {"LANCE_CPU_THREADS": cores, "LANCE_FTS_NUM_SHARDS": cores, "LANCE_FTS_PARTITION_SIZE": "256"}


def serve() -> None:
    """The process of its own: reads its task from stdin and does it; its last line of stderr says why it failed."""
    layout, settings, parent = pickle.loads(sys.stdin.buffer.read())
    die_with(parent)
    ChunkTable.open(layout).upkeep(settings)
