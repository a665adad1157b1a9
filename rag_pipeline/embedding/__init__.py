"""Embedding behind one seam: a Dataset of the stream schema in, the same out with vectors.

Rows of kind `embed` leave as `embedded` (with `vector`, `engine`, `engine_start`, `engine_end` in seconds since
the epoch) or as `rejected` (with `reason`); all other rows pass through untouched. Engines differ in
nothing else. Knows nothing of files, stores or what rows are for.
"""

from __future__ import annotations

from typing import Any

from rag_pipeline.config import EmbeddingConfig, RuntimeConfig
from rag_pipeline.embedding.model import Model


def embed(
    dataset: Any, model: Model, config: EmbeddingConfig, runtime: RuntimeConfig, *, start_now: bool = True
) -> Any:
    """Appends the configured engine to a Ray Dataset; nothing runs until the Dataset is consumed.

    Args:
        dataset: Blocks of the stream schema.
        model: The recipe's model.
        config: Which engine, and its arguments.
        runtime: How many engines, block sizes, an endpoint.
        start_now: Start engines while files are still being read, not when the first row needs one.
    """
    match config.engine:
        case "hash":
            from rag_pipeline.embedding.hash import embed_hash

            return embed_hash(dataset, model)
        case "ray-llm":
            from rag_pipeline.embedding.ray_llm import embed_ray_llm

            return embed_ray_llm(dataset, model, config, runtime)
        case "sentence-transformers":
            from rag_pipeline.embedding.sentence_transformer import embed_sentence_transformer

            return embed_sentence_transformer(dataset, model, runtime)
        case "openai":
            from rag_pipeline.embedding.endpoint import embed_endpoint

            return embed_endpoint(dataset, model, runtime)
        case "ray-serve":
            from rag_pipeline.embedding.ray_serve import embed_ray_serve

            return embed_ray_serve(dataset, model, runtime)
        case _:
            from rag_pipeline.embedding.vllm import embed_vllm

            return embed_vllm(dataset, model, config, runtime, start_now)
