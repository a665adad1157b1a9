"""Clean: characters repaired once, so that nothing downstream can fail on text."""

import unicodedata
from typing import Literal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_pipeline.config import CleanConfig
from rag_pipeline.records import Block, Document
from rag_pipeline.stages.clean import clean


def _document(*texts: str, media_type: str = "markdown", kind: str = "paragraph", title: str = "") -> Document:
    return Document("a", media_type, title, tuple(Block(text, kind) for text in texts))


def _clean(text: str, media_type: str = "markdown", kind: str = "paragraph", **options: object) -> str:
    """The cleaned text of a document of one block."""
    return clean(_document(text, media_type=media_type, kind=kind), CleanConfig.model_validate(options)).text


@pytest.mark.parametrize(
    ("dirty", "tidy"),
    [
        ("a\x00b", "ab"),
        ("a\x01\x08\x0b\x0c\x1f\x7fb", "ab"),
        ("a\x80\x9fb", "ab"),
        ("a\ud800b\udfff", "ab"),
        ("\ufeffa\u200bb\u2060c", "abc"),
        ("a\tb", "a\tb"),
    ],
    ids=["nul", "c0", "c1", "surrogates", "zero-width", "tab"],
)
def test_characters_without_a_meaning_are_removed(dirty: str, tidy: str) -> None:
    """NULs, controls, lone surrogates and zero-width marks go; tabs stay."""
    assert _clean(dirty) == tidy


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r", "\x85", "\u2028", "\u2029"])
def test_line_ends_of_any_kind_become_newlines(line_end: str) -> None:
    """Every Unicode line end becomes one newline."""
    assert _clean(f"a{line_end}b") == "a\nb"


def test_letters_and_their_accents_are_composed() -> None:
    """Text is NFC by default: a letter and its combining mark become one character, compatible forms stay."""
    assert _clean("e\u0301 n\u0303") == "é ñ"
    assert _clean("x² ½ Ⅳ") == "x² ½ Ⅳ"


def test_nfkc_is_on_request() -> None:
    """With NFKC compatible forms are unified too."""
    assert _clean("x² ½ ﬁ Ａ", unicode_form="NFKC") == "x2 1⁄2 fi A"


@pytest.mark.parametrize(
    ("ligature", "letters"),
    [("ﬀ", "ff"), ("ﬁ", "fi"), ("ﬂ", "fl"), ("ﬃ", "ffi"), ("ﬄ", "ffl"), ("ﬅ", "st"), ("ﬆ", "st")],
)
def test_ligatures_are_expanded(ligature: str, letters: str) -> None:
    """Latin ligatures become their letters, so that words with them are found."""
    assert _clean(f"o{ligature}x") == f"o{letters}x"


@pytest.mark.parametrize("emoji", ["👨‍👩‍👧‍👦", "🏳️‍🌈", "👩🏽‍🚀", "1️⃣", "🇳🇴", "❤️"])
def test_emoji_sequences_stay_whole(emoji: str) -> None:
    """Zero-width joiners, variation selectors and skin tones inside emoji are kept."""
    assert _clean(f"a {emoji} b") == f"a {emoji} b"


@pytest.mark.parametrize("word", ["می‌خواهم", "क्‍ष", "กำ", "각"])
def test_joiners_that_spell_a_word_stay(word: str) -> None:
    """Joiners and non-joiners of Persian and Indic words, Thai vowels and Hangul are kept."""
    assert _clean(word) == unicodedata.normalize("NFC", word)


def test_soft_hyphens_are_removed() -> None:
    """A soft hyphen inside a word is a hint for line breaking, not a character."""
    assert _clean("in\u00addex\u00ading") == "indexing"


def test_no_break_spaces_become_spaces() -> None:
    """A no-break space is a space."""
    assert _clean("10\xa0km") == "10 km"


def test_trailing_blanks_go_and_indentation_stays() -> None:
    """Blanks at line ends and blank lines around a block go; blanks at line begins are its indentation."""
    assert _clean("\n  \n    a  \n\tb\t \n\n      c\u3000\n \n", kind="code") == "    a\n\tb\n\n      c"


@pytest.mark.parametrize("kind", ["paragraph", "heading"])
def test_wrapped_lines_of_a_pdf_are_joined(kind: str) -> None:
    """Lines of a PDF's paragraph or heading become one line, with single blanks."""
    assert _clean("  The level is\nmeasured  \n in the\twell.", "pdf", kind) == "The level is measured in the\twell."


def test_joining_lines_can_be_switched_off() -> None:
    """Without recipe.clean.join_lines a PDF's lines and hyphens stay."""
    assert _clean("mea-\nsured in\nthe well", "pdf", join_lines=False) == "mea-\nsured in\nthe well"


