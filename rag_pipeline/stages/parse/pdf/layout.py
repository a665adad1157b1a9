"""`mode: layout`: PyMuPDF's layout model tells headings, tables, furniture and order; slower by far.

The model comes with PyMuPDF (pymupdf.layout, pymupdf4llm) and runs on the CPU. Knows nothing of `fast` mode.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

from rag_pipeline.config import PdfConfig
from rag_pipeline.records import Block
from rag_pipeline.stages.parse.pdf.tables import is_table, to_markdown

_FURNITURE = {"page-header", "page-footer"}
_KINDS = {"list-item": "list", "table": "table", "title": "heading", "section-header": "heading"}
_MAX_LEVEL = 6

_Box = Any  # pymupdf4llm's LayoutBox


def read_layout(document: Any, numbers: list[int], settings: PdfConfig) -> dict[int, list[Block]]:
    """Blocks of the pages with these numbers; a page on which the model fails or finds nothing is missing."""
    parse = _parser()
    pages: dict[int, list[_Box]] = {}
    try:
        pages = parse(document, numbers)
    except Exception:  # one page by itself then, so that only bad ones are lost
        for number in numbers:
            with contextlib.suppress(Exception):
                pages |= parse(document, [number])
    sizes = sorted({size for boxes in pages.values() for box in boxes if (size := _size(box))}, reverse=True)
    found = {number: _blocks(boxes, number, sizes, settings) for number, boxes in pages.items()}
    return {number: blocks for number, blocks in found.items() if blocks}


def _parser() -> Callable[[Any, list[int]], dict[int, list[_Box]]]:
    import pymupdf.layout  # noqa: F401  # starts the model; pymupdf4llm reads without it where it is missing
    import pymupdf4llm.helpers.document_layout as engine

    def parse(document: Any, numbers: list[int]) -> dict[int, list[_Box]]:
        places = [number - 1 for number in numbers]
        with contextlib.redirect_stdout(io.StringIO()):  # it reports what it skips
            parsed = engine.parse_document(document, pages=places, use_ocr=engine.OCRMode.NEVER, force_text=True)
        return {page.page_number: page.boxes for page in parsed.pages}

    return parse


def _size(box: _Box) -> int:
    return round(box.max_fontsize or 0) if _KINDS.get(box.boxclass) == "heading" and box.textlines else 0


def _blocks(boxes: list[_Box], number: int, sizes: list[int], settings: PdfConfig) -> list[Block]:
    blocks: list[Block] = []
    for box in boxes:
        if box.boxclass in _FURNITURE and settings.furniture == "drop":
            continue
        kind = _KINDS.get(box.boxclass, "paragraph")
        if kind == "table":
            if not settings.tables:
                kind = "paragraph"
            text = _table(box, settings.tables)
        else:
            text = "\n".join(_line(line) for line in box.textlines or ()).strip()
        if not text.strip():
            continue
        if kind == "heading" and not settings.headings:
            kind = "paragraph"
        level = min(sizes.index(_size(box)) + 1, _MAX_LEVEL) if kind == "heading" else 0
        if kind == "list" and blocks and blocks[-1].kind == "list":
            blocks[-1] = Block(f"{blocks[-1].text}\n{text}", "list", 0, number)
        else:
            blocks.append(Block(text, kind, level, number))
    return blocks


def _table(box: _Box, as_markdown: bool) -> str:
    rows = [[cell or "" for cell in row] for row in (box.table or {}).get("extract") or ()]
    if as_markdown and rows and is_table(rows):
        return to_markdown(rows)
    return "\n".join(" ".join(cell for cell in row if cell) for row in rows)


def _line(line: dict[str, Any]) -> str:
    text, end = "", None
    for span in line["spans"]:
        gap = end is not None and span["bbox"][0] - end > 0.15 * span["size"]
        text += " " * (gap and not text.endswith(" ") and not span["text"].startswith(" ")) + span["text"]
        end = span["bbox"][2]
    return text.rstrip()
