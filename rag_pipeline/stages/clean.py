"""Clean: the one place where characters are repaired. After it nothing downstream can fail on text.

Knows nothing of formats beyond a document's media type.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import replace

from rag_pipeline.config import CleanConfig
from rag_pipeline.records import Block, Document

# C0 and C1 controls but tab and newline, lone surrogates, zero-width marks that split words, soft hyphen, BOM.
_DROP = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\u00ad\u200b\u2060\ufeff]")
_BREAKS = re.compile("\r\n|[\r\x85\u2028\u2029]")
_TRAILING = re.compile(r"[^\S\n]+$", re.MULTILINE)
_BLANKS = re.compile(r"[^\S\n]{2,}")
_LIGATURES = {ord(char): unicodedata.normalize("NFKC", char) for char in "\ufb00\ufb01\ufb02\ufb03\ufb04\ufb05\ufb06"}
_LINE_END_HYPHEN = re.compile(r"-\n(?=[^\W\d_]{2})")
_SOFT_BREAK = re.compile("\u00ad[^\\S\n]*\n[^\\S\n]*")
_WORD_BEFORE = re.compile(r"[\w-]*[^\W\d_]{2}$")


def clean(document: Document, settings: CleanConfig) -> Document:
    """Normalizes every block's characters and lines; blocks left blank are dropped."""
    blocks = []
    for block in document.blocks:
        wrapped = document.media_type == "pdf" and block.kind in ("paragraph", "heading") and settings.join_lines
        text = clean_text(_SOFT_BREAK.sub("", block.text) if wrapped else block.text, settings)
        text = join_lines(text) if wrapped else text
        if text.strip():
            blocks.append(Block(text, block.kind, block.level, block.page))
    title = " ".join(clean_text(document.title, settings).split())
    return replace(document, blocks=tuple(blocks), title=title)


def clean_text(text: str, settings: CleanConfig) -> str:
    """Line ends, controls, surrogates, ligatures and Unicode form; indentation stays."""
    text = _BREAKS.sub("\n", text).replace("\xa0", " ")
    text = _DROP.sub("", text).translate(_LIGATURES)
    text = unicodedata.normalize(settings.unicode_form, text)
    return _TRAILING.sub("", text).strip("\n")


def join_lines(text: str) -> str:
    """Makes one line of a wrapped paragraph, joining words hyphenated at a line end."""
    text = _LINE_END_HYPHEN.sub(_hyphen, text)
    return _BLANKS.sub(" ", text.replace("\n", " ")).strip()


def _hyphen(match: re.Match[str]) -> str:
    """Drops the hyphen of a divided lower-case word; a compound such as ``state-of-the-art`` keeps its own."""
    text = match.string
    word = _WORD_BEFORE.search(text[max(0, match.start() - 60) : match.start()])
    if not word:
        return match.group()
    divided = "-" not in word.group() and word.group()[1:].islower() and text[match.end()].islower()
    return "" if divided else "-"
