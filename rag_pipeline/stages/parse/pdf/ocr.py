"""Text of pages that are images: by Tesseract where its language files are, else by RapidOCR.

Both work offline: MuPDF carries Tesseract and needs only its `tessdata`; RapidOCR's package carries its models
(Chinese, English and other Latin letters, whatever the language set). Knows nothing of why a page lacks text.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from rag_pipeline.errors import DocumentError
from rag_pipeline.stages.parse.pdf.mupdf import pymupdf
from rag_pipeline.stages.parse.pdf.page import Line, PageText, TextBlock, read_page

_DPI = 200
_MAX_PIXELS = 20_000_000  # a larger page is read at less than `_DPI`
_MIN_SCORE = 0.5
_INSTALL = (
    "install rag-pipeline's extra `ocr` (RapidOCR), or Tesseract with its language data, "
    "or set recipe.parse.pdf.ocr: off"
)


def recognize(document: Any, page: PageText, language: str) -> None:
    """Fills a page's blocks from its image; without an image on it, leaves it as it is.

    Raises:
        DocumentError: ``failed:ocr`` where no engine is installed or the engine fails.
    """
    source = document[page.number - 1]
    if not page.visible and not source.get_images():
        return
    try:
        if tessdata := _tessdata(language):
            read = _by_tesseract(source, page.number, language, tessdata)
        elif importlib.util.find_spec("rapidocr"):
            read = _by_rapidocr(source, page.number)
        else:
            raise DocumentError("failed:ocr", f"page {page.number} holds an image in place of text: {_INSTALL}")
    except DocumentError:
        raise
    except Exception as error:  # engines raise what they like
        reason = " ".join(str(error).split())[:200]
        raise DocumentError(
            "failed:ocr", f"page {page.number} could not be recognized: {reason}; set recipe.parse.pdf.ocr: off"
        ) from None
    page.blocks = [_without_type(block) for block in read.blocks]
    page.width, page.height, page.rules = read.width, read.height, []
    page.visible, page.replaced, page.recognized = read.visible, read.replaced, bool(read.blocks)


def _without_type(block: TextBlock) -> TextBlock:
    """Sizes guessed from an image make no headings."""
    return TextBlock.of([line._replace(size=0.0, bold=False, mono=False) for line in block.lines])


def _tessdata(language: str) -> str:
    """The folder with Tesseract's data for every language asked for, or an empty string."""
    try:
        folder = str(pymupdf.get_tessdata() or "")
    except Exception:  # Tesseract is not installed
        return ""
    files = [Path(folder, f"{name}.traineddata") for name in language.split("+")]
    return folder if folder and all(map(Path.is_file, files)) else ""


def _zoom(source: Any) -> float:
    points = max(source.rect.width * source.rect.height, 1.0)
    return float(min(_DPI / 72, (_MAX_PIXELS / points) ** 0.5))


def _pixels(source: Any) -> Any:
    zoom = _zoom(source)
    return source.get_pixmap(matrix=pymupdf.Matrix(zoom, zoom), colorspace=pymupdf.csRGB, alpha=False)


def _by_tesseract(source: Any, number: int, language: str, tessdata: str) -> PageText:
    pixels = _pixels(source)
    with pymupdf.open("pdf", pixels.pdfocr_tobytes(language=language, tessdata=tessdata)) as read:
        return replace(read_page(read, 1, with_rules=False), number=number)


@functools.lru_cache(maxsize=1)
def _rapidocr() -> Any:
    from rapidocr import RapidOCR

    one_core = "EngineConfig.onnxruntime"  # as many processes parse as there are cores
    return RapidOCR(
        params={
            "Global.log_level": "critical",
            f"{one_core}.intra_op_num_threads": 1,
            f"{one_core}.inter_op_num_threads": 1,
        }
    )


def _by_rapidocr(source: Any, number: int) -> PageText:
    import numpy as np

    zoom = _zoom(source)
    pixels = _pixels(source)
    image = np.frombuffer(pixels.samples, np.uint8).reshape(pixels.height, pixels.width, 3)
    result = _rapidocr()(np.ascontiguousarray(image[:, :, ::-1]), text_score=_MIN_SCORE)
    page = PageText(number, source.rect.width, source.rect.height)
    lines = []
    for box, text in zip(result.boxes if result.boxes is not None else (), result.txts or (), strict=True):
        if text.strip():
            x0, y0 = (box.min(axis=0) / zoom).tolist()
            x1, y1 = (box.max(axis=0) / zoom).tolist()
            lines.append(Line(text.strip(), x0, y0, x1, y1, round((y1 - y0) * 1.5) / 2, False, False))
    page.blocks = paragraphs(lines)
    page.visible = sum(len("".join(line.text.split())) for line in lines)
    return page


def paragraphs(lines: list[Line]) -> list[TextBlock]:
    """Groups loose lines into blocks: a line joins the block whose last line is close above it."""
    groups: list[list[Line]] = []
    for line in sorted(lines, key=lambda line: (line.y0, line.x0)):
        group = next((group for group in groups if _continues(group[-1], line)), None)
        if group is None:
            groups.append([line])
        else:
            group.append(line)
    return [TextBlock.of_parts(group) for group in groups]


def _continues(last: Line, line: Line) -> bool:
    height = min(last.y1 - last.y0, line.y1 - line.y0)
    overlap = min(last.x1, line.x1) - max(last.x0, line.x0)
    close = -0.4 * height <= line.y0 - last.y1 <= 0.6 * height
    return close and overlap > 0.5 * min(last.x1 - last.x0, line.x1 - line.x0)
