"""PDF: reading order, furniture, tables, headings, states, the layout model and recognized text."""

import importlib.util
import random
from typing import Any

import pytest

from rag_pipeline.config import CleanConfig, PdfConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.records import Document, FileBytes
from rag_pipeline.stages.clean import clean
from rag_pipeline.stages.parse.pdf import parse_pdf
from rag_pipeline.stages.parse.pdf.mupdf import pymupdf
from rag_pipeline.stages.parse.pdf.tables import to_markdown

WORDS = [
    "harbour",
    "tide",
    "gauge",
    "storm",
    "level",
    "water",
    "signal",
    "north",
    "pier",
    "lamp",
    "diver",
    "report",
    "winter",
    "quay",
    "basin",
    "wind",
]


def _parse(data: bytes, **settings: Any) -> Document:
    document = parse_pdf(FileBytes("a.pdf", data, "hash", len(data), 0), PdfConfig.model_validate(settings))
    return clean(document, CleanConfig())


def _state(data: bytes, **settings: Any) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        _parse(data, **settings)
    return caught.value


def _prose(name: str, lines: int = 6, words: int = 5) -> list[str]:
    """Lines of text that begin with a name and a number, so that their order shows."""
    rng = random.Random(name)
    return [f"{name}{line} " + " ".join(rng.choices(WORDS, k=words)) for line in range(lines)]


def _names(document: Document) -> list[str]:
    """The named lines of `_prose`, in the order they came out."""
    return [word for word in document.text.split() if word[-1].isdigit() and word[0].isupper()]


def _page(document: Any, *texts: tuple[float, float, list[str]], size: float = 10, rotate: int = 0) -> Any:
    page = document.new_page(width=595, height=842)
    for x, y, lines in texts:
        for line in lines:
            page.insert_text((x, y), line, fontsize=size, rotate=rotate)
            y += size * 1.2
    return page


def _pdf(*texts: tuple[float, float, list[str]], **options: Any) -> bytes:
    with pymupdf.open() as document:
        _page(document, *texts, **options)
        return bytes(document.tobytes())


def _expected(*names: str, lines: int = 6) -> list[str]:
    return [f"{name}{line}" for name in names for line in range(lines)]


# --- reading order


def test_one_column_in_the_files_order_stays() -> None:
    """Paragraphs below each other come out as they were written."""
    assert _names(_parse(_pdf((60, 100, _prose("A")), (60, 220, _prose("B"))))) == _expected("A", "B")


def test_a_title_drawn_last_comes_first() -> None:
    """What stands at the top is read first, wherever the file holds it."""
    data = _pdf((60, 200, _prose("A")), (60, 320, _prose("B")), (60, 80, _prose("T", lines=1)))
    assert _names(_parse(data)) == ["T0", *_expected("A", "B")]


@pytest.mark.parametrize("columns", [2, 3])
def test_columns_written_paragraph_by_paragraph_are_read_down(columns: int) -> None:
    """A file that alternates between columns is read column by column, below the title over all of them."""
    width = 480 / columns
    texts = [
        (60 + column * width, 150.0 + 120 * row, _prose("ABC"[column] + "xyz"[row], words=7 - columns))
        for row in range(3)
        for column in range(columns)
    ]
    title = (60.0, 100.0, ["T0 " + " ".join(WORDS)])
    names = [column + row for column in "ABC"[:columns] for row in "xyz"]
    assert _names(_parse(_pdf(title, *texts))) == ["T0", *_expected(*names)]


def test_columns_written_line_by_line_are_read_down() -> None:
    """A file that writes each line across both columns gives two columns of whole paragraphs."""
    left, right = _prose("A", lines=12), _prose("B", lines=12)
    rows = [
        text
        for row, pair in enumerate(zip(left, right, strict=True))
        for text in ((60.0, 100 + 12.0 * row, [pair[0]]), (320.0, 100 + 12.0 * row, [pair[1]]))
    ]
    document = _parse(_pdf(*rows))
    assert _names(document) == _expected("A", "B", lines=12)
    assert len(document.blocks) <= 3


def test_columns_in_the_right_order_stay() -> None:
    """Two columns that the file holds one after the other, and a line over both at the end, are left alone."""
    data = _pdf(
        (60, 100, _prose("A")),
        (60, 220, _prose("B")),
        (320, 100, _prose("C")),
        (320, 220, _prose("D")),
        (60, 340, ["F0 " + " ".join(WORDS)]),
    )
    assert _names(_parse(data)) == [*_expected("A", "B", "C", "D"), "F0"]


