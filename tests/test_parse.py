"""Parse: bytes of each media type to blocks in reading order, or a state that says why not."""

from pathlib import Path
from typing import Any

import pymupdf
import pytest
from conftest import parse_bytes as _parse
from conftest import state_of as _state
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_pipeline.config import MarkdownConfig, ParseConfig, PdfConfig
from rag_pipeline.records import Block, Document
from rag_pipeline.stages.parse import media_type_of

BROKEN = Path(__file__).parent.parent / "sample_docs" / "broken"
BODY = "Body text of some length stands here\nand goes on in a second line of its own."


def _markdown(text: str, front_matter: bool = True) -> Document:
    return _parse("a.md", text, ParseConfig(markdown=MarkdownConfig(front_matter=front_matter)))


def _kinds(document: Document) -> list[tuple[str, str]]:
    return [(block.kind, block.text) for block in document.blocks]


# --- which parser


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("a.pdf", "pdf"),
        ("deep/er/A.PDF", "pdf"),
        ("a.md", "markdown"),
        ("a.Markdown", "markdown"),
        ("v1.2.notes.md", "markdown"),
        ("a.txt", "text"),
        ("a.rst", "text"),
        ("server.log", "text"),
        ("table.csv", "text"),
        ("page.HTM", "html"),
        ("a.docx", "docx"),
        ("a.pptx", "pptx"),
        ("a.epub", "epub"),
        ("src/main.py", "code"),
        ("pyproject.toml", "code"),
        ("LICENSE", "text"),
        ("Makefile", "code"),
        ("folder.md/Makefile", "code"),
        ("folder.md/unknown", None),
        ("a.png", None),
        ("md", None),
    ],
)
def test_media_type_of_goes_by_the_last_extension(path: str, media_type: str | None) -> None:
    """The name's last extension names the media type, whatever its case; folders' names do not count."""
    assert media_type_of(path) == media_type


def test_an_unknown_type_is_skipped() -> None:
    """A file that nothing here parses is skipped:type."""
    assert _state("a.png", b"\x89PNG\r\n") == "skipped:type"
    assert _state("unknown", "text\n") == "skipped:type"


@pytest.mark.parametrize("path", ["a.md", "a.txt", "a.pdf", "a.docx"])
@pytest.mark.parametrize("data", [b"", b" \n\t\r\n "])
def test_a_file_without_anything_in_it_is_empty(path: str, data: bytes) -> None:
    """A file of no bytes, or of blanks alone, is `empty` whatever its name says."""
    assert _state(path, data) == "empty"


# --- Markdown


def test_headings_of_both_kinds_have_levels() -> None:
    """ATX and setext headings are headings with their depth; the text is the source's own lines."""
    document = _markdown("# One\n\nTwo\n===\n\ntext\n\nThree\n---\n\n###### Six ######\n")
    assert [(block.kind, block.level, block.text) for block in document.blocks] == [
        ("heading", 1, "# One"),
        ("heading", 1, "Two\n==="),
        ("paragraph", 0, "text"),
        ("heading", 2, "Three\n---"),
        ("heading", 6, "###### Six ######"),
    ]
    assert all(block.page is None for block in document.blocks)
    assert document.pages is None


@pytest.mark.parametrize(
    "code",
    [
        "```sh\n# no heading\nls\n```",
        "~~~\n# no heading\n\n```\n~~~",
        "````md\n```\n# no heading\n```\n````",
        "```\n# never closed\n\n## nor this",
    ],
)
def test_a_hash_inside_a_fence_is_no_heading(code: str) -> None:
    """Fences of backticks, of four backticks around three, of tildes and unclosed ones are one code block each."""
    assert _kinds(_markdown(f"# Title\n\n{code}\n")) == [("heading", "# Title"), ("code", code)]


def test_text_after_a_fence_is_text_again() -> None:
    """A closed fence ends its code block; a heading below it is a heading."""
    document = _markdown("```\n# a\n```\n# Real\n")
    assert _kinds(document) == [("code", "```\n# a\n```"), ("heading", "# Real")]


