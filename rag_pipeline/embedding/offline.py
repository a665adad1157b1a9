"""vLLM in the actor's own process, a block at a time with token ids: one process, one call, Arrow out.

The engine starts when the first row needs it, so that a run whose every vector is known never waits for it.
Knows nothing of files, stores or what rows are for.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pyarrow as pa

from rag_pipeline import schema
from rag_pipeline.config import EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding.model import Model
from rag_pipeline.embedding.vllm import count_gpus, engine_environment, engine_kwargs


def embed_offline(dataset: Any, model: Model, config: EmbeddingConfig, runtime: RuntimeConfig) -> Any:
    """Appends in-process vLLM actors to a Dataset; see `embedding.embed`.

    Raises:
        ConfigError: A GPU is asked for and Ray has none.
    """
    import ray

    gpus = count_gpus(runtime)
    replicas = runtime.replicas if runtime.replicas != "auto" else max(1, gpus)
    environment = {**engine_environment(on_gpu=bool(gpus)), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    return dataset.map_batches(
        OfflineEngine,
        fn_constructor_args=(model, engine_kwargs(model, config, on_gpu=bool(gpus))),
        batch_size=runtime.embed_batch_rows if gpus else None,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=replicas),
        num_cpus=1,
        num_gpus=gpus / replicas if gpus else None,
        runtime_env={"env_vars": environment},
    )


class OfflineEngine:
    """One engine; called with blocks of the stream schema."""

    def __init__(self, model: Model, arguments: dict[str, Any]) -> None:
        self._model = model
        self._arguments = arguments
        self._engine: Any = None

    def __call__(self, table: pa.Table) -> pa.Table:
        """Embeds the rows of kind `embed`; a row the engine refuses becomes `rejected`."""
        rows = schema.rows_of_kind(table, schema.EMBED)
        if not len(rows):
            return table
        if self._engine is None:
            from vllm import LLM

            self._engine = LLM(model=self._model.path, runner="pooling", **self._arguments)
        prompts = [{"prompt_token_ids": ids} for ids in table["token_ids"].take(pa.array(rows)).to_pylist()]
        started = time.time()
        lengths = np.array([len(prompt["prompt_token_ids"]) for prompt in prompts])
        limit = self._model.max_tokens
        refused = {
            int(number): f"engine: a prompt of {lengths[number]} tokens, the model takes {limit}"
            for number in np.flatnonzero(lengths > limit)
        }
        order = np.argsort(lengths, kind="stable")
        vectors = np.zeros((len(prompts), self._model.dimension), dtype=np.float32)
        self._encode(prompts, order[lengths[order] <= limit], vectors, refused)
        made = np.array([number for number in range(len(prompts)) if number not in refused], dtype=np.int64)
        table = schema.put_vectors(table, rows[made], vectors[made], started, time.time())
        return schema.reject_rows(table, {int(rows[number]): reason for number, reason in refused.items()})

    def _encode(
        self, prompts: list[dict[str, Any]], order: np.ndarray, vectors: np.ndarray, refused: dict[int, str]
    ) -> None:
        """Embeds prompts in this order; where the engine refuses some, halves until it is one."""
        if not len(order):
            return
        try:
            batch = [prompts[number] for number in order]
            outputs = self._engine.encode(batch, pooling_task="embed", use_tqdm=False)
        except Exception as error:  # vLLM's refusals have no common type
            if "EngineDead" in type(error).__name__:
                raise
            if len(order) == 1:
                refused[int(order[0])] = f"engine: {type(error).__name__}: {' '.join(str(error).split())}"[:300]
                return
            for half in np.array_split(order, 2):
                self._encode(prompts, half, vectors, refused)
            return
        for number, output in zip(order, outputs, strict=True):
            vectors[number] = output.outputs.data.float().cpu().numpy()