@pytest.mark.parametrize(
    ("wrapped", "joined"),
    [
        ("a mea-\nsured level", "a measured level"),
        ("stünd-\nlich", "stündlich"),
        ("in-\ndex-\ning", "indexing"),
        ("gepr\u00fcft, ge-\n\u00e4ndert", "geprüft, geändert"),
    ],
)
def test_words_hyphenated_over_a_line_end_are_joined_in_pdfs(wrapped: str, joined: str) -> None:
    """A hyphen at a line's end inside a lower-case word goes with the line end."""
    assert _clean(wrapped, "pdf") == joined


def test_a_soft_hyphen_at_a_line_end_joins_a_word_in_pdfs() -> None:
    """PDFs often hyphenate with soft hyphens; the word's halves belong together as with a plain one."""
    assert _clean("a mea\u00ad\nsured level", "pdf") == "a measured level"


@pytest.mark.parametrize(
    ("wrapped", "never"),
    [
        ("pages 10-\n20", "1020"),
        ("the Tide-\nStation", "TideStation"),
        ("the NATO-\nled fleet", "NATOled"),
        ("a state-of-the-\nart gauge", "theart"),
        ("either -\nor", "-or"),
    ],
)
def test_hyphens_that_belong_to_the_text_are_not_taken_for_wraps(wrapped: str, never: str) -> None:
    """Ranges, names, capitals and compounds that are hyphenated already do not melt into one word."""
    assert never not in _clean(wrapped, "pdf")
    assert "-" in _clean(wrapped, "pdf")


@pytest.mark.parametrize(
    ("wrapped", "joined"),
    [
        ("a state-of-the-\nart gauge", "a state-of-the-art gauge"),
        ("pages 10-\n20", "pages 10-20"),
        ("by e-\nmail", "by e-mail"),
        ("a GPT-\n3 model", "a GPT-3 model"),
        ("the Tide-\nStation", "the Tide-Station"),
        ("pre-\nand postwar", "pre- and postwar"),
        ("Vor-\nund Nachteile", "Vor- und Nachteile"),
        ("left-\nto-right", "left-to-right"),
        ("an exam\u2010\nple", "an example"),
        ("e\ufb03-\nciently", "efficiently"),
    ],
)
def test_hyphens_that_stay_lose_the_line_end_only(wrapped: str, joined: str) -> None:
    """Compounds, ranges, names and suspended hyphens come out as they would stand within a line."""
    assert _clean(wrapped, "pdf") == joined


@pytest.mark.parametrize(
    ("elsewhere", "wrapped", "joined"),
    [
        ("It is price-determining.", "a price-\ndetermining factor", "a price-determining factor"),
        ("The price is a determining factor.", "a price-\ndetermining factor", "a price-determining factor"),
        ("We pre-train it.", "then pre-\ntrain it", "then pre-train it"),
        ("Pretrain it.", "then pre-\ntrain it", "then pretrain it"),
        ("AN EXAMPLE", "THE EXAM-\nPLE", "THE EXAMPLE"),
        ("multi-language", "a multi-lan-\nguage text", "a multi-language text"),
        ("We pass the exam. Ple is no word here but once.", "for exam-\nple", "for example"),
        ("go in; directly", "in-\ndirectly", "indirectly"),
    ],
)
def test_the_documents_own_words_decide_over_a_hyphen(elsewhere: str, wrapped: str, joined: str) -> None:
    """The form a document has elsewhere wins; two of its longer words stay a compound."""
    document = _document(elsewhere, wrapped, media_type="pdf")
    assert clean(document, CleanConfig()).blocks[1].text == joined


def test_halves_of_divided_words_are_no_words() -> None:
    """What a line end divides does not prove that its halves are words."""
    document = _document("some cali-\nbrated gauge", "all cali-\nbrated gauges", media_type="pdf")
    assert clean(document, CleanConfig()).text == "some calibrated gauge\n\nall calibrated gauges"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("media_type", ["pdf", "markdown"])
@pytest.mark.parametrize(
    "text",
    [
        "a" + " " * 1_000_000 + "b",
        "a" + "\u0301\u0327" * 300_000 + "b",
        "-\n" * 300_000 + "b",
        "a-" * 300_000 + "\nb",
        "ab-\n" * 50_000 + "cd",
        "a" * 1_000_000 + "-\nb",
        "\u00ad \n" * 300_000 + "b",
        "\r\n \t" * 300_000 + "b",
    ],
    ids=["blanks", "marks", "hyphens", "compound", "divisions", "letters", "soft", "lines"],
)
def test_any_text_is_cleaned_in_linear_time(text: str, media_type: str) -> None:
    """Endless runs of blanks, marks or hyphens take no longer than other text of their length."""
    assert _clean(text, media_type).endswith("b" if text.endswith("b") else "d")


