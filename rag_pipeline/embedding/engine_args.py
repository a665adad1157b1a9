"""What a vLLM engine is started with: arguments, variables, how many of them. Knows nothing of rows."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_pipeline.config import EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding.model import Model
from rag_pipeline.embedding.size import model_size
from rag_pipeline.errors import ConfigError

# Weights of this many bytes at most: so many engines on one GPU. A small model's cost is per request, on the host.
_SMALL_BYTES = 200 * 2**20
_ENGINES_PER_GPU = ((_SMALL_BYTES, 8), (1600 * 2**20, 4))
_ENGINE_BYTES = 3 * 2**30  # what an engine needs beside its weights: context, activations, graphs
_CPUS_BESIDE_GPU = 0.25  # what Ray keeps free for an engine; more would keep cores from those who cut its text
_CPUS_OF_A_NODE = 1.0  # and for all engines of a node without GPUs: files are parsed on the same cores
_PROCESSES = 8  # of an engine on CPUs at most, each of which takes some 0.7 GB; see `forked`
# A layer's results take some 25 MB, which glibc gives back to the kernel each time and takes anew, page by page: 1,000
# page faults a chunk, dear in a virtual machine. With these it keeps what an engine once had, in one heap.
_KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_ARENA_MAX": "1",
}


def count_gpus(runtime: RuntimeConfig) -> int:
    """GPUs the engine may use by `runtime.device`, as Ray counts them.

    Raises:
        ConfigError: ``device: gpu`` and there is none.
    """
    import ray

    gpus = int(ray.cluster_resources().get("GPU", 0))
    if runtime.device == "gpu" and not gpus:
        raise ConfigError("runtime.device: gpu, but Ray finds no GPU; set it to auto or cpu, or fix the driver")
    return 0 if runtime.device == "cpu" else gpus


def engine_kwargs(model: Model, config: EmbeddingConfig, runtime: RuntimeConfig, on_gpu: bool) -> dict[str, Any]:
    """Arguments of the engine: the model's own limits, the device's batch budgets, then those of recipe and runtime."""
    budget = {"max_num_seqs": 1024, "max_num_batched_tokens": 32768} if on_gpu else {"max_num_seqs": 128}
    return {
        "dtype": engine_dtype(model, on_gpu),
        "max_model_len": model.max_tokens,
        "disable_log_stats": True,
        "enforce_eager": not on_gpu,
        **({} if on_gpu else {"max_num_batched_tokens": max(4096, model.max_tokens)}),
        **budget,
        **config.engine_args,
        **runtime.engine_args,
    }


def block_rows(model: Model, runtime: RuntimeConfig, on_gpu: bool) -> int | None:
    """Prompts per engine call: about half a second of a GPU's work; on a CPU they come as files are prepared."""
    if runtime.embed_batch_rows != "auto":
        return runtime.embed_batch_rows
    if not on_gpu:
        return None
    return 2048 if model_size(model).weight_bytes <= _SMALL_BYTES else 512


def count_accelerators(runtime: RuntimeConfig) -> dict[str, int]:
    """The GPUs of the Ray session by type, such as ``{"H200": 2}``; none where engines run on CPUs."""
    import ray

    if runtime.device == "cpu":
        return {}
    found: Counter[str] = Counter()
    for node in ray.nodes():
        resources = node["Resources"] if node["Alive"] else {}
        if resources.get("GPU"):
            kinds = [name.split(":", 1)[1] for name in resources if name.startswith("accelerator_type:")]
            found[kinds[0] if kinds else "GPU"] += int(resources["GPU"])
    return dict(found)


def engine_dtype(model: Model, on_gpu: bool) -> str:
    """The number format to compute in: bfloat16 is several times faster where it is native, slower where not."""
    if model.dtype != "auto":
        return model.dtype
    native = on_gpu or bool({"avx512_bf16", "amx_bf16"} & _cpu_flags())
    return "bfloat16" if native else "float32"


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return set(next((line for line in lines if line.startswith("flags")), "").split())


