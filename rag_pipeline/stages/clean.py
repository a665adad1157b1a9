"""Clean: the one place where characters are repaired. After it nothing downstream can fail on text.

Everything here takes time in proportion to the text, whatever it holds. Knows nothing of formats beyond
a document's media type.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import replace

from rag_pipeline.config import CleanConfig
from rag_pipeline.records import Block, Document

# C0 and C1 controls but tab and newline, lone surrogates, zero-width marks that split words, soft hyphen, BOM.
_DROP = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\u00ad\u200b\u2060\ufeff]")
_BREAKS = re.compile("\r\n|[\r\x85\u2028\u2029]")
_BLANKS = re.compile(r"[^\S\n]{2,}")
_LIGATURES = {ord(char): unicodedata.normalize("NFKC", char) for char in "\ufb00\ufb01\ufb02\ufb03\ufb04\ufb05\ufb06"}
# Sorting combining marks takes the square of their number, and no writing stacks more than a few.
_MARKS = re.compile("[^\x00-\u02ff\\w\\s]{65,}")
_MAX_MARKS = 30

_MAX_HEADING_CHARS = 1_000

_SOFT_BREAK = re.compile("\u00ad[^\\S\n]*\n[^\\S\n]*")
_LINE_END_HYPHEN = re.compile(r"(?<=\w)([-\u2010])\n[^\S\n]*(?=\w)")
_WORD = re.compile(r"[^\W\d_]+(?:[-\u2010]\n?[^\W\d_]+)*")
_REACH = 80
_CONJUNCTIONS = frozenset({"and", "or", "nor", "und", "oder", "et", "ou", "en", "och", "og"})


def clean(document: Document, settings: CleanConfig) -> Document:
    """Normalizes every block's characters and lines; blocks left blank are dropped."""
    wrapped = settings.join_lines and document.media_type == "pdf"
    blocks = []
    for block in document.blocks:
        is_wrapped = wrapped and block.kind in ("paragraph", "heading")
        text = clean_text(_SOFT_BREAK.sub("", block.text) if is_wrapped else block.text, settings)
        if not text.strip():
            continue
        # A heading goes with every chunk below it; so much text is none, whatever its markup says.
        is_long = block.kind == "heading" and len(text) > _MAX_HEADING_CHARS
        block = replace(block, text=text)
        blocks.append(replace(block, kind="paragraph", level=0) if is_long else block)
    if wrapped:
        blocks = _joined(blocks)
    title = _one_line(document.title, settings)[:_MAX_HEADING_CHARS].rstrip()
    metadata = {_one_line(key, settings): _one_line(value, settings) for key, value in document.metadata.items()}
    return replace(document, blocks=tuple(blocks), title=title, metadata=metadata)


def clean_text(text: str, settings: CleanConfig) -> str:
    """Line ends, controls, surrogates, ligatures and Unicode form; indentation stays."""
    if not text.replace("\n", "").isprintable():  # quick, and so is all that the two patterns find
        text = _DROP.sub("", _BREAKS.sub("\n", text))
    if not text.isascii():
        text = _MARKS.sub(_thin_marks, text.replace("\xa0", " ").translate(_LIGATURES))
        text = unicodedata.normalize(settings.unicode_form, text)
    return "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")


def _one_line(text: str, settings: CleanConfig) -> str:
    return " ".join(clean_text(text, settings).split())


def _thin_marks(match: re.Match[str]) -> str:
    """Leaves at most `_MAX_MARKS` combining marks in a row."""
    kept = []
    run = 0
    for char in match.group():
        run = run + 1 if unicodedata.combining(char) else 0
        if run <= _MAX_MARKS:
            kept.append(char)
    return "".join(kept)


def _joined(blocks: list[Block]) -> list[Block]:
    """Makes one line of every wrapped paragraph; what to do with a hyphen the document's own words decide."""
    is_hyphenated = any(_LINE_END_HYPHEN.search(block.text) for block in blocks)
    words = _words(block.text for block in blocks) if is_hyphenated else set()
    return [
        replace(block, text=join_lines(block.text, words)) if block.kind in ("paragraph", "heading") else block
        for block in blocks
    ]


def _words(texts: Iterable[str]) -> set[str]:
    """Words, compounds and their parts in lower case, but those divided by a line end."""
    words: set[str] = set()
    for text in texts:
        for match in _WORD.finditer(text):
            word = match.group().replace("\u2010", "-").casefold()
            if "\n" not in word:
                words.add(word)
                words.update(word.split("-"))
    return words


def join_lines(text: str, words: set[str]) -> str:
    """Makes one line of a wrapped paragraph, joining words hyphenated at a line end."""
    text = _LINE_END_HYPHEN.sub(lambda match: _hyphen(match, words), text)
    return _BLANKS.sub(" ", text.replace("\n", " ")).strip()


def _hyphen(match: re.Match[str], words: set[str]) -> str:
    """What a hyphen at a line's end becomes: nothing, itself, or itself and a blank.

    A form the document has elsewhere wins: ``example`` joins, ``state-of-the-art`` stays. Without one, two
    words of the document stay a compound, and only the halves of a lower-case word are joined.
    """
    text, hyphen = match.string, match.group(1)
    left = re.findall(r"[\w-]+$", text[max(0, match.start() - _REACH) : match.start()])[-1].lstrip("-")
    right = re.findall(r"^[\w-]+", text[match.end() : match.end() + _REACH])[0].rstrip("-")
    if right.casefold() in _CONJUNCTIONS:  # "pre- and postwar"
        return hyphen + " "
    last, first = left.rpartition("-")[2], right.partition("-")[0]
    if not (last.isalpha() and first.isalpha()):  # "10-20"
        return hyphen
    joins = (last + first).casefold() in words
    stays = not words.isdisjoint((f"{left}-{right}".casefold(), f"{last}-{first}".casefold()))
    if joins != stays:
        return "" if joins else hyphen
    is_compound = min(len(left), len(right)) >= 4 and {left.casefold(), right.casefold()} <= words and not joins
    divided = len(last) > 1 and len(first) > 1 and last[1:].islower() and first.islower()
    return "" if divided and not is_compound and (last, first) == (left, right) else hyphen