def test_indented_code_keeps_its_indentation() -> None:
    """A block of indented code keeps every line's indentation, the first line's too, and holds no headings."""
    code = "    def f():\n        # no heading\n\n        return 1"
    assert _kinds(_markdown(f"text\n\n{code}\n\nmore\n")) == [
        ("paragraph", "text"),
        ("code", code),
        ("paragraph", "more"),
    ]


def test_html_comments_are_dropped() -> None:
    """Comments on lines of their own are left out, headings inside them too; other HTML stays."""
    document = _markdown(
        "<!-- one -->\n\ntext\n\n<!-- two\n# not a heading\n-->\n\n<!-- a --> <!-- b -->\n\n<div>html</div>\n"
    )
    assert _kinds(document) == [("paragraph", "text"), ("paragraph", "<div>html</div>")]


def test_comments_inside_html_are_dropped() -> None:
    """A comment in a block of HTML goes, the block stays; one that never ends takes no text with it."""
    assert _markdown("<div>\n<!-- note -->\nkept</div>\n").text == "<div>\n\nkept</div>"
    assert "kept" in _markdown("text\n\n<!-- never ends\n\nkept\n").text


def test_footnotes_are_kept_and_link_targets_are_not() -> None:
    """A definition of where links lead is no text; a footnote is, even one of a single word."""
    document = _markdown("text[^1] and [link][l]\n\n[l]: http://example.org\n[^1]: Indeed\n[^2]: Two words.\n")
    assert "Indeed" in document.text
    assert "Two words." in document.text
    assert "example.org" not in document.text


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000,
        "[a](" * 10_000,
        "> " * 5_000 + "deep",
        "- " * 5_000 + "deep",
        "word " * 200_000,
        "# " + "*a" * 50_000,
        "<!-- a -->" * 3_000 + " text",
        "<!-- a " * 30_000,
        "`" * 100_000,
    ],
    ids=["brackets", "links", "quotes", "lists", "line", "emphasis", "comments", "unclosed", "ticks"],
)
@pytest.mark.timeout(10)
def test_hostile_markdown_costs_no_time_and_no_text(text: str) -> None:
    """Deep nesting and endless lines are read in well under seconds, with the text kept."""
    found = _markdown(text).text
    assert found.split() == text.replace("<!-- a -->", "").split()


def test_a_comment_that_shares_its_line_with_text_loses_no_text() -> None:
    """Text behind a comment on the same line is kept."""
    assert "kept" in _markdown("<!-- note --> kept\n").text
    assert "kept" in _markdown("kept <!-- note -->\n").text


def test_a_table_is_one_block() -> None:
    """A table is kept whole."""
    table = "| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 | 4 |"
    assert _kinds(_markdown(f"before\n\n{table}\n\nafter\n")) == [
        ("paragraph", "before"),
        ("table", table),
        ("paragraph", "after"),
    ]


@pytest.mark.parametrize(
    "items",
    ["- one\n  - two\n\n    a paragraph of two\n- three", "1. one\n   ```\n   # code\n   ```\n2. two", "* a\n* b"],
)
def test_a_list_is_one_block(items: str) -> None:
    """A list is kept whole with its nested items, paragraphs and fences."""
    assert _kinds(_markdown(f"before\n\n{items}\n\nafter\n")) == [
        ("paragraph", "before"),
        ("list", items),
        ("paragraph", "after"),
    ]


def test_a_quote_is_one_block_and_its_headings_are_not_sections() -> None:
    """A block quote is kept whole; a heading inside it opens no section."""
    assert _kinds(_markdown("> quote\n> # inside\n\ntext\n")) == [
        ("paragraph", "> quote\n> # inside"),
        ("paragraph", "text"),
    ]


def test_rules_between_blocks_are_left_out() -> None:
    """A thematic break is no text."""
    assert _kinds(_markdown("a\n\n***\n\nb\n")) == [("paragraph", "a"), ("paragraph", "b")]


