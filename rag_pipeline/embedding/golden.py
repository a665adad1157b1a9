"""The golden self-test: an engine's vector of a fixed text must be that of the encoder that queries use.

Catches what no error shows: another pooling, a missing normalization, another model of the same size. Knows nothing of
how either makes its vectors.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rag_pipeline.embedding.encoder import encode_prompts
from rag_pipeline.embedding.model import Model
from rag_pipeline.embedding.tokenizer import load_tokenizer
from rag_pipeline.errors import EmbeddingError

_TEXT = "The tide gauge on the eastern pier is read every six hours."
_MIN_COSINE = 0.99


def golden_ids(model: Model) -> list[int]:
    """The fixed text as the model's token ids."""
    tokenizer = load_tokenizer(model)
    return [*tokenizer.head_ids, *tokenizer.encode([_TEXT])[0].ids, *tokenizer.tail_ids]


def check_golden(model: Model, encode: Callable[[list[list[int]]], np.ndarray], where: str) -> None:
    """Compares an engine with the query-time encoder; `encode` turns token ids into float32 [prompts, dimension].

    A model whose weights are not here, such as a provider's own, has nothing to be compared with.

    Raises:
        EmbeddingError: They differ.
    """
    if not model.has_weights:
        return
    vector = encode([golden_ids(model)])[0]
    wanted = encode_prompts(model, [_TEXT])[0]
    cosine = float(vector @ wanted / (np.linalg.norm(vector) * np.linalg.norm(wanted)))
    if not cosine >= _MIN_COSINE:
        raise EmbeddingError(
            f"model {model.name}: the vector that {where} makes of a fixed text has a cosine of {cosine:.3f} with that"
            " of the encoder for queries: it is another model, or pools or normalizes differently; correct its settings"
        )
