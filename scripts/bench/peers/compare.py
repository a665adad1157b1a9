"""What two indexes of the same folder have in common, (path, text) as a multiset and vectors by cosine.

Does not know which tool made them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

SAME_VECTOR = 0.999  # cosine; bfloat16 and batch composition move a vector less, another model more


def keys(table: pa.Table) -> list[tuple[str, str]]:
    """(path, text) of every row."""
    return list(zip(table["path"].to_pylist(), table["text"].to_pylist(), strict=True))


def same_file(got: pa.Table, wanted: pa.Table, path: str) -> bool:
    """Says whether both hold the same chunks of one file."""
    one, other = (Counter(keys(table.filter(pc.equal(table["path"], path)))) for table in (got, wanted))
    return one == other


def differences(got: pa.Table, wanted: pa.Table) -> str:
    """What of `got` should not be there, is missing, or has another vector; empty where nothing."""
    have, want = Counter(keys(got)), Counter(keys(wanted))
    # A text that stands twice in a file, below two headings, has a vector for each: any of them will do.
    vectors: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)
    for key, vector in zip(keys(wanted), wanted["vector"].to_pylist(), strict=True):
        vectors[key].append(np.asarray(vector))
    other = 0
    for key, vector in zip(keys(got), got["vector"].to_pylist(), strict=True):
        if key in vectors:
            a = np.asarray(vector)
            other += not any(a @ b >= SAME_VECTOR * np.linalg.norm(a) * np.linalg.norm(b) for b in vectors[key])
    parts = {"stale or doubled": (have - want).total(), "missing": (want - have).total(), "with an old vector": other}
    return ", ".join(f"{count} {what}" for what, count in parts.items() if count)


def too_long(table: pa.Table, model: str, limit_tokens: int = 256) -> int:
    """How many texts alone are longer than the model takes, so that their ends are in no vector."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return sum(len(one.ids) > limit_tokens for one in tokenizer.encode_batch(table["text"].to_pylist()))