def test_front_matter_gives_the_title_and_is_not_text() -> None:
    """The front matter's title wins over the first heading, and nothing of the front matter is in the text."""
    document = _markdown('---\ntitle: "The  *Title*"\ntags: [x]\n# a comment\n---\n\n# Heading\n\ntext\n')
    assert document.title == "The *Title*"
    assert document.text == "# Heading\n\ntext"


def test_front_matter_becomes_metadata() -> None:
    """Scalars and lists of front matter are kept as words; nested and empty fields and the title are not."""
    head = "title: T\ntags: [a, b c]\ndate: 2026-01-31\ndraft: false\nnested: {a: 1}\nnone:\nauthor: |\n  Ada\n  Holm"
    assert _markdown(f"---\n{head}\n---\ntext\n").metadata == {
        "tags": "a, b c",
        "date": "2026-01-31",
        "draft": "false",
        "author": "Ada Holm",
    }


def test_toml_front_matter_is_front_matter_too() -> None:
    """A TOML head between plus signs gives title and metadata."""
    document = _markdown('+++\ntitle = "T"\ntags = ["a", "b"]\nhuge = 0x' + "f" * 9000 + "\n+++\n\ntext\n")
    assert (document.title, document.text, document.metadata) == ("T", "text", {"tags": "a, b"})


def test_a_colon_inside_a_front_matter_value_costs_nothing() -> None:
    """Lines that are no YAML but plainly fields are read as fields."""
    document = _markdown("---\ntitle: Tides: a primer\nauthor: Ada\n---\n\ntext\n")
    assert (document.title, document.metadata, document.text) == ("Tides: a primer", {"author": "Ada"}, "text")


@pytest.mark.parametrize(
    "prose", ["Just prose.", "Note the following: it is prose.\nIts second line.", "a: b: c\nprose", "- a\n- list"]
)
def test_prose_between_two_rules_is_no_front_matter(prose: str) -> None:
    """A document that begins with a rule loses no text up to its next rule."""
    assert prose in _markdown(f"---\n\n{prose}\n\n---\n\nmore\n").text


def test_a_yaml_bomb_in_front_matter_is_defused() -> None:
    """Aliases that would unfold to billions of words are neither unfolded nor an error."""
    head = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
    document = _markdown(f"---\n{head}---\n\ntext\n")
    assert (document.text, document.metadata) == ("text", {"a0": "x, x"})


def test_front_matter_can_be_kept_as_text() -> None:
    """With front_matter off, its lines are text like any other and the first heading gives the title."""
    document = _markdown("---\ntitle: x\n---\n\n# Heading\n", front_matter=False)
    assert "title: x" in document.text
    assert document.title == "Heading"


@pytest.mark.parametrize(
    "lines", ["title: [", "title: 2020-13-45", "date: 2023-02-30", "title:", "# a", "title: &a [*a]", "\tx: y"]
)
def test_odd_front_matter_is_not_text(lines: str) -> None:
    """Front matter that is no YAML, holds an impossible date or has no title leaves the document as it is."""
    document = _markdown(f"---\n{lines}\n---\n\n# Heading\n\ntext\n")
    assert document.text == "# Heading\n\ntext"


def test_the_title_is_the_first_heading_of_level_one_without_markup() -> None:
    """Emphasis, code, links and entities leave their words in the title."""
    document = _markdown("## Not this\n\n# One `code` and *em* [link](http://example.org) **b**\n\n# Other\n")
    assert document.title == "One code and em link b"


def test_without_any_heading_there_is_no_title() -> None:
    """The title never comes from the file's name."""
    assert _markdown("just text\n").title == ""


def test_line_ends_of_any_kind_are_newlines() -> None:
    """CRLF and lone CR line ends give the blocks that LF gives."""
    text = "# A\n\npara\nline\n\n```\n# code\n```\n\n- a\n- b\n"
    expected = _markdown(text)
    assert _markdown(text.replace("\n", "\r\n")) == expected
    assert _markdown(text.replace("\n", "\r")) == expected


