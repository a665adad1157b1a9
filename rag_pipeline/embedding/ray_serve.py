"""Engines of a Ray Serve deployment: up before a run and after it, shared by runs, scaled by Serve.

Deployed by ``serve run rag_pipeline.embedding.ray_serve:app config=configs/gpu.yaml``; a run on the same cluster with
``engine: ray-serve`` asks it by token ids. Knows nothing of files, stores or what rows are for.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from rag_pipeline.config import EmbeddingConfig, RuntimeConfig, load_config
from rag_pipeline.embedding.engine_args import plan_engines
from rag_pipeline.embedding.model import Model, load_model
from rag_pipeline.embedding.remote import PromptRefusedError, RemoteEngine
from rag_pipeline.errors import ConfigError, EmbeddingError

DEPLOYMENT = "Embedder"
_ATTEMPTS = 5  # with pauses of 1, 2, 4 and 8 s: a replica that died is replaced meanwhile
_REQUESTS = 2  # under way per replica: one in the engine, one on its way


class Embedder:
    """One replica: a vLLM engine in its own process."""

    def __init__(self, recipe: EmbeddingConfig, arguments: dict[str, Any], processes: int) -> None:
        from rag_pipeline.embedding.vllm import Engine

        self._model = load_model(recipe)
        self._engine = Engine(self._model, arguments, None, True, processes)

    def fingerprint(self) -> str:
        """The embedding fingerprint of what this replica makes."""
        return self._model.fingerprint

    def embed(self, ids: list[list[int]]) -> np.ndarray | str:
        """Vectors of token ids; float32 [prompts, dimension], or why the engine calls a prompt bad."""
        try:
            return self._engine.encode_ids(ids)
        except EmbeddingError:
            raise
        except Exception as error:  # vLLM's refusals have no common type
            return f"{type(error).__name__}: {' '.join(str(error).split())}"


def app(args: dict[str, str]) -> Any:
    """Builds the Serve application from a config file, ``config=FILE``: as many replicas as a run has engines."""
    import ray
    from ray import serve

    config = load_config(args.get("config"))
    if not ray.is_initialized():
        ray.init()
    recipe = config.recipe.embedding
    engines = plan_engines(load_model(recipe), recipe, config.runtime)
    deployment = serve.deployment(
        Embedder,
        name=DEPLOYMENT,
        num_replicas=engines.count,
        max_ongoing_requests=_REQUESTS,
        ray_actor_options={
            "num_cpus": engines.cpus_each,
            "num_gpus": engines.gpus_each,
            "runtime_env": {"env_vars": engines.environment},
        },
    )
    return deployment.bind(recipe, engines.arguments, engines.processes)


def embed_ray_serve(dataset: Any, model: Model, runtime: RuntimeConfig) -> Any:
    """Appends clients of the deployment to a Dataset, one a replica; see `embedding.embed`.

    Raises:
        ConfigError: No such application runs on this cluster.
    """
    import ray
    from ray import serve

    found = serve.status().applications.get(runtime.serve_app)
    if found is None or DEPLOYMENT not in found.deployments:
        raise ConfigError(
            f"runtime.serve_app: no application '{runtime.serve_app}' on this cluster; deploy it with"
            " `serve run rag_pipeline.embedding.ray_serve:app config=FILE`, and name the cluster in runtime.ray_address"
        )
    replicas = sum(found.deployments[DEPLOYMENT].replica_states.values())
    return dataset.map_batches(
        ServeEngine,
        fn_constructor_args=(model, runtime.serve_app),
        batch_size=512 if runtime.embed_batch_rows == "auto" else runtime.embed_batch_rows,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=max(1, replicas)),
        num_cpus=0.1,
    )


class ServeEngine(RemoteEngine):
    """A client of the deployment."""

    def __init__(self, model: Model, name: str) -> None:
        from ray import serve

        super().__init__(model, f"Serve application {name}", _REQUESTS, prompts_per_request=512)
        self._handle = serve.get_app_handle(name)
        theirs = self._handle.fingerprint.remote().result()
        if theirs != model.fingerprint:
            raise EmbeddingError(
                f"{self._where}: makes vectors of fingerprint {theirs[:12]}, the recipe wants {model.fingerprint[:12]};"
                " deploy it with this config, then run again"
            )

    def _request(self, ids: list[list[int]]) -> np.ndarray:
        from ray.exceptions import RayActorError

        for attempt in range(_ATTEMPTS):
            try:
                made = self._handle.embed.remote(ids).result()
            except RayActorError as error:
                if attempt == _ATTEMPTS - 1:
                    raise EmbeddingError(f"{self._where}: its replicas died: {error}; run again to resume") from None
                time.sleep(2**attempt)
                continue
            if isinstance(made, str):
                raise PromptRefusedError(made)
            return np.asarray(made)
        raise AssertionError
