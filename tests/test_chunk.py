"""Chunk: exact slices that fit the model, cut at boundaries that stay put."""

import copy
import random
import textwrap
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from rag_pipeline.config import ChunkConfig, CleanConfig, EmbeddingConfig
from rag_pipeline.embedding.model import load_model
from rag_pipeline.embedding.tokenizer import ModelTokenizer, load_tokenizer
from rag_pipeline.records import BLOCK_SEPARATOR, Block, Chunk, Document, Tokens
from rag_pipeline.stages.chunk import split
from rag_pipeline.stages.clean import clean

MINILM = load_tokenizer(load_model(EmbeddingConfig()))

WORDS = [
    *("the", "tide", "gauge", "Level", "measured.", "well,", "12.5", "(see", "below)", "e.g.", "state-of-the-art"),
    *(
        "naïve",
        "Größe",
        "潮汐观测站",
        "每天记录。",
        "日本語",
        "です。",
        "한국어",
        "각",
        "조수를",
        "محطة",
        "المد؟",
        "सतह।",
    ),
    *("สวัสดีครับ", "กำลังทดสอบ", "👨‍👩‍👧‍👦", "🌊" * 6, "❤️", "supercalifragilisticexpialidocious", "x" * 120, "ab" * 49),
    *(
        "q",
        "é̂",
        "﷽",
        "[SEP]",
        "[PAD]x",
        "\u200d",
        "\ufffd",
        "\t",
        "-----",
        "https://example.org/a/b?c=d",
        "\u3000",
        "İ",
    ),
]


def _prose(seed: int, size_chars: int, first_words: int = 20, last_words: int = 140) -> list[str]:
    """Paragraphs of invented words in sentences, hard-wrapped at 72 characters."""
    chance = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkqjxz"
    words = ["".join(chance.choices(letters, range(26, 0, -1), k=chance.randint(2, 9))) for _ in range(3000)]
    paragraphs: list[str] = []
    while sum(map(len, paragraphs)) < size_chars:
        sentences: list[str] = []
        while sum(sentence.count(" ") + 1 for sentence in sentences) < chance.randint(first_words, last_words):
            sentences.append(" ".join(chance.choices(words, k=chance.randint(5, 25))).capitalize() + ".")
        paragraphs.append(textwrap.fill(" ".join(sentences), 72))
    return paragraphs


class ByteLevelTokenizer:
    """A byte-level BPE as decoders have it: words carry their blank, one character may take several tokens."""

    def __init__(self) -> None:
        self._tokenizer = Tokenizer(models.BPE())
        self._tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = trainers.BpeTrainer(
            vocab_size=600,
            special_tokens=["<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        self._tokenizer.train_from_iterator([*_prose(0, 20_000), *WORDS[:14] * 50], trainer)
        self._tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
        )
        self.max_tokens, self.head_ids, self.tail_ids = 256, (0,), (1,)
        self.cuts_at_blanks, self.document_prefix = False, ""

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """See `records.Tokenizer.encode`."""
        found = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [Tokens(e.ids, [start for start, _ in e.offsets], [end for _, end in e.offsets]) for e in found]


def _variant(**facts: Any) -> ModelTokenizer:
    """MiniLM's tokenizer with some of its facts replaced."""
    tokenizer = copy.copy(MINILM)
    for name, value in facts.items():
        setattr(tokenizer, name, value)
    return tokenizer


TOKENIZERS: dict[str, Any] = {
    "minilm": MINILM,
    "encoded anew": _variant(cuts_at_blanks=False),
    "byte-level": ByteLevelTokenizer(),
}
ALL = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS.keys())


def _document(*blocks: Block | str, title: str = "", media_type: str = "text") -> Document:
    made = tuple(Block(block.rstrip()) if isinstance(block, str) else block for block in blocks)
    return Document("a", media_type, title, made)


def _heading(level: int, text: str) -> Block:
    return Block(f"{'#' * level} {text}", "heading", level)


def _split(document: Document, tokenizer: Any = MINILM, **options: Any) -> list[Chunk]:
    """Chunks of a document, after checking all that is true of any."""
    chunks = list(split(document, ChunkConfig(**options), tokenizer))
    _check(document, chunks, ChunkConfig(**options), tokenizer)
    return chunks


