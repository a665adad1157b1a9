"""vLLM through `ray.data.llm`: GPU actors where Ray has GPUs, vLLM's CPU build elsewhere.

Rows that need no vector bypass the engine by the processor's own way for rows that already failed; every
row crosses it as bytes, since the processor rebuilds rows from Python objects and would lose their types.
Knows nothing of files, stores or what rows are for.
"""

from __future__ import annotations

import os
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rag_pipeline import schema
from rag_pipeline.config import EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding.model import Model
from rag_pipeline.errors import ConfigError

_ERROR = "__inference_error__"  # the processor's own column; rows with a value in it bypass the engine
_BYPASS = "bypass"
_LIGHT = {"num_cpus": 0.1}


def embed_vllm(dataset: Any, model: Model, config: EmbeddingConfig, runtime: RuntimeConfig) -> Any:
    """Appends the vLLM processor to a Dataset; see `embedding.embed`.

    Raises:
        ConfigError: A GPU is asked for and Ray has none.
    """
    from ray.data.llm import build_processor, vLLMEngineProcessorConfig

    gpus = count_gpus(runtime)
    replicas = runtime.replicas if runtime.replicas != "auto" else max(1, gpus)
    settings: dict[str, Any] = {
        "model_source": model.path,
        "task_type": "embed",
        "engine_kwargs": engine_kwargs(model, config, on_gpu=bool(gpus)),
        "batch_size": runtime.embed_batch_rows,
        "max_concurrent_batches": 4 if gpus else 2,
        "concurrency": (replicas, replicas),
        "chat_template_stage": False,
        "tokenize_stage": False,
        "detokenize_stage": False,
        "should_continue_on_error": True,
        "log_engine_metrics": False,
        "runtime_env": {"env_vars": engine_environment(on_gpu=bool(gpus))},
    }
    if not gpus:  # without it Ray waits for a GPU for ever
        settings["placement_group_config"] = {"bundle_per_worker": {"CPU": 1}}
    processor = build_processor(
        vLLMEngineProcessorConfig(**settings),
        postprocess=_keep,
        preprocess_map_kwargs=_LIGHT,
        postprocess_map_kwargs=_LIGHT,
    )
    packed = dataset.map_batches(_pack, batch_size=None, batch_format="pyarrow", **_LIGHT)
    unpack = {"batch_size": None, "batch_format": "pyarrow", "fn_args": (model.dimension,), **_LIGHT}
    return processor(packed).map_batches(_unpack, **unpack)


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


def _pack(table: pa.Table) -> pa.Table:
    """Rows as the processor takes them: token ids, the whole row as bytes, and whether to bypass the engine."""
    wanted = [kind == schema.EMBED for kind in table["kind"].to_pylist()]
    prompts = [ids if want else [0] for ids, want in zip(table["token_ids"].to_pylist(), wanted, strict=True)]
    rows = table.drop_columns(["token_ids"]).to_pylist()
    return pa.table(
        {
            "tokenized_prompt": pa.array(prompts, pa.list_(pa.int32())),
            "row": pa.array([pickle.dumps(row) for row in rows], pa.binary()),
            _ERROR: pa.array(["" if want else _BYPASS for want in wanted], pa.string()),
        }
    )


def _keep(row: dict[str, Any]) -> dict[str, Any]:
    """What leaves the processor: the vector as bytes, so that it never becomes a list of Python floats."""
    return {
        "row": row["row"],
        "vector_bytes": np.ascontiguousarray(row["embeddings"], dtype=np.float32).tobytes(),
        "engine_s": float(row["time_taken_llm"]),
    }


def _unpack(table: pa.Table, dimension: int) -> pa.Table:
    """The stream schema again, from rows that were embedded, refused, or never needed the engine."""
    ended = time.time()
    rows = [pickle.loads(value) for value in table["row"].to_pylist()]
    errors = table[_ERROR].to_pylist()
    for row, error in zip(rows, errors, strict=True):
        if error and error != _BYPASS:
            row.update(kind=schema.REJECTED, reason=f"engine: {error}"[:300])
    result = schema.rows_to_table(rows, schema.stream_schema(dimension))
    made = np.array([number for number, error in enumerate(errors) if not error], dtype=np.int64)
    if not len(made):
        return result
    data = b"".join(table["vector_bytes"].take(pa.array(made)).to_pylist())
    vectors = np.frombuffer(data, dtype=np.float32).reshape(len(made), dimension)
    slowest = max(table["engine_s"].take(pa.array(made)).to_pylist())
    return schema.put_vectors(result, made, vectors, ended - slowest, ended)
