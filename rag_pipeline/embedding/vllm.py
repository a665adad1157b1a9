"""vLLM in an actor, a block at a time with token ids: one call, Arrow out.

On a GPU the engine is in the actor's own process, and several share the card where the model is small; on CPUs it has
a process a core. A run whose every vector may be known starts no engine
before a row needs one. Knows nothing of files, stores or what rows are for.
"""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from rag_pipeline import schema
from rag_pipeline.config import EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding.engine_args import block_rows, plan_engines
from rag_pipeline.embedding.engine_core import CoreEncoder
from rag_pipeline.embedding.forked import ForkedEncoder
from rag_pipeline.embedding.golden import check_golden, golden_ids
from rag_pipeline.embedding.model import Model, shorten
from rag_pipeline.errors import EmbeddingError
from rag_pipeline.records import short_hash

_MAX_DEATHS = 40


def embed_vllm(dataset: Any, model: Model, config: EmbeddingConfig, runtime: RuntimeConfig, start_now: bool) -> Any:
    """Appends vLLM actors to a Dataset; see `embedding.embed`.

    Raises:
        ConfigError: A GPU is asked for and Ray has none.
    """
    import ray

    engines = plan_engines(model, config, runtime)
    here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}  # the node that is there till the end
    deaths = ray.remote(num_cpus=0, label_selector=here)(Deaths).remote()
    return dataset.map_batches(
        Engine,
        fn_constructor_args=(model, engines.arguments, deaths, start_now, engines.processes),
        batch_size=block_rows(model, runtime, on_gpu=bool(engines.gpus_each)),
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=engines.count),
        num_cpus=engines.cpus_each,
        num_gpus=engines.gpus_each or None,
        runtime_env={"env_vars": engines.environment},
    )


class Deaths:
    """Remembers, for all engines of a run, which prompts an engine had in hand when it died.

    An engine that went down with its node is no death: the prompts are not to blame.
    """

    def __init__(self) -> None:
        self._open: dict[str, tuple[str, int]] = {}  # block -> node of the engine that has it, deaths before
        self._total = 0

    def begin(self, key: str, node: str) -> tuple[int, int]:
        """Notes that an engine on this node takes a block; returns how many died of this one, and of any."""
        holder, deaths = self._open.get(key, ("", 0))
        if holder and holder in _living_nodes():
            deaths += 1
            self._total += 1
        self._open[key] = (node, deaths)
        return deaths, self._total

    def end(self, key: str) -> None:
        """Notes that the engine is through with it."""
        self._open.pop(key, None)


def _living_nodes() -> set[str]:
    import ray

    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


class Engine:
    """One engine; called with blocks of the stream schema."""

    def __init__(
        self, model: Model, arguments: dict[str, Any], deaths: Any, start_now: bool, processes: int = 1
    ) -> None:
        self._model = model
        self._arguments = arguments
        self._processes = processes
        self._deaths = deaths
        self._engine: Any = None
        self._failure: EmbeddingError | None = None
        self._name = f"{platform.node()}:{os.getpid()}"
        if start_now:
            self._start()

    def __call__(self, table: pa.Table) -> pa.Table:
        """Embeds the rows of kind `embed`; a row the engine refuses, or dies of, becomes `rejected`.

        Raises:
            EmbeddingError: The engine cannot start, or is not the one that queries will use.
        """
        rows = schema.rows_of_kind(table, schema.EMBED)
        if not len(rows):
            return table
        self._start()
        if self._failure:
            raise self._failure
        ids = table["token_ids"].take(pa.array(rows)).to_pylist()
        hashes = table["prompt_hash"].take(pa.array(rows)).to_pylist()
        started = time.time()
        refused = self._model.refuse_long(ids)
        order = np.argsort([len(one) for one in ids], kind="stable")
        vectors = np.zeros((len(ids), self._model.dimension), dtype=np.float32)
        self._embed(ids, hashes, order[: len(order) - len(refused)], vectors, refused)  # the longest come last
        return schema.put_results(table, rows, vectors, refused, started, self._name)

    def _embed(
        self,
        prompts: list[list[int]],
        hashes: list[str],
        order: np.ndarray,
        vectors: np.ndarray,
        refused: dict[int, str],
        suspect: bool = False,
    ) -> None:
        """Embeds prompts in this order; what engines died of twice, or refuse, is halved until it is one prompt."""
        if not len(order):
            return
        with self._noted([hashes[number] for number in order]) as deaths:
            bad = "an engine died of it" if deaths > (0 if suspect else 1) else self._try(prompts, order, vectors)
            if bad and len(order) == 1:
                refused[int(order[0])] = f"engine: {bad}"[:300]
            elif bad:
                for half in np.array_split(order, 2):
                    self._embed(prompts, hashes, half, vectors, refused, suspect=bool(deaths))

    def _try(self, prompts: list[list[int]], order: np.ndarray, vectors: np.ndarray) -> str:
        """Embeds prompts in one call; returns why the engine refuses them, or nothing."""
        try:
            outputs = self._encode([prompts[number] for number in order])
        except Exception as error:  # vLLM's refusals have no common type
            self._leave_if_broken()
            return f"{type(error).__name__}: {' '.join(str(error).split())}"
        vectors[order] = outputs
        return ""

    def encode_ids(self, ids: list[list[int]]) -> np.ndarray:
        """Vectors of token ids in one call; float32 [prompts, dimension]. What vLLM raises, this raises.

        Raises:
            EmbeddingError: The engine cannot start, or is not the one that queries will use.
        """
        if self._failure:
            raise self._failure
        return self._encode(ids)

    def _encode(self, ids: list[list[int]]) -> np.ndarray:
        """One call of the engine; float32 [prompts, dimension]."""
        return shorten(self._model, self._engine.encode(ids))

    def _leave_if_broken(self) -> None:
        """Ends this process when the engine no longer does what it could at its start: Ray puts up another."""
        try:
            self.encode_ids([golden_ids(self._model)])
        except Exception:
            os._exit(1)

    @contextlib.contextmanager
    def _noted(self, hashes: list[str]) -> Iterator[int]:
        """Yields how many engines have died with these prompts in hand.

        Raises:
            EmbeddingError: Too many have died in this run.
        """
        import ray

        key = short_hash(*hashes)
        node = ray.get_runtime_context().get_node_id()
        before, total = ray.get(self._deaths.begin.remote(key, node))
        if total > _MAX_DEATHS:
            raise EmbeddingError(f"engines died {total} times in this run: see their logs with --verbose; run again")
        yield before
        self._deaths.end.remote(key)

    def _start(self) -> None:
        """Starts the engine, once; a constructor that raised would be called by Ray again and again."""
        if self._engine is not None or self._failure is not None:
            return
        try:
            if self._processes > 1:
                self._engine = ForkedEncoder(self._model.path, self._arguments, self._processes)
            else:
                self._engine = CoreEncoder(self._model.path, self._arguments)
        except Exception as error:  # vLLM's failures have no common type
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:500]
            self._failure = EmbeddingError(f"the engine cannot start: {reason}; --verbose shows more")
            return
        if self._arguments.get("load_format") != "dummy":
            try:
                check_golden(self._model, self.encode_ids, "the engine")
            except EmbeddingError as error:
                self._failure = error