def _check(document: Document, chunks: list[Chunk], recipe: ChunkConfig, tokenizer: Any) -> None:
    """Checks slices, order, coverage, prompts, ids, limit, pages and sections."""
    limit = min(recipe.max_tokens or tokenizer.max_tokens, tokenizer.max_tokens)
    starts = _block_starts(document)
    paths = _section_paths(document)
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    for chunk in chunks:
        assert chunk.text == document.text[chunk.start_char : chunk.end_char]
        assert chunk.text.strip()
        assert chunk.text == chunk.text.rstrip()
        assert chunk.prompt.endswith(chunk.text)
        assert list(chunk.token_ids) == tokenizer._tokenizer.encode(chunk.prompt).ids
        assert len(chunk.token_ids) <= limit
        block = bisect_right(starts, chunk.start_char) - 1
        assert chunk.page == document.blocks[block].page
        assert chunk.section == paths[block]
    for chunk, following in pairwise(chunks):
        assert chunk.start_char < following.start_char
        assert chunk.end_char < following.end_char
        if not recipe.overlap_tokens:
            assert chunk.end_char <= following.start_char
    assert _uncovered(document, chunks, tokenizer) == ""


def _block_starts(document: Document) -> list[int]:
    starts, position = [], 0
    for block in document.blocks:
        starts.append(position)
        position += len(block.text) + len(BLOCK_SEPARATOR)
    return starts


def _section_paths(document: Document) -> list[tuple[str, ...]]:
    """Per block the headings above it; a heading directly below another one shares that one's section."""
    paths: list[tuple[str, ...]] = []
    stack: list[tuple[int, str]] = []
    run: list[int] = []  # headings not yet followed by text
    for position, block in enumerate(document.blocks):
        if block.kind == "heading":
            while stack and stack[-1][0] >= block.level:
                stack.pop()
            stack.append((block.level, block.text.removeprefix("#" * block.level).strip()))
            run.append(position)
        else:
            run = []
        paths.append(tuple(title for _, title in stack))
        for heading in run:
            paths[heading] = paths[-1]
    return paths


def _uncovered(document: Document, chunks: list[Chunk], tokenizer: Any) -> str:
    """The non-blank characters in no chunk, of blocks in which the model sees anything at all."""
    covered = bytearray(len(document.text))
    for chunk in chunks:
        covered[chunk.start_char : chunk.end_char] = b"\x01" * len(chunk.text)
    missed = []
    encoded = tokenizer.encode([block.text for block in document.blocks]) if document.blocks else []
    for start, block, tokens in zip(_block_starts(document), document.blocks, encoded, strict=True):
        if tokens.ids:
            missed += [char for at, char in enumerate(block.text, start) if not covered[at] and not char.isspace()]
    return "".join(missed)


def _texts(words: int, repeats: int) -> st.SearchStrategy[str]:
    piece = st.tuples(st.sampled_from(WORDS), st.sampled_from([" ", " ", "", "\n", "  "])).map("".join)
    run = st.lists(piece, min_size=1, max_size=words).map("".join)
    return st.tuples(run, st.integers(1, repeats)).map(lambda drawn: drawn[0] * drawn[1])


_HEADINGS = st.builds(
    lambda level, text, turns_page: (Block(f"{'#' * level} {' '.join(text.split())}", "heading", level), turns_page),
    st.integers(1, 4),
    _texts(5, 1).filter(lambda text: text.strip() and not set(text) & set("[]*`#\u200d\ufffd")),
    st.booleans(),
)
_BODIES = st.builds(
    lambda text, kind, turns_page: (Block("    " * (kind == "code") + text, kind), turns_page),
    st.one_of(_texts(30, 8), _texts(3, 1), st.text(max_size=30)),
    st.sampled_from(["paragraph", "paragraph", "code", "list", "table"]),
    st.booleans(),
)


@st.composite
def _documents(draw: st.DrawFn) -> Document:
    """Cleaned documents of random blocks, with or without pages."""
    drawn = draw(st.lists(st.one_of(_BODIES, _BODIES, _HEADINGS), max_size=8))
    paged, page = draw(st.booleans()), 1
    blocks = []
    for block, turns_page in drawn:
        page += turns_page
        blocks.append(Block(block.text, block.kind, block.level, page if paged else None))
    title = draw(st.one_of(st.just(""), st.just("A title"), _texts(12, 2)))
    media_type = draw(st.sampled_from(["pdf", "markdown"]))
    return clean(Document("a", media_type, title, tuple(blocks)), CleanConfig(join_lines=False))


