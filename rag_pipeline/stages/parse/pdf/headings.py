"""Which lines are headings: those the outline names, else those in larger or bolder type than the body.

Knows nothing of where on the page they stand beyond their order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rag_pipeline.stages.parse.pdf.page import Line, PageText, TextBlock

_MAX_LINES = 4
_MAX_CHARS = 160
_MAX_BOLD_CHARS = 90
_LARGER = 1.12  # of the body's type size
_NARROW = 0.28  # of the type size; no script's letters are narrower on average
_TITLE_LARGER = 1.3
_MAX_LEVEL = 6
_MIN_OUTLINE_FOUND = 1 / 3  # an outline whose titles mostly do not stand in the text says nothing of headings
_NUMBER = re.compile(
    r"\s*(?:(?:chapter|section|part|appendix)\s+)?(\d+(?:\.\d+)*|[A-Z](?:\.\d+)+)[.:)]?\s+(?=\S)", re.I
)
_LABEL = re.compile(r"\s*(?:(?:chapter|section|part|appendix)\s+)?(?:\d+|[A-Z])(?:\.\d+)*[.:)]?\s+(?=\S)", re.I)
_NUMBERED = re.compile(r"(?:chapter|section|part|appendix)?(?:\d+(?:\.\d+)*|[a-z](?:\.\d+)+)[.:)]?")
_WORD = re.compile(r"[^\W\d_]{2}|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")

_Outline = dict[int, list[tuple[str, int]]]  # page to (title without blanks, level), in order
_Style = tuple[float, bool]


def body_size(pages: Sequence[PageText]) -> float:
    """The type size that most characters have."""
    return _most_common(pages, lambda line: line.size) or 0.0


def find_headings(document: Any, pages: Sequence[PageText], size: float, by_type: bool) -> None:
    """Marks headings, splitting them from their block's text; `size` is the body's, `by_type` also goes by type."""
    outline, titles = _outline(document)
    found = sum(_mark_by_outline(page, outline[page.number]) for page in pages if page.number in outline)
    if by_type and found <= titles * _MIN_OUTLINE_FOUND:
        _mark_by_type(pages, size)


def title_of(page: PageText, size: float) -> str:
    """The largest type of a first page, where it is clearly larger than the body's `size`."""
    blocks = [block for block in page.blocks if block.kind != "table" and not block.lines[0].turned]
    largest = max((block.lines[0].size for block in blocks), default=0.0)
    if not size or largest < _TITLE_LARGER * size:
        return ""
    lines: list[Line] = []
    for block in blocks:
        if lines and (block.lines[0].size != largest or block.y0 - lines[-1].y1 > largest):
            break
        if block.lines[0].size == largest:
            lines += [line for line in block.lines if line.size == largest]
    text = " ".join(" ".join(line.text for line in lines).split())
    return text if 1 < len(text) <= _MAX_CHARS and _WORD.search(text) else ""


# --- the outline


def _outline(document: Any) -> tuple[_Outline, int]:
    try:
        if document.xref_get_key(document.pdf_catalog(), "Outlines")[0] == "null":
            return {}, 0  # asking for it takes as long as a short page
        entries = document.get_toc(simple=True)
    except Exception:  # a damaged outline is none
        return {}, 0
    outline: _Outline = {}
    for level, title, page in entries:
        if squashed := _squash(title):
            outline.setdefault(page, []).append((squashed, min(level, _MAX_LEVEL)))
    return outline, sum(map(len, outline.values()))


def _mark_by_outline(page: PageText, titles: list[tuple[str, int]]) -> int:
    """Marks the lines that spell a title of this page; returns how many titles were found."""
    wanted = dict(reversed(titles))
    blocks: list[TextBlock] = []
    waiting = list(page.blocks)
    found = 0
    while waiting:
        block = waiting.pop(0)
        match = _spelled(block.lines, [other.lines for other in waiting[:2]], wanted) if wanted else None
        if match is None:
            blocks.append(block)
            continue
        before, heading, after, eaten, title = match
        blocks += [TextBlock.of(before)] if before else []
        blocks.append(TextBlock.of(heading, "heading", wanted.pop(title)))
        waiting[:eaten] = [TextBlock.of(after)] if after else []
        found += 1
    page.blocks = blocks
    return found


def _spelled(
    lines: list[Line], following: list[list[Line]], wanted: dict[str, int]
) -> tuple[list[Line], list[Line], list[Line], int, str] | None:
    """Lines before, of and after the first title in a block, how many following blocks it reaches into, and it."""
    longest = max(map(len, wanted)) + 12
    beginnings = {title[:3] for title in wanted} | {_NUMBERED.sub("", title, count=1)[:3] for title in wanted}
    for start, line in enumerate(lines):
        if len(line.text) > 2 * longest or not _begins_like(line.text, beginnings):
            continue
        text = ""
        heading: list[Line] = []
        rest = [(0, lines[start:]), *enumerate(following, 1)]
        for eaten, part in rest:
            for index, piece in enumerate(part):
                text += " " + piece.text
                heading.append(piece)
                title = _named(text, wanted)
                if title is not None:
                    return lines[:start], heading, part[index + 1 :], eaten, title
                if len(heading) >= _MAX_LINES or len(text) > 2 * longest:
                    break
            else:
                continue
            break
    return None


