"""Chunk: cut a document's cleaned text into exact slices that fit the model, at boundaries that stay put.

A chunk ends at the strongest boundary in the second half of what fits: heading, page, block, sentence,
line, word. Among equals a hash of the text that follows decides, so the choice depends on the text
around the boundary and not on what came before: an insertion changes the chunks next to it only.
Knows nothing of models beyond the `Tokenizer` it is handed.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rag_pipeline.config import ChunkConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.records import BLOCK_SEPARATOR, Chunk, Document, Tokenizer

# Boundary strengths; 0 means no boundary.
_WORD, _LINE, _SENTENCE, _BLOCK, _PAGE = 1, 2, 3, 4, 5
_ANCHOR_CHARS = 48
_SENTENCE_END = re.compile(
    r"(?:[.!?\u2026\u061f\u06d4\u0964]+[\"'\u201d\u2019)\]]*\s+|[\u3002\uff01\uff1f\uff1b]+[\u201d\u2019\u300d\u300f\uff09]*\s*)"
)
_BLANKS = [*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")


@dataclass(frozen=True, slots=True)
class _Section:
    """Blocks under one heading path, first and last block included."""

    first: int
    last: int
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Context:
    """What precedes a chunk's text in its prompt: prefix, title and section path."""

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
    layout = _Layout(document, tokenizer)
    limit = min(settings.max_tokens or tokenizer.max_tokens, tokenizer.max_tokens)
    pieces = []
    for section in _sections(document):
        context = _context(document, section, settings, tokenizer, limit)
        room = limit - len(tokenizer.head_ids) - len(tokenizer.tail_ids) - len(context.ids)
        for start, end in layout.cut(section, room, settings.overlap_tokens):
            pieces.append(_Piece(start, end, section, context))
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
    layout: _Layout, pieces: list[_Piece], limit: int, tokenizer: Tokenizer
) -> Iterator[tuple[_Piece, tuple[int, ...]]]:
    """Gives every piece its prompt's token ids: a slice of the document's where that is exact, else encoded anew.

    A piece whose own encoding is longer than its share of the document's is halved until it fits.
    """
    exact = [
        tokenizer.cuts_at_blanks
        and piece.context.text[-1:].strip() == ""
        and layout.is_clean(piece.start)
        and layout.is_clean(piece.end)
        for piece in pieces
    ]
    prompts = [
        piece.context.text + layout.slice(piece.start, piece.end)
        for piece, known in zip(pieces, exact, strict=True)
        if not known
    ]
    encoded = iter(tokenizer.encode(prompts) if prompts else [])
    for piece, known in zip(pieces, exact, strict=True):
        ids = (*piece.context.ids, *layout.ids[piece.start : piece.end].tolist()) if known else tuple(next(encoded).ids)
        ids = (*tokenizer.head_ids, *ids, *tokenizer.tail_ids)
        if len(ids) <= limit:
            yield piece, ids
        elif piece.end - piece.start > 1:
            middle = layout.whole_character(piece.start, (piece.start + piece.end) // 2, piece.end - 1)
            halves = [replace(piece, end=middle), replace(piece, start=middle)]
            yield from _with_ids(layout, halves, limit, tokenizer)
        else:
            raise DocumentError("failed:tokenizer", f"one token of the text encodes to {len(ids)}, over {limit}")


def _sections(document: Document) -> Iterator[_Section]:
    """Groups blocks by heading; headings without text below them go with the next section."""
    path: list[tuple[int, str]] = []
    first = 0
    blocks = document.blocks
    for position, block in enumerate(blocks):
        if block.kind == "heading":
            if any(other.kind != "heading" for other in blocks[first:position]):
                yield _Section(first, position - 1, tuple(title for _, title in path))
                first = position
            while path and path[-1][0] >= block.level:
                path.pop()
            path.append((block.level, _title(block.text)))
    yield _Section(first, len(blocks) - 1, tuple(title for _, title in path))


def _title(text: str) -> str:
    """A heading's words: Markdown's # or underline marks taken off."""
    lines = [line.strip() for line in text.strip().split("\n")]
    if len(lines) > 1 and re.fullmatch(r"=+|-+", lines[-1]):
        lines.pop()
    joined = re.sub(r"^#{1,6}(?:\s+|$)|\s+#+$", "", " ".join(lines))
    return re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", lambda m: m.group(1) or "", joined).strip()


def _context(
    document: Document, section: _Section, settings: ChunkConfig, tokenizer: Tokenizer, limit: int
) -> _Context:
    """The prefix, then title and section path as far as they take at most a quarter of the limit."""
    parts = [document.title] if settings.context != "none" and document.title else []
    if settings.context == "section":
        parts.extend(title for title in section.path if title and title not in parts)
    while parts:
        text = tokenizer.document_prefix + " > ".join(parts) + BLOCK_SEPARATOR
        ids = tokenizer.encode([text])[0].ids
        if len(ids) <= limit // 4:
            return _Context(text, tuple(ids))
        parts.pop(0)
    prefix = tokenizer.document_prefix
    return _Context(prefix, tuple(tokenizer.encode([prefix])[0].ids) if prefix else ())


class _Layout:
    """A document's text with its tokens and boundaries as arrays; token k covers [starts[k], ends[k])."""

    def __init__(self, document: Document, tokenizer: Tokenizer) -> None:
        self.text = document.text
        self.block_starts = np.zeros(len(document.blocks) + 1, dtype=np.int64)
        lengths = [len(block.text) + len(BLOCK_SEPARATOR) for block in document.blocks]
        np.cumsum(lengths, out=self.block_starts[1:])
        encoded = tokenizer.encode([block.text for block in document.blocks])
        counts = np.array([len(tokens.ids) for tokens in encoded], dtype=np.int64)
        shift = np.repeat(self.block_starts[:-1], counts)
        self.ids = _concat([tokens.ids for tokens in encoded])
        self.starts = _concat([tokens.starts for tokens in encoded]) + shift
        self.ends = _concat([tokens.ends for tokens in encoded]) + shift
        self.codes = np.frombuffer(self.text.encode("utf-32-le", "replace"), dtype=np.uint32)
        self.blank = np.append(np.isin(self.codes, _BLANKS), False)
        # Tokens that carry the blank before their word (byte-level BPE) begin with the word.
        positions = np.where(self.blank, np.iinfo(np.int64).max, np.arange(len(self.blank)))
        next_word = np.minimum.accumulate(positions[::-1])[::-1]
        self.starts = np.minimum(next_word[self.starts], np.maximum(self.ends, self.starts))
        # Several tokens of one character begin at the same place: only before the first can be cut.
        self.cuttable = np.diff(self.starts, prepend=-1) > 0
        self.block_tokens = np.concatenate([[0], np.cumsum(counts)])
        self.strength = self._strengths(document)
        self.tie = np.zeros(len(self.ids), dtype=np.int64)

    def _strengths(self, document: Document) -> np.ndarray:
        """Per token, how good it is to begin a chunk with it."""
        strength = np.zeros(len(self.ids), dtype=np.int8)
        self.after_blank = (self.blank[self.starts - 1] | (self.starts == 0)) & self.cuttable
        strength[self.after_blank] = _WORD
        self._mark(strength, (match.start() for match in _WIDE.finditer(self.text)), _WORD)
        self._mark(strength, (match.end() for match in re.finditer(r"\n", self.text)), _LINE)
        prose = ((b.text, int(s)) for b, s in zip(document.blocks, self.block_starts, strict=False) if b.kind != "code")
        self._mark(
            strength, (start + m.end() for text, start in prose for m in _SENTENCE_END.finditer(text)), _SENTENCE
        )
        self._mark(strength, self.block_starts[:-1], _BLOCK)
        pages = [
            int(start)
            for start, block, previous in zip(self.block_starts[1:], document.blocks[1:], document.blocks, strict=False)
            if block.page != previous.page
        ]
        self._mark(strength, pages, _PAGE)
        return strength

    def _mark(self, strength: np.ndarray, positions: Iterator[int] | Sequence[int] | np.ndarray, value: int) -> None:
        """Marks the first token at or after each position."""
        found = np.searchsorted(self.starts, np.fromiter(positions, dtype=np.int64))
        found = found[found < len(strength)]
        strength[found] = np.maximum(strength[found], value)

    def cut(self, section: _Section, room: int, overlap: int) -> Iterator[tuple[int, int]]:
        """Yields [start, end) token ranges that cover the section, each at most `room` long."""
        start, stop = int(self.block_tokens[section.first]), int(self.block_tokens[section.last + 1])
        overlap = min(overlap, (room - 1) // 2)
        head = start
        while stop - start > room - overlap:
            end = self._boundary(start, start + room - overlap, stop)
            yield head, end
            start, head = end, self._overlap_start(end, overlap, head)
        if start < stop:
            yield head, stop

    def _boundary(self, start: int, last: int, stop: int) -> int:
        """The strongest place to cut in the second half of (start, last]; ties fall to the text's hash."""
        first = start + max(1, (last - start) // 2)
        window = self.strength[first : last + 1]
        best = int(window.max())
        if best == 0:  # one unbroken run of letters
            return self.whole_character(start, last, stop)
        candidates = first + np.flatnonzero(window == best)
        return int(min(candidates, key=self._tie_break))

    def whole_character(self, start: int, token: int, stop: int) -> int:
        """The last place between characters in (start, token], else the first in (token, stop), else `stop`."""
        before = np.flatnonzero(self.cuttable[start + 1 : token + 1])
        if len(before):
            return start + 1 + int(before[-1])
        after = np.flatnonzero(self.cuttable[token + 1 : stop])
        return token + 1 + int(after[0]) if len(after) else stop

    def _tie_break(self, token: int) -> int:
        if not self.tie[token]:
            position = int(self.starts[token])
            self.tie[token] = 1 + zlib.crc32(self.text[position : position + _ANCHOR_CHARS].encode("utf-8", "replace"))
        return int(self.tie[token])

    def _overlap_start(self, end: int, overlap: int, head: int) -> int:
        """The first sentence, else word, within `overlap` tokens before `end`."""
        if not overlap:
            return end
        first = max(end - overlap, head + 1)
        window = self.strength[first:end]
        for wanted in (_SENTENCE, _WORD):
            found = np.flatnonzero(window >= wanted)
            if len(found):
                return first + int(found[0])
        return end

    def block_of(self, token: int) -> int:
        """The block a token is in."""
        return int(np.searchsorted(self.block_tokens, token, side="right")) - 1

    def _position(self, token: int) -> int:
        """Where a chunk that begins with this token begins: with the block's indentation, if it is its first."""
        if token >= len(self.starts):
            return len(self.text)
        block = self.block_of(token)
        return int(self.block_starts[block] if token == self.block_tokens[block] else self.starts[token])

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The code points of a token range, up to the next token's begin less trailing blanks."""
        begin, finish = self._position(start), self._position(end)
        return begin, begin + len(self.text[begin:finish].rstrip())

    def slice(self, start: int, end: int) -> str:
        """The text of a token range."""
        begin, finish = self.span(start, end)
        return self.text[begin:finish]

    def is_clean(self, token: int) -> bool:
        """Whether a cut before this token is next to a blank, so that ids on both sides stay as they are."""
        return token >= len(self.ids) or bool(self.after_blank[token])


def _concat(parts: Sequence[Sequence[int]]) -> np.ndarray:
    arrays = [np.asarray(part, dtype=np.int64) for part in parts]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype=np.int64)
