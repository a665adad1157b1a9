"""vLLM through `ray.data.llm`, as Ray documents it: slower than `embedding.vllm`, the same vectors.

Rows that need no vector bypass the engine by the processor's own way for rows that already failed; every
row crosses it as bytes, since the processor rebuilds rows from Python objects and would lose their types.
Knows nothing of files, stores or what rows are for.
"""

from __future__ import annotations

import pickle
import time
from typing import Any

import numpy as np
import pyarrow as pa

from rag_pipeline import schema
from rag_pipeline.config import EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding.engine_args import count_gpus, engine_environment, engine_kwargs
from rag_pipeline.embedding.model import Model, shorten

_ERROR = "__inference_error__"  # the processor's own column; rows with a value in it bypass the engine
_BYPASS = "bypass"
_LIGHT = {"num_cpus": 0.1}


def embed_ray_llm(dataset: Any, model: Model, config: EmbeddingConfig, runtime: RuntimeConfig) -> Any:
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
        "engine_kwargs": engine_kwargs(model, config, runtime, on_gpu=bool(gpus)),
        "batch_size": 256 if runtime.embed_batch_rows == "auto" else runtime.embed_batch_rows,
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
    unpack = {"batch_size": None, "batch_format": "pyarrow", "fn_args": (model,), **_LIGHT}
    return processor(packed).map_batches(_unpack, **unpack)


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


def _unpack(table: pa.Table, model: Model) -> pa.Table:
    """The stream schema again, from rows that were embedded, refused, or never needed the engine."""
    ended = time.time()
    rows = [pickle.loads(value) for value in table["row"].to_pylist()]
    errors = table[_ERROR].to_pylist()
    for row, error in zip(rows, errors, strict=True):
        if error and error != _BYPASS:
            row.update(kind=schema.REJECTED, reason=f"engine: {error}"[:300])
    result = schema.rows_to_table(rows, schema.stream_schema(model.dimension))
    made = np.array([number for number, error in enumerate(errors) if not error], dtype=np.int64)
    if not len(made):
        return result
    data = b"".join(table["vector_bytes"].take(pa.array(made)).to_pylist())
    vectors = shorten(model, np.frombuffer(data, dtype=np.float32).reshape(len(made), -1))
    slowest = max(table["engine_s"].take(pa.array(made)).to_pylist())
    return schema.put_vectors(result, made, vectors, ended - slowest, ended)