def test_labels_and_values_stay_together() -> None:
    """A form's short labels are no column: each stays with its value."""
    rows = [
        text
        for row, label in enumerate(["Name", "Town", "Post", "Rank"])
        for text in ((60.0, 100 + 40.0 * row, [label]), (200.0, 100 + 40.0 * row, _prose(label, lines=1)))
    ]
    document = _parse(_pdf(*rows))
    assert document.text.split()[:2] == ["Name", "Name0"]
    assert _names(document) == ["Name0", "Town0", "Post0", "Rank0"]


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_a_rotated_page_is_read_as_it_is_viewed(rotation: int) -> None:
    """A page that is viewed turned, with text that then stands upright, gives its lines in order."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=842)
        page.set_rotation(rotation)
        for line, text in enumerate(_prose("A")):
            where = pymupdf.Point(60, 100 + 12 * line) * page.derotation_matrix
            page.insert_text(where, text, fontsize=10, rotate=rotation)
        data = document.tobytes()
    document = _parse(data)
    assert _names(document) == _expected("A")
    assert len(document.blocks) == 1


@pytest.mark.parametrize("rotate", [90, 270])
def test_a_page_of_turned_lines_is_read_in_their_order(rotate: int) -> None:
    """Text that runs upwards or downwards over a whole page comes out line by line, paragraph by paragraph."""
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=842)
        for place, name in enumerate("AB"):
            for line, text in enumerate(_prose(name)):
                across = 100 + 120 * place + 12 * line
                where = (across, 700) if rotate == 90 else (595 - across, 100)
                page.insert_text(where, text, fontsize=10, rotate=rotate)
        data = document.tobytes()
    assert _names(_parse(data)) == _expected("A", "B")


def test_a_turned_note_in_the_margin_comes_last_and_is_no_heading() -> None:
    """A large stamp that runs up the margin neither breaks the text nor becomes a section."""
    with pymupdf.open() as document:
        page = _page(document, (60, 100, _prose("A")))
        page.insert_text((30, 600), "arXiv:1234.5678v1 [cs.CL] 1 Jan 2024", fontsize=20, rotate=90)
        data = document.tobytes()
    document = _parse(data)
    assert [block.kind for block in document.blocks] == ["paragraph", "paragraph"]
    assert document.blocks[-1].text.startswith("arXiv")
    assert document.title == ""


def test_words_divided_at_a_line_end_are_whole() -> None:
    """Line ends stay in a block, so that cleaning can join the two halves of a word."""
    assert "measurement of the tide" in _parse(_pdf((60, 100, ["the measure-", "ment of the tide"]))).text


def test_form_fields_and_notes_on_the_page_are_read() -> None:
    """What stands in a form's fields and in text notes is text of the page."""
    with pymupdf.open() as document:
        page = _page(document, (60, 100, _prose("A")))
        field = pymupdf.Widget()
        field.field_type, field.field_name, field.field_value = pymupdf.PDF_WIDGET_TYPE_TEXT, "keeper", "Ada Holm"
        field.rect = pymupdf.Rect(60, 300, 300, 320)
        page.add_widget(field)
        page.add_freetext_annot((60, 400, 300, 420), "read by torchlight")
        data = document.tobytes()
    text = _parse(data).text
    assert "Ada Holm" in text
    assert "read by torchlight" in text


# --- furniture


def _book(pages: int, header: str = "Tide Station Handbook", footer: str = "Page {page} of {pages}") -> bytes:
    with pymupdf.open() as document:
        for number in range(1, pages + 1):
            page = _page(document, (60, 200, _prose(f"P{number}x")))
            page.insert_text((60, 40), header.format(page=number), fontsize=9)
            page.insert_text((280 + number % 2, 815), footer.format(page=number, pages=pages), fontsize=9)
        return bytes(document.tobytes())


def test_running_headers_and_page_numbers_are_dropped() -> None:
    """Text that repeats in the margins of several pages goes, digits counting as equal; all the rest stays."""
    document = _parse(_book(6))
    assert "Handbook" not in document.text
    assert "Page" not in document.text
    assert _names(document) == [f"P{page}x{line}" for page in range(1, 7) for line in range(6)]
    assert [block.page for block in document.blocks] == [1, 2, 3, 4, 5, 6]


def test_furniture_can_be_kept() -> None:
    """With recipe.parse.pdf.furniture: keep nothing is dropped."""
    text = _parse(_book(6), furniture="keep").text
    assert (text.count("Tide Station Handbook"), text.count("Page 3 of 6")) == (6, 1)


def test_few_pages_keep_their_text() -> None:
    """On a document of two pages a line at the top of both is no furniture."""
    assert _parse(_book(2)).text.count("Tide Station Handbook") == 2


