"""An OpenAI-compatible endpoint as an engine: a vLLM server, Ray Serve, or a provider that takes token ids.

Sends token ids, so that nothing is cut off on the way; waits and tries again where the endpoint is busy.
Knows nothing of files, stores or what rows are for.
"""

from __future__ import annotations

import base64
import os
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from rag_pipeline import schema
from rag_pipeline.config import RuntimeConfig
from rag_pipeline.embedding.model import Model, shorten
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


class EndpointEngine:
    """A client; called with blocks of the stream schema."""

    def __init__(self, model: Model, url: str, name: str, requests: int) -> None:
        from openai import OpenAI

        self._model = model
        self._url = url
        self._name = name
        self._client = OpenAI(base_url=url, max_retries=_RETRIES, timeout=120)
        self._pool = ThreadPoolExecutor(requests)

    def __call__(self, table: pa.Table) -> pa.Table:
        """Embeds the rows of kind `embed`; prompts the endpoint calls bad become `rejected`.

        Raises:
            EmbeddingError: The endpoint does not answer, refuses the key, or gives vectors of another length.
        """
        rows = schema.rows_of_kind(table, schema.EMBED)
        if not len(rows):
            return table
        ids = table["token_ids"].take(pa.array(rows)).to_pylist()
        started = time.time()
        parts = [
            range(first, min(first + _PROMPTS_PER_REQUEST, len(ids)))
            for first in range(0, len(ids), _PROMPTS_PER_REQUEST)
        ]
        refused: dict[int, str] = {}
        vectors = np.zeros((len(ids), self._model.dimension), dtype=np.float32)
        for _ in self._pool.map(lambda part: self._embed(ids, part, vectors, refused), parts):
            pass
        return schema.put_results(table, rows, vectors, refused, started)

    def _embed(self, ids: list[list[int]], part: range, vectors: np.ndarray, refused: dict[int, str]) -> None:
        """One request; where it is called bad, halves of it, down to the prompt."""
        from openai import APIError, BadRequestError

        try:
            made = self._request([ids[number] for number in part])
        except BadRequestError as error:
            if len(part) == 1:
                refused[part.start] = f"engine: {' '.join(str(error).split())}"[:300]
                return
            middle = (part.start + part.stop) // 2
            for half in (range(part.start, middle), range(middle, part.stop)):
                self._embed(ids, half, vectors, refused)
            return
        except APIError as error:
            reason = " ".join(str(error).split())[:300]
            raise EmbeddingError(f"endpoint {self._url}: {reason}; start it or correct it, then run again") from None
        if made.shape[1] < self._model.dimension:
            raise EmbeddingError(
                f"endpoint {self._url}: model {self._name} gives {made.shape[1]} dimensions, {self._model.name} has"
                f" {self._model.dimension}: it is another model; correct runtime.endpoint.model"
            )
        vectors[part.start : part.stop] = shorten(self._model, made)

    def _request(self, ids: list[list[int]]) -> np.ndarray:
        """Float32 [len(ids), dimension]."""
        answer = self._client.embeddings.create(model=self._name, input=ids, encoding_format="base64")
        found: list[Any] = sorted(answer.data, key=lambda one: one.index)
        return np.array([_numbers(one.embedding) for one in found], dtype=np.float32)


def _numbers(embedding: Any) -> np.ndarray:
    """What the endpoint sent: base64 of float32 where it can, else a list."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding), dtype=np.float32)
    return np.asarray(embedding, dtype=np.float32)