def test_separators_that_are_no_line_ends_do_not_shift_lines() -> None:
    """Form feeds and Unicode separators inside lines leave every later block in its place."""
    document = _markdown("a\x0cb\n\nc\u2028d\x0be\u0085f\n\ng\x1ch\n\n# Last\n")
    assert document.blocks[-1] == Block("# Last", "heading", 1)
    assert len(document.blocks) == 4


def test_markdown_with_a_byte_order_mark_has_front_matter() -> None:
    """A byte order mark before the front matter hides neither it nor the text."""
    document = _markdown("\ufeff---\ntitle: x\n---\n\ntext\n")
    assert (document.title, document.text) == ("x", "text")


_SNIPPETS = [
    "# Heading one",
    "Setext\n------",
    "A paragraph of\ntwo lines.",
    "```py\n# code\n\nx = 1\n```",
    "~~~\nraw\n~~~",
    "- a\n- b\n  - c",
    "1. x\n2. y",
    "| h | i |\n|---|---|\n| 1 | 2 |",
    "> quote",
    "<div>html</div>",
    "潮汐 🌊 text",
    "## Two",
]


@settings(max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(_SNIPPETS), min_size=1, max_size=12), st.integers(1, 3))
def test_blocks_are_slices_of_the_source_in_order(snippets: list[str], blank_lines: int) -> None:
    """Whatever stands next to what, blocks are the source's own lines, in order, and no word is left out."""
    text = ("\n" * (blank_lines + 1)).join(snippets)
    position = 0
    kept = []
    for block in _markdown(text).blocks:
        found = text.index(block.text, position)
        assert not text[position:found].strip()
        position = found + len(block.text)
        kept.extend(block.text.split())
    assert kept == text.split()


# --- plain text


def test_blank_lines_and_form_feeds_separate_paragraphs() -> None:
    """Paragraphs end at blank lines, lines of blanks alone and form feeds; their own lines stay."""
    document = _parse("a.txt", "one\n  two\n\n \t\n\nthree\x0cfour\n")
    assert [block.text for block in document.blocks] == ["one\n  two", "three", "four"]
    assert {(block.kind, block.level, block.page) for block in document.blocks} == {("paragraph", 0, None)}
    assert (document.media_type, document.title, document.pages) == ("text", "", None)


def test_the_first_line_of_a_paragraph_keeps_its_indentation() -> None:
    """An indented paragraph, such as code in plain text, is indented alike in all its lines."""
    document = _parse("a.txt", "    if a:\n        b\n\n    else:\n        c\n")
    assert [block.text for block in document.blocks] == ["    if a:\n        b", "    else:\n        c"]


def test_text_is_not_read_as_markdown() -> None:
    """A hash at a line's begin in plain text is no heading."""
    assert _kinds(_parse("a.txt", "# not a heading\n")) == [("paragraph", "# not a heading")]


