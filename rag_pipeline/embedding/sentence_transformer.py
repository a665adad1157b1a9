"""sentence-transformers as an engine: for small models where no vLLM is installed. Knows nothing of files or stores."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

import numpy as np
import pyarrow as pa

from rag_pipeline import schema
from rag_pipeline.config import RuntimeConfig
from rag_pipeline.embedding.encoder import load_sentence_transformer
from rag_pipeline.embedding.engine_args import count_gpus
from rag_pipeline.embedding.model import Model, shorten

_BATCH = 64


def embed_sentence_transformer(dataset: Any, model: Model, runtime: RuntimeConfig) -> Any:
    """Appends sentence-transformers actors to a Dataset; see `embedding.embed`."""
    import ray

    gpus = count_gpus(runtime)
    replicas = max(1, gpus) if runtime.replicas == "auto" else runtime.replicas
    return dataset.map_batches(
        SentenceTransformerEngine,
        fn_constructor_args=(model, "cuda" if gpus else "cpu"),
        batch_size=None if runtime.embed_batch_rows == "auto" else runtime.embed_batch_rows,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=replicas),
        num_cpus=1,
        num_gpus=gpus / replicas if gpus else None,
    )


class SentenceTransformerEngine:
    """One model; called with blocks of the stream schema."""

    def __init__(self, model: Model, device: str) -> None:
        self._model = model
        self._device = device
        self._encoder: Any = None
        self._name = f"{platform.node()}:{os.getpid()}"

    def __call__(self, table: pa.Table) -> pa.Table:
        """Embeds the rows of kind `embed`, by their token ids; longer ones than the model takes become `rejected`."""
        rows = schema.rows_of_kind(table, schema.EMBED)
        if not len(rows):
            return table
        if self._encoder is None:
            self._encoder = load_sentence_transformer(self._model.path).to(self._device)
        ids = table["token_ids"].take(pa.array(rows)).to_pylist()
        started = time.time()
        vectors = np.zeros((len(ids), self._model.dimension), dtype=np.float32)
        refused = self._model.refuse_long(ids)
        order = np.argsort([len(one) for one in ids], kind="stable")[: len(ids) - len(refused)]
        for first in range(0, len(order), _BATCH):
            batch = order[first : first + _BATCH]
            vectors[batch] = self._encode([ids[number] for number in batch])
        return schema.put_results(table, rows, vectors, refused, started, self._name)

    def _encode(self, ids: list[list[int]]) -> np.ndarray:
        """Float32 [len(ids), dimension]; shorter prompts are padded and masked."""
        import torch

        longest = max(map(len, ids))
        padded = torch.zeros((len(ids), longest), dtype=torch.long)
        mask = torch.zeros_like(padded)
        for number, one in enumerate(ids):
            padded[number, : len(one)] = torch.tensor(one)
            mask[number, : len(one)] = 1
        features = {"input_ids": padded.to(self._device), "attention_mask": mask.to(self._device)}
        with torch.inference_mode():
            made = self._encoder(features)["sentence_embedding"].float()
        return shorten(self._model, np.asarray(made.cpu().numpy()))
