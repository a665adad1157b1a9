"""Ruled tables as Markdown, from the rules and lines that the page's one reading has already found.

PyMuPDF's `find_tables` reads the page again, character by character, and takes twenty times as long as reading its
text did. Tables without rules on both axes stay text. Knows nothing of reading order beyond a table's own place.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from rag_pipeline.stages.parse.pdf.page import Line, PageText, TextBlock

_Box = tuple[float, float, float, float]
_Edge = tuple[float, float, float]  # where it stands on its axis, begin and end along it

_THIN = 3.0  # points; drawn boxes thinner than this are lines
_SHORT = 6.0  # edges shorter than this belong to letters and signs
_TOUCH = 3.0
_MAX_CROSSINGS = 5_000  # drawings and maps: no table has as many
_MIN_GRID_SHARE = 0.6  # of all places where rows and columns of a table cross, a rule must be drawn

_MIN_FILLED = 0.45  # share of the cells that hold text


def place_tables(page: PageText) -> None:
    """Puts a table block where a ruled table stands, in place of the lines inside it."""
    if page.turned:
        return
    for columns, rows in _grids(page.rules):
        box = (columns[0], rows[0], columns[-1], rows[-1])
        inside = [
            line for block in page.blocks if block.kind != "table" for line in block.parts if _is_inside(line, box)
        ]
        if 3 * sum(line.turned for line in inside) > len(inside):  # labels of a drawing
            continue
        cells = _cells(inside, columns, rows)
        if is_table(cells):
            _replace_lines(page, box, to_markdown(cells))


def to_markdown(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as a Markdown table whose first row is the header; every row is one line."""
    width = max(map(len, rows))
    lines = ["| " + " | ".join([*map(_cell, row), *[""] * (width - len(row))]) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def is_table(rows: Sequence[Sequence[str]]) -> bool:
    """A frame around text, or a plot's grid, is no table: cells of most rows and of two columns must hold text."""
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows]
    columns = sum(any(cell.strip() for cell in column) for column in zip(*rows, strict=False))
    full_rows = sum(count >= 2 for count in filled)
    return columns >= 2 and 2 <= full_rows >= len(rows) / 2 and sum(filled) >= _MIN_FILLED * sum(map(len, rows))


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


# --- the grid


def _grids(rules: Sequence[_Box]) -> list[tuple[list[float], list[float]]]:
    """Column and row edges of every grid of rules, at least two columns and two rows."""
    if not rules:
        return []
    level, upright = _edges(rules)
    if len(level) < 3 or len(upright) < 1 or len(level) * len(upright) > _MAX_CROSSINGS:
        return []
    grids = []
    for rows, columns, crossings in _connected(level, upright):
        ys = _places(edge[0] for edge in rows)
        xs = _places(edge[0] for edge in columns)
        if crossings < _MIN_GRID_SHARE * len(xs) * len(ys):
            continue
        # Tables without frame: their rules reach beyond the outer columns' edges.
        left, right = min(edge[1] for edge in rows), max(edge[2] for edge in rows)
        xs = [left] * (left < xs[0] - 2 * _SHORT) + xs + [right] * (right > xs[-1] + 2 * _SHORT)
        if len(xs) > 2 and len(ys) > 2:
            grids.append((xs, ys))
    return grids


def _edges(rules: Iterable[_Box]) -> tuple[list[_Edge], list[_Edge]]:
    """Level and upright edges, pieces of one line joined."""
    level: list[_Edge] = []
    upright: list[_Edge] = []
    for x0, y0, x1, y1 in rules:
        if y1 - y0 <= _THIN:
            level.append(((y0 + y1) / 2, x0, x1))
        elif x1 - x0 <= _THIN:
            upright.append(((x0 + x1) / 2, y0, y1))
        else:
            level += [(y0, x0, x1), (y1, x0, x1)]
            upright += [(x0, y0, y1), (x1, y0, y1)]
    return _joined(level), _joined(upright)


def _joined(edges: list[_Edge]) -> list[_Edge]:
    joined: list[_Edge] = []
    for place, begin, end in sorted((round(place), begin, end) for place, begin, end in edges):
        if joined and joined[-1][0] == place and begin <= joined[-1][2] + _TOUCH:
            joined[-1] = (place, joined[-1][1], max(joined[-1][2], end))
        else:
            joined.append((place, begin, end))
    return [edge for edge in joined if edge[2] - edge[1] >= _SHORT]