@pytest.mark.parametrize("footer", ["{page}", "- {page} -", "{page} / {pages}"])
def test_lone_page_numbers_are_dropped(footer: str) -> None:
    """A number that counts along with the pages is a page number."""
    text = _parse(_book(5, footer=footer)).text
    assert not any(line.strip("-/ ").isdigit() for line in text.split("\n\n"))


def test_numbers_that_do_not_count_pages_stay() -> None:
    """Numbers of a table that reaches into the margin are not taken for page numbers."""
    with pymupdf.open() as document:
        for value in (41, 17, 98, 63, 22):
            _page(document, (60, 200, _prose("A")), (280, 815, [f"{value}"]))
        data = document.tobytes()
    assert [value for value in ("41", "17", "98", "63", "22") if value in _parse(data).text.split()] == [
        "41", "17", "98", "63", "22",
    ]  # fmt: skip


def test_pages_of_nothing_but_repeating_lines_keep_them() -> None:
    """Where dropping would leave most pages empty, nothing is dropped."""
    with pymupdf.open() as document:
        for number in range(1, 7):
            _page(document, (60, 60, [f"Certificate {number}"]))
        data = document.tobytes()
    assert _parse(data).text.count("Certificate") == 6


# --- tables

ROWS = [["Instrument", "Interval", "Error"], ["Radar|gauge", "90 days", "5 mm"], ["Float gauge", "", "10 mm"]]


def _table_pdf(outer: bool = True, rows: list[list[str]] = ROWS) -> bytes:
    with pymupdf.open() as document:
        page = _page(document, (60, 100, _prose("A")), (60, 400, _prose("B")))
        xs, ys = [60, 180, 300, 420], [200 + 30 * row for row in range(len(rows) + 1)]
        for y in ys:
            page.draw_line((xs[0], y), (xs[-1], y))
        for x in xs if outer else xs[1:-1]:
            page.draw_line((x, ys[0]), (x, ys[-1]))
        for row, cells in enumerate(rows):
            for column, cell in enumerate(cells):
                page.insert_text((xs[column] + 5, ys[row] + 12), cell, fontsize=9)
        return bytes(document.tobytes())


@pytest.mark.parametrize("outer", [True, False])
def test_a_ruled_table_becomes_markdown(outer: bool) -> None:
    """Rows are lines, the first the header, bars escaped, empty cells kept; its text comes once, in its place."""
    document = _parse(_table_pdf(outer))
    assert [block.kind for block in document.blocks] == ["paragraph", "table", "paragraph"]
    assert document.blocks[1].text.splitlines() == [
        "| Instrument | Interval | Error |",
        "| --- | --- | --- |",
        "| Radar\\|gauge | 90 days | 5 mm |",
        "| Float gauge |  | 10 mm |",
    ]
    assert document.text.count("Instrument") == 1
    assert _names(document) == _expected("A", "B")


def test_a_cell_of_two_lines_is_one_line() -> None:
    """Text that wraps inside a cell is joined by a blank."""
    document = _parse(_table_pdf(rows=[*ROWS[:2], ["Float\ngauge", "6 months", "10 mm"]]))
    assert "| Float gauge | 6 months | 10 mm |" in document.text.splitlines()


def test_tables_can_be_switched_off() -> None:
    """Without recipe.parse.pdf.tables a table is text like any other."""
    document = _parse(_table_pdf(), tables=False)
    assert {block.kind for block in document.blocks} == {"paragraph"}
    assert "90 days" in document.text


def test_a_frame_around_text_is_no_table() -> None:
    """Lines around a paragraph, and the grid of an empty chart, make no table of it."""
    with pymupdf.open() as document:
        page = _page(document, (60, 100, _prose("A")))
        page.draw_rect((50, 85, 500, 180))
        for step in range(8):
            page.draw_line((60 + 40 * step, 300), (60 + 40 * step, 580))
            page.draw_line((60, 300 + 40 * step), (340, 300 + 40 * step))
        page.insert_text((70, 320), "level", fontsize=9)
        data = document.tobytes()
    assert {block.kind for block in _parse(data).blocks} == {"paragraph"}


def test_short_rows_are_filled_up() -> None:
    """A table whose rows differ in length is still a rectangle."""
    assert to_markdown([["a", "b"], ["c"]]) == "| a | b |\n| --- | --- |\n| c |  |"


# --- headings


def _headings(document: Document) -> list[tuple[str, int]]:
    return [(block.text, block.level) for block in document.blocks if block.kind == "heading"]


