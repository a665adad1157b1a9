"""Source code of any language: top-level pieces, told by blank lines and indentation alone.

Knows nothing of any language's grammar.
"""

from __future__ import annotations

import re

from rag_pipeline.records import Block, Document

# A piece begins at an unindented line after a blank one; a bracket there closes what stands before it.
_PIECE_BEGINS = re.compile(r"\n(?:[^\S\n]*\n)+(?=[^\s)\]}])")


def parse_code(path: str, text: str) -> Document:
    """Splits source code into functions, classes and the like; no line that says something is left out."""
    pieces = _PIECE_BEGINS.split(text.replace("\f", "\n"))
    return Document(path, "code", "", tuple(Block(piece.strip("\n"), "code") for piece in pieces if piece.strip()))