def test_metadata_is_cleaned_too() -> None:
    """Keys and values of metadata are repaired like the title."""
    document = Document("a", "markdown", "", (), metadata={"a\x00": "x\ud800 \n y"})
    assert clean(document, CleanConfig()).metadata == {"a": "x y"}


@pytest.mark.parametrize("media_type", ["markdown", "text", "html", "docx", "code"])
def test_lines_and_hyphens_of_markdown_and_text_stay(media_type: str) -> None:
    """Outside PDFs a line end and a hyphen before it are the author's own."""
    assert _clean("a mea-\nsured\nlevel", media_type) == "a mea-\nsured\nlevel"


@pytest.mark.parametrize("kind", ["code", "table", "list"])
def test_lines_of_code_tables_and_lists_stay_in_pdfs_too(kind: str) -> None:
    """Only paragraphs and headings are joined."""
    assert _clean("a-\nb\n  c", "pdf", kind) == "a-\nb\n  c"


def test_blocks_left_blank_are_dropped_and_the_others_keep_their_facts() -> None:
    """A block of nothing but blanks and controls goes; kind, level and page of the others stay."""
    blocks = (
        Block("# A\x00", "heading", 2, 3),
        Block("\x00\u200b \n", "paragraph", 0, 3),
        Block("\u3000\xa0", "code", 0, 4),
        Block("text ", "list", 0, 5),
    )
    document = Document("p.pdf", "pdf", "", blocks, pages=9, partial="cut", replaced_chars=2)
    cleaned = clean(document, CleanConfig())
    assert cleaned.blocks == (Block("# A", "heading", 2, 3), Block("text", "list", 0, 5))
    assert (cleaned.path, cleaned.media_type, cleaned.pages) == ("p.pdf", "pdf", 9)
    assert (cleaned.partial, cleaned.replaced_chars) == ("cut", 2)


def test_the_title_is_cleaned_to_one_line() -> None:
    """The title's characters are repaired like the text's and its lines joined."""
    assert clean(_document(title=" A\x00 \ufb01ne\xa0\n title\ud800 "), CleanConfig()).title == "A fine title"


def test_endless_headings_and_titles_are_cut_down() -> None:
    """A heading that goes on for pages is a paragraph, and a title has an end: both go with every chunk."""
    blocks = (Block("h " * 600, "heading", 1, 4), Block("short", "heading", 2))
    cleaned = clean(Document("a", "html", "t" * 5000, blocks), CleanConfig())
    assert [(block.kind, block.level, block.page) for block in cleaned.blocks] == [
        ("paragraph", 0, 4),
        ("heading", 2, None),
    ]
    assert len(cleaned.title) == 1000


def test_a_document_without_blocks_stays_without() -> None:
    """Nothing in, nothing out."""
    assert clean(_document(), CleanConfig()).blocks == ()


_ODD = st.text(
    st.one_of(
        st.characters(),
        st.characters(categories=["Cs", "Cc", "Cf", "Zs", "Mn"]),
        st.sampled_from("ab-\n\r\t \x85\u2028\xa0\u00ad\u200b\ufb01\u3000\u0301\u0327가가"),
    )
)
_FORMS = st.sampled_from(["NFC", "NFKC"])
_KINDS = st.sampled_from(["paragraph", "heading", "code", "list", "table"])


@settings(
    max_examples=300, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    st.lists(st.builds(Block, _ODD, _KINDS), max_size=4),
    _ODD,
    st.sampled_from(["pdf", "markdown", "text"]),
    _FORMS,
    st.booleans(),
)
def test_cleaning_is_complete_and_idempotent(
    blocks: list[Block], title: str, media_type: str, form: Literal["NFC", "NFKC"], join_lines: bool
) -> None:
    """Whatever comes in, the result is valid UTF-8 in the wanted form, holds no blank block, and stays as it is."""
    recipe = CleanConfig(unicode_form=form, join_lines=join_lines)
    cleaned = clean(Document("a", media_type, title, tuple(blocks)), recipe)
    assert clean(cleaned, recipe) == cleaned
    assert all(block.text.strip() for block in cleaned.blocks)
    for text in (cleaned.text, cleaned.title):
        text.encode("utf-8")
        assert unicodedata.is_normalized(form, text)
        assert not {"\x00", "\r", "\xa0", "\u00ad"} & set(text)