def _connected(level: list[_Edge], upright: list[_Edge]) -> list[tuple[list[_Edge], list[_Edge], int]]:
    """Groups of edges that touch: level ones, upright ones, and the number of their crossings."""
    crossing = [[index for index, other in enumerate(upright) if _cross(edge, other)] for edge in level]
    groups: list[tuple[list[int], set[int]]] = []
    for row, columns in enumerate(crossing):
        touched = [group for group in groups if not group[1].isdisjoint(columns)] if columns else []
        rows = [row, *(index for group in touched for index in group[0])]
        if columns:
            groups = [group for group in groups if group not in touched]
            groups.append((rows, set(columns).union(*(group[1] for group in touched))))
    return [
        ([level[row] for row in rows], [upright[column] for column in columns], sum(len(crossing[row]) for row in rows))
        for rows, columns in groups
    ]


def _cross(level: _Edge, upright: _Edge) -> bool:
    y, x0, x1 = level
    x, y0, y1 = upright
    return x0 - _TOUCH <= x <= x1 + _TOUCH and y0 - _TOUCH <= y <= y1 + _TOUCH


def _places(values: Iterable[float]) -> list[float]:
    places: list[float] = []
    for value in sorted(values):
        if not places or value > places[-1] + _TOUCH:
            places.append(value)
    return places


# --- the cells


def _cells(lines: Sequence[Line], columns: Sequence[float], rows: Sequence[float]) -> list[list[str]]:
    """The text of each cell, rows and columns without any text left out."""
    grid: list[list[list[Line]]] = [[[] for _ in columns[1:]] for _ in rows[1:]]
    for line in lines:
        row = min(max(bisect_right(rows, (line.y0 + line.y1) / 2) - 1, 0), len(rows) - 2)
        column = min(max(bisect_right(columns, (line.x0 + line.x1) / 2) - 1, 0), len(columns) - 2)
        grid[row][column].append(line)
    texts = [part for row_cells in grid for part in _parted(row_cells)]
    texts = [row for row in texts if any(row)]
    kept = [index for index in range(len(columns) - 1) if any(row[index] for row in texts)]
    return [[row[index] for index in kept] for row in texts]


def _parted(cells: list[list[Line]]) -> list[list[str]]:
    """The rows of text between two rules: one, unless all cells hold as many lines, three at least."""
    stacks = [_stacked(cell) for cell in cells]
    heights = {len(stack) for stack in stacks if stack}
    if len(heights) == 1 and max(heights) >= 3 and sum(map(bool, stacks)) >= 2:
        return [[stack[index] if stack else "" for stack in stacks] for index in range(max(heights))]
    return [[" ".join(stack) for stack in stacks]]


def _stacked(lines: list[Line]) -> list[str]:
    """A cell's lines from top to bottom, pieces of one line joined."""
    stack: list[tuple[float, str]] = []
    for line in sorted(lines, key=lambda line: (round(line.y1), line.x0)):
        if stack and line.y0 < stack[-1][0] - 0.5 * (line.y1 - line.y0):
            stack[-1] = (stack[-1][0], f"{stack[-1][1]} {line.text.strip()}")
        else:
            stack.append((line.y1, line.text.strip()))
    return [text for _, text in stack]


# --- its place


def _replace_lines(page: PageText, box: _Box, text: str) -> None:
    """Puts the table where its first line stood; what of a block lies outside stays around it."""
    blocks: list[TextBlock] = []
    table: TextBlock | None = None
    for block in page.blocks:
        outside = [line for line in block.parts if not _is_inside(line, box)]
        if block.kind == "table" or len(outside) == len(block.parts):
            blocks.append(block)
            continue
        before = [line for line in outside if line.y0 < box[1]]
        after = [line for line in outside if line.y0 >= box[1]]
        blocks += [TextBlock.of_parts(before)] if before else []
        if table is None:
            table = TextBlock(block.lines, block.parts, *box, text, "table")
            blocks.append(table)
        blocks += [TextBlock.of_parts(after)] if after else []
    page.blocks = blocks


def _is_inside(line: Line, box: _Box) -> bool:
    x, y = (line.x0 + line.x1) / 2, (line.y0 + line.y1) / 2
    return box[0] - 1 <= x <= box[2] + 1 and box[1] - 1 <= y <= box[3] + 1