def _styled(*texts: tuple[float, str, list[str]], toc: list[list[Any]] | None = None) -> bytes:
    """A page of (type size, font, lines) below each other, closely set."""
    with pymupdf.open() as document:
        page, y = document.new_page(), 80.0
        for size, font, lines in texts:
            for line in lines:
                page.insert_text((60, y), line, fontsize=size, fontname=font)
                y += 1.2 * size
            y += 8
        if toc:
            document.set_toc(toc)
        return bytes(document.tobytes())


def test_a_title_over_two_lines_is_one_heading() -> None:
    """Lines of one large type that follow each other closely are one title."""
    data = _styled((20, "helv", ["The storm surge of December", "at the tide station"]), (10, "helv", _prose("A")))
    document = _parse(data)
    assert _headings(document) == [("The storm surge of December at the tide station", 1)]
    assert document.title == "The storm surge of December at the tide station"


def test_bold_lines_of_the_bodys_size_are_the_lowest_headings() -> None:
    """A bold line by itself is a heading below those in larger type; bold words that begin a sentence are not."""
    data = _styled(
        (16, "helv", ["Instruments"]),
        (10, "hebo", ["Calibration intervals"]),
        (10, "helv", _prose("A")),
        (10, "hebo", ["Never open the valve before the pump has stopped."]),
        (10, "helv", _prose("B")),
    )
    assert _headings(_parse(data)) == [("Instruments", 1), ("Calibration intervals", 2)]


def test_numbers_of_headings_in_one_type_tell_their_depth() -> None:
    """Among headings of equal type `2.1` stands below `2`."""
    data = _styled(
        *[
            part
            for heading in ("1 Data", "2 Method", "2.1 Waves", "3 Results")
            for part in ((14.0, "helv", [heading]), (10.0, "helv", _prose("A")))
        ]
    )
    assert _headings(_parse(data)) == [("1 Data", 1), ("2 Method", 1), ("2.1 Waves", 2), ("3 Results", 1)]


def test_the_outline_finds_titles_with_numbers_and_over_lines() -> None:
    """An outline's titles are found without their numbers, over two lines, and at the head of a paragraph."""
    data = _styled(
        (10, "helv", ["1 Introduction", *_prose("A")]),
        (10, "helv", ["B.2 The long way round", "the north pier", *_prose("B")]),
        toc=[[1, "Introduction", 1], [2, "The long way round the north pier", 1]],
    )
    document = _parse(data)
    assert _headings(document) == [("1 Introduction", 1), ("B.2 The long way round the north pier", 2)]
    assert [name for name in _names(document) if "." not in name] == _expected("A", "B")


def test_a_large_first_letter_makes_no_heading() -> None:
    """A paragraph that begins with an initial over two lines stays a paragraph."""
    with pymupdf.open() as document:
        page = _page(document, (85, 100, _prose("A", lines=2)), (60, 124, _prose("B", lines=8)))
        page.insert_text((60, 112), "T", fontsize=30)
        data = document.tobytes()
    assert _headings(_parse(data)) == []


def test_an_outline_that_names_no_line_of_the_text_is_not_trusted() -> None:
    """Where the outline's titles are not in the text, type size decides."""
    data = _styled((16, "helv", ["Instruments"]), (10, "helv", _prose("A")), toc=[[1, "page 1", 1], [1, "page 2", 1]])
    assert _headings(_parse(data)) == [("Instruments", 1)]


# --- states and what the file says of itself


def test_more_pages_than_allowed_are_skipped() -> None:
    """A PDF of more than recipe.parse.pdf.max_pages pages is skipped:too_large, saying how many it has."""
    error = _state(_book(4), max_pages=3)
    assert error.state == "skipped:too_large"
    assert "4 pages" in error.message
    assert _parse(_book(4), max_pages=4).pages == 4


def test_metadata_is_kept() -> None:
    """Author, subject, keywords and the day of creation come along, blanks squeezed, empty ones left out."""
    with pymupdf.open() as document:
        _page(document, (60, 100, _prose("A")))
        document.set_metadata({"author": " Ada  Holm ", "keywords": "tide, gauge", "creationDate": "D:20240304101500Z"})
        data = document.tobytes()
    assert _parse(data).metadata == {"author": "Ada Holm", "keywords": "tide, gauge", "date": "2024-03-04"}


