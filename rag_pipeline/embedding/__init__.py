"""Embedding behind one seam: a Dataset of the stream schema in, the same out with vectors.

Rows of kind `embed` leave as `embedded` (with `vector`, `engine_start`, `engine_end` in seconds since
the epoch) or as `rejected` (with `reason`); all other rows pass through untouched. Engines differ in
nothing else. Knows nothing of files, stores or what rows are for.
"""

from __future__ import annotations

from typing import Any

from rag_pipeline.config import EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding.model import Model


def embed(dataset: Any, model: Model, config: EmbeddingConfig, runtime: RuntimeConfig) -> Any:
    """Appends the configured engine to a Ray Dataset; nothing runs until the Dataset is consumed."""
    if config.engine == "hash":
        from rag_pipeline.embedding.hash import embed_hash

        return embed_hash(dataset, model)
    if config.engine == "vllm-offline":
        from rag_pipeline.embedding.offline import embed_offline

        return embed_offline(dataset, model, config, runtime)
    from rag_pipeline.embedding.vllm import embed_vllm

    return embed_vllm(dataset, model, config, runtime)
