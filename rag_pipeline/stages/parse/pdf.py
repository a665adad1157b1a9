"""PDF by PyMuPDF: blocks in the file's reading order, headings by outline and type size.

PyMuPDF is native code without threads; whoever calls this decides in which process it runs. Knows
nothing of other formats.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pymupdf

from rag_pipeline.config import PdfConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.records import Block, Document, FileBytes

_FLAGS = pymupdf.TEXT_PRESERVE_WHITESPACE | pymupdf.TEXT_MEDIABOX_CLIP | pymupdf.TEXT_CID_FOR_UNKNOWN_UNICODE
_HEADING_MAX_CHARS = 120
_HEADING_RATIO = 1.12

pymupdf.TOOLS.mupdf_display_errors(False)
pymupdf.TOOLS.mupdf_display_warnings(False)


def parse_pdf(file: FileBytes, settings: PdfConfig) -> Document:
    """Reads every page; a page that fails is left out and the document is `partial`.

    Raises:
        DocumentError: ``failed:encrypted``, ``failed:parse`` or ``no_text``.
    """
    try:
        document = pymupdf.open(stream=file.data, filetype="pdf")
    except Exception as error:  # PyMuPDF raises several unrelated types here
        raise DocumentError("failed:parse", f"not a readable PDF: {_line(error)}") from None
    with document:
        if document.needs_pass and not (settings.password and document.authenticate(settings.password)):
            raise DocumentError("failed:encrypted", "needs a password; set recipe.parse.pdf.password")
        if document.page_count == 0:
            raise DocumentError("failed:parse", "holds no pages: the file is damaged or cut short")
        pages, broken = _read_pages(document)
        blocks = _to_blocks(pages, _outline(document), settings)
        total = document.page_count
        if not blocks:
            if broken:
                raise DocumentError("failed:parse", f"none of its {total} pages could be read: {broken[0][1]}")
            raise DocumentError("no_text", f"no text layer on its {total} pages: scanned images, perhaps")
        partial = _missing_text(document, file.data, broken)
        title = " ".join(str((document.metadata or {}).get("title") or "").split())
    return Document(file.path, "pdf", title, tuple(blocks), pages=total, partial=partial)


def _read_pages(document: pymupdf.Document) -> tuple[list[tuple[int, list[dict[str, Any]]]], list[tuple[int, str]]]:
    """Text blocks of every page as PyMuPDF dicts, and the pages that could not be read with the reason."""
    pages, broken = [], []
    for number in range(document.page_count):
        try:
            content = document[number].get_text("dict", flags=_FLAGS)
        except Exception as error:
            broken.append((number + 1, _line(error)))
            continue
        pages.append((number + 1, [block for block in content["blocks"] if block["type"] == 0]))
    return pages, broken


def _missing_text(document: pymupdf.Document, data: bytes, broken: list[tuple[int, str]]) -> str:
    if broken:
        return (
            f"{len(broken)} of {document.page_count} pages could not be read, first page {broken[0][0]}: {broken[0][1]}"
        )
    if document.is_repaired and b"%%EOF" not in data[-2048:]:
        return "the file is cut short: it was repaired, and text may be missing"
    return ""


def _outline(document: pymupdf.Document) -> dict[tuple[int, str], int]:
    """The outline as (page, title without blanks, lower case) to level."""
    try:
        entries = document.get_toc(simple=True)
    except Exception:
        return {}
    return {(page, _squash(title)): level for level, title, page in entries}


def _to_blocks(
    pages: list[tuple[int, list[dict[str, Any]]]], outline: dict[tuple[int, str], int], settings: PdfConfig
) -> list[Block]:
    body_size = _body_size(pages)
    sizes = sorted(_heading_sizes(pages, body_size), reverse=True) if settings.headings else []
    blocks = []
    for number, page_blocks in pages:
        for block in page_blocks:
            text, size = _text_and_size(block)
            if not text.strip():
                continue
            level = outline.get((number, _squash(text)), 0)
            if not level and not outline and _looks_like_heading(text, size, body_size) and size in sizes:
                level = min(sizes.index(size) + 1, 6)
            blocks.append(Block(text.strip("\n"), "heading" if level else "paragraph", level, number))
    return blocks


def _text_and_size(block: dict[str, Any]) -> tuple[str, float]:
    """A block's lines, and the type size most of its characters have, rounded to half points."""
    sizes: Counter[float] = Counter()
    lines = []
    for line in block["lines"]:
        lines.append("".join(span["text"] for span in line["spans"]))
        for span in line["spans"]:
            sizes[round(span["size"] * 2) / 2] += len(span["text"])
    return "\n".join(lines), sizes.most_common(1)[0][0] if sizes else 0.0


def _body_size(pages: list[tuple[int, list[dict[str, Any]]]]) -> float:
    sizes: Counter[float] = Counter()
    for _, blocks in pages:
        for block in blocks:
            text, size = _text_and_size(block)
            sizes[size] += len(text)
    return sizes.most_common(1)[0][0] if sizes else 0.0


def _heading_sizes(pages: list[tuple[int, list[dict[str, Any]]]], body_size: float) -> set[float]:
    found = set()
    for _, blocks in pages:
        for block in blocks:
            text, size = _text_and_size(block)
            if _looks_like_heading(text, size, body_size):
                found.add(size)
    return found


def _looks_like_heading(text: str, size: float, body_size: float) -> bool:
    words = text.strip()
    return (
        size >= body_size * _HEADING_RATIO and 1 < len(words) <= _HEADING_MAX_CHARS and any(c.isalpha() for c in words)
    )


def _squash(text: str) -> str:
    return re.sub(r"\s+", "", text).lower()


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
