"""The query-time encoder: sentence-transformers on the CPU, up in seconds, for the table's own model.

Knows nothing of tables or of how documents were embedded.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np

from rag_pipeline.embedding.hash import hash_vector
from rag_pipeline.embedding.model import Model
from rag_pipeline.errors import EmbeddingError
from rag_pipeline.records import short_hash


def encode_query(model: Model, text: str) -> np.ndarray:
    """Embeds a question with the model's query prompt; float32 [dimension]."""
    vector: np.ndarray = encode_prompts(model, [model.query_prefix + text])[0]
    return vector


def encode_prompts(model: Model, prompts: list[str]) -> np.ndarray:
    """Embeds prompts as they are, in fp32; float32 [len(prompts), dimension].

    Raises:
        EmbeddingError: sentence-transformers cannot load the model.
    """
    if model.pooling == "none":
        return np.array([hash_vector(short_hash(prompt), model.dimension) for prompt in prompts])
    vectors = _load(model.path).encode(prompts, convert_to_numpy=True, normalize_embeddings=model.normalize)
    return np.asarray(vectors, dtype=np.float32)


def _load(path: str) -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from sentence_transformers import SentenceTransformer

            return SentenceTransformer(path, device="cpu")
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise EmbeddingError(f"model {path}: sentence-transformers cannot load it: {reason}") from error
