"""Plain text: paragraphs. Knows nothing of markup or encodings."""

from __future__ import annotations

import re

from rag_pipeline.records import Block, Document

_PARAGRAPH_ENDS = re.compile(r"\n(?:[^\S\n]*\n)+|\f")


def parse_text(path: str, text: str) -> Document:
    """Splits plain text into paragraphs at blank lines; form feeds count as blank lines."""
    return Document(path, "text", "", paragraphs(text))


def paragraphs(text: str) -> tuple[Block, ...]:
    """Runs of lines between blank lines, as blocks."""
    return tuple(Block(part.strip("\n")) for part in _PARAGRAPH_ENDS.split(text) if part.strip())
