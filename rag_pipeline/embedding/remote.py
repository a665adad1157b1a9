"""Engines that run elsewhere, asked with token ids: what every client of one does with a block.

A block is cut into requests, several of them under way at once; where a request is called bad, its halves are tried,
down to the prompt. Knows nothing of protocols, files or stores.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from rag_pipeline import schema
from rag_pipeline.embedding.golden import check_golden
from rag_pipeline.embedding.model import Model, shorten
from rag_pipeline.errors import EmbeddingError


class PromptRefusedError(Exception):
    """The engine calls at least one prompt of a request bad."""


class RemoteEngine(ABC):
    """A client; called with blocks of the stream schema."""

    def __init__(self, model: Model, where: str, requests: int, prompts_per_request: int) -> None:
        self._model = model
        self._where = where
        self._prompts_per_request = prompts_per_request
        self._pool = ThreadPoolExecutor(requests)
        self._tested = False

    @abstractmethod
    def _request(self, ids: list[list[int]]) -> np.ndarray:
        """Vectors of some prompts; float32 [prompts, any].

        Raises:
            PromptRefusedError: A prompt is bad.
            EmbeddingError: The engine does not answer.
        """

    def __call__(self, table: pa.Table) -> pa.Table:
        """Embeds the rows of kind `embed`; prompts the engine calls bad become `rejected`.

        Raises:
            EmbeddingError: The engine does not answer, or is another model than the recipe's.
        """
        rows = schema.rows_of_kind(table, schema.EMBED)
        if not len(rows):
            return table
        if not self._tested:
            check_golden(self._model, self._vectors_of, self._where)
            self._tested = True
        ids = table["token_ids"].take(pa.array(rows)).to_pylist()
        started = time.time()
        refused = self._model.refuse_long(ids)
        order = np.argsort([len(one) for one in ids], kind="stable")[: len(ids) - len(refused)]
        step = self._prompts_per_request
        parts = [order[first : first + step] for first in range(0, len(order), step)]
        vectors = np.zeros((len(ids), self._model.dimension), dtype=np.float32)
        for _ in self._pool.map(lambda part: self._embed(ids, part, vectors, refused), parts):
            pass
        return schema.put_results(table, rows, vectors, refused, started)

    def _embed(self, ids: list[list[int]], part: np.ndarray, vectors: np.ndarray, refused: dict[int, str]) -> None:
        """One request; where it is called bad, halves of it, down to the prompt."""
        try:
            vectors[part] = self._vectors_of([ids[number] for number in part])
        except PromptRefusedError as error:
            if len(part) == 1:
                refused[int(part[0])] = f"engine: {' '.join(str(error).split())}"[:300]
                return
            for half in np.array_split(part, 2):
                self._embed(ids, half, vectors, refused)

    def _vectors_of(self, ids: list[list[int]]) -> np.ndarray:
        made = self._request(ids)
        if made.shape[1] < self._model.dimension:
            raise EmbeddingError(
                f"{self._where}: gives {made.shape[1]} dimensions, {self._model.name} has {self._model.dimension}:"
                " it is another model; correct it, then run again"
            )
        return shorten(self._model, made)
