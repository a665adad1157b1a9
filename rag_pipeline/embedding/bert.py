"""A BERT encoder for questions, computed by ONNX Runtime: up in a fraction of the seconds that importing torch takes.

Takes the architecture most small embedding models have and says no to any other. Its graph is written from the
model's own weights, one operator a line. One prompt at a time, in fp32. Knows nothing of queries or tables.
"""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from rag_pipeline.embedding.model import Model
from rag_pipeline.embedding.tokenizer import load_tokenizer

_POOLINGS = ("mean", "cls")
_MAX_THREADS = 4  # a question is too little work for more
_FUSED = "com.microsoft"  # ONNX Runtime's own operators: one for what takes ONNX's standard ones up to twenty


class BertEncoder:
    """The weights of one model, ready to encode; safe to share among threads."""

    def __init__(self, model: Model) -> None:
        import onnxruntime
        from safetensors.numpy import load_file

        settings = _settings(model)
        file = load_file(Path(model.path) / "model.safetensors")
        weights = {name.removeprefix("bert."): np.asarray(value, dtype=np.float32) for name, value in file.items()}
        self._words = weights["embeddings.word_embeddings.weight"]
        self._places = (
            weights["embeddings.position_embeddings.weight"] + weights["embeddings.token_type_embeddings.weight"][0]
        )
        graph = _Graph(weights, float(settings.get("layer_norm_eps", 1e-12)))
        graph.add_layers(int(settings["num_hidden_layers"]), int(settings["num_attention_heads"]))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = min(_MAX_THREADS, os.cpu_count() or 1)
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # others need the cores meanwhile
        options.add_session_config_entry("session.dynamic_block_base", "4")  # a thread that has a core takes more
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # nothing left to fuse
        self._constants = graph.constants  # the session reads them where they lie
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in graph.constants.values()]
        options.add_external_initializers(list(graph.constants), values)
        self._session = onnxruntime.InferenceSession(graph.to_bytes(), options, providers=["CPUExecutionProvider"])
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
        tokens = self._words[ids] + self._places[: len(ids)]
        hidden = self._session.run(None, {"tokens": tokens[None]})[0][0]
        vector = hidden[0] if self._model.pooling == "cls" else hidden.mean(axis=0)
        if self._model.normalize:
            vector = vector / max(float(np.linalg.norm(vector)), 1e-12)
        return np.asarray(vector, dtype=np.float32)


class _Graph:
    """A BERT as an ONNX graph: ``tokens``, float32 [1, n, dimension], to the last layer's states, of equal shape.

    Weights are not part of it but handed to the session as they lie in memory.
    """

    def __init__(self, weights: dict[str, np.ndarray], epsilon: float) -> None:
        self.constants: dict[str, np.ndarray] = {}
        self._weights = weights
        self._epsilon = epsilon
        self._nodes: list[bytes] = []
        self._last = ""

    def add_layers(self, layers: int, heads: int) -> None:
        """Adds the norm of the embeddings and all layers."""
        hidden = self._norm("tokens", "embeddings")
        for layer in range(layers):
            name = f"encoder.layer.{layer}"
            parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
            products = [self._product(hidden, part) for part in parts]
            bias = np.concatenate([self._weights[f"{part}.bias"] for part in parts])
            bias_name = self._constant(f"{name}.attention.self.bias", bias)
            attended = self._add("MultiHeadAttention", *products, bias_name, num_heads=heads)
            hidden = self._add_and_norm(attended, hidden, f"{name}.attention.output")
            inner = self._product(hidden, f"{name}.intermediate.dense")
            inner = self._add("BiasGelu", inner, self._constant(f"{name}.intermediate.dense.bias"))
            hidden = self._add_and_norm(inner, hidden, f"{name}.output")
        self._last = hidden

    def to_bytes(self) -> bytes:
        """The graph as an ONNX file holds it, see onnx.proto."""
        dimension = self._weights["embeddings.LayerNorm.weight"].shape[0]
        graph = [
            *(_field(1, node) for node in self._nodes),
            _field(2, "bert"),
            *(_field(5, _outside(name, value.shape)) for name, value in self.constants.items()),
            *(_field(number, _floats(name, dimension)) for number, name in ((11, "tokens"), (12, self._last))),
        ]
        opsets = [_field(8, _field(1, domain) + _field(2, version)) for domain, version in (("", 17), (_FUSED, 1))]
        return _field(1, 8) + _field(7, b"".join(graph)) + b"".join(opsets)

    def _product(self, values: str, name: str) -> str:
        """A linear layer but for its bias, which the next operator adds."""
        return self._add("FusedMatMul", values, self._constant(f"{name}.weight"), transB=1)

    def _add_and_norm(self, values: str, skipped: str, name: str) -> str:
        product = self._product(values, f"{name}.dense")
        total = self._add("Add", product, self._constant(f"{name}.dense.bias"), domain="")
        return self._norm(self._add("Add", total, skipped, domain=""), name)  # faster than the one operator of _FUSED

    def _norm(self, values: str, name: str) -> str:
        parts = [self._constant(f"{name}.LayerNorm.{part}") for part in ("weight", "bias")]
        return self._add("LayerNormalization", values, *parts, domain="", epsilon=self._epsilon)

    def _constant(self, name: str, value: np.ndarray | None = None) -> str:
        self.constants[name] = np.ascontiguousarray(self._weights[name] if value is None else value)
        return name

    def _add(self, operator: str, *inputs: str, domain: str = _FUSED, **attributes: int | float) -> str:
        """Adds an operator and returns its output's name."""
        output = f"{len(self._nodes)}"
        node = [*(_field(1, name) for name in inputs), _field(2, output), _field(4, operator), _field(7, domain)]
        for name, value in attributes.items():
            number, kind = (2, 1) if isinstance(value, float) else (3, 2)
            node.append(_field(5, _field(1, name) + _field(number, value) + _field(20, kind)))
        self._nodes.append(b"".join(node))
        return output


def _outside(name: str, shape: tuple[int, ...]) -> bytes:
    """A float tensor whose values the session is given."""
    place = _field(1, "location") + _field(2, "given to the session")
    dimensions = b"".join(_field(1, size) for size in shape)
    return dimensions + _field(2, 1) + _field(8, name) + _field(13, place) + _field(14, 1)


def _floats(name: str, dimension: int) -> bytes:
    """An input or output: float32 [1, n, dimension]."""
    sizes = (_field(1, 1), _field(2, "n"), _field(1, dimension))
    shape = b"".join(_field(1, size) for size in sizes)
    return _field(1, name) + _field(2, _field(1, _field(1, 1) + _field(2, shape)))


def _field(number: int, value: int | float | str | bytes) -> bytes:
    """One field of a protobuf message."""
    if isinstance(value, float):
        return _varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + _varint(rest) if rest else bytes([low])


def _settings(model: Model) -> dict[str, Any]:
    return dict(json.loads((Path(model.path) / "config.json").read_text(encoding="utf-8")))
