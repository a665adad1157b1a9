"""The query-time encoder: on the CPU, up at once, for the table's own model.

A plain BERT is computed by ONNX Runtime (`embedding.bert`), any other model by sentence-transformers. Knows nothing
of tables or of how documents were embedded.
"""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any

import numpy as np

from rag_pipeline.embedding.bert import BertEncoder
from rag_pipeline.embedding.hash import hash_vector
from rag_pipeline.embedding.model import Model, shorten
from rag_pipeline.errors import EmbeddingError
from rag_pipeline.records import short_hash


def encode_query(model: Model, text: str) -> np.ndarray:
    """Embeds a question with the model's query prompt; float32 [dimension]."""
    vector: np.ndarray = encode_prompts(model, [model.query_prefix + text])[0]
    return vector


def encode_prompts(model: Model, prompts: list[str]) -> np.ndarray:
    """Embeds prompts as they are, in fp32; float32 [len(prompts), dimension].

    The model is loaded by the first call and stays.

    Raises:
        EmbeddingError: The model cannot be loaded.
    """
    if model.pooling == "none":
        return np.array([hash_vector(short_hash(prompt), model.dimension) for prompt in prompts])
    encoder = _load(model)
    if isinstance(encoder, BertEncoder):
        return shorten(model, np.array([encoder.encode(prompt) for prompt in prompts]))
    vectors = encoder.encode(prompts, convert_to_numpy=True, normalize_embeddings=model.normalize)
    return shorten(model, np.asarray(vectors, dtype=np.float32))


@functools.lru_cache(maxsize=2)
def _load(model: Model) -> Any:
    """A `BertEncoder` where it understands the model, else a SentenceTransformer."""
    try:
        if BertEncoder.understands(model):
            return BertEncoder(model)
        return load_sentence_transformer(model.path)
    except (ImportError, OSError, ValueError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:300]
        raise EmbeddingError(f"model {model.path}: cannot be loaded to encode questions: {reason}") from error


def load_sentence_transformer(path: str) -> Any:
    """sentence-transformers' own encoder of a model, on the CPU and without the network."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()
        return SentenceTransformer(path, device="cpu")