def test_crlf_text_has_the_paragraphs_of_lf_text() -> None:
    """Line ends of any kind give the same paragraphs."""
    text = "one\ntwo\n\nthree\n"
    assert _parse("a.txt", text.replace("\n", "\r\n")) == _parse("a.txt", text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_are_read_and_left_out(encoding: str) -> None:
    """UTF-8, and UTF-16 and UTF-32 with their mark, give the same text without the mark."""
    document = _parse("a.txt", "Größe 潮汐 🌊\n\nmore".encode(encoding))
    assert document.text == "Größe 潮汐 🌊\n\nmore"
    assert document.replaced_chars == 0


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("path", ["a.txt", "a.md", "a.py", "a.html"])
def test_utf16_without_its_mark_is_recognized(path: str, encoding: str) -> None:
    """UTF-16 without a byte order mark is told by its NULs."""
    document = _parse(path, "Größe and some more words, 潮汐".encode(encoding))
    assert (document.text, document.replaced_chars) == ("Größe and some more words, 潮汐", 0)


def test_a_few_nuls_do_not_unmake_a_text() -> None:
    """A log with a run of NULs, as a crash leaves them, is still a text."""
    text = "12:00 all is well on the tide gauge\n" * 20
    assert _parse("a.log", text + "\x00" * 20 + text).text.count("tide gauge") == 40


def test_text_over_the_limit_is_too_large() -> None:
    """A file with more characters than recipe.parse.max_text_mb is skipped:too_large; the limit itself is allowed."""
    recipe = ParseConfig(max_text_mb=0.001)
    assert _parse("a.txt", "ü" * 1000, recipe).text == "ü" * 1000
    for path in ("a.txt", "a.md", "a.py", "a.html"):
        assert _state(path, "ü" * 1001, recipe) == "skipped:too_large"


def test_big_endian_utf16_is_read() -> None:
    """UTF-16 with a big-endian mark is decoded in its own byte order."""
    assert _parse("a.txt", b"\xfe\xff" + "Größe".encode("utf-16-be")).text == "Größe"


_GERMAN = (
    "Der Pegel wird jeden Morgen um sieben Uhr abgelesen und in das Buch eingetragen. Wer ihn abliest, schreibt"
    " seinen Namen dazu. Bei Sturm wird stündlich abgelesen, auch in der Nacht. Das Gerät wird täglich geprüft."
)
_FRENCH = (
    "Le café du port est très agréable. L'été, à la plage, les vagues étaient élevées; la météo annonçait déjà"
    " la tempête. Voilà une phrase assez longue pour être devinée."
)
_RUSSIAN = "Станция наблюдает уровень моря каждый день, и записывает его в журнал. Это обычный русский текст."
_CHINESE = "潮汐观测站记录海平面的高度，并将其写入日志。这是一段普通的中文文本。"
_JAPANESE = "潮位観測所は海面の高さを記録し、日誌に書き込みます。これは普通の日本語の文章です。"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (_GERMAN, "latin-1"),
        (_FRENCH, "latin-1"),
        (_RUSSIAN, "cp1251"),
        (_CHINESE, "gb18030"),
        (_JAPANESE, "shift_jis"),
    ],
    ids=["german", "french", "russian", "chinese", "japanese"],
)
def test_legacy_encodings_are_guessed(text: str, encoding: str) -> None:
    """Text in the usual legacy encoding of its language is read as what it says."""
    document = _parse("a.txt", text.encode(encoding))
    assert document.text == text
    assert document.replaced_chars == 0


@pytest.mark.parametrize(("text", "encoding"), [(_JAPANESE, "shift_jis"), (_JAPANESE, "euc_jp"), (_CHINESE, "gb18030")])
@pytest.mark.parametrize("begin", ["x", "xy\n"])
def test_long_legacy_texts_are_guessed_from_whole_words(text: str, encoding: str, begin: str) -> None:
    """Where the guess looks at a piece of a long text, no character is cut in two."""
    whole = begin + f"{text}\n" * 5_000
    assert _parse("a.txt", whole.encode(encoding)).text == whole.rstrip()


def test_few_legacy_letters_in_much_plain_text_are_guessed_too() -> None:
    """Letters that UTF-8 cannot be are no damage to it where nothing else in the text is UTF-8."""
    whole = "plain text of tide gauges.\n" * 2_000 + _FRENCH
    assert _parse("a.txt", whole.encode("latin-1")).text == whole


def test_a_few_bad_bytes_in_utf8_are_replaced_and_counted() -> None:
    """A UTF-8 text with a few broken bytes stays UTF-8; what was replaced is counted."""
    document = _parse("a.txt", ("guter Text, größer als nötig " * 200).encode() + b"\xff end")
    assert document.replaced_chars == 1
    assert document.text.startswith("guter Text, größer")
    assert document.text.endswith("\ufffd end")


@pytest.mark.parametrize("path", ["a.txt", "a.md"])
@pytest.mark.parametrize(
    "data",
    [b"a\x00b", b"\x7fELF\x02\x01\x01\x00\x00\x00", b"\x00\x00\x01\x02" * 400, b"PK\x03\x04" + bytes(range(256))],
    ids=["nul", "elf", "numbers", "zip"],
)
def test_binary_files_are_no_text(path: str, data: bytes) -> None:
    """Bytes that are controls in good part are failed:encoding, not a text full of NULs."""
    assert _state(path, data) == "failed:encoding"