def _nameless(pages: int = 1, named_pages: int = 0) -> bytes:
    """Pages whose font maps its glyphs to no characters."""
    with pymupdf.open() as document:
        for _ in range(pages):
            page = document.new_page()
            page.insert_font(fontname="F0", fontbuffer=pymupdf.Font("helv").buffer)
            for line in range(5):
                page.insert_text((60, 100 + 20 * line), "tide tables of the north pier", fontname="F0")
        for xref in range(1, document.xref_length()):
            if document.xref_get_key(xref, "ToUnicode")[0] == "xref":
                document.xref_set_key(xref, "ToUnicode", "null")
        for _ in range(named_pages):
            _page(document, (60, 100, _prose("A")))
        return bytes(document.tobytes())


def test_fonts_that_name_no_characters_give_no_text() -> None:
    """Glyph numbers are not passed off as text: the file is no_text and the message tells why."""
    error = _state(_nameless())
    assert error.state == "no_text"
    assert "fonts" in error.message


def test_a_page_whose_fonts_name_no_characters_makes_the_rest_partial() -> None:
    """Such a page is left out; the document is partial and says so."""
    document = _parse(_nameless(pages=1, named_pages=2))
    assert document.partial.startswith("the fonts of 1 of 3 pages name no characters")
    assert _names(document) == _expected("A", "A")
    assert document.replaced_chars == 0


def test_a_file_cut_short_is_repaired_and_partial() -> None:
    """A file without its end counts as repaired, and text may be missing."""
    data = _book(6)
    document = _parse(data[: len(data) * 3 // 4])
    assert document.repaired
    assert "cut short" in document.partial


def test_a_whole_file_is_not_repaired() -> None:
    """A sound file is neither repaired nor partial."""
    document = _parse(_book(3))
    assert (document.repaired, document.partial, document.replaced_chars, document.ocr_pages) == (False, "", 0, 0)


# --- the layout model


def test_the_layout_model_gives_the_same_kind_of_document() -> None:
    """With mode: layout headings, paragraphs and tables come from the model, with their pages."""
    document = _parse(_table_pdf(), mode="layout")
    assert _names(document) == _expected("A", "B")
    assert {block.page for block in document.blocks} == {1}
    table = next(block for block in document.blocks if block.kind == "table")
    assert table.text.splitlines()[1] == "| --- | --- | --- |"
    assert document.text.count("Instrument") == 1


# --- recognized text

LINES = ["The harbour office keeps the tide tables", "in a safe behind the north wall."]


def _scan(dpi: int = 150, degrees: float = 0.5) -> bytes:
    """A page of text as a scanner would give it: grey, slightly turned, with noise."""
    with pymupdf.open() as document:
        page = _page(document, (80, 90, LINES), size=14)
        pixels = page.get_pixmap(
            matrix=pymupdf.Matrix(dpi / 72, dpi / 72).prerotate(degrees), colorspace=pymupdf.csGRAY
        )
    rng, grey = random.Random(1), bytearray(pixels.samples)
    for place in range(0, len(grey), 7):
        grey[place] = max(0, min(255, grey[place] + rng.randrange(-40, 41)))
    with pymupdf.open() as document:
        _page(document, (60, 100, _prose("A")))
        image = pymupdf.Pixmap(pymupdf.csGRAY, pixels.width, pixels.height, bytes(grey), False)
        page = document.new_page(width=595, height=842)
        page.insert_image(page.rect, pixmap=image)
        document.new_page()
        return bytes(document.tobytes(deflate=True))


@pytest.mark.skipif(not importlib.util.find_spec("rapidocr"), reason="RapidOCR (extra `ocr`) is not installed")
def test_scanned_pages_are_recognized() -> None:
    """With ocr: auto a page that is an image gives its words; pages with text and empty ones are left alone."""
    document = _parse(_scan(), ocr="auto")
    assert (document.pages, document.ocr_pages) == (3, 1)
    assert _names(document) == _expected("A")
    recognized = " ".join(block.text for block in document.blocks if block.page == 2).lower()
    assert "harbour office keeps the tide tables in a safe behind the north wall" in recognized


def test_ocr_is_off_by_default() -> None:
    """Without ocr: auto an image stays an image."""
    document = _parse(_scan())
    assert (document.ocr_pages, {block.page for block in document.blocks}) == (0, {1})


def test_missing_ocr_software_fails_only_files_that_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an engine a scanned file is failed:ocr with what to install; a file of text is read as ever."""
    from rag_pipeline.stages.parse.pdf import ocr

    monkeypatch.setattr(ocr, "_tessdata", lambda language: "")
    monkeypatch.setattr(ocr.importlib.util, "find_spec", lambda name: None)
    error = _state(_scan(), ocr="auto")
    assert error.state == "failed:ocr"
    assert "install" in error.message
    assert _names(_parse(_pdf((60, 100, _prose("A"))), ocr="auto")) == _expected("A")
