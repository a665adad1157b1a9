"""The model's own tokenizer, in batches, with character offsets. Knows nothing of chunks or engines."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from rag_pipeline.embedding.model import Model
from rag_pipeline.errors import ConfigError
from rag_pipeline.records import Tokens


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
        )

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """See `records.Tokenizer.encode`."""
        batch = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        encoded = []
        for encoding in batch:
            offsets = encoding.offsets
            encoded.append(Tokens(encoding.ids, [start for start, _ in offsets], [end for _, end in offsets]))
        return encoded


@functools.lru_cache(maxsize=4)
def load_tokenizer(model: Model) -> ModelTokenizer:
    """A model's tokenizer, loaded once a process."""
    return ModelTokenizer(model)
