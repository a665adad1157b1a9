"""Filter: a verdict on each chunk of a document, never an edit. Knows nothing of other documents or of vectors."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from rag_pipeline.config import FilterConfig
from rag_pipeline.errors import ConfigError
from rag_pipeline.records import Chunk

_MIN_LETTERS = 100  # fewer say too little of their language: the document's decides
_PERMUTATIONS = 128
_SHINGLE_WORDS = 3
_ASCII_SIGNS = {code: None for code in range(128) if not chr(code).isalnum()}


def check_libraries(settings: FilterConfig) -> None:
    """Refuses settings whose library is not installed, before any work starts.

    Raises:
        ConfigError: Naming the library and how to install it.
    """
    for key, module, extra in (("languages", "py3langid", "language"), ("near_duplicates", "datasketch", "dedup")):
        if getattr(settings, key) and find_spec(module) is None:
            raise ConfigError(f"recipe.filter.{key}: needs {module}; pip install 'rag-pipeline[{extra}]'")


def reject_reasons(chunks: Sequence[Chunk], settings: FilterConfig) -> list[str | None]:
    """Says, for each chunk of one document, why it gets no vector, or ``None`` when it gets one.

    Reasons: ``too_short``, ``not_text``, ``boilerplate``, ``language``, ``near_duplicate``; of chunks that repeat
    each other the first stays.
    """
    reasons = [reject_reason(chunk, settings) for chunk in chunks]
    wanted = [number for number, reason in enumerate(reasons) if reason is None]
    texts = {number: chunks[number].text for number in wanted}
    found = _boilerplate(texts, settings.max_repeats) if settings.max_repeats else {}
    if settings.languages:
        found = _other_languages(texts, settings.languages) | found
    if settings.near_duplicates:
        found = _near_duplicates({n: text for n, text in texts.items() if n not in found}, settings) | found
    return [found.get(number, reason) for number, reason in enumerate(reasons)]


def reject_reason(chunk: Chunk, settings: FilterConfig) -> str | None:
    """Says why a chunk by itself gets no vector (``too_short``, ``not_text``), or ``None``."""
    visible = "".join(chunk.text.split())
    if len(visible) < settings.min_chars:
        return "too_short"
    if _letters_and_digits(visible) < settings.min_text_ratio * len(visible):
        return "not_text"
    return None


def _letters_and_digits(text: str) -> int:
    return len(text.translate(_ASCII_SIGNS)) if text.isascii() else sum(map(str.isalnum, text))


def _boilerplate(texts: dict[int, str], most: int) -> dict[int, str]:
    """Chunks after the first with a text that the document repeats, word for word, more than `most` times."""
    plain = {number: " ".join(text.split()).casefold() for number, text in texts.items()}
    counts, seen = Counter(plain.values()), set()
    found = {}
    for number, text in plain.items():
        if counts[text] > most and text in seen:
            found[number] = "boilerplate"
        seen.add(text)
    return found


def _other_languages(texts: dict[int, str], wanted: tuple[str, ...]) -> dict[int, str]:
    identify = _identifier()
    whole = identify(" ".join(texts.values())[:100_000])
    found = {}
    for number, text in texts.items():
        enough = sum(map(str.isalpha, text)) >= _MIN_LETTERS
        if (identify(text) if enough else whole) not in wanted:
            found[number] = "language"
    return found


@functools.cache
def _identifier() -> Any:
    """A function from a text to the ISO 639-1 code of its language."""
    import py3langid

    return lambda text: py3langid.classify(text)[0]


def _near_duplicates(texts: dict[int, str], settings: FilterConfig) -> dict[int, str]:
    """Chunks whose words, in threes, are much those of an earlier chunk (estimated Jaccard similarity)."""
    from datasketch import MinHash, MinHashLSH

    seen = MinHashLSH(threshold=settings.near_duplicates, num_perm=_PERMUTATIONS)
    found = {}
    for number, text in texts.items():
        words = text.casefold().split()
        shingles = {" ".join(words[at : at + _SHINGLE_WORDS]) for at in range(max(1, len(words) - _SHINGLE_WORDS + 1))}
        sketch = MinHash(num_perm=_PERMUTATIONS, seed=1)
        sketch.update_batch([shingle.encode() for shingle in shingles])
        if seen.query(sketch):
            found[number] = "near_duplicate"
        else:
            seen.insert(str(number), sketch)
    return found
