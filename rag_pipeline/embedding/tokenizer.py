"""The model's own tokenizer, in batches, with character offsets. Knows nothing of chunks or engines."""

from __future__ import annotations

import functools
import itertools
from array import array
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rag_pipeline.embedding.model import Model
from rag_pipeline.errors import ConfigError
from rag_pipeline.records import Tokens

# What Rust's and Python's notion of a blank share; the others (\x1c-\x1f, \x85) BERT's normalizer drops as controls.
_BLANK = np.zeros(0x3002, dtype=bool)
_BLANK[[*range(9, 14), 32, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]] = True
_DISPUTED = "\x1c\x1d\x1e\x1f\x85"
_MAX_WORDS = 500_000


class ModelTokenizer:
    """A Hugging Face `tokenizers.Tokenizer` as `records.Tokenizer` wants it."""

    def __init__(self, model: Model) -> None:
        from tokenizers import Tokenizer

        file = Path(model.path) / "tokenizer.json"
        if not file.exists():
            raise ConfigError(f"model {model.name}: no tokenizer.json; a fast tokenizer is needed for exact spans")
        self._tokenizer = Tokenizer.from_file(str(file))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a document is text, not a command
        bare = self._tokenizer.encode("a", add_special_tokens=False).ids
        full = self._tokenizer.encode("a").ids
        at = next(k for k in range(len(full)) if full[k : k + len(bare)] == bare)
        self.head_ids = tuple(full[:at])
        self.tail_ids = tuple(full[at + len(bare) :])
        self.max_tokens = model.max_tokens
        self.document_prefix = model.document_prefix
        if len(self._tokenizer.encode(model.document_prefix).ids) > model.max_tokens // 2:
            raise ConfigError(
                f"model {model.name}: document_prefix takes more than half of its {model.max_tokens} tokens"
            )
        self.cuts_at_blanks = (
            type(self._tokenizer.model).__name__ == "WordPiece"
            and type(self._tokenizer.pre_tokenizer).__name__ == "BertPreTokenizer"
            and type(self._tokenizer.normalizer).__name__ in ("BertNormalizer", "NoneType")
        )
        self._words = _Words(self._tokenizer)

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """See `records.Tokenizer.encode`."""
        if self.cuts_at_blanks and not any(char in text for char in _DISPUTED for text in texts):
            return [self._words.encode(text) for text in texts]
        batch = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [_tokens(np.array(one.ids), np.array(one.offsets).reshape(-1, 2)) for one in batch]


class _Words:
    """Tokenizes each word once: where tokens never reach over a blank, a text's tokens are those of its words."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._forget()

    def _forget(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)
        self._bounds = _Column()
        self._ids, self._offsets = _Column(), _Column(width=2)
        self._bounds.extend([0])

    def encode(self, text: str) -> Tokens:
        """The text's ids and offsets, put together from its words'."""
        if len(self._numbers) > _MAX_WORDS:
            self._forget()
        words, known = text.split(), len(self._numbers)
        numbers = np.fromiter(map(self._numbers.__getitem__, words), np.int64, len(words))
        self._learn(list(itertools.islice(reversed(self._numbers), len(self._numbers) - known))[::-1])
        bounds = self._bounds.values()
        first, counts = bounds[numbers], bounds[numbers + 1] - bounds[numbers]
        before = np.cumsum(counts) - counts
        places = np.repeat(first - before, counts) + np.arange(int(counts.sum()))
        starts = np.repeat(_word_starts(text), counts)
        return _tokens(self._ids.values()[places], self._offsets.values()[places] + starts[:, None])

    def _learn(self, words: list[str]) -> None:
        if not words:
            return
        encoded = self._tokenizer.encode_batch(words, add_special_tokens=False)
        ids = [one.ids for one in encoded]
        self._ids.extend(list(itertools.chain.from_iterable(ids)))
        self._offsets.extend(list(itertools.chain.from_iterable(one.offsets for one in encoded)))
        self._bounds.extend(int(self._bounds.values()[-1]) + np.cumsum([len(one) for one in ids]))


class _Column:
    """A growing array of int64."""

    def __init__(self, width: int = 0) -> None:
        self._data = np.zeros((1024, width) if width else 1024, dtype=np.int64)
        self._size = 0

    def extend(self, values: Sequence[Any] | np.ndarray) -> None:
        needed = self._size + len(values)
        if needed > len(self._data):
            grown = np.zeros((max(needed, 2 * len(self._data)), *self._data.shape[1:]), dtype=np.int64)
            grown[: self._size] = self._data[: self._size]
            self._data = grown
        if len(values):
            self._data[self._size : needed] = values
        self._size = needed

    def values(self) -> np.ndarray:
        return self._data[: self._size]


def _word_starts(text: str) -> np.ndarray:
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    word = ~_BLANK[np.minimum(codes, len(_BLANK) - 1)]
    return np.flatnonzero(word & ~np.concatenate([[False], word[:-1]]))


def _tokens(ids: np.ndarray, offsets: np.ndarray) -> Tokens:
    columns = (ids, offsets[:, 0], offsets[:, 1])
    return Tokens(*(array("i", np.ascontiguousarray(column, dtype=np.int32).tobytes()) for column in columns))


@functools.lru_cache(maxsize=4)
def load_tokenizer(model: Model) -> ModelTokenizer:
    """A model's tokenizer, loaded once a process."""
    return ModelTokenizer(model)