def _begins_like(text: str, beginnings: set[str]) -> bool:
    bare = _LABEL.sub("", text, count=1)
    if len(bare) < 3 or len(text) < 6:
        return True  # a number alone; the title follows
    return _squash(text[:12])[:3] in beginnings or _squash(bare[:12])[:3] in beginnings


def _named(text: str, wanted: dict[str, int]) -> str | None:
    """The title that a text spells, with or without its number on either side."""
    squashed = _squash(text)
    if squashed in wanted:
        return squashed
    bare = _squash(_LABEL.sub("", text, count=1))
    if bare in wanted:
        return bare
    return next((title for title in wanted if bare and _NUMBERED.sub("", title, count=1) == bare), None)


def _squash(text: str) -> str:
    return "".join(text.split()).lower()


# --- type size and weight


def _mark_by_type(pages: Sequence[PageText], size: float) -> None:
    if not size:
        return
    bold_body = bool(_most_common(pages, lambda line: line.bold))
    for page in pages:
        page.blocks = list(_with_headings(page.blocks, size, bold_body))
    headings = [block for page in pages for block in page.blocks if block.kind == "heading" and not block.level]
    ranks = {style: rank for rank, style in enumerate(sorted({_style(block) for block in headings}, reverse=True), 1)}
    depths: dict[_Style, int] = {}
    for block in headings:
        if depth := _depth(block.text):
            depths[_style(block)] = min(depth, depths.get(_style(block), depth))
    for block in headings:
        deeper = max(0, _depth(block.text) - depths.get(_style(block), 0))
        block.level = min(ranks[_style(block)] + deeper, _MAX_LEVEL)


def _style(block: TextBlock) -> _Style:
    return block.lines[0].size, block.lines[0].bold


def _depth(text: str) -> int:
    """How deep a heading's number says it stands: 2 for ``3.1``; 0 without a number."""
    number = _NUMBER.match(text)
    return number.group(1).count(".") + 1 if number else 0


def _with_headings(blocks: Sequence[TextBlock], size: float, bold_body: bool) -> Iterator[TextBlock]:
    """Blocks with their headings split off, lines of a wrapped title joined."""
    last: TextBlock | None = None  # a heading that may go on
    for piece in (piece for block in blocks for piece in _pieces(block, size, bold_body)):
        if last is not None and piece.kind == "heading" and _goes_on(last, piece):
            last = TextBlock.of(last.lines + piece.lines, "heading")
            continue
        if last is not None:
            yield last
        last = piece if piece.kind == "heading" else None
        if last is None:
            yield piece
    if last is not None:
        yield last


def _pieces(block: TextBlock, size: float, bold_body: bool) -> Iterator[TextBlock]:
    """A block cut before and after the headings in it."""
    lines = block.lines
    if block.kind != "paragraph" or not any(line.bold or line.size >= size * _LARGER for line in lines):
        yield block
        return
    start = place = 0
    while place < len(lines):
        before = lines[place - 1] if place else None
        changes = before is None or (lines[place].size >= size * _LARGER and lines[place].size != before.size)
        taken = _heading_lines(lines[place:], size, bold_body) if changes else 0
        if taken:
            if start < place:
                yield TextBlock.of(lines[start:place])
            yield TextBlock.of(lines[place : place + taken], "heading")
            start = place + taken
        place += taken or 1
    if start == 0:
        yield block
    elif start < len(lines):
        yield TextBlock.of(lines[start:])


def _heading_lines(lines: list[Line], size: float, bold_body: bool) -> int:
    """How many lines at a block's begin are a heading."""
    first = lines[0]
    if first.turned:
        return 0
    larger = first.size >= size * _LARGER
    if larger and first.x1 - first.x0 < _NARROW * first.size * len(first.text):
        return 0  # only its first letter is as large
    if not larger and (bold_body or not first.bold or first.size < size):
        return 0
    taken = 0
    for line in lines:
        if line.size != first.size or line.bold != first.bold:
            break
        taken += 1
    text = " ".join(line.text for line in lines[:taken]).strip()
    if taken > _MAX_LINES or len(text) > (_MAX_CHARS if larger else _MAX_BOLD_CHARS) or not _WORD.search(text):
        return 0
    if larger:
        return taken
    return taken if _stands_alone(text, taken, len(lines)) else 0


def _stands_alone(text: str, taken: int, total: int) -> bool:
    """Bold type of the body's size is a heading only as a short line of its own; else it is emphasis."""
    starts = text[0].isupper() or _NUMBER.match(text) is not None or not text[0].isascii()
    return taken <= 2 and starts and text[-1] not in ".,;" and (taken == total or _NUMBER.match(text) is not None)


def _goes_on(last: TextBlock, heading: TextBlock) -> bool:
    """A title that wraps: the same type, close below, no number of its own."""
    gap = heading.y0 - last.y1
    return (
        _style(last) == _style(heading)
        and -0.5 * last.lines[0].size < gap < 0.9 * last.lines[0].size
        and not _NUMBER.match(heading.text)
        and len(last.lines) + len(heading.lines) <= _MAX_LINES
        and len(last.text) + len(heading.text) <= _MAX_CHARS
    )


def _most_common(pages: Sequence[PageText], of: Any) -> Any:
    counts: Counter[Any] = Counter()
    for page in pages:
        for block in page.blocks:
            for line in block.lines:
                counts[of(line)] += len(line.text)
    return counts.most_common(1)[0][0] if counts else None
