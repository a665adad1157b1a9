"""Which prompts have a vector, and where in the log it lies: 16 bytes a prompt, found by binary search.

Keys are the first 64 bits of prompt hashes; the whole hash is compared when a vector is fetched. Knows
nothing of models: an index is built for one embedding fingerprint.
"""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa

from rag_pipeline.schema import from_vectors
from rag_pipeline.store import Layout
from rag_pipeline.store.parquet import embedding_of, list_parts, read_part, read_parts

MISSING = np.uint64(2**64 - 1)


def to_keys(hashes: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Turns 32-digit hex hashes into uint64 keys, shape [rows]."""
    digits = "".join(hashes.to_pylist())
    return np.frombuffer(bytes.fromhex(digits), dtype=">u8").reshape(-1, 2)[:, 0].astype(np.uint64)


class KeyMap:
    """A map from uint64 to uint64 that grows by batches; the first value of a key stays."""

    def __init__(self) -> None:
        self._runs: list[tuple[np.ndarray, np.ndarray]] = []  # sorted by key, each at least twice the next

    def __len__(self) -> int:
        return sum(len(keys) for keys, _ in self._runs)

    def add(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Adds keys; those already there keep their value."""
        keys, first = np.unique(keys, return_index=True)
        values = np.asarray(values, dtype=np.uint64)[first]
        fresh = self.find(keys) == MISSING
        run = (keys[fresh], values[fresh])
        while self._runs and len(self._runs[-1][0]) < 2 * len(run[0]):
            older = self._runs.pop()
            merged = np.concatenate([older[0], run[0]])
            order = np.argsort(merged, kind="stable")
            run = (merged[order], np.concatenate([older[1], run[1]])[order])
        if len(run[0]):
            self._runs.append(run)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Values of keys, `MISSING` where there is none; shape as given."""
        found = np.full(len(keys), MISSING, dtype=np.uint64)
        for known, values in self._runs:
            at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            hit = known[at] == keys
            found[hit] = values[at[hit]]
        return found


class VectorIndex:
    """Where in the log the vector of a prompt lies."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._parts: list[str] = []
        self._places = KeyMap()  # key -> part number << 32 | row

    @classmethod
    def of_log(cls, layout: Layout, embedding_fingerprint: str) -> VectorIndex:
        """Indexes every vector of one fingerprint that the log holds, of finished and of killed runs."""
        index = cls(layout)
        for part, table in read_parts(layout, list_parts(layout), ["prompt_hash"]):
            if embedding_of(table.schema).get("fingerprint") == embedding_fingerprint:
                index.add_part(part, to_keys(table.column(0)))
        return index

    def __len__(self) -> int:
        return len(self._places)

    def add_part(self, part: str, keys: np.ndarray) -> None:
        """Adds a part's rows, in row order."""
        number = len(self._parts)
        self._parts.append(part)
        self._places.add(keys, (np.uint64(number) << np.uint64(32)) + np.arange(len(keys), dtype=np.uint64))

    def locate(self, hashes: pa.ChunkedArray | pa.Array) -> tuple[np.ndarray, np.ndarray]:
        """Where the prompts' vectors lie.

        Returns:
            Part names (object [rows], ``None`` where unknown) and row numbers within them (int64 [rows]).

        Raises:
            StoreError: A part is gone or damaged.
        """
        parts = np.full(len(hashes), None, dtype=object)
        at = np.zeros(len(hashes), dtype=np.int64)
        if not len(self._places) or not len(hashes):
            return parts, at
        places = self._places.find(to_keys(hashes))
        numbers = (places >> np.uint64(32)).astype(np.int64)
        at = (places & np.uint64(0xFFFFFFFF)).astype(np.int64)
        wanted = _strings(hashes)
        for number in np.unique(numbers[places != MISSING]):
            rows = np.flatnonzero((numbers == number) & (places != MISSING))
            stored = _load_hashes(self._layout, self._parts[number])
            parts[rows[stored[at[rows]] == wanted[rows]]] = self._parts[number]
        return parts, at


def fetch_vectors(layout: Layout, parts: np.ndarray, at: np.ndarray, dimension: int) -> np.ndarray:
    """Reads vectors from where `VectorIndex.locate` found them; float32 [rows, dimension].

    Raises:
        StoreError: A part is gone or damaged.
    """
    vectors = np.zeros((len(parts), dimension), dtype=np.float32)
    for part in dict.fromkeys(parts):
        rows = np.flatnonzero(parts == part)
        vectors[rows] = _load_vectors(layout, part)[at[rows]]
    return vectors


def _strings(hashes: pa.ChunkedArray | pa.Array) -> np.ndarray:
    return np.array(hashes.to_pylist(), dtype=object)


@functools.lru_cache(maxsize=64)
def _load_hashes(layout: Layout, part: str) -> np.ndarray:
    return _strings(read_part(layout, part, ["prompt_hash"]).column(0))


@functools.lru_cache(maxsize=16)
def _load_vectors(layout: Layout, part: str) -> np.ndarray:
    return from_vectors(read_part(layout, part, ["vector"]).column(0))
