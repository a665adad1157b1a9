"""Chunk: cut a document's cleaned text into exact slices that fit the model, at boundaries that stay put.

What is too long is cut in two at its strongest boundary, away from its ends: page, block, sentence, line, word;
and so on with both parts. Among equals a hash of the text that follows decides. So where a cut falls depends on
the text around it and not on what came before: an insertion changes the chunks next to it only.
Knows nothing of models beyond the `Tokenizer` it is handed.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rag_pipeline.config import ChunkConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.records import BLOCK_SEPARATOR, Chunk, Document, Tokenizer
from rag_pipeline.stages.chunk.layout import Layout

_TABLE_RULE = re.compile(r"\s*\|?(?:\s*:?-+:?\s*\|?)+\s*")


@dataclass(frozen=True, slots=True)
class _Section:
    """Blocks under one heading path, first and last included; a table too long for one chunk is one of its own.

    Attributes:
        header: Such a table's first rows, which every further piece of it repeats in its context.
    """

    first: int
    last: int
    path: tuple[str, ...]
    header: str = ""


@dataclass(frozen=True, slots=True)
class _Context:
    """What precedes a chunk's text in its prompt: prefix, title and section path, a table's header."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A token range [start, end) on its way to become a chunk."""

    start: int
    end: int
    section: _Section
    context: _Context


def split(document: Document, settings: ChunkConfig, tokenizer: Tokenizer) -> Iterator[Chunk]:
    """Yields a document's chunks in order; every character a model can see is in at least one of them."""
    if not document.blocks:
        return
    layout = Layout(document, tokenizer)
    limit = min(settings.max_tokens or tokenizer.max_tokens, tokenizer.max_tokens)
    contexts = _Contexts(document, settings, tokenizer, limit)
    pieces: list[_Piece] = []
    for section in _sections(document, layout, limit // 2):
        plain = contexts.of(section.path)
        repeated = contexts.of(section.path, section.header)
        room = limit - len(tokenizer.head_ids) - len(tokenizer.tail_ids) - len(repeated.ids)
        for number, (start, end) in enumerate(
            layout.cut(range(section.first, section.last + 1), room, settings.overlap_tokens)
        ):
            pieces.append(_Piece(start, end, section, repeated if number else plain))
    ordinal = done = 0
    for piece, ids in _with_ids(layout, pieces, limit, tokenizer):
        begin, finish = layout.span(piece.start, piece.end)
        if finish <= max(done, begin):  # blanks alone, or half of a piece that is repeated text alone
            continue
        done = finish
        text = layout.text[begin:finish]
        page = document.blocks[layout.block_of(piece.start)].page
        yield Chunk(ordinal, begin, finish, text, page, piece.section.path, piece.context.text + text, ids)
        ordinal += 1


def _with_ids(
    layout: Layout, pieces: list[_Piece], limit: int, tokenizer: Tokenizer
) -> Iterator[tuple[_Piece, array[int]]]:
    """Gives every piece its prompt's token ids: a slice of the document's where that is exact, else encoded anew.

    A piece whose own encoding is longer than its share of the document's is halved until it fits.
    """
    exact = [
        tokenizer.cuts_at_blanks and piece.context.text[-1:].strip() == "" and layout.is_exact(piece.start, piece.end)
        for piece in pieces
    ]
    prompts = [
        piece.context.text + layout.slice(piece.start, piece.end)
        for piece, known in zip(pieces, exact, strict=True)
        if not known
    ]
    encoded = iter(tokenizer.encode(prompts) if prompts else [])
    for piece, known in zip(pieces, exact, strict=True):
        ids = array("i", tokenizer.head_ids)
        if known:
            ids.extend(piece.context.ids)
            ids.frombytes(layout.ids[piece.start : piece.end].tobytes())
        else:
            ids.extend(next(encoded).ids)
        ids.extend(tokenizer.tail_ids)
        if len(ids) <= limit:
            yield piece, ids
        elif piece.end - piece.start > 1:
            middle = layout.whole_character(piece.start, (piece.start + piece.end) // 2, piece.end - 1)
            halves = [replace(piece, end=middle), replace(piece, start=middle)]
            yield from _with_ids(layout, halves, limit, tokenizer)
        else:
            raise DocumentError("failed:tokenizer", f"one token of the text encodes to {len(ids)}, over {limit}")


def _sections(document: Document, layout: Layout, max_table_tokens: int) -> Iterator[_Section]:
    """Groups blocks by heading; headings without text below them go with the next section."""
    path: list[tuple[int, str]] = []
    blocks = document.blocks
    first, only_headings = 0, True
    for position, block in enumerate(blocks):
        header = _table_header(block.text) if block.kind == "table" else ""
        apart = bool(header) and layout.tokens_of(position) > max_table_tokens
        if (apart or block.kind == "heading") and not only_headings:
            yield _Section(first, position - 1, tuple(title for _, title in path))
            first = position
        if apart:
            yield _Section(first, position, tuple(title for _, title in path), header)
            first, only_headings = position + 1, True
        elif block.kind == "heading":
            while path and path[-1][0] >= block.level:
                path.pop()
            path.append((block.level, _title(block.text)))
            only_headings = only_headings or first == position
        else:
            only_headings = False
    if first < len(blocks):
        yield _Section(first, len(blocks) - 1, tuple(title for _, title in path))


def _table_header(table: str) -> str:
    """The rows above a Markdown table's rule, and the rule; empty where there is none near the top."""
    lines = table.split("\n", 3)[:3]
    rule = next((number for number, line in enumerate(lines) if number and _TABLE_RULE.fullmatch(line)), None)
    return "" if rule is None else "\n".join(lines[: rule + 1])


def _title(text: str) -> str:
    """A heading's words: Markdown's # or underline marks taken off."""
    lines = [line.strip() for line in text.strip().split("\n")]
    if len(lines) > 1 and re.fullmatch(r"=+|-+", lines[-1]):
        lines.pop()
    joined = re.sub(r"^#{1,6}(?:\s+|$)|\s+#+$", "", " ".join(lines))
    return re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", lambda m: m.group(1) or "", joined).strip()


class _Contexts:
    """Makes what precedes a chunk's text, as far as it takes at most a quarter of the limit."""

    def __init__(self, document: Document, settings: ChunkConfig, tokenizer: Tokenizer, limit: int) -> None:
        self._title = document.title if settings.context != "none" else ""
        self._with_section = settings.context == "section"
        self._prefix = tokenizer.document_prefix
        self._tokenizer = tokenizer
        self._most = limit // 4

    def of(self, path: tuple[str, ...], header: str = "") -> _Context:
        """The prefix, then title and section path, then a table's header; outermost titles go first if too long."""
        parts = [self._title] if self._title else []
        if self._with_section:
            parts.extend(title for title in path if title and title not in parts)
        kept = self._fitting([" > ".join(parts[first:]) + BLOCK_SEPARATOR for first in range(len(parts))])
        return self._fitting([kept.text.removeprefix(self._prefix) + header + "\n"], kept) if header else kept

    def _fitting(self, texts: list[str], otherwise: _Context | None = None) -> _Context:
        for text in texts:
            made = self._make(text)
            if len(made.ids) <= self._most + (len(otherwise.ids) if otherwise else 0):
                return made
        return otherwise or self._make("")

    def _make(self, text: str) -> _Context:
        whole = self._prefix + text
        return _Context(whole, tuple(self._tokenizer.encode([whole])[0].ids) if whole else ())
