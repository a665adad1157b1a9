"""A BERT encoder in numpy, for questions: up in a fraction of the seconds that importing torch takes.

Takes the architecture most small embedding models have and says no to any other. One prompt at a time, in
fp32. Knows nothing of queries or tables.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from rag_pipeline.embedding.model import Model
from rag_pipeline.embedding.tokenizer import load_tokenizer

_POOLINGS = ("mean", "cls")
_SHORT_TOKENS, _BLOCK = 32, 16  # measured: half the time at 12 tokens, a third less at 25, more at 60


class BertEncoder:
    """The weights of one model, ready to encode; safe to share among threads."""

    def __init__(self, model: Model) -> None:
        from safetensors.numpy import load_file
        from threadpoolctl import ThreadpoolController

        self._threads = ThreadpoolController()
        settings = _settings(model)
        weights = load_file(Path(model.path) / "model.safetensors")
        self._weights = {
            name.removeprefix("bert."): np.asarray(value, dtype=np.float32) for name, value in weights.items()
        }
        self._layers = int(settings["num_hidden_layers"])
        self._heads = int(settings["num_attention_heads"])
        self._epsilon = float(settings.get("layer_norm_eps", 1e-12))
        self._model = model
        self._tokenizer = load_tokenizer(model)

    @classmethod
    def understands(cls, model: Model) -> bool:
        """Whether a model is a plain BERT with weights this class can read."""
        settings = _settings(model)
        return (
            settings.get("model_type") == "bert"
            and settings.get("hidden_act") == "gelu"
            and settings.get("position_embedding_type", "absolute") == "absolute"
            and settings.get("torch_dtype", settings.get("dtype")) in (None, "float32", "float16")
            and model.pooling in _POOLINGS
            and (Path(model.path) / "model.safetensors").exists()
            and (Path(model.path) / "tokenizer.json").exists()
        )

    def encode(self, prompt: str) -> np.ndarray:
        """Embeds one prompt, cut off at the model's limit as its own tokenizer does; float32 [dimension]."""
        tokenizer = self._tokenizer
        room = self._model.max_tokens - len(tokenizer.head_ids) - len(tokenizer.tail_ids)
        ids = [*tokenizer.head_ids, *tokenizer.encode([prompt])[0].ids[:room], *tokenizer.tail_ids]
        with self._threads.limit(limits=1, user_api="blas"):  # threads of so small a product wait for each other
            hidden = self._forward(np.array(ids))
        vector = hidden[0] if self._model.pooling == "cls" else hidden.mean(axis=0)
        if self._model.normalize:
            vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
        return np.asarray(vector, dtype=np.float32)

    def _forward(self, ids: np.ndarray) -> np.ndarray:
        """Hidden states of the last layer, float32 [tokens, dimension]."""
        tables = self._weights
        hidden = tables["embeddings.word_embeddings.weight"][ids]
        hidden = hidden + tables["embeddings.position_embeddings.weight"][: len(ids)]
        hidden = hidden + tables["embeddings.token_type_embeddings.weight"][0]
        hidden = self._norm(hidden, "embeddings.LayerNorm")
        for layer in range(self._layers):
            name = f"encoder.layer.{layer}"
            attended = self._dense(self._attend(hidden, f"{name}.attention.self"), f"{name}.attention.output.dense")
            hidden = self._norm(hidden + attended, f"{name}.attention.output.LayerNorm")
            inner = _gelu(self._dense(hidden, f"{name}.intermediate.dense"))
            hidden = self._norm(hidden + self._dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return hidden

    def _attend(self, hidden: np.ndarray, name: str) -> np.ndarray:
        shape = (len(hidden), self._heads, -1)
        query, key, value = (
            self._dense(hidden, f"{name}.{part}").reshape(shape).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(query.shape[-1]))
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return np.asarray((weights @ value).transpose(1, 0, 2).reshape(len(hidden), -1))

    def _dense(self, values: np.ndarray, name: str) -> np.ndarray:
        """A linear layer; a short prompt goes through it in blocks, which BLAS multiplies without copying weights."""
        weight = self._weights[f"{name}.weight"]
        rows, size = len(values), len(weight)
        if rows > _SHORT_TOKENS or size % _BLOCK:
            product = values @ weight.T
        else:
            blocks = weight.reshape(size // _BLOCK, _BLOCK, -1).transpose(0, 2, 1)
            product = (values @ blocks).transpose(1, 0, 2).reshape(rows, size)
        product += self._weights[f"{name}.bias"]
        return np.asarray(product)

    def _norm(self, values: np.ndarray, name: str) -> np.ndarray:
        centred = values - values.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + np.float32(self._epsilon))
        return np.asarray(centred / scale * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"])


def _gelu(values: np.ndarray) -> np.ndarray:
    """Exact GELU with erf by Abramowitz and Stegun 7.1.26, true to 1.5e-7, six times as fast as scipy's."""
    size = np.abs(values) * np.float32(1 / np.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * size)
    terms = np.polyval(np.array([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592], np.float32), t)
    erf = np.copysign(1 - terms * t * np.exp(-size * size), values)
    return np.asarray(values * (1 + erf) * np.float32(0.5))


def _settings(model: Model) -> dict[str, Any]:
    return dict(json.loads((Path(model.path) / "config.json").read_text(encoding="utf-8")))
