"""Generated documents: what a reader should get out of each, through parse, clean and chunk with default settings."""

import re
from bisect import bisect_right
from collections.abc import Iterator
from functools import cache
from itertools import pairwise

import pytest
from generated import DOCUMENTS
from generated.record import Generated

from rag_pipeline.config import ChunkConfig, CleanConfig, EmbeddingConfig, ParseConfig
from rag_pipeline.embedding.model import load_model
from rag_pipeline.embedding.tokenizer import load_tokenizer
from rag_pipeline.errors import DocumentError
from rag_pipeline.records import BLOCK_SEPARATOR, Block, Chunk, Document, FileBytes
from rag_pipeline.stages.chunk import split
from rag_pipeline.stages.clean import clean
from rag_pipeline.stages.parse import parse

MINILM = load_tokenizer(load_model(EmbeddingConfig()))
EACH = pytest.mark.parametrize("name", DOCUMENTS)


@cache
def _data(name: str) -> bytes:
    return DOCUMENTS[name].make()


@cache
def _read(name: str) -> tuple[str, Document | None]:
    """The state a document ends in, and what was read where anything was."""
    data = _data(name)
    try:
        document = clean(parse(FileBytes(name, data, "hash", len(data), 0), ParseConfig()), CleanConfig())
    except DocumentError as error:
        assert error.message
        return error.state, None
    if not document.blocks:
        return "no_text", None
    return "partial" if document.partial else "indexed", document


class _Text:
    """A document's text in which passages can be found, each run of blanks counting as one blank."""

    def __init__(self, document: Document) -> None:
        self.blocks = document.blocks
        self.exact = document.text
        positions = [(match.start(), match.end()) for match in re.finditer(r"\S+", self.exact)]
        self.words = " ".join(self.exact[start:end] for start, end in positions)
        self._word_starts, self._at = [], []
        at = 0
        for start, end in positions:
            self._word_starts.append(at)
            self._at.append(start)
            at += end - start + 1
        self._block_starts, start = [], 0
        for block in self.blocks:
            self._block_starts.append(start)
            start += len(block.text) + len(BLOCK_SEPARATOR)

    def find(self, passage: str, after: int = 0) -> int:
        """Where in the exact text a passage begins at or after a position; -1 where it does not."""
        if "\n" in passage:
            return self.exact.find(passage, after)
        passage = " ".join(passage.split())
        first = bisect_right(self._at, after - 1)
        if first == len(self._at):
            return -1
        found = self.words.find(passage, self._word_starts[first])
        if found < 0:
            return -1
        word = bisect_right(self._word_starts, found) - 1
        return self._at[word] + found - self._word_starts[word]

    def block(self, passage: str) -> Block | None:
        """The block a passage begins in, if any."""
        found = self.find(passage)
        return self.blocks[bisect_right(self._block_starts, found) - 1] if found >= 0 else None


@EACH
def test_a_reader_gets_what_a_person_would_call_right(name: str) -> None:
    """State, passages and their order, pages, kinds and title are what the document's maker says."""
    expected = DOCUMENTS[name]
    state, document = _read(name)
    assert state in expected.states
    wrong = list(_wrong(document, expected)) if document else []
    assert not wrong, _shown(wrong)


def _shown(wrong: list[str]) -> str:
    return "\n".join([f"{len(wrong)} wrong", *(line[:160] for line in wrong[:5])])


def _wrong(document: Document, expected: Generated) -> Iterator[str]:
    text = _Text(document)
    if expected.media_type not in (None, document.media_type):
        yield f"media type {document.media_type!r}, not {expected.media_type!r}"
    if expected.title not in (None, document.title):
        yield f"title {document.title!r}, not {expected.title!r}"
    position = 0
    for number, passage in enumerate(expected.passages):
        found = text.find(passage, position)
        if found < 0:
            yield f"passage {number} {'is missing' if text.find(passage) < 0 else 'is out of order'}: {passage!r}"
        position = max(position, found + 1)
    for passage in expected.absent:
        if passage in text.exact or (passage.strip() and text.find(passage) >= 0):
            yield f"should not be there: {passage!r}"
    for passage, page in expected.pages.items():
        if (block := text.block(passage)) and block.page != page:
            yield f"on page {block.page}, not {page}: {passage!r}"
    for passage, kind in expected.kinds.items():
        if (block := text.block(passage)) and block.kind != kind:
            yield f"in a {block.kind}, not a {kind}: {passage!r}"


@EACH
def test_chunks_are_exact_cover_everything_and_fit(name: str) -> None:
    """Chunks are slices in order, miss nothing that is not blank, fit the model, and name the right section."""
    document = _read(name)[1]
    if document is None:
        return
    chunks = list(split(document, ChunkConfig(), MINILM))
    assert chunks
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        assert chunk.text == document.text[chunk.start_char : chunk.end_char]
        assert chunk.text.strip()
    assert all(chunk.end_char <= following.start_char for chunk, following in pairwise(chunks))
    overhead = len(MINILM.head_ids) + len(MINILM.tail_ids)
    lengths = [overhead + len(tokens.ids) for tokens in MINILM.encode([chunk.prompt for chunk in chunks])]
    assert lengths == [len(chunk.token_ids) for chunk in chunks]
    assert max(lengths) <= MINILM.max_tokens
    assert _uncovered(document, chunks) == ""
    text = _Text(document)
    wrong = [
        f"in section {found}, not {section}: {passage!r}"
        for passage, section in DOCUMENTS[name].sections.items()
        if (found := _section(chunks, text.find(passage))) != section
    ]
    assert not wrong, _shown(wrong)


def test_documents_are_made_alike_each_time() -> None:
    """Making a document again makes the same bytes, but where a new key encrypts them."""
    differ = {name for name, document in DOCUMENTS.items() if document.make() != _data(name)}
    assert differ <= {"user-password.pdf", "owner-password.pdf"}


def _section(chunks: list[Chunk], position: int) -> tuple[str, ...] | None:
    return next((chunk.section for chunk in chunks if chunk.start_char <= position < chunk.end_char), None)


def _uncovered(document: Document, chunks: list[Chunk]) -> str:
    """What is neither blank nor in a chunk, of blocks in which the model sees anything at all."""
    seen = MINILM.encode([block.text for block in document.blocks])
    ends = [0, *(chunk.end_char for chunk in chunks)]
    starts = [*(chunk.start_char for chunk in chunks), len(document.text)]
    gaps = [(end, start) for end, start in zip(ends, starts, strict=True) if document.text[end:start].strip()]
    missed, start = "", 0
    for block, tokens in zip(document.blocks, seen, strict=True):
        stop = start + len(block.text)
        if tokens.ids:
            missed += "".join(document.text[max(start, first) : min(stop, last)] for first, last in gaps)
        start = stop + len(BLOCK_SEPARATOR)
    return "".join(missed.split())
