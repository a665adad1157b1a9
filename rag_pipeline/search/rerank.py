"""Reranking: a cross-encoder reads question and passage together and orders the best candidates anew.

Loaded only when asked for, since it is a second model. Knows nothing of how candidates were found.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Sequence
from typing import Any

from rag_pipeline.embedding.model import find_model
from rag_pipeline.errors import EmbeddingError
from rag_pipeline.search.ranking import Candidate


def reorder(model: str, question: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Orders candidates by the cross-encoder's score, best first; it becomes their score.

    Raises:
        ConfigError: The model is nowhere to be had.
        EmbeddingError: It cannot be loaded as a cross-encoder.
    """
    if not candidates:
        return []
    scores = _load(model).predict([(question, found.row["text"]) for found in candidates], show_progress_bar=False)
    for found, score in zip(candidates, scores, strict=True):
        found.score = found.scores["rerank"] = float(score)
    return sorted(candidates, key=lambda found: (-found.score, found.row["chunk_id"]))


@functools.lru_cache(maxsize=1)
def _load(model: str) -> Any:
    folder = str(find_model(model))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from sentence_transformers import CrossEncoder
            from transformers.utils import logging

            logging.disable_progress_bar()
            encoder = CrossEncoder(folder, device="cpu")
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise EmbeddingError(f"model {model}: cannot be loaded as a cross-encoder: {reason}") from error
    if encoder.config.num_labels != 1:
        raise EmbeddingError(f"model {model}: a reranking model has one output, it has {encoder.config.num_labels}")
    return encoder
