"""What a run asks of a Ray cluster before it starts: the GPUs it was promised, and nodes with the same code and files.

Knows nothing of what the run does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rag_pipeline.config import RuntimeConfig
from rag_pipeline.errors import ConfigError, EmbeddingError
from rag_pipeline.records import short_hash

_ANSWER_S = 120  # a node may have to download its packages before it answers
_SAME_CODE = "install one version on all nodes, or submit the run with its folder (ray job submit --working-dir)"
_SHARED = "on storage that all nodes mount at the same path"
_REMEDIES = {
    "index": f"it would write elsewhere; on a cluster the index must be on s3:// or {_SHARED}",
    "source": f"it would find no files; on a cluster the source must be a URL, such as s3://, or {_SHARED}",
    "model": f"copy it there, or put it {_SHARED}",
}


def wait_for_gpus(runtime: RuntimeConfig) -> None:
    """Waits until the cluster has the GPUs that `runtime.wait_for_gpus` promises.

    Raises:
        EmbeddingError: They did not come in time; nothing was done.
    """
    give_up = time.monotonic() + (runtime.wait_timeout_s if runtime.ray_address else 0)  # a private Ray never grows
    while True:
        found = {_name(node): int(node["Resources"].get("GPU", 0)) for node in _living()}
        missing = runtime.wait_for_gpus - sum(found.values())
        if missing <= 0:
            return
        if time.monotonic() >= give_up:
            nodes = ", ".join(f"{name} has {count}" for name, count in sorted(found.items()))
            raise EmbeddingError(
                f"runtime.wait_for_gpus: {missing} of {runtime.wait_for_gpus} GPUs are missing: {nodes}; nothing was"
                " done. `ray status` shows which nodes joined; start the others or raise runtime.wait_timeout_s, and"
                " run again"
            )
        time.sleep(min(1, max(0.05, give_up - time.monotonic())))


def check_nodes(index: str, source: str, model: str, run_id: str) -> None:
    """Asks every other node of the cluster whether it has the code, and sees the files, of this one.

    Args:
        index: The index's folder, where every node writes parts, or a URL.
        source: A file of the source, or a URL.
        model: The model's folder, or nothing.
        run_id: Makes the name of the file by which the index is recognized.

    Raises:
        ConfigError: A node does not; says which, and what to do.
        EmbeddingError: A node does not answer.
    """
    import ray

    here = ray.get_runtime_context().get_node_id()
    others = {node["NodeID"]: _name(node) for node in _living() if node["NodeID"] != here}
    if not others:
        return
    paths = {"index": os.path.join(index, f".probe-{run_id}"), "source": source, "model": model}
    paths = {what: path for what, path in paths.items() if path and "://" not in path}
    probe = Path(paths["index"]) if "index" in paths else None
    try:
        if probe:
            probe.touch()
        asked = {node: _ask(node, paths) for node in others}
        for node, answer in asked.items():
            code, unseen = _answer_of(answer, node, others[node])
            if code not in ("", code_digest()):
                raise ConfigError(f"node {others[node]} has another version of rag_pipeline: {_SAME_CODE}")
            for what in unseen:
                path = index if what == "index" else paths[what]
                raise ConfigError(f"node {others[node]} does not see this node's {what} {path}: {_REMEDIES[what]}")
    finally:
        if probe:
            probe.unlink(missing_ok=True)


def look(paths: Mapping[str, str]) -> tuple[str, list[str]]:
    """Which code this machine has, and which of these paths it does not; runs on every node."""
    return code_digest(), [what for what, path in paths.items() if not os.path.exists(path)]


def code_digest() -> str:
    """A hash of this package's files."""
    package = Path(__file__).parent
    files = sorted(package.rglob("*.py"))
    return short_hash(*(f"{file.relative_to(package)}\n{file.read_text(encoding='utf-8')}" for file in files))


def _living() -> list[dict[str, Any]]:
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def _name(node: Mapping[str, Any]) -> str:
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']}, {node['NodeID'][:8]})"


def _ask(node: str, paths: Mapping[str, str]) -> Any:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(look).remote(paths)


def _answer_of(answer: Any, node: str, name: str) -> tuple[str, list[str]]:
    """What the node says; nothing where it left the cluster meanwhile, which a run survives."""
    import ray

    try:
        code, unseen = ray.get(answer, timeout=_ANSWER_S)
        return code, unseen
    except ray.exceptions.GetTimeoutError:
        raise EmbeddingError(f"node {name} gives no answer in {_ANSWER_S} s: take it out of the cluster") from None
    except ray.exceptions.RayError as error:
        if node not in {living["NodeID"] for living in _living()}:
            return "", []
        reason = str(error).strip().splitlines()[-1][:300]
        raise ConfigError(f"node {name} cannot run rag_pipeline ({reason}): {_SAME_CODE}") from None
