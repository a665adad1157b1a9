"""Formats beside PDF and Markdown: HTML, DOCX, PPTX, EPUB and source code, told by content and read from real files."""

import copy
import functools
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import docx
import pptx
import pytest
from conftest import parse_bytes as _parse
from conftest import state_of as _state
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pptx.util import Inches

from rag_pipeline.config import ParseConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.records import Document


def _kinds(document: Document) -> list[tuple[str, str]]:
    return [(block.kind, block.text) for block in document.blocks]


def _zip(members: dict[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _with_members(data: bytes, changed: dict[str, str | bytes]) -> bytes:
    """An archive with some members replaced."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members: dict[str, str | bytes] = {name: archive.read(name) for name in archive.namelist()}
    return _zip(members | changed)


@functools.cache
def _word(title: str = "Report") -> bytes:
    document = docx.Document()
    document.core_properties.title = title
    document.core_properties.author = "Ada Holm"
    document.add_heading("Tides", 1)
    document.add_paragraph("The level of *the sea* is a_b.")
    document.add_heading("Gauges", 2)
    for item in ("one", "two"):
        document.add_paragraph(item, style="List Bullet")
    for item in ("first", "second"):
        document.add_paragraph(item, style="List Number")
    table = document.add_table(2, 2)
    for row, column, text in ((0, 0, "name"), (0, 1, "a|b"), (1, 0, "Ada"), (1, 1, "x\ny")):
        table.cell(row, column).text = text
    buffer = io.BytesIO()
    document.save(buffer)
    return buffer.getvalue()


@functools.cache
def _slides() -> bytes:
    deck = pptx.Presentation()
    first = deck.slides.add_slide(deck.slide_layouts[1])
    first.shapes.title.text = "Storm surge"
    body = first.placeholders[1].text_frame
    body.text = "Wind"
    nested = body.add_paragraph()
    nested.text, nested.level = "from the west", 1
    first.notes_slide.notes_text_frame.text = "Say it slowly."
    deck.slides.add_slide(deck.slide_layouts[6])
    third = deck.slides.add_slide(deck.slide_layouts[6])
    number = copy.deepcopy(deck.slide_layouts[6].placeholders[2]._element)
    third.shapes._spTree.append(number)
    next(shape for shape in third.shapes if shape.is_placeholder).text_frame.text = "No text of the slide"
    group = third.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = "In a group"
    table = third.shapes.add_table(2, 2, 0, 0, Inches(2), Inches(1)).table
    table.cell(0, 0).text, table.cell(0, 1).text, table.cell(1, 0).text = "gauge", "cm", "north"
    buffer = io.BytesIO()
    deck.save(buffer)
    return buffer.getvalue()


_CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
_PACKAGE = """<?xml version="1.0"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The  Tides</dc:title><dc:creator>Ada Holm</dc:creator>
<dc:creator>Tove Brandsen</dc:creator><dc:language>en</dc:language></metadata>
<manifest><item id="toc" href="toc.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="two" href="text/two.xhtml" media-type="application/xhtml+xml"/>
<item id="one" href="text/chapter%20one.xhtml" media-type="application/xhtml+xml"/></manifest>
<spine><itemref idref="toc"/><itemref idref="one"/><itemref idref="two"/></spine></package>"""
_CHAPTER = '<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml"><body>{}</body></html>'


def _book(**changed: str | bytes) -> bytes:
    members: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": _CONTAINER,
        "OEBPS/book.opf": _PACKAGE,
        "OEBPS/toc.xhtml": _CHAPTER.format("<nav><ol><li>One</li></ol></nav><p>contents</p>"),
        "OEBPS/text/two.xhtml": _CHAPTER.format("<h1>Two</h1><p>second</p>"),
        "OEBPS/text/chapter one.xhtml": _CHAPTER.format("<h1>One</h1><p>first, größer</p>"),
    }
    return _zip(members | changed)


# --- which parser


@pytest.mark.parametrize("path", ["a.pdf", "a.md", "unknown"])
@pytest.mark.parametrize(
    ("data", "media_type"),
    [(_word(), "docx"), (_slides(), "pptx"), (_book(), "epub")],
    ids=["docx", "pptx", "epub"],
)
def test_an_archive_is_what_it_holds_under_any_name(data: bytes, media_type: str, path: str) -> None:
    """Word, PowerPoint and EPUB files are told by their members, whatever the name."""
    assert _parse(path, data).media_type == media_type


@pytest.mark.parametrize(
    "page",
    [
        "<!DOCTYPE html><p>text",
        "<html><body><p>text</p></body></html>",
        "\n <!-- saved --> <!doctype HTML>\n<p>text</p>",
        '\ufeff<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml"><p>text</p></html>',
    ],
)
@pytest.mark.parametrize("path", ["a.pdf", "a.txt", "a.md", "a.docx", "unknown"])
def test_a_page_is_a_page_under_any_name(page: str, path: str) -> None:
    """A doctype or root element at the begin makes a file HTML, after a mark, a declaration or comments."""
    document = _parse(path, page)
    assert (document.media_type, document.text) == ("html", "text")


def test_a_page_in_utf16_is_recognized() -> None:
    """A page saved as UTF-16 is told by its first characters too."""
    assert _parse("a.pdf", "<html><p>größer".encode("utf-16")).text == "größer"


def test_text_and_code_that_hold_html_are_not_pages() -> None:
    """HTML inside a text, and templates in source code, do not make them pages."""
    assert _parse("a.md", "Use `<html>` first.").media_type == "markdown"
    assert _parse("a.php", "<!DOCTYPE html>\n<?php echo 1;").media_type == "code"


@pytest.mark.parametrize("path", ["a.docx", "a.pptx", "a.epub"])
@pytest.mark.parametrize("data", [b"just words", _zip({"a.txt": "x"}), _word()[:3000], b"PK\x03\x04junk"])
def test_what_is_no_office_file_fails(path: str, data: bytes) -> None:
    """Words, other archives and archives cut short under such a name are failed:parse."""
    assert _state(path, data) == "failed:parse"


def test_old_and_encrypted_office_files_say_so() -> None:
    """An old binary Office file is failed:parse, one with a password failed:encrypted; as .doc it is skipped."""
    old = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 600
    assert _state("a.docx", old) == "failed:parse"
    assert _state("a.doc", old) == "skipped:type"
    assert _state("a.docx", old + "EncryptedPackage".encode("utf-16-le")) == "failed:encrypted"


# --- HTML


def test_what_a_reader_sees_is_kept_in_order() -> None:
    """Headings, paragraphs, line breaks and code are blocks; scripts, styles, navigation and hidden parts are not."""
    document = _parse(
        "a.html",
        """<html lang="en"><head><title> The
        page </title><style>p {}</style><meta name="author" content="Ada"></head><body>
        <nav><a href="/">Home</a></nav><script>var x = "<p>no</p>";</script><h1><div>Big <em>head</em></div></h1>
        loose <a href="http://example.org">link</a>
        text<p>one<br>two<p>snake_case *not bold* &lt;b&gt; &amp;c<div hidden>no<div>no</div></div>
        <div style="display: none">no</div><h2>Code</h2><pre>  a\n\n    b</pre>
        <blockquote>quoted</blockquote><!-- no --><img src="x.png" alt="A gauge"> end</body></html>""",
    )
    assert _kinds(document) == [
        ("heading", "Big head"),
        ("paragraph", "loose link text"),
        ("paragraph", "one\ntwo"),
        ("paragraph", "snake_case *not bold* <b> &c"),
        ("heading", "Code"),
        ("code", "  a\n\n    b"),
        ("paragraph", "quoted"),
        ("paragraph", "A gauge end"),
    ]
    assert [block.level for block in document.blocks if block.kind == "heading"] == [1, 2]
    assert (document.title, document.metadata) == ("The page", {"language": "en", "author": "Ada"})


def test_an_empty_heading_makes_no_heading_of_what_follows() -> None:
    """A heading ends with its element, even one without text."""
    assert _kinds(_parse("a.html", "<h2> </h2>text<pre><div>a</div><div>b</div></pre>")) == [
        ("paragraph", "text"),
        ("code", "a\nb"),
    ]


def test_a_page_without_title_takes_its_first_heading() -> None:
    """Without a title element the first heading of level one is the title."""
    assert _parse("a.html", "<h2>Not</h2><h1>This  one</h1><h1>Other</h1>").title == "This one"


def test_lists_keep_their_nesting() -> None:
    """A list is one block; nested items are indented, numbers count on, paragraphs stay with their item."""
    document = _parse(
        "a.html",
        "<ul><li>a<ul><li>a1<p>more</p></li><li>a2</ul>tail<li><p>b</p></ul><p>x<ol start=3><li>c<li>d"
        "<pre>if x:\n  y</pre></ol>",
    )
    assert _kinds(document) == [
        ("list", "- a\n  - a1\n    more\n  - a2\n  tail\n- b"),
        ("paragraph", "x"),
        ("list", "3. c\n4. d\n  if x:\n    y"),
    ]


def test_tables_become_rows() -> None:
    """A table is one block of rows, its caption before it; bars in cells are escaped, empty rows left out."""
    document = _parse(
        "a.html",
        "<table><caption>Levels</caption><thead><tr><th>gauge<th>a|b</thead><tr><td>north<td><p>1</p><p>2</p>"
        "<tr><td><td><tr><td>south</table>after",
    )
    assert _kinds(document) == [
        ("paragraph", "Levels"),
        ("table", "| gauge | a\\|b |\n|---|---|\n| north | 1 2 |\n| south |"),
        ("paragraph", "after"),
    ]


def test_tables_that_lay_out_a_page_are_taken_apart() -> None:
    """A table of headings and other tables is no data: what its cells hold comes in order."""
    document = _parse(
        "a.html", "<table><tr><td><h2>Left</h2>text<td><table><tr><td>a<td>b</table></table><table><tr><td>one</table>"
    )
    assert _kinds(document) == [
        ("heading", "Left"),
        ("paragraph", "text"),
        ("table", "| a | b |\n|---|---|"),
        ("paragraph", "one"),
    ]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("<meta charset=utf-8><p>größer", "größer"),
        ("<p>größer", "größer"),
        ("\ufeff<meta charset=latin-1><p>größer", "größer"),
        ('<meta charset="windows-1251"><p>уровень'.encode("cp1251"), "уровень"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=Shift_JIS"><p>潮位'.encode("cp932"), "潮位"),
        ('<?xml version="1.0" encoding="iso-8859-1"?><html><p>größer'.encode("latin-1"), "größer"),
        ("<meta charset=utf-16><p>größer", "größer"),
        ("<meta charset=nonsense><p>größer", "größer"),
        ("<meta charset=unicode_escape><p>gr\\u00f6", "gr\\u00f6"),
        ("<meta charset=ascii><p>größer", "größer"),
    ],
)
def test_the_encoding_comes_from_mark_declaration_or_bytes(data: str | bytes, text: str) -> None:
    """A byte order mark wins, then a declaration of an encoding that pages have, then UTF-8."""
    document = _parse("a.html", data)
    assert (document.text, document.replaced_chars) == (text, 0)


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    "page",
    [
        "<div>" * 50_000 + "kept",
        "<ul><li>" * 5_000 + "kept",
        "<table><tr><td>" * 5_000 + "kept",
        "<b>" * 100_000 + "kept",
        "<p>" * 20_000 + "kept",
        "<" * 500_000 + "<p>kept",
        "<a " + "x=1 " * 200_000 + ">kept",
        "</td></table></ul></pre>" * 10_000 + "kept",
        "&#x110000; &#xd800; \x01 \ufffe kept",
    ],
    ids=["depth", "lists", "tables", "inline", "flat", "angles", "attributes", "ends", "characters"],
)
def test_hostile_pages_cost_no_time_and_no_text(page: str) -> None:
    """Depth, broken markup and forbidden characters are read in well under seconds, with the text kept."""
    assert "kept" in _parse("a.html", page).text


_MARKUP = (
    "<p> <div> </div> <ul> <ol> <li> </ul> <table> <tr> <td> <th> </td> </table> <h2> </h2> <pre> </pre> <br> "
    "<caption> </p> </li> <nav> </nav> <b> </html> <body> <select> <option> <!-- --> &amp; word"
)


@settings(
    max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.lists(st.sampled_from(_MARKUP.split(" ")), max_size=25))
def test_any_markup_gives_blocks_that_say_something(parts: list[str]) -> None:
    """Whatever tags stand next to what, parsing ends with blocks that are not blank, and no number doubles."""
    words = [f"w{index}x{part}" if part == "word" else part for index, part in enumerate(parts)]
    document = _parse("a.html", "<html>" + "".join(words))
    assert all(block.text.strip() for block in document.blocks)
    for word in (word for word in words if word.startswith("w")):
        assert document.text.count(word) <= 1


# --- DOCX


def test_a_word_file_has_headings_lists_and_tables() -> None:
    """Headings by style, lists with marks or numbers, tables as rows; title and author from the properties."""
    document = _parse("a.docx", _word())
    assert _kinds(document) == [
        ("heading", "Tides"),
        ("paragraph", "The level of *the sea* is a_b."),
        ("heading", "Gauges"),
        ("list", "- one\n- two"),
        ("list", "1. first\n2. second"),
        ("table", "| name | a\\|b |\n|---|---|\n| Ada | x y |"),
    ]
    assert [block.level for block in document.blocks] == [1, 0, 2, 0, 0, 0]
    assert (document.title, document.metadata["author"], document.pages) == ("Report", "Ada Holm", None)


def test_a_title_that_word_made_up_is_none() -> None:
    """A placeholder in the properties gives way to the first heading."""
    assert _parse("a.docx", _word(title="Word Document")).title == "Tides"


def test_a_word_file_without_text_is_no_text() -> None:
    """A Word file of nothing but blanks gives no_text."""
    document = docx.Document()
    document.add_paragraph("  ")
    buffer = io.BytesIO()
    document.save(buffer)
    assert _state("a.docx", buffer.getvalue()) == "no_text"


def test_pictures_in_a_word_file_are_left_out() -> None:
    """A picture adds no characters, its data least of all."""
    document = docx.Document()
    document.add_paragraph("before")
    document.add_picture(io.BytesIO(_png()))
    buffer = io.BytesIO()
    document.save(buffer)
    assert "base64" not in _parse("a.docx", buffer.getvalue()).text


def _png() -> bytes:
    import pymupdf

    return bytes(pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 9, 9)).tobytes("png"))


# --- PPTX


def test_slides_are_pages_under_their_titles() -> None:
    """Pages count slides, empty ones too; without a title the first line heads a slide; notes follow the text."""
    document = _parse("a.pptx", _slides())
    assert [(block.page, block.kind, block.text) for block in document.blocks] == [
        (1, "heading", "Storm surge"),
        (1, "list", "- Wind\n  - from the west"),
        (1, "paragraph", "Say it slowly."),
        (3, "heading", "In a group"),
        (3, "table", "| gauge | cm |\n|---|---|\n| north |  |"),
    ]
    assert (document.pages, document.title) == (3, "Storm surge")


def test_slides_without_text_are_no_text() -> None:
    """A deck of empty slides gives no_text."""
    deck = pptx.Presentation()
    deck.slides.add_slide(deck.slide_layouts[6])
    buffer = io.BytesIO()
    deck.save(buffer)
    assert _state("a.pptx", buffer.getvalue()) == "no_text"


# --- EPUB


def test_a_book_is_read_in_the_order_of_its_spine() -> None:
    """Chapters come in spine order without the table of contents; title and authors from the package file."""
    document = _parse("a.epub", _book())
    assert _kinds(document) == [
        ("heading", "One"),
        ("paragraph", "first, größer"),
        ("heading", "Two"),
        ("paragraph", "second"),
    ]
    assert (document.title, document.partial) == ("The Tides", "")
    assert document.metadata == {"author": "Ada Holm, Tove Brandsen", "language": "en"}


_NCX = (
    '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint><navLabel><text>Of  one</text></navLabel>'
    '<content src="text/chapter%20one.xhtml#a"/><navPoint><navLabel><text>Inner</text></navLabel>'
    '<content src="text/chapter%20one.xhtml#b"/></navPoint></navPoint></navMap></ncx>'
)


@pytest.mark.parametrize(
    "contents",
    [
        {"OEBPS/toc.xhtml": _CHAPTER.format('<nav><a href="text/chapter%20one.xhtml#a">Of <b>one</b></a></nav>')},
        {
            "OEBPS/book.opf": _PACKAGE.replace("toc.xhtml", "toc.ncx").replace(
                'application/xhtml+xml" properties="nav"', 'application/x-dtbncx+xml"'
            ),
            "OEBPS/toc.ncx": _NCX,
        },
    ],
    ids=["epub3", "epub2"],
)
def test_chapters_without_headings_take_theirs_from_the_contents(contents: dict[str, str]) -> None:
    """The table of contents names a chapter that has no heading of its own, and no other."""
    chapter = {"OEBPS/text/chapter one.xhtml": _CHAPTER.format("<p>Of one</p><p>first</p>")}
    document = _parse("a.epub", _book(**chapter, **contents))
    assert _kinds(document)[:3] == [("heading", "Of one"), ("paragraph", "first"), ("heading", "Two")]


def test_a_book_with_a_broken_chapter_is_partial() -> None:
    """A chapter that is no text costs itself only, and is named."""
    document = _parse("a.epub", _book(**{"OEBPS/text/two.xhtml": bytes(range(32)) * 50}))
    assert document.text == "One\n\nfirst, größer"
    assert "1 of 2 chapters" in document.partial
    assert "two.xhtml" in document.partial


def test_a_book_that_is_locked_or_empty_says_so() -> None:
    """Copy protection is failed:encrypted, a missing package failed:parse, chapters of pictures no_text."""
    locked = (
        '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><e:EncryptedData '
        'xmlns:e="http://www.w3.org/2001/04/xmlenc#"><e:CipherData><e:CipherReference URI="OEBPS/text/two.xhtml"/>'
        "</e:CipherData></e:EncryptedData></encryption>"
    )
    assert _state("a.epub", _book(**{"META-INF/encryption.xml": locked})) == "failed:encrypted"
    assert _parse("a.epub", _book(**{"META-INF/encryption.xml": locked.replace("text/two.xhtml", "a.otf")})).blocks
    assert _state("a.epub", _book(**{"OEBPS/book.opf": b"\x00"})) == "failed:parse"
    picture = _CHAPTER.format('<img src="a.png"/>')
    pictures = {"OEBPS/text/two.xhtml": picture, "OEBPS/text/chapter one.xhtml": picture}
    assert _state("a.epub", _book(**pictures)) == "no_text"


# --- hostile archives


@pytest.mark.timeout(20)
@pytest.mark.parametrize("make", [_word, _slides, _book], ids=["docx", "pptx", "epub"])
def test_archives_that_unpack_to_too_much_are_refused(make: Callable[[], bytes]) -> None:
    """A ZIP bomb is failed:parse before anything is unpacked."""
    bomb = _with_members(make(), {"word/media/bomb.bin": b"\x00" * (100 * 2**20)})
    assert len(bomb) < 2**20
    assert _state("a.docx", bomb) == "failed:parse"


def test_an_archive_that_lies_about_its_sizes_is_bounded_by_its_lie() -> None:
    """A member that unpacks to more than it declares is not read on."""
    data = bytearray(_book(**{"OEBPS/text/two.xhtml": _CHAPTER.format("<p>" + "word " * 200_000)}))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = archive.getinfo("OEBPS/text/two.xhtml").file_size.to_bytes(4, "little")
    assert data.count(size) == 2
    document = _parse("a.epub", bytes(data.replace(size, (100).to_bytes(4, "little"))))
    assert "1 of 2 chapters" in document.partial


def test_too_much_text_in_a_book_is_too_large() -> None:
    """The limit on text counts all chapters together."""
    recipe = ParseConfig(max_text_mb=0.001)
    page = _CHAPTER.format("<p>" + "x" * 600)
    chapters = {"OEBPS/text/two.xhtml": page, "OEBPS/text/chapter one.xhtml": page}
    assert _state("a.epub", _book(**chapters), recipe) == "skipped:too_large"


def test_members_packed_in_an_odd_way_are_refused() -> None:
    """Methods whose blocks unpack without bound are not opened, in a file that is sound otherwise."""
    with zipfile.ZipFile(io.BytesIO(_word())) as archive:
        members: dict[str, str | bytes] = {name: archive.read(name) for name in archive.namelist()}
    assert _parse("a.docx", _zip(members, zipfile.ZIP_STORED)).blocks
    assert _state("a.docx", _zip(members, zipfile.ZIP_BZIP2)) == "failed:parse"


_BOMB = "<!DOCTYPE x [<!ENTITY a0 'boom'>{}]>".format(
    "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 12))
)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("entity", ["&secret;", "&a11;"])
def test_entities_are_neither_fetched_nor_unfolded(entity: str, tmp_path: Path) -> None:
    """Nothing outside the file is read, and entities within entities stay folded, in any member."""
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret words")
    doctype = _BOMB.replace("]>", f"<!ENTITY secret SYSTEM 'file://{secret}'>]>")
    body = f"<w:body><w:p><w:r><w:t>x {entity}</w:t></w:r></w:p></w:body>"
    word = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    files = {
        "a.docx": _with_members(
            _word(), {"word/document.xml": f'{doctype}<w:document xmlns:w="{word}">{body}</w:document>'}
        ),
        "b.docx": _with_members(
            _word(),
            {
                "docProps/core.xml": f'{doctype}<c xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>{entity}</dc:title></c>'
            },
        ),
        "a.epub": _book(
            **{
                "OEBPS/book.opf": doctype + _PACKAGE.partition("?>")[2].replace("The  Tides", entity),
                "OEBPS/text/two.xhtml": f"{doctype}<html><body><p>x {entity}</p></body></html>",
            }
        ),
        "a.html": f"{doctype}<html><body><p>x {entity}</p></body></html>".encode(),
    }
    for path, data in files.items():
        try:
            document = _parse(path, data)
        except DocumentError as error:
            assert error.state == "failed:parse"
            continue
        said = document.text + document.title + json.dumps(document.metadata)
        assert "top secret" not in said
        assert said.count("boom") <= 1


@settings(max_examples=40, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(["docx", "pptx", "epub"]), st.data())
def test_a_damaged_archive_raises_nothing_but_a_document_error(kind: str, data: st.DataObject) -> None:
    """Bytes changed, cut off or doubled anywhere give a document or a state, never another error."""
    whole = {"docx": _word, "pptx": _slides, "epub": _book}[kind]()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del damaged[data.draw(st.integers(0, len(damaged) - 1)) :]
    try:
        _parse(f"a.{kind}", bytes(damaged) or b"x")
    except DocumentError as error:
        assert error.message


@settings(
    max_examples=150, deadline=None, database=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    st.sampled_from(["md", "txt", "html", "py", "csv", "docx", "pptx", "epub"]),
    st.sampled_from(
        [b"", b"<html>", b"PK\x03\x04", b"\xff\xfe", b"---\n", b"+++\n", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"]
    ),
    st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass"))),
)
def test_any_bytes_under_any_name_raise_nothing_but_a_document_error(name: str, begin: bytes, data: bytes) -> None:
    """Whatever a file holds, parsing ends with a document without blank blocks or with a state."""
    try:
        document = _parse(f"a.{name}", begin + data)
    except DocumentError as error:
        assert error.message
        return
    assert all(block.text.strip() for block in document.blocks)


# --- source code


def test_source_code_is_cut_at_its_top_level() -> None:
    """Functions and classes with what stands right above them are blocks; blank lines inside them do not cut."""
    imports = "import os\nimport re"
    function = "# counts\n@cached\ndef f(x):\n    a = 1\n\n    return a\n"
    tail = "CONSTANTS = [\n    1,\n\n]"
    document = _parse("a.py", f"{imports}\n\n\n{function}\n\n{tail}\n")
    assert _kinds(document) == [("code", imports), ("code", function.strip()), ("code", tail)]
    assert (document.media_type, document.title) == ("code", "")


def test_closing_brackets_stay_with_what_they_close() -> None:
    """A bracket after a blank line does not begin a piece."""
    assert len(_parse("a.js", "function f() {\n  a();\n\n}\n\nfunction g() {\n\n}\n").blocks) == 2


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.json", '{"a":[' + "1," * 300_000 + "1]}"),
        ("a.min.js", "var a=1;" * 100_000),
        ("a.yaml", "a:\n  b: 1\n\nc: 2\n"),
        ("Makefile", "all:\n\tgcc\n\nclean:\n\trm x\n"),
        ("a.sql", "\n" * 200_000 + "select 1" + "\n  \n" * 100_000 + "from x"),
    ],
)
def test_no_line_of_code_is_lost(path: str, text: str) -> None:
    """Whatever the layout, minified files on one line included, every word is in a block, as it stands."""
    document = _parse(path, text)
    assert document.text.split() == text.split()
    assert all(block.text in text for block in document.blocks)
