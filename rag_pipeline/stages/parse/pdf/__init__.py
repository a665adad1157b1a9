"""PDF by PyMuPDF: blocks in reading order, headings, tables, without running headers and footers.

PyMuPDF is native code without threads; whoever calls this decides in which process it runs. Knows
nothing of other formats.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rag_pipeline.config import PdfConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.records import Block, Document, FileBytes
from rag_pipeline.stages.parse.pdf.furniture import drop_furniture
from rag_pipeline.stages.parse.pdf.headings import body_size, find_headings, title_of
from rag_pipeline.stages.parse.pdf.mupdf import pymupdf
from rag_pipeline.stages.parse.pdf.order import put_in_order
from rag_pipeline.stages.parse.pdf.page import PageText, read_page
from rag_pipeline.stages.parse.pdf.tables import place_tables

_MAX_NAMELESS_SHARE = 0.3  # of a page's characters; beyond it the rest of the page is no text either
_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?")


def parse_pdf(file: FileBytes, settings: PdfConfig) -> Document:
    """Reads every page; a page that fails is left out and the document is `partial`.

    Raises:
        DocumentError: ``failed:encrypted``, ``failed:parse``, ``failed:ocr``, ``skipped:too_large`` or ``no_text``.
    """
    try:
        document = pymupdf.open(stream=file.data, filetype="pdf")
    except Exception as error:  # PyMuPDF raises several unrelated types here
        raise DocumentError("failed:parse", f"not a readable PDF: {_line(error)}") from None
    try:
        with document:
            return _parse(document, file, settings)
    except DocumentError:
        raise
    except Exception as error:  # nor does it check all that a damaged file says of itself
        raise DocumentError("failed:parse", f"cannot be read: {_line(error)}") from error


def _parse(document: Any, file: FileBytes, settings: PdfConfig) -> Document:
    _check(document, settings)
    pages, broken = _read_pages(document, settings)
    if settings.ocr == "auto":
        _recognize(document, pages, settings)
    nameless = [page.number for page in pages if _is_nameless(page)]
    for page in pages:
        if page.number in nameless:
            page.blocks = []
    title, blocks = _to_blocks(document, pages, settings)
    if not blocks:
        raise _no_text(document.page_count, broken, nameless)
    return Document(
        file.path,
        "pdf",
        _metadata(document, "title") or title,
        blocks,
        pages=document.page_count,
        partial=_missing_text(document, file.data, broken, nameless),
        replaced_chars=sum(block.text.count("\ufffd") for block in blocks),
        repaired=bool(document.is_repaired),
        ocr_pages=sum(page.recognized for page in pages),
        metadata=_about(document),
    )


def _check(document: Any, settings: PdfConfig) -> None:
    if document.is_encrypted and not (settings.password and document.authenticate(settings.password)):
        raise DocumentError("failed:encrypted", "needs a password; set recipe.parse.pdf.password")
    if document.page_count == 0:
        raise DocumentError("failed:parse", "holds no pages: the file is damaged or cut short")
    if document.page_count > settings.max_pages:
        raise DocumentError(
            "skipped:too_large",
            f"{document.page_count} pages are more than recipe.parse.pdf.max_pages ({settings.max_pages})",
        )


def _read_pages(document: Any, settings: PdfConfig) -> tuple[list[PageText], list[tuple[int, str]]]:
    """Every page that can be read, and the numbers of the others with the reason."""
    pages, broken = [], []
    for number in range(1, document.page_count + 1):
        try:
            page = read_page(document, number, settings.tables)
        except Exception as error:
            broken.append((number, _line(error)))
            continue
        place_tables(page)
        pages.append(page)
    return pages, broken


def _is_nameless(page: PageText) -> bool:
    return page.replaced > _MAX_NAMELESS_SHARE * page.visible


def _recognize(document: Any, pages: Sequence[PageText], settings: PdfConfig) -> None:
    lacking = [page for page in pages if not page.visible or _is_nameless(page)]
    if lacking:
        from rag_pipeline.stages.parse.pdf.ocr import recognize

        for page in lacking:
            recognize(document, page, settings.ocr_language)


def _to_blocks(document: Any, pages: Sequence[PageText], settings: PdfConfig) -> tuple[str, tuple[Block, ...]]:
    """The title by type size, and all blocks in reading order."""
    size = body_size(pages)
    if settings.furniture == "drop":
        drop_furniture(pages, size)
    for page in pages:
        put_in_order(page)
    title = title_of(pages[0], size) if pages and settings.headings else ""
    find_headings(document, pages, size, settings.headings)
    blocks = {page.number: _records(page) for page in pages}
    if settings.mode == "layout" and any(blocks.values()):
        from rag_pipeline.stages.parse.pdf.layout import read_layout

        readable = [page.number for page in pages if page.blocks and not page.recognized]
        blocks |= read_layout(document, readable, settings)
    return title, tuple(block for number in sorted(blocks) for block in blocks[number])


def _records(page: PageText) -> list[Block]:
    return [
        Block(block.text.strip("\n"), block.kind, block.level, page.number)
        for block in page.blocks
        if block.text.strip()
    ]


def _no_text(total: int, broken: list[tuple[int, str]], nameless: list[int]) -> DocumentError:
    if broken:
        return DocumentError("failed:parse", f"none of its {total} pages could be read: {broken[0][1]}")
    if nameless:
        return DocumentError(
            "no_text",
            f"the fonts of {len(nameless)} of its {total} pages name no characters; recipe.parse.pdf.ocr reads them",
        )
    return DocumentError("no_text", f"no text layer on its {total} pages: scanned images, perhaps")


def _missing_text(document: Any, data: bytes, broken: list[tuple[int, str]], nameless: list[int]) -> str:
    total = document.page_count
    if broken:
        return f"{len(broken)} of {total} pages could not be read, first page {broken[0][0]}: {broken[0][1]}"
    if nameless:
        return f"the fonts of {len(nameless)} of {total} pages name no characters, first page {nameless[0]}"
    if document.is_repaired and b"%%EOF" not in data[-2048:]:
        return "the file is cut short: it was repaired, and text may be missing"
    return ""


def _metadata(document: Any, key: str) -> str:
    return " ".join(str((document.metadata or {}).get(key) or "").split())


def _about(document: Any) -> dict[str, str]:
    """Author, subject, keywords and the date of creation, where the file has them."""
    about = {key: _metadata(document, key) for key in ("author", "subject", "keywords")}
    if date := _DATE.match(_metadata(document, "creationDate")):
        about["date"] = "-".join(part for part in date.groups() if part)
    return {key: value for key, value in about.items() if value}


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
