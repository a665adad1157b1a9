"""Tools to draw PDFs with PyMuPDF and the fonts it brings, so that no font of the machine is needed.

Knows nothing of single documents.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pymupdf

from generated.record import Generated

WIDTH, HEIGHT, MARGIN = 595, 842, 60
Draw = Callable[[pymupdf.Document], bytes | None]


def register(documents: list[Generated], name: str, **expected: Any) -> Callable[[Draw], Draw]:
    """Adds what a function draws into an empty PDF to a list; it may return other bytes than that PDF's."""

    def add(draw: Draw) -> Draw:
        documents.append(Generated(f"{name}.pdf", partial(made_by, draw), **expected))
        return draw

    return add


def made_by(draw: Draw) -> bytes:
    """The bytes of a PDF that a function draws."""
    with pymupdf.open() as document:
        made = draw(document)
        return save(document) if made is None else made


def save(document: pymupdf.Document, **options: Any) -> bytes:
    """The file's bytes, the same each time."""
    document.subset_fonts()
    return document.tobytes(garbage=3, deflate=True, no_new_id=True, **options)


def page_of(document: pymupdf.Document, width: float = WIDTH, height: float = HEIGHT) -> pymupdf.Page:
    """A new last page."""
    return document.new_page(width=width, height=height)


@cache
def _width(word: str, font: str) -> float:
    """Width of a word at a type size of 1."""
    return float(pymupdf.get_text_length(word, font, 1))


def wrap(text: str, width: float, size: float, font: str = "helv") -> list[str]:
    """Breaks text into lines no wider than width."""
    lines, used = [""], 0.0
    for word in text.split():
        needed = size * (_width(word, font) + _width(" ", font))
        if lines[-1] and used + needed > width:
            lines, used = [*lines, ""], 0.0
        lines[-1] = f"{lines[-1]} {word}".lstrip()
        used += needed
    return lines


def write(
    page: pymupdf.Page, x: float, y: float, text: str, width: float = 475, size: float = 10, font: str = "helv"
) -> float:
    """Writes one wrapped paragraph, first base line at y; returns the base line of the next paragraph."""
    lines = wrap(text, width, size, font)
    page.insert_text((x, y), lines, fontsize=size, fontname=font, lineheight=1.25)
    return y + (1.25 * len(lines) + 0.9) * size


def notes(subject: str, count: int = 4) -> tuple[str, ...]:
    """Paragraphs long enough to be wrapped, each with words of its own."""
    verbs = ("rises", "falls", "turns", "stands", "drifts", "settles", "swells", "ebbs")
    return tuple(
        f"The {subject} note {number} says that the water {verbs[number % 8]} while the keeper counts {number + 11} "
        f"waves by hand. Nobody at the station doubts the {subject} figure of entry {number}, for it was read twice."
        for number in range(1, count + 1)
    )


def write_all(page: pymupdf.Page, x: float, y: float, paragraphs: tuple[str, ...], width: float = 475) -> float:
    """Writes paragraphs below each other."""
    for paragraph in paragraphs:
        y = write(page, x, y, paragraph, width)
    return y
