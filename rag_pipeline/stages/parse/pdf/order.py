"""Reading order of a page's blocks: the file's own, unless it jumps between columns or upwards.

A file's order is right far more often than any guess from geometry, so blocks are only moved where the recursive
X-Y cut (columns at gutters, rows between them) reads with fewer jumps. Knows nothing of what the blocks say.
"""

from __future__ import annotations

from collections.abc import Sequence

from rag_pipeline.stages.parse.pdf.page import PageText, TextBlock, is_right_to_left

_GUTTER = 6.0  # points between columns
_PROSE_CHARS = 25
_LINE_GAP = 0.8  # of the line's height; lines farther apart are two paragraphs

_Item = tuple[float, float, float, float, int, int]  # x0, y0, x1, y1, characters, place in the file


def put_in_order(page: PageText) -> None:
    """Orders the page's blocks, and makes paragraphs of lines that the file wrote across columns."""
    blocks = [block for block in page.blocks if not block.lines[0].turned]
    turned = [block for block in page.blocks if block.lines[0].turned]
    items: list[_Item] = [
        (block.x0, block.y0, block.x1, block.y1, len(block.text), place) for place, block in enumerate(blocks)
    ]
    if not _jumps(items):
        return
    if is_right_to_left(blocks):
        items = [(-x1, y0, -x0, y1, chars, place) for x0, y0, x1, y1, chars, place in items]
    cut = _cut(items)
    if _jumps(cut) < _jumps(items):
        page.blocks = _rejoined([blocks[item[5]] for item in cut]) + turned


def _jumps(items: Sequence[_Item]) -> int:
    """How often the order goes up within a column, across to a neighbour on the same height, or back to the left."""
    jumps = 0
    last: _Item | None = None
    for item in items:
        if item[4] < _PROSE_CHARS:
            continue
        if last is not None:
            x0, y0, x1, y1 = item[:4]
            if y1 <= last[1] + 2:
                jumps += min(x1, last[2]) - max(x0, last[0]) > 0.3 * min(x1 - x0, last[2] - last[0])
            elif x0 >= last[2] - 2:
                jumps += min(y1, last[3]) - max(y0, last[1]) > 0.5 * min(y1 - y0, last[3] - last[1])
            elif x1 <= last[0] + 2 and y0 >= last[1] - 2:
                jumps += 1
        last = item
    return jumps


def _cut(items: list[_Item]) -> list[_Item]:
    if len(items) < 2:
        return items
    columns = _columns(items)
    if len(columns) > 1:
        return [item for column in columns for item in _cut(column)]
    rows = _split(items, 1, 0.0)
    if len(rows) == 1:
        return sorted(items, key=lambda item: item[5])
    groups: list[list[_Item]] = []
    for row in rows:
        # Rows that share a gutter are read column by column, even where a gap runs through all columns.
        if groups and len(_columns(groups[-1])) > 1 and len(_columns(groups[-1] + row)) > 1:
            groups[-1] = groups[-1] + row
        else:
            groups.append(row)
    return [item for group in groups for item in _cut(group)]


def _columns(items: list[_Item]) -> list[list[_Item]]:
    """Parts left and right of gutters; one part where a side holds no prose, such as the labels of a form."""
    columns = _split(items, 0, _GUTTER)
    if all(any(item[4] >= _PROSE_CHARS for item in column) for column in columns):
        return columns
    return [items]


def _split(items: list[_Item], axis: int, min_gap: float) -> list[list[_Item]]:
    """Parts between gaps of at least `min_gap` along an axis (0: x, 1: y)."""
    ordered = sorted(items, key=lambda item: item[axis])
    parts = [[ordered[0]]]
    end = ordered[0][axis + 2]
    for item in ordered[1:]:
        if item[axis] >= end + min_gap:
            parts.append([])
        parts[-1].append(item)
        end = max(end, item[axis + 2])
    return parts


def _rejoined(blocks: list[TextBlock]) -> list[TextBlock]:
    """Joins single lines that now follow each other closely in one column."""
    joined: list[TextBlock] = []
    for block in blocks:
        last = joined[-1] if joined else None
        if last is not None and len(block.lines) == 1 and _follows(last, block):
            joined[-1] = TextBlock.of(last.lines + block.lines)
        else:
            joined.append(block)
    return joined


def _follows(last: TextBlock, block: TextBlock) -> bool:
    above, line = last.lines[-1], block.lines[0]
    gap = line.y0 - above.y1
    height = line.y1 - line.y0
    overlaps = min(last.x1, block.x1) - max(last.x0, block.x0) > 0
    return overlaps and -0.5 * height < gap < _LINE_GAP * height and abs(above.size - line.size) < 1