@st.composite
def _recipes(draw: st.DrawFn) -> ChunkConfig:
    limit = draw(st.integers(16, 256))
    overlap = draw(st.one_of(st.just(0), st.integers(0, (limit - 1) // 2)))
    return ChunkConfig(
        max_tokens=limit, overlap_tokens=overlap, context=draw(st.sampled_from(["none", "title", "section"]))
    )


@ALL
@settings(
    max_examples=120,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],  # says how busy the machine is, not how good the code
    phases=[Phase.explicit, Phase.generate],  # without shrinking, which takes minutes with documents
)
@given(document=_documents(), recipe=_recipes())
def test_chunks_of_any_document_are_exact_complete_and_fit(
    tokenizer: Any, document: Document, recipe: ChunkConfig
) -> None:
    """Slices are exact, in order and cover all the model sees; ids are the prompt's own and fit; twice is the same."""
    chunks = list(split(document, recipe, tokenizer))
    _check(document, chunks, recipe, tokenizer)
    assert list(split(document, recipe, tokenizer)) == chunks


@ALL
def test_a_short_document_is_one_chunk(tokenizer: Any) -> None:
    """What fits in one prompt is one chunk: the whole text."""
    document = _document("One paragraph.", "    an indented one", "a third")
    (chunk,) = _split(document, tokenizer)
    assert (chunk.text, chunk.start_char, chunk.end_char) == (document.text, 0, len(document.text))
    assert (chunk.prompt, chunk.section, chunk.page) == (document.text, (), None)


def test_nothing_to_see_is_no_chunk() -> None:
    """A document without blocks, or of characters that the tokenizer drops, has no chunks."""
    assert _split(_document()) == []
    assert _split(_document("\u200d", "\ufffd")) == []


@ALL
def test_the_limit_is_never_above_the_models(tokenizer: Any) -> None:
    """Without max_tokens, or with one above the model's limit, chunks fit the model; they use most of it."""
    document = _document(" ".join(["tide"] * 3000))
    for options in ({}, {"max_tokens": 5000}):
        sizes = [len(chunk.token_ids) for chunk in _split(document, tokenizer, **options)]
        assert max(sizes) <= tokenizer.max_tokens
        assert min(sizes[:-1]) >= (tokenizer.max_tokens - 2) * 2 // 5


@ALL
@pytest.mark.parametrize("letters", ["x", "abc", "tide", "한", "潮", "é", "🌊", "ก"])
def test_five_thousand_letters_without_a_blank_are_cut_where_they_fit(tokenizer: Any, letters: str) -> None:
    """Text without a single boundary is cut between characters, none lost and none cut in two."""
    document = _document((letters * 5000)[:5000])
    chunks = _split(document, tokenizer, max_tokens=64)
    assert "".join(chunk.text for chunk in chunks) == document.text


def test_korean_is_cut_between_syllables() -> None:
    """A syllable that takes several tokens is never cut in two: its ids are all in the chunk that has its text."""
    document = _document("조수 관측소는 매일 아침 해수면 높이를 기록한다 " * 40)
    for limit in range(16, 40):
        _split(document, max_tokens=limit)
        _split(document, max_tokens=limit, overlap_tokens=(limit - 1) // 2)


@ALL
def test_emoji_and_other_characters_of_many_tokens_leave_no_empty_chunk(tokenizer: Any) -> None:
    """Where characters take several tokens each, every chunk still has text, at the smallest limit too."""
    document = _document("🌊 👨‍👩‍👧‍👦 각 ẞ ﷽ कि " * 30)
    for overlap in (0, 3, 7):
        _split(document, tokenizer, max_tokens=16, overlap_tokens=overlap)


@ALL
def test_long_runs_of_blanks_make_no_chunk(tokenizer: Any) -> None:
    """Blanks that the model has tokens for fill no chunk of their own, and no text around them is lost."""
    code = Block("first = 1" + " " * 300 + "# far away" + "\n" * 300 + "last = 2", "code")
    chunks = _split(_document("Before.", code, "After."), tokenizer, max_tokens=16)
    assert chunks[-1].text.endswith("After.")


@ALL
def test_chunks_end_with_sentences(tokenizer: Any) -> None:
    """In prose every chunk but the last ends at the end of a sentence, and the next begins with its first word."""
    text = " ".join(_prose(1, 12_000)).replace("\n", " ")
    chunks = _split(_document(text), tokenizer)
    assert len(chunks) > 5
    assert all(chunk.text.endswith(".") for chunk in chunks)
    assert all(chunk.text[0].isupper() for chunk in chunks)


@ALL
def test_chinese_is_cut_after_sentences(tokenizer: Any) -> None:
    """Text without blanks is cut behind its own full stops."""
    document = _document("潮汐观测站每天早晨记录海平面的高度。遇到风暴，每小时记录一次！记录写入日志。" * 40)
    chunks = _split(document, tokenizer, max_tokens=200)
    assert len(chunks) > 3
    assert all(chunk.text[-1] in "。！" for chunk in chunks)


@ALL
def test_code_is_cut_between_lines(tokenizer: Any) -> None:
    """Code is cut at line ends, not behind full stops inside lines."""
    line = "    total = total. + measure. of(level. x, 12. 5) # tide."
    document = _document(Block("\n".join([line] * 60), "code"))
    for chunk in _split(document, tokenizer, max_tokens=128):
        assert set(chunk.text.strip().split("\n    ")) == {line.strip()}


def test_indentation_of_a_blocks_first_line_is_in_the_chunk() -> None:
    """A chunk that begins with an indented block begins with its indentation."""
    code = Block("    def f():\n        return 1", "code")
    chunks = _split(_document("words " * 30, code, "words " * 30), max_tokens=32)
    assert any(chunk.text.startswith("    def f()") for chunk in chunks)


def test_blocks_are_kept_together_where_they_fit() -> None:
    """A paragraph that fits in the second half of a chunk is not cut."""
    paragraphs = [f"Paragraph {number} has a sentence. It has another one. And a third." for number in range(40)]
    for chunk in _split(_document(*paragraphs), max_tokens=64):
        assert set(chunk.text.split("\n\n")) <= set(paragraphs)


def test_a_page_end_is_preferred_to_a_paragraph_end() -> None:
    """Where pages turn inside what fits, the chunk ends with the page."""
    blocks = [Block(f"Sentence of paragraph {number} stands here.", page=1 + number // 5) for number in range(20)]
    chunks = _split(Document("a", "pdf", "", tuple(blocks), 4), max_tokens=64)
    assert [chunk.page for chunk in chunks] == [1, 2, 3, 4]


def test_a_chunk_names_the_page_of_its_first_character() -> None:
    """A chunk over a page's end belongs to the page it begins on."""
    blocks = (Block("Short.", page=3), Block("Short too.", page=4), Block("word " * 100, page=5))
    chunks = _split(Document("a", "pdf", "", blocks, 5), max_tokens=64)
    assert chunks[0].page == 3
    assert chunks[-1].page == 5


# --- sections and context


def test_sections_nest_and_return() -> None:
    """A chunk knows the headings above it, outermost first; a heading ends those of its level and below."""
    document = _document(
        "Before any heading.",
        _heading(1, "One"),
        "Text of one.",
        _heading(2, "Two"),
        "Text of two.",
        _heading(3, "Three"),
        "Text of three.",
        _heading(2, "Four"),
        "Text of four.",
        _heading(1, "Five"),
        "Text of five.",
    )
    chunks = _split(document)
    assert [chunk.section for chunk in chunks] == [
        (),
        ("One",),
        ("One", "Two"),
        ("One", "Two", "Three"),
        ("One", "Four"),
        ("Five",),
    ]
    assert chunks[3].text == "### Three\n\nText of three."


def test_a_heading_alone_goes_with_the_next_section() -> None:
    """A heading without text of its own begins the chunk of the section below it, and makes no chunk itself."""
    document = _document(_heading(1, "One"), _heading(2, "Two"), "Text.", _heading(2, "Three"), "More.")
    chunks = _split(document)
    assert [chunk.text for chunk in chunks] == ["# One\n\n## Two\n\nText.", "## Three\n\nMore."]
    assert [chunk.section for chunk in chunks] == [("One", "Two"), ("One", "Three")]


def test_a_heading_at_the_end_is_not_lost() -> None:
    """A last heading without text below it is a chunk of its own."""
    chunks = _split(_document("Text.", _heading(1, "The end")))
    assert [chunk.text for chunk in chunks] == ["Text.", "# The end"]
    assert chunks[-1].section == ("The end",)


def test_equal_headings_are_sections_of_their_own() -> None:
    """Two sections of the same name are not merged."""
    document = _document(_heading(2, "Same"), "First.", _heading(2, "Same"), "Second.")
    assert [chunk.text for chunk in _split(document)] == ["## Same\n\nFirst.", "## Same\n\nSecond."]


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("## Plain", "Plain"),
        ("## Closed ##", "Closed"),
        ("Underlined\n---", "Underlined"),
        ("Two\nlines\n===", "Two lines"),
        ("A PDF's heading", "A PDF's heading"),
        ("# With `code`, *stress* and a [link](http://example.org)", "With code, stress and a link"),
        ("# C# and F#", "C# and F#"),
        ("# snake_case", "snake_case"),
    ],
)
def test_section_titles_are_headings_without_marks(source: str, title: str) -> None:
    """Markdown's marks are taken off a heading for the section path and stay in the text."""
    (chunk,) = split(_document(Block(source, "heading", 2), "Text."), ChunkConfig(), MINILM)
    assert chunk.section == (title,)
    assert chunk.text.startswith(source)


@ALL
@pytest.mark.parametrize(
    ("context", "before"), [("none", ""), ("title", "A title\n\n"), ("section", "A title > One > Two\n\n")]
)
def test_context_is_in_the_prompt_and_never_in_the_span(tokenizer: Any, context: str, before: str) -> None:
    """Title and section path precede the text in the prompt, as the recipe says; the span is the text's alone."""
    document = _document(_heading(1, "One"), _heading(2, "Two"), "Text of two. " * 90, title="A title")
    chunks = _split(document, tokenizer, max_tokens=128, context=context)
    assert len(chunks) > 2
    for chunk in chunks:
        assert chunk.prompt == before + chunk.text
        assert "A title" not in chunk.text
        assert chunk.section == ("One", "Two")


def test_a_title_that_is_also_the_first_heading_is_said_once() -> None:
    """The title is not repeated by the heading it was taken from."""
    document = _document(_heading(1, "Tides"), _heading(2, "Spring"), "Text.", title="Tides")
    assert _split(document)[0].prompt.startswith("Tides > Spring\n\n#")


@ALL
def test_a_context_over_a_quarter_of_the_limit_is_shortened_from_the_outside(tokenizer: Any) -> None:
    """Context takes at most a quarter of the limit: the title goes first, then outer headings, then all of it."""
    blocks = (_heading(1, "Part"), _heading(2, "Tide"), "The tide gauge. " * 60)
    roomy = _document(*blocks, title="tide " * 60)
    for chunk in _split(roomy, tokenizer, max_tokens=64):
        assert chunk.prompt == "Part > Tide\n\n" + chunk.text
    crowded = _document(_heading(1, "tide " * 60), _heading(2, "Tide"), "The tide gauge. " * 60)
    for chunk in _split(crowded, tokenizer, max_tokens=64)[1:]:
        assert chunk.prompt == "Tide\n\n" + chunk.text
    hopeless = _document(_heading(1, "tide " * 60), "The tide gauge. " * 60, title="gauge " * 60)
    for chunk in _split(hopeless, tokenizer, max_tokens=64)[1:]:
        assert chunk.prompt == chunk.text


@pytest.mark.parametrize("prefix", ["passage: ", "Document:", "search_document: "])
def test_the_models_prefix_begins_every_prompt(prefix: str) -> None:
    """The document prefix stands before the context, counts against the limit, and joins the ids as encoded whole."""
    tokenizer = _variant(document_prefix=prefix)
    with_title = _split(_document("Text of it. " * 60, title="A title"), tokenizer, max_tokens=48)
    assert all(chunk.prompt == f"{prefix}A title\n\n{chunk.text}" for chunk in with_title)
    without = _split(_document("Text of it. " * 60), tokenizer, max_tokens=48)
    assert all(chunk.prompt == prefix + chunk.text for chunk in without)


def test_the_prompt_hash_is_of_the_prompt() -> None:
    """Equal prompts have equal hashes; another context makes another."""
    text = "The same text."
    one, two = _document(text, title="One"), _document(text, title="Two")
    assert _split(one)[0].prompt_hash == _split(one)[0].prompt_hash
    assert _split(one)[0].prompt_hash != _split(two)[0].prompt_hash
    assert _split(one, context="none")[0].prompt_hash == _split(two, context="none")[0].prompt_hash


# --- overlap


@ALL
@pytest.mark.parametrize("overlap", [1, 8, 31])
def test_overlap_repeats_at_most_what_was_asked_for(tokenizer: Any, overlap: int) -> None:
    """A chunk begins with at most overlap_tokens of the chunk before it, from a word's begin on."""
    document = _document(" ".join(_prose(2, 8_000)).replace("\n", " "))
    chunks = _split(document, tokenizer, max_tokens=64, overlap_tokens=overlap)
    repeated = [
        document.text[following.start_char : chunk.end_char]
        for chunk, following in pairwise(chunks)
        if following.start_char < chunk.end_char
    ]
    # In the document each of these words has a blank before it, which is part of a byte-level token.
    assert all(len(tokenizer.encode([" " + text])[0].ids) <= overlap for text in repeated)
    assert all(not text[0].isspace() for text in repeated)
    if overlap >= 8:
        assert len(repeated) > len(chunks) / 2


def test_overlap_does_not_cross_sections() -> None:
    """The first chunk of a section repeats nothing of the section before it."""
    document = _document("Text of nothing. " * 30, _heading(1, "One"), "Text of one. " * 30)
    chunks = _split(document, max_tokens=32, overlap_tokens=8)
    first = next(chunk for chunk in chunks if chunk.section)
    assert first.text.startswith("# One")


# --- boundaries that stay put


def _new_prompts(before: Document, after: Document, **options: Any) -> int:
    """How many prompts a change makes that were not there before."""
    known = {chunk.prompt_hash for chunk in split(before, ChunkConfig(**options), MINILM)}
    assert len(known) > 100
    return len({chunk.prompt_hash for chunk in split(after, ChunkConfig(**options), MINILM)} - known)


NEW_LINE = "A new line stands here now, and nobody knows why."


def test_a_line_inserted_at_the_top_of_a_long_text_changes_few_chunks() -> None:
    """One line at the top of 300 kB of hard-wrapped text leaves all but a few prompts as they were."""
    paragraphs = _prose(11, 300_000)
    before = _document(*paragraphs)
    assert _new_prompts(before, _document(NEW_LINE, *paragraphs)) <= 3
    assert _new_prompts(before, _document(f"{NEW_LINE}\n{paragraphs[0]}", *paragraphs[1:])) <= 3
    assert _new_prompts(_document("\n".join(paragraphs)), _document("\n".join([NEW_LINE, *paragraphs]))) <= 3


def test_a_paragraph_inserted_on_page_one_of_a_hundred_changes_few_chunks() -> None:
    """In a PDF of 100 pages a new paragraph on the first leaves all but a few prompts as they were."""
    paragraphs = _prose(4, 250_000)[:500]
    blocks = [Block(text.replace("\n", " "), page=1 + number // 5) for number, text in enumerate(paragraphs)]
    assert blocks[-1].page == 100
    before = Document("a", "pdf", "A title", tuple(blocks), 100)
    inserted = Block(NEW_LINE, page=1)
    after = Document("a", "pdf", "A title", (*blocks[:2], inserted, *blocks[2:]), 100)
    assert _new_prompts(before, after) <= 3


def test_an_insertion_changes_one_chunk_mostly_and_many_never() -> None:
    """Over twenty different texts a line at the top changes two chunks on average at most, and never many."""
    changed = []
    for seed in range(20):
        paragraphs = _prose(seed, 60_000)
        changed.append(_new_prompts(_document(*paragraphs), _document(NEW_LINE, *paragraphs)))
    assert sum(changed) / len(changed) <= 2
    assert max(changed) <= 4


def test_a_change_at_the_end_leaves_everything_before_it() -> None:
    """Text added at the end changes the last chunk and adds new ones, no other."""
    paragraphs = _prose(5, 60_000)
    assert _new_prompts(_document(*paragraphs), _document(*paragraphs, NEW_LINE)) <= 2


def test_a_line_inserted_into_two_megabytes_of_wrapped_text_changes_three_chunks_at_most() -> None:
    """Wherever it is inserted, at the top, in the middle or near the end: all other chunks stay as they are."""
    lines = "\n".join(_prose(7, 2_000_000)).split("\n")
    before = _document("\n".join(lines))
    assert len(before.text) > 1_900_000
    for at in (0, 1, 4_321, len(lines) // 2, len(lines) - 9):
        after = _document("\n".join([*lines[:at], NEW_LINE, *lines[at:]]))
        assert 1 <= _new_prompts(before, after) <= 3


def test_a_line_inserted_on_top_of_a_pdf_of_400_pages_changes_three_chunks_at_most() -> None:
    """Pages hold their place: the file's other pages need no new vector."""
    pages = [" ".join(_prose(number, 1_800)).replace("\n", " ") for number in range(400)]
    before, after = (
        Document("a.pdf", "pdf", "", tuple(Block(text, page=number) for number, text in enumerate(texts, 1)), 400)
        for texts in (pages, [f"{NEW_LINE} {pages[0]}", *pages[1:]])
    )
    assert 1 <= _new_prompts(before, after) <= 3


# --- tables, long words, scripts without blanks


def test_a_long_table_is_cut_between_rows_and_its_header_goes_with_every_piece() -> None:
    """Further pieces have the header in their prompt, before their rows, and never in their span."""
    header = "| Station | Datum | Height |\n| --- | --- | --- |"
    rows = [f"| Pier {number} | {number * 37} mm above chart datum | {number * 11} |" for number in range(120)]
    table = Block("\n".join([header, *rows]), "table")
    document = Document("t.md", "markdown", "Heights", (Block("Before it.", page=None), table, Block("After it.")))
    chunks = _split(document)
    pieces = [chunk for chunk in chunks if "Pier" in chunk.text]
    assert len(pieces) > 5 and pieces[0].text.startswith(header)
    for piece in pieces[1:]:
        assert header not in piece.text and f"{header}\n{piece.text}" in piece.prompt
    for piece in pieces:
        assert all(line.startswith("|") and line.endswith("|") for line in piece.text.split("\n"))
    assert [row for piece in pieces for row in piece.text.split("\n") if "Pier" in row] == rows
    assert chunks[0].text == "Before it." and chunks[-1].text == "After it." and header not in chunks[-1].prompt


def test_a_word_of_five_thousand_letters_is_cut_into_pieces_of_bounded_length() -> None:
    """One token to a WordPiece model, it is cut all the same: no chunk is longer than a person would cite."""
    chunks = _split(_document("Before " + "abcdefghij" * 500 + " after"))
    assert len(chunks) >= 5 and max(len(chunk.text) for chunk in chunks) <= 1100
    assert "".join(chunk.text for chunk in chunks).replace(" ", "").count("abcdefghij") >= 490


def test_thai_is_cut_at_its_blanks_and_chinese_at_its_full_stops() -> None:
    """Scripts without blanks between words end their sentences in their own way, and chunks end there."""
    chinese = "".join(f"第{number}号站的仪器每天记录潮位三次。" for number in range(200))
    assert all(chunk.text.endswith("。") for chunk in _split(_document(chinese), max_tokens=64))
    thai = " ".join(f"สถานีที่{number}วัดระดับน้ำทุกหกชั่วโมง" for number in range(200))
    chunks = _split(_document(thai), max_tokens=64)
    assert len(chunks) > 5
    assert all(chunk.text.endswith("ชั่วโมง") and chunk.text.startswith("สถานี") for chunk in chunks)


def test_no_emoji_and_no_letter_with_its_marks_is_cut_in_two() -> None:
    """Families, skin tones, flags and combined marks stay whole."""
    for unit in ("👨‍👩‍👧‍👦", "👍🏽", "🇳🇴", "é̂", "❤️"):
        chunks = _split(_document(unit * 600), max_tokens=32)
        assert all(chunk.text == unit * (len(chunk.text) // len(unit)) for chunk in chunks)
