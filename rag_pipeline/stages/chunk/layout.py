"""Where a text can be cut: its tokens and boundaries as arrays. Knows nothing of prompts or chunks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import numpy as np

from rag_pipeline.records import BLOCK_SEPARATOR, Document, Tokenizer

# Boundary strengths; 0 means no boundary.
_WORD, _LINE, _SENTENCE, _BLOCK, _PAGE = 1, 2, 3, 4, 5
# A cut leaves at least this share of a chunk on both sides; less where else it would fall within a sentence or code.
_MARGINS = (0.4, 0.25, 0.1)
_ANCHOR_TOKENS = 12
_MAX_TOKEN_CHARS, _SHARD_CHARS = 100, 4
_ASCII_SENTENCE_END = re.compile(r"[.!?][.!?\"')\]]*\s+")
_SENTENCE_END = re.compile(
    r"[.!?\u2026\u061f\u06d4\u0964\u104b\u1362]+[\"'\u201d\u2019)\]]*\s+"
    r"|[\u3002\uff01\uff1f\uff1b]+[\u201d\u2019\u300d\u300f\uff09]*\s*"
    r"|(?<=[\u0e00-\u0eff])[^\S\n]+"  # Thai and Lao end sentences with a blank
)
_BLANK = np.zeros(0x3002, dtype=bool)
_BLANK[[*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]] = True
_WIDE = ((0x3040, 0x30FF), (0x3400, 0x9FFF), (0xAC00, 0xD7AF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF))
_JOINER = 0x200D
_REGIONAL = (0x1F1E6, 0x1F1FF)


class Layout:
    """A document's text with its tokens and boundaries as arrays; token k covers [starts[k], ends[k])."""

    def __init__(self, document: Document, tokenizer: Tokenizer) -> None:
        self.text = document.text
        lengths = [len(block.text) + len(BLOCK_SEPARATOR) for block in document.blocks]
        self.block_starts = np.concatenate([[0], np.cumsum(lengths)])
        self.codes = np.frombuffer(self.text.encode("utf-32-le", "replace"), dtype=np.uint32)
        self.blank = np.append(_BLANK[np.minimum(self.codes, len(_BLANK) - 1)], False)
        tokens = tokenizer.encode([self.text])[0]
        self.ids = np.asarray(tokens.ids, dtype=np.int32)
        self.starts, ends = np.asarray(tokens.starts, dtype=np.int64), np.asarray(tokens.ends, dtype=np.int64)
        # Tokens that carry the blank before their word (byte-level BPE) begin with the word.
        positions = np.where(self.blank, np.iinfo(np.int64).max, np.arange(len(self.blank)))
        next_word = np.minimum.accumulate(positions[::-1])[::-1]
        self.starts = np.minimum(next_word[self.starts], np.maximum(ends, self.starts))
        self._shard_long_tokens(ends)
        # Several tokens of one character begin at the same place: only before the first can be cut.
        self.cuttable = (np.diff(self.starts, prepend=-1) > 0) & ~_joined(self.codes)[self.starts]
        self.block_tokens = np.searchsorted(self.starts, self.block_starts)
        self.strength = self._strengths(document)
        self.strong = np.flatnonzero(self.strength >= _LINE)
        self.order = self._order()

    def _shard_long_tokens(self, ends: np.ndarray) -> None:
        """Cuts tokens of very many characters (one unknown word without a blank) into shards that can be cut at."""
        self.sharded = np.zeros(len(self.ids) + 1, dtype=np.int64)  # shards before each token
        counts = np.where(ends - self.starts > _MAX_TOKEN_CHARS, (ends - self.starts) // _SHARD_CHARS, 1)
        if len(counts) and counts.max() > 1:
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            self.starts = np.repeat(self.starts, counts) + within * _SHARD_CHARS
            self.ids = np.repeat(self.ids, counts)
            self.sharded = np.concatenate([[0], np.cumsum(np.repeat(counts > 1, counts))])

    def _strengths(self, document: Document) -> np.ndarray:
        """Per token, how good it is to begin a chunk with it."""
        strength = np.zeros(len(self.ids), dtype=np.int8)
        self.after_blank = (self.blank[self.starts - 1] | (self.starts == 0)) & self.cuttable
        strength[self.after_blank] = _WORD
        wide = np.zeros(len(self.codes), dtype=bool)
        for first, last in _WIDE if not self.text.isascii() else ():
            wide |= (self.codes >= first) & (self.codes <= last)
        strength[wide[self.starts] & self.cuttable] = _WORD
        self._mark(strength, np.flatnonzero(self.codes == ord("\n")) + 1, _LINE)
        pattern = _ASCII_SENTENCE_END if self.text.isascii() else _SENTENCE_END
        sentences = np.fromiter((match.end() for match in pattern.finditer(self.text)), dtype=np.int64)
        prose = np.array([block.kind not in ("code", "table") for block in document.blocks])
        inside = np.searchsorted(self.block_starts, sentences, side="right") - 1
        self._mark(strength, sentences[prose[np.minimum(inside, len(prose) - 1)]], _SENTENCE)
        self._mark(strength, self.block_starts[:-1], _BLOCK)
        pages = np.array([block.page or 0 for block in document.blocks])
        self._mark(strength, self.block_starts[1:-1][np.diff(pages) != 0], _PAGE)
        return strength

    def _mark(self, strength: np.ndarray, positions: np.ndarray, value: int) -> None:
        """Marks the first token at or after each position."""
        found = np.searchsorted(self.starts, positions)
        found = found[found < len(strength)]
        found = found[self.cuttable[found]]
        strength[found] = np.maximum(strength[found], value)

    def _order(self) -> np.ndarray:
        """Per token, its rank as a place to cut: stronger first, then by a hash of the tokens that follow."""
        following = np.append(self.ids, np.zeros(_ANCHOR_TOKENS, self.ids.dtype)).astype(np.uint64)
        mixed = np.zeros(len(self.ids), dtype=np.uint64)
        for step in range(_ANCHOR_TOKENS):
            mixed = (mixed + following[step : step + len(mixed)]) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        return (np.uint64(_PAGE) - self.strength.astype(np.uint64)) << np.uint64(60) | mixed >> np.uint64(4)

    def cut(self, blocks: range, room: int, overlap: int) -> Iterator[tuple[int, int]]:
        """Yields [start, end) token ranges that cover these blocks, each at most `room` long, in order."""
        overlap = min(overlap, (room - 1) // 2)
        head = int(self.block_tokens[blocks.start])
        pending = [(head, int(self.block_tokens[blocks.stop]))]
        while pending:
            start, stop = pending.pop()
            middle = self._boundary(start, stop, room - overlap) if stop - start > room - overlap else stop
            if middle < stop:
                pending += [(middle, stop), (start, middle)]
            elif start < stop:
                yield self._overlap_start(start, overlap, head), stop
                head = start

    def _boundary(self, start: int, stop: int, room: int) -> int:
        """The best place to cut a range that is too long."""
        found = None
        for margin in _MARGINS:
            best = self._best(start, stop, int(room * margin))
            if best is not None and self.strength[best] >= _SENTENCE:
                return best
            found = best if found is None else found
        return self.whole_character(start, (start + stop) // 2, stop) if found is None else found

    def _best(self, start: int, stop: int, margin: int) -> int | None:
        """The strongest boundary at least `margin` tokens from both ends."""
        first, last = start + max(1, margin), stop - max(1, margin)
        low, high = np.searchsorted(self.strong, [first, last + 1])
        if low < high:
            candidates = self.strong[low:high]
            return int(candidates[np.argmin(self.order[candidates])])
        best = first + int(np.argmin(self.order[first : last + 1]))
        return best if self.strength[best] else None

    def whole_character(self, start: int, token: int, stop: int) -> int:
        """The last place between characters in (start, token], else the first in (token, stop), else `stop`."""
        before = np.flatnonzero(self.cuttable[start + 1 : token + 1])
        if len(before):
            return start + 1 + int(before[-1])
        after = np.flatnonzero(self.cuttable[token + 1 : stop])
        return token + 1 + int(after[0]) if len(after) else stop

    def _overlap_start(self, start: int, overlap: int, head: int) -> int:
        """The first sentence, else word, within `overlap` tokens before `start`, behind the chunk before's begin."""
        if not overlap:
            return start
        first = max(start - overlap, head + 1)
        window = self.strength[first:start]
        for wanted in (_SENTENCE, _WORD):
            found = np.flatnonzero(window >= wanted)
            if len(found):
                return first + int(found[0])
        return start

    def tokens_of(self, block: int) -> int:
        """How many tokens a block has."""
        return int(self.block_tokens[block + 1] - self.block_tokens[block])

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

    def is_exact(self, start: int, end: int) -> bool:
        """Whether a range is cut next to blanks and holds no shards: then its ids are those of its text."""
        cut_at_blanks = self.after_blank[start] and (end >= len(self.ids) or self.after_blank[end])
        return bool(cut_at_blanks and self.sharded[start] == self.sharded[min(end, len(self.sharded) - 1)])


def _joined(codes: np.ndarray) -> np.ndarray:
    """Which code points belong to the character before them: marks, emoji joined to others, second halves of flags."""
    joined = np.zeros(len(codes), dtype=bool)
    if len(codes) and int(codes.max()) < 0x300:
        return joined
    distinct = np.unique(codes[codes >= 0x300])
    marks = [c for c in distinct.tolist() if unicodedata.category(chr(c)).startswith("M") or 0x1F3FB <= c <= 0x1F3FF]
    joined = np.isin(codes, [*marks, _JOINER])
    joined[1:] |= codes[:-1] == _JOINER
    flag = (codes >= _REGIONAL[0]) & (codes <= _REGIONAL[1])
    if flag.any():
        runs = np.flatnonzero(flag & ~np.concatenate([[False], flag[:-1]]))
        since = np.arange(len(codes)) - runs[np.maximum(np.searchsorted(runs, np.arange(len(codes)), "right") - 1, 0)]
        joined |= flag & (since % 2 == 1)
    return joined
