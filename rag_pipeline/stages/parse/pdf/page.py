"""One page's text as lines and blocks with their places, by one pass of MuPDF.

MuPDF writes its structured text as JSON in native code, with one type size a line: as fast as plain text, where
PyMuPDF's dicts of spans cost half as much again. Coordinates are points from the upper left corner of the page as
it is viewed, rotation applied. Knows nothing of reading order, headings or tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rag_pipeline.stages.parse.pdf.mupdf import mupdf, pymupdf

# Characters that a font does not name become U+FFFD: its glyph numbers would pass for text that nobody wrote.
_FLAGS = pymupdf.TEXT_PRESERVE_WHITESPACE | pymupdf.TEXT_MEDIABOX_CLIP
_UNITS_PER_POINT = 10  # the JSON's numbers are whole
_POINTS = 1 / _UNITS_PER_POINT
_WIDE_GAP = 8.0  # points; wider than a word space, at least a gutter
_WIDE_ROWS = 5  # so many rows with a wide gap between long pieces are columns
_RTL = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_RECTANGLE = '"rectangle":1'
_MIN_CELLS = 4
_MIN_RULES = 4
_MAX_RULES = 2500  # drawings and maps, no tables


class Line(NamedTuple):
    """One line of type; size, weight and family are those of its first character."""

    text: str
    x0: float
    y0: float
    x1: float
    y1: float
    size: float
    bold: bool
    mono: bool

    @property
    def turned(self) -> bool:
        """Says whether it runs upwards or downwards."""
        return self.y1 - self.y0 > 2 * (self.x1 - self.x0) and len(self.text) > 2


@dataclass(slots=True, eq=False)
class TextBlock:
    """Lines that stand together, and what they turned out to be.

    Attributes:
        parts: The lines as MuPDF found them; in `lines` the pieces of one row are joined.
    """

    lines: list[Line]
    parts: list[Line]
    x0: float
    y0: float
    x1: float
    y1: float
    text: str
    kind: str = "paragraph"
    level: int = 0

    @classmethod
    def of(
        cls, lines: list[Line], kind: str = "paragraph", level: int = 0, parts: list[Line] | None = None
    ) -> TextBlock:
        """The block around some lines."""
        text = "\n".join([line.text for line in lines])
        if len(lines) == 1:
            line = lines[0]
            return cls(lines, parts or lines, line.x0, line.y0, line.x1, line.y1, text, kind, level)
        return cls(
            lines,
            parts or lines,
            min([line.x0 for line in lines]),
            min([line.y0 for line in lines]),
            max([line.x1 for line in lines]),
            max([line.y1 for line in lines]),
            text,
            kind,
            level,
        )

    @classmethod
    def of_parts(cls, parts: list[Line]) -> TextBlock:
        """The block of some pieces of lines."""
        return cls.of(_merge_rows(parts)[0], parts=parts)


@dataclass(slots=True)
class PageText:
    """What one page holds.

    Attributes:
        number: From 1.
        blocks: In the file's order until `order` has seen them.
        rules: Boxes (x0, y0, x1, y1) of drawn lines and rectangles; only as many as can make a table.
        visible: Characters that are no blanks.
        replaced: Those of them that their font does not name.
        recognized: The text comes from the page's image.
        turned: Its lines ran upwards or downwards; `rules` were not turned with them.
    """

    number: int
    width: float
    height: float
    blocks: list[TextBlock] = field(default_factory=list)
    rules: list[tuple[float, float, float, float]] = field(default_factory=list)
    visible: int = 0
    replaced: int = 0
    recognized: bool = False
    turned: bool = False


def read_page(document: Any, number: int, with_rules: bool) -> PageText:
    """Reads page `number` (from 1); raises whatever PyMuPDF raises on a damaged one."""
    flags = _FLAGS | (pymupdf.TEXT_COLLECT_VECTORS | pymupdf.TEXT_LAZY_VECTORS if with_rules else 0)
    loaded = mupdf.fz_load_page(document.this, number - 1)
    page = page_text(structured_text(loaded, flags), number)
    if _has_additions(loaded):
        contents = page_text(structured_text(loaded, flags, contents_only=True), number).blocks
        added = page.blocks[len(contents) :]
        if [block.text for block in page.blocks[: len(contents)]] == [block.text for block in contents]:
            page.blocks = _inserted(contents, added)
    return page


def structured_text(page: Any, flags: int, contents_only: bool = False) -> Any:
    """MuPDF's structured text of a page with its annotations and form fields, which its shortcut leaves out."""
    structured = mupdf.FzStextPage(mupdf.fz_bound_page(page))
    device = mupdf.fz_new_stext_device(structured, mupdf.FzStextOptions(flags))
    run = mupdf.fz_run_page_contents if contents_only else mupdf.fz_run_page
    run(page, device, mupdf.FzMatrix(), mupdf.FzCookie())
    mupdf.fz_close_device(device)
    return structured


def _has_additions(page: Any) -> bool:
    """Whether a page has typed remarks or form fields, which are drawn after all else."""
    own = mupdf.pdf_page_from_fz_page(page)
    if not own.m_internal:
        return False
    return bool(mupdf.pdf_first_widget(own).m_internal or mupdf.pdf_first_annot(own).m_internal)


def _inserted(contents: list[TextBlock], added: list[TextBlock]) -> list[TextBlock]:
    """Additions before the first block that begins below them."""
    blocks = list(contents)
    for addition in added:
        middle = (addition.y0 + addition.y1) / 2
        at = next((number for number, block in enumerate(blocks) if block.y0 > middle), len(blocks))
        blocks.insert(at, addition)
    return blocks