def test_a_short_text_with_bytes_of_no_encoding_keeps_its_words() -> None:
    """Where no legacy encoding fits either, a few bad bytes are replaced and counted, and many are failed:encoding."""
    words = "größer als nötig " * 6
    document = _parse("a.txt", words.encode() + b"\xff\x81\x81")
    assert (document.text[:16], document.replaced_chars) == ("größer als nötig", 3)
    assert _state("a.txt", words.encode() + b"\xff\x81\x81" * 20) == "failed:encoding"


def test_random_bytes_are_no_text() -> None:
    """A text file of mostly undecodable bytes fails rather than being indexed as garbage."""
    data = bytes((index * 197 + index * index * 31) % 255 + 1 for index in range(4000))
    assert _state("a.txt", data) == "failed:encoding"


# --- PDF


def _pdf(*pages: list[tuple[str, float]], toc: list[list[Any]] | None = None, title: str = "", **save: Any) -> bytes:
    """A PDF with text blocks of (text, type size) from top to bottom of each page."""
    with pymupdf.open() as document:
        for blocks in pages:
            page, y = document.new_page(), 72.0
            for text, size in blocks:
                for line in text.split("\n"):
                    page.insert_text((72, y), line, fontsize=size)
                    y += size * 1.2
                y += 30
        if toc:
            document.set_toc(toc)
        document.set_metadata({"title": title})
        return bytes(document.tobytes(**save))


def _sections(document: Document) -> list[tuple[str, int, int | None]]:
    return [(block.text, block.level, block.page) for block in document.blocks if block.kind == "heading"]


def test_pages_and_headings_by_type_size() -> None:
    """Larger type makes headings, larger still the outer ones; every block knows its page."""
    data = _pdf([("Chapter One", 24), (BODY, 11), ("A section", 16), (BODY, 11)], [("Another", 16), (BODY, 11)])
    document = _parse("a.pdf", data)
    assert (document.media_type, document.pages, document.partial) == ("pdf", 2, "")
    assert _sections(document) == [("Chapter One", 1, 1), ("A section", 2, 1), ("Another", 2, 2)]
    body = [block for block in document.blocks if block.kind == "paragraph"]
    assert [(block.text, block.page) for block in body] == [(BODY, 1), (BODY, 1), (BODY, 2)]


def test_headings_by_size_can_be_switched_off() -> None:
    """Without recipe.parse.pdf.headings large type is text like any other."""
    recipe = ParseConfig(pdf=PdfConfig(headings=False))
    document = _parse("a.pdf", _pdf([("Chapter One", 24), (BODY, 11)]), recipe)
    assert _kinds(document) == [("paragraph", "Chapter One"), ("paragraph", BODY)]


def test_text_of_one_size_has_no_headings() -> None:
    """A PDF in one type size is all paragraphs."""
    assert _sections(_parse("a.pdf", _pdf([("Short line", 11), (BODY, 11)]))) == []


@pytest.mark.parametrize("by_size", [True, False])
def test_the_outline_names_the_headings(by_size: bool) -> None:
    """Where a PDF has an outline, its entries are the headings, with their levels, whatever the type size."""
    data = _pdf(
        [("Chapter One", 11), (BODY, 11), ("A Section", 11), (BODY, 11)],
        [("Large but no heading", 20), (BODY, 11)],
        toc=[[1, "Chapter  one", 1], [2, "A Section", 1], [1, "Not on this page", 2]],
    )
    document = _parse("a.pdf", data, ParseConfig(pdf=PdfConfig(headings=by_size)))
    assert _sections(document) == [("Chapter One", 1, 1), ("A Section", 2, 1)]


