"""An OpenAI-compatible endpoint as an engine: a vLLM server, Ray Serve's LLM application, or a provider that takes ids.

Sends token ids, so that nothing is cut off on the way; waits and tries again where the endpoint is busy.
Knows nothing of files, stores or what rows are for.
"""

from __future__ import annotations

import base64
import os
from typing import Any

import numpy as np

from rag_pipeline.config import RuntimeConfig
from rag_pipeline.embedding.model import Model
from rag_pipeline.embedding.remote import PromptRefusedError, RemoteEngine
from rag_pipeline.errors import ConfigError, EmbeddingError

_PROMPTS_PER_REQUEST = 64
_RETRIES = 6  # with the client's own backoff: about half a minute


def embed_endpoint(dataset: Any, model: Model, runtime: RuntimeConfig) -> Any:
    """Appends one actor that asks the endpoint to a Dataset; see `embedding.embed`.

    Raises:
        ConfigError: No endpoint is named.
    """
    import ray

    endpoint = runtime.endpoint
    if not endpoint.url:
        raise ConfigError("runtime.endpoint.url: engine openai needs it, such as http://localhost:8000/v1")
    key = os.environ.get(endpoint.key_env, "none")  # a local server wants none
    return dataset.map_batches(
        EndpointEngine,
        fn_constructor_args=(model, endpoint.url, endpoint.model or model.name, endpoint.requests),
        batch_size=None if runtime.embed_batch_rows == "auto" else runtime.embed_batch_rows,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=1),
        num_cpus=0.5,
        runtime_env={"env_vars": {"OPENAI_API_KEY": key}},
    )


class EndpointEngine(RemoteEngine):
    """A client of one endpoint."""

    def __init__(self, model: Model, url: str, name: str, requests: int) -> None:
        from openai import OpenAI

        super().__init__(model, f"endpoint {url}", requests, _PROMPTS_PER_REQUEST)
        self._name = name
        self._client = OpenAI(base_url=url, max_retries=_RETRIES, timeout=120)

    def _request(self, ids: list[list[int]]) -> np.ndarray:
        from openai import APIError, BadRequestError

        try:
            answer = self._client.embeddings.create(model=self._name, input=ids, encoding_format="base64")
        except BadRequestError as error:
            raise PromptRefusedError(str(error)) from None
        except APIError as error:
            reason = " ".join(str(error).split())[:300]
            raise EmbeddingError(f"{self._where}: {reason}; start it or correct it, then run again") from None
        found: list[Any] = sorted(answer.data, key=lambda one: one.index)
        return np.array([_numbers(one.embedding) for one in found], dtype=np.float32)


def _numbers(embedding: Any) -> np.ndarray:
    """What the endpoint sent: base64 of float32 where it can, else a list."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), dtype=np.float32)
    return np.asarray(embedding, dtype=np.float32)