def page_text(structured: Any, number: int) -> PageText:
    """Turns MuPDF's structured text into ours."""
    buffer = mupdf.FzBuffer(1 << 14)
    output = mupdf.FzOutput(buffer)
    mupdf.fz_print_stext_page_as_json(output, structured, _UNITS_PER_POINT)
    output.fz_close_output()
    written = buffer.fz_string_from_buffer()
    box = structured.m_internal.mediabox
    page = PageText(number, box.x1 - box.x0, box.y1 - box.y0)
    blocks = json.loads(written)["blocks"]
    raw = [block["lines"] for block in blocks if block["type"] == "text"]
    fragments = [lines for lines in map(_fragments, raw) if lines]
    upright = _upright(fragments, raw, page)
    page.blocks = _blocks(upright)
    for block in page.blocks:
        page.visible += len(block.text) - block.text.count(" ") - block.text.count("\n")
        page.replaced += block.text.count("\ufffd")
    if sum(map(len, fragments)) >= _MIN_CELLS and _MIN_RULES <= written.count(_RECTANGLE) <= _MAX_RULES:
        page.rules = _rules(structured, blocks)
    return page


def _fragments(raw_lines: Iterable[dict[str, Any]]) -> list[Line]:
    lines = []
    for raw in raw_lines:
        text = raw["text"]
        if not text or text.isspace():
            continue
        box, font = raw["bbox"], raw["font"]
        x, y = box["x"], box["y"]
        lines.append(
            Line(
                text.rstrip("\n"),
                x * _POINTS,
                y * _POINTS,
                (x + box["w"]) * _POINTS,
                (y + box["h"]) * _POINTS,
                round(font["size"] * _POINTS * 2) / 2,
                font["weight"] == "bold",
                font["family"] == "monospace",
            )
        )
    return lines


def _upright(fragments: list[list[Line]], raw: list[list[dict[str, Any]]], page: PageText) -> list[list[Line]]:
    """Turns a page whose lines run upwards or downwards; on other pages such lines go to the end."""
    turned = [lines for lines in fragments if lines[0].turned]
    if not turned:
        return fragments
    turned_chars = sum(len(line.text) for lines in turned for line in lines)
    if 2 * turned_chars < sum(len(line.text) for lines in fragments for line in lines):
        return [lines for lines in fragments if not lines[0].turned] + turned
    if any(line["wmode"] for lines in raw for line in lines):  # vertical writing is not turned
        return fragments
    origins = [(line["y"], line["bbox"]) for lines in raw for line in lines if line["bbox"]["h"] > line["bbox"]["w"]]
    upwards = sum(1 if y > box["y"] + box["h"] / 2 else -1 for y, box in origins) > 0
    width, height = page.width, page.height
    page.turned = True
    page.width, page.height = height, width
    return [[_turn(line, upwards, width, height) for line in lines] for lines in fragments]


def _turn(line: Line, upwards: bool, width: float, height: float) -> Line:
    if upwards:
        return line._replace(x0=height - line.y1, y0=line.x0, x1=height - line.y0, y1=line.x1)
    return line._replace(x0=line.y0, y0=width - line.x1, x1=line.y1, y1=width - line.x0)


def _blocks(fragments: list[list[Line]]) -> list[TextBlock]:
    """Blocks of whole lines; where lines run across a gutter on many rows, they are left apart for `order`."""
    merged = [_merge_rows(lines) for lines in fragments]
    if sum([wide for _, wide in merged]) < _WIDE_ROWS:
        return [TextBlock.of(lines, parts=parts) for parts, (lines, _) in zip(fragments, merged, strict=True)]
    blocks = []
    for parts, (lines, wide) in zip(fragments, merged, strict=True):
        blocks += [TextBlock.of([line]) for line in parts] if wide else [TextBlock.of(lines, parts=parts)]
    return blocks


def _merge_rows(lines: Sequence[Line]) -> tuple[list[Line], int]:
    """Joins pieces of one row; also counts rows of two long pieces with a gutter between them."""
    rows: list[Line] = []
    wide = 0
    for line in lines:
        last = rows[-1] if rows else None
        if last is None or not _continues(last, line):
            rows.append(line)
            continue
        gap = line.x0 - last.x1
        wide += gap > _WIDE_GAP and len(last.text) >= 20 and len(line.text) >= 20
        blank = " " if gap > 0.15 * line.size and not last.text.endswith(" ") else ""
        rows[-1] = last._replace(
            text=last.text + blank + line.text,
            y0=min(last.y0, line.y0),
            x1=line.x1,
            y1=max(last.y1, line.y1),
        )
    return rows, wide


def _continues(last: Line, line: Line) -> bool:
    overlap = min(last.y1, line.y1) - max(last.y0, line.y0)
    return line.x0 >= last.x1 - 0.3 * line.size and overlap > 0.6 * min(last.y1 - last.y0, line.y1 - line.y0)


def is_right_to_left(blocks: Sequence[TextBlock]) -> bool:
    """Says whether most letters are of a script that is written from the right."""
    text = "".join(block.text for block in blocks)
    if text.isascii():
        return False
    return 2 * len(_RTL.findall(text)) > sum(map(str.isalpha, text))


def _rules(structured: Any, blocks: Iterable[dict[str, Any]]) -> list[tuple[float, float, float, float]]:
    """Boxes of straight lines and rectangles; the JSON tells which they are, but not where."""
    found = []
    block = structured.m_internal.first_block  # its own list: Python's iterator over it takes five times as long
    for written in blocks:
        if written.get("rectangle"):
            box = block.bbox
            found.append((box.x0, box.y0, box.x1, box.y1))
        block = block.next
    return found
