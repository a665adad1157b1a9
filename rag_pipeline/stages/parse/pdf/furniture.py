"""Running headers, footers and page numbers: text that repeats at the same place of several pages' margins.

Digits count as equal, so that `Page 7` repeats `Page 6`; a lone number must count along with the pages. Knows
nothing of what else stands on a page.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from rag_pipeline.stages.parse.pdf.page import PageText, TextBlock

_MARGIN = 0.12  # share of the page's height at its top and bottom
_MIN_PAGES = 4  # documents of fewer pages keep all their text
_MIN_REPEATS = 3
_MAX_LINES = 3
_MAX_CHARS = 200
_PLACE = 4.0  # points within which two places are the same
_LARGE = 1.2  # times the body's type size: rather a title than furniture
_DIGITS = re.compile(r"\d+")
_ROMAN = re.compile(r"[ivxlc]+")


def drop_furniture(pages: Sequence[PageText], body_size: float) -> None:
    """Takes furniture off the pages, unless it is most of what the pages hold."""
    if len(pages) < _MIN_PAGES:
        return
    places: dict[tuple[str, bool], list[tuple[float, PageText, TextBlock]]] = defaultdict(list)
    for page in pages:
        for block in page.blocks:
            at_top = block.y1 <= page.height * _MARGIN
            if (at_top or block.y0 >= page.height * (1 - _MARGIN)) and _is_short(block):
                middle = (block.y0 + block.y1) / 2
                large = block.lines[0].size > _LARGE * body_size
                for key in _keys(block.text, page.number, large):
                    places[key, at_top].append((middle, page, block))
    dropped: set[int] = set()
    for found in places.values():
        for group in _at_one_place(found):
            needed = _MIN_REPEATS
            if group[0][2].lines[0].size > _LARGE * body_size:  # large type is rather a title that comes again
                needed = max(needed, (len(pages) + 1) // 2)
            if len({page.number for _, page, _ in group}) >= needed:
                dropped.update(id(block) for _, _, block in group)
    _drop(pages, dropped)


def _drop(pages: Sequence[PageText], dropped: set[int]) -> None:
    kept = [[block for block in page.blocks if id(block) not in dropped] for page in pages]
    with_text = sum(bool(page.blocks) for page in pages)
    if 2 * sum(map(bool, kept)) < with_text:
        return
    for page, blocks in zip(pages, kept, strict=True):
        page.blocks = blocks


def _is_short(block: TextBlock) -> bool:
    return len(block.lines) <= _MAX_LINES and len(block.text) <= _MAX_CHARS


def _keys(text: str, page: int, large: bool) -> list[str]:
    """What a text has to share with that of other pages: its letters, or its distance to the page's number."""
    words = text.lower().split()
    squashed = "".join(words)
    if _ROMAN.fullmatch(squashed):
        return ["roman"]
    if any(map(str.isalpha, squashed)):
        if large:  # "Chapter 1" and "Chapter 2" are titles
            return [squashed]
        return [_DIGITS.sub("#", "".join("#" if _is_roman(words, word) else word for word in words))]
    number = _DIGITS.search(squashed)
    keys = [f"#{int(number.group()[:9]) - page}"] if number else []
    return [*keys, squashed] if len(squashed) >= 6 or not keys else keys  # a date, a rule made of signs


def _is_roman(words: list[str], word: str) -> bool:
    """Whether a word can be a page number before or after a header's words."""
    return word in (words[0], words[-1]) and bool(_ROMAN.fullmatch(word))


def _at_one_place(
    found: list[tuple[float, PageText, TextBlock]],
) -> list[list[tuple[float, PageText, TextBlock]]]:
    groups: list[list[tuple[float, PageText, TextBlock]]] = []
    for item in sorted(found, key=lambda item: item[0]):
        if groups and item[0] - groups[-1][-1][0] <= _PLACE:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups
