"""The fake engine: a vector made of the prompt's hash. For tests of everything but embedding; it says so.

Texts that differ in one letter are as far apart as any two. Knows nothing of models.
"""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np
import pyarrow as pa

from rag_pipeline import schema
from rag_pipeline.embedding.model import Model


def embed_hash(dataset: Any, model: Model) -> Any:
    """Appends the fake engine to a Dataset; see `embedding.embed`."""
    return dataset.map_batches(
        _embed_block, batch_size=None, batch_format="pyarrow", fn_args=(model.dimension,), num_cpus=0.25
    )


def hash_vector(prompt_hash: str, dimension: int) -> np.ndarray:
    """A unit vector, float32 [dimension], that depends on nothing but the hash."""
    seed = int.from_bytes(hashlib.sha256(prompt_hash.encode()).digest()[:8], "little")
    vector = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return np.asarray(vector / np.linalg.norm(vector), dtype=np.float32)


def _embed_block(table: pa.Table, dimension: int) -> pa.Table:
    started = time.time()
    rows = schema.rows_of_kind(table, schema.EMBED)
    hashes = table["prompt_hash"].take(pa.array(rows)).to_pylist()
    vectors = np.array([hash_vector(value, dimension) for value in hashes], dtype=np.float32).reshape(-1, dimension)
    return schema.put_vectors(table, rows, vectors, started, time.time())