def test_the_title_comes_from_the_metadata() -> None:
    """A PDF's title is its metadata's, blanks squeezed; without one the first page's largest type, never the name."""
    assert _parse("a.pdf", _pdf([("Heading", 24), (BODY, 11)], title=" A  title ")).title == "A title"
    assert _parse("name-of-file.pdf", _pdf([("Heading", 24), (BODY, 11)])).title == "Heading"
    assert _parse("name-of-file.pdf", _pdf([(BODY, 11)])).title == ""


def _locked(**passwords: str) -> bytes:
    return _pdf([(BODY, 11)], encryption=pymupdf.PDF_ENCRYPT_AES_256, **passwords)


def test_a_user_password_is_needed_and_used() -> None:
    """A PDF with a user password is failed:encrypted unless the recipe holds the right one."""
    data = _locked(user_pw="user", owner_pw="owner")
    assert _state("a.pdf", data) == "failed:encrypted"
    assert _state("a.pdf", data, ParseConfig(pdf=PdfConfig(password="wrong"))) == "failed:encrypted"
    assert _parse("a.pdf", data, ParseConfig(pdf=PdfConfig(password="user"))).text == BODY


def test_an_owner_password_alone_does_not_hinder_reading() -> None:
    """A PDF that anyone may open is read without a password."""
    assert _parse("a.pdf", _locked(owner_pw="owner")).text == BODY


def test_a_password_in_the_recipe_does_not_disturb_open_files() -> None:
    """A password that a PDF does not ask for is not used."""
    recipe = ParseConfig(pdf=PdfConfig(password="user"))
    assert _parse("a.pdf", _pdf([(BODY, 11)]), recipe).text == BODY


def test_a_pdf_of_pictures_is_no_text() -> None:
    """A page with nothing but an image, or with nothing at all, gives no_text."""
    with pymupdf.open() as document:
        picture = pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 40, 40))
        picture.clear_with(200)
        page = document.new_page()
        page.insert_image(page.rect, pixmap=picture)
        assert _state("a.pdf", bytes(document.tobytes())) == "no_text"
    assert _state("a.pdf", _pdf([])) == "no_text"
    assert _state("a.pdf", (BROKEN / "scan-image-only.pdf").read_bytes()) == "no_text"


def test_a_web_page_named_pdf_is_a_web_page() -> None:
    """HTML under a PDF's name is parsed as the HTML it is; other bytes there are failed:parse."""
    document = _parse("a.pdf", "<html><body><p>Not a PDF</p></body></html>")
    assert (document.media_type, document.text) == ("html", "Not a PDF")
    assert _state("a.pdf", "just words") == "failed:parse"


def test_a_pdf_cut_short_is_partial() -> None:
    """A PDF whose end is missing gives the text that is left, and says that some may be missing."""
    document = _parse("a.pdf", (BROKEN / "truncated.pdf").read_bytes())
    assert "cut short" in document.partial
    assert document.blocks


@pytest.mark.parametrize("data", [b"%PDF-1.7\n", b"%PDF-1.4 and nothing of use\n" * 20])
def test_a_pdf_of_which_nothing_is_left_fails(data: bytes) -> None:
    """A PDF's first line alone is failed:parse."""
    assert _state("a.pdf", data) == "failed:parse"


@pytest.mark.parametrize("path", ["a.txt", "a.md", "a", "a.docx"])
def test_a_pdf_is_a_pdf_under_any_name(path: str) -> None:
    """Magic bytes win over the name."""
    document = _parse(path, _pdf([(BODY, 11)]))
    assert (document.media_type, document.text) == ("pdf", BODY)


def test_junk_before_the_header_is_allowed() -> None:
    """A PDF's magic bytes may stand a little after its begin, as other readers allow."""
    assert _parse("a.pdf", b"junk from a mail gateway\n" + _pdf([(BODY, 11)])).text == BODY


@pytest.mark.parametrize("path", ["a.md", "a.txt"])
def test_a_text_that_speaks_of_pdfs_is_no_pdf(path: str) -> None:
    """A text that mentions the magic bytes is read as the text it is."""
    text = "A PDF begins with `%PDF-1.7`; check for it before you parse."
    assert _parse(path, text).text == text
