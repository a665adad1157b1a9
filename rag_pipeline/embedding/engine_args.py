"""What a vLLM engine is started with: arguments, variables, how many of them. Knows nothing of rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rag_pipeline.config import EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding.model import Model
from rag_pipeline.errors import ConfigError

# Weights of this many bytes at most: so many engines on one GPU. A small model's cost is per request, on the host.
_ENGINES_PER_GPU = ((200 * 2**20, 8), (1600 * 2**20, 4))
_ENGINE_BYTES = 3 * 2**30  # what an engine needs beside its weights: context, activations, graphs


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


def engine_kwargs(model: Model, config: EmbeddingConfig, on_gpu: bool) -> dict[str, Any]:
    """Arguments of the engine: the model's own limits, batch budgets for the device, then the recipe's."""
    budget = {"max_num_seqs": 1024, "max_num_batched_tokens": 32768} if on_gpu else {"max_num_seqs": 128}
    return {
        "dtype": engine_dtype(model, on_gpu),
        "max_model_len": model.max_tokens,
        "disable_log_stats": True,
        "enforce_eager": not on_gpu,
        **({} if on_gpu else {"max_num_batched_tokens": max(4096, model.max_tokens)}),
        **budget,
        **config.engine_args,
    }


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


def engine_environment(on_gpu: bool) -> dict[str, str]:
    """Variables the engine's process starts with; those set by the user win."""
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
            "OMP_NUM_THREADS": str(len(cores)),  # else Ray sets it to the actor's CPUs
        }
    return {name: os.environ.get(name, value) for name, value in wanted.items()}


def count_engines(model: Model, config: EmbeddingConfig, runtime: RuntimeConfig, gpus: int) -> tuple[int, float]:
    """How many engines, and the GPUs each is given.

    Several share a GPU where the model is small; one has several by tensor and pipeline parallel size.

    Raises:
        ConfigError: An engine wants more GPUs than Ray has.
    """
    if not gpus:
        return (1 if runtime.replicas == "auto" else runtime.replicas), 0
    wanted = int(config.engine_args.get("tensor_parallel_size", 1)) * int(
        config.engine_args.get("pipeline_parallel_size", 1)
    )
    if wanted > gpus:
        raise ConfigError(f"recipe.embedding.engine_args: an engine over {wanted} GPUs, but Ray has {gpus}")
    if runtime.replicas != "auto":
        return runtime.replicas, max(1, wanted) if wanted > 1 else min(1.0, gpus / runtime.replicas)
    if wanted > 1:
        return gpus // wanted, wanted
    share = _engines_per_gpu(model)
    return gpus * share, 1 / share


def _engines_per_gpu(model: Model) -> int:
    size = sum(file.stat().st_size for file in Path(model.path).glob("*.safetensors"))
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