def engine_environment(on_gpu: bool, threads: int | None = None) -> dict[str, str]:
    """Variables the engine's process starts with; those set by the user win.

    Args:
        on_gpu: Whether it computes on a GPU.
        threads: It computes with on CPUs; default: one for every core of this machine.
    """
    wanted = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if on_gpu:
        wanted["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
    else:
        cores = sorted(os.sched_getaffinity(0))
        wanted |= {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
            "OMP_NUM_THREADS": str(threads or len(cores)),  # else Ray sets it to the actor's CPUs
            **_KEEP_MEMORY,
        }
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def count_engines(
    model: Model,
    config: EmbeddingConfig,
    runtime: RuntimeConfig,
    gpus: int,
    nodes: Sequence[Mapping[str, float]] = (),
) -> tuple[int, float]:
    """How many engines, and the GPUs each is given.

    Several share a GPU where the model is small; one has several by tensor and pipeline parallel size, all of one
    node. Without GPUs every node that has CPUs gets one.

    Args:
        model: Its weights' size decides how many share a GPU.
        config: The engine's own arguments.
        runtime: How many engines are asked for.
        gpus: All GPUs the engines may use.
        nodes: What each node has, as Ray counts it; empty: one node that has all.

    Raises:
        ConfigError: An engine wants more GPUs than any node has.
    """
    if not gpus:
        with_cpus = sum(node.get("CPU", 0) >= 1 for node in nodes)
        return (max(1, with_cpus) if runtime.replicas == "auto" else runtime.replicas), 0
    wanted = _world_size({**config.engine_args, **runtime.engine_args})
    per_node = [int(node.get("GPU", 0)) for node in nodes] or [gpus]
    if wanted > max(per_node):
        where = f"the largest of {len(per_node)} nodes" if len(per_node) > 1 else "Ray"
        raise ConfigError(
            f"engine_args: an engine over {wanted} GPUs, but {where} has {max(per_node)}; lower tensor_parallel_size"
        )
    if wanted > 1:
        return (sum(n // wanted for n in per_node) if runtime.replicas == "auto" else runtime.replicas), wanted
    if runtime.replicas != "auto":
        return runtime.replicas, 1 / math.ceil(runtime.replicas / gpus)
    share = _engines_per_gpu(model)
    return gpus * share, 1 / share


def _engines_per_gpu(model: Model) -> int:
    size = model_size(model).weight_bytes
    most = next((count for limit, count in _ENGINES_PER_GPU if size <= limit), 1)
    return max(1, min(most, _gpu_bytes() // (size + _ENGINE_BYTES)))


def _gpu_bytes() -> int:
    """Memory of the first GPU; 24 GiB where this machine has none (the head of a cluster)."""
    try:
        import pynvml

        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).total)
    except Exception:  # no library, no driver, no device: all its own error types
        return 24 * 2**30


@dataclass(frozen=True, slots=True)
class Engines:
    """Engines as they are to be started.

    Attributes:
        count: How many.
        gpus_each: GPUs, or the share of one, that each is given; 0 on CPUs.
        cpus_each: CPUs that Ray keeps free for each.
        processes: Each computes with.
        arguments: Of each, as vLLM takes them.
        environment: Variables of each one's process.
    """

    count: int
    gpus_each: float
    cpus_each: float
    processes: int
    arguments: dict[str, Any]
    environment: dict[str, str]


def plan_engines(model: Model, config: EmbeddingConfig, runtime: RuntimeConfig) -> Engines:
    """What the nodes of the Ray session have room for; an engine on one GPU at most lives in its actor's process.

    Raises:
        ConfigError: As `count_gpus` and `count_engines`.
    """
    import ray

    gpus = count_gpus(runtime)
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    count, share = count_engines(model, config, runtime, gpus, nodes)
    arguments = engine_kwargs(model, config, runtime, on_gpu=bool(gpus))
    if not gpus:
        return _on_cpus(count, arguments, [node["CPU"] for node in nodes if node.get("CPU", 0) >= 1] or [1])
    environment = engine_environment(on_gpu=True)
    if share <= 1:
        environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if share < 1:
        arguments.setdefault("gpu_memory_utilization", round(0.9 * share, 3))
    return Engines(count, share, _CPUS_BESIDE_GPU, 1, arguments, environment)


def _on_cpus(count: int, arguments: dict[str, Any], cpus: Sequence[float]) -> Engines:
    """Engines on nodes that have so many CPUs: each is as many processes as it has cores, up to `_PROCESSES`."""
    per_node = math.ceil(count / len(cpus))
    cores = max(1, int(min(cpus)) // per_node)
    most = min(cores, _PROCESSES) if _world_size(arguments) == 1 else 1  # else vLLM makes processes of its own
    environment = engine_environment(on_gpu=False, threads=cores // most)
    environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    processes = min(most, max(1, cores // int(environment["OMP_NUM_THREADS"].split(",")[0])))
    return Engines(count, 0, _CPUS_OF_A_NODE / per_node, processes, arguments, environment)


def _world_size(arguments: Mapping[str, Any]) -> int:
    return int(arguments.get("tensor_parallel_size", 1)) * int(arguments.get("pipeline_parallel_size", 1))
