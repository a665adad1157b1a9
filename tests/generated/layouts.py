"""The generated PDFs whose pages are laid out in some way: columns, furniture, tables, headings, scripts.

Knows nothing of parsers; damaged and odd PDFs are in `odd_pdfs`.
"""

from __future__ import annotations

from functools import partial
from itertools import zip_longest

import pymupdf

from generated.drawing import HEIGHT, MARGIN, WIDTH, notes, page_of, register, wrap, write, write_all
from generated.record import Generated

LAYOUTS: list[Generated] = []
pdf = partial(register, LAYOUTS)


# --- columns


@pdf("one-column", passages=notes("harbour", 8), pages={notes("harbour", 8)[7]: 1})
def one_column(document: pymupdf.Document) -> None:
    """Plain paragraphs below each other."""
    write_all(page_of(document), MARGIN, 90, notes("harbour", 8))


TITLE_LINE = "A Century of Storm Surges at the Outer Harbour Wall"


@pdf(
    "two-columns-under-a-title",
    passages=(TITLE_LINE, *notes("left", 6), *notes("right", 6)),
    kinds={TITLE_LINE: "heading"},
    sections={notes("right", 6)[2]: (TITLE_LINE,)},
)
def two_columns(document: pymupdf.Document) -> None:
    """A title over the whole width, two columns below it."""
    page = page_of(document)
    write(page, MARGIN, 80, TITLE_LINE, size=18)
    write_all(page, MARGIN, 130, notes("left", 6), 225)
    write_all(page, 310, 130, notes("right", 6), 225)


@pdf("three-columns", passages=(*notes("first", 5), *notes("second", 5), *notes("third", 5)))
def three_columns(document: pymupdf.Document) -> None:
    """Three columns on a landscape page."""
    page = page_of(document, 842, 595)
    for x, subject in ((50, "first"), (305, "second"), (560, "third")):
        write_all(page, x, 70, notes(subject, 5), 230)


@pdf("columns-drawn-in-odd-order", passages=(TITLE_LINE, *notes("left", 5), *notes("right", 5)))
def odd_order(document: pymupdf.Document) -> None:
    """The right column is drawn first and the title last."""
    page = page_of(document)
    write_all(page, 310, 130, notes("right", 5), 225)
    write_all(page, MARGIN, 130, notes("left", 5), 225)
    write(page, MARGIN, 80, TITLE_LINE, size=18)


@pdf("columns-drawn-row-by-row", passages=(*notes("left", 5), *notes("right", 5)))
def row_by_row(document: pymupdf.Document) -> None:
    """Lines of both columns are drawn in turns, as typewriters and some converters do."""
    page = page_of(document)
    y = 90.0
    for left, right in zip(notes("left", 5), notes("right", 5), strict=True):
        for row in zip_longest(wrap(left, 225, 10), wrap(right, 225, 10), fillvalue=""):
            for x, line in zip((MARGIN, 310), row, strict=True):
                page.insert_text((x, y), line, fontsize=10)
            y += 12.5
        y += 9


@pdf(
    "columns-over-two-pages",
    passages=(*notes("alpha", 5), *notes("beta", 5), *notes("gamma", 5), *notes("delta", 5)),
    pages={notes("alpha", 5)[0]: 1, notes("beta", 5)[4]: 1, notes("gamma", 5)[0]: 2, notes("delta", 5)[4]: 2},
)
def columns_over_pages(document: pymupdf.Document) -> None:
    """Columns end with their page: the first page's right one comes before the second page."""
    for left, right in (("alpha", "beta"), ("gamma", "delta")):
        page = page_of(document)
        write_all(page, MARGIN, 90, notes(left, 5), 225)
        write_all(page, 310, 90, notes(right, 5), 225)


@pdf(
    "paper",
    title="Tides of the Inner Harbour",
    passages=(
        "Tides of the Inner Harbour",
        "Inge Dahl and Ada Holm",
        *notes("abstract", 2),
        "1 Introduction",
        *notes("introduction", 4),
        "2 Method",
        *notes("method", 5),
        "Figure 1: Both gauges over one year, drawn over both columns.",
        *notes("result", 3),
        "3 Outlook",
        *notes("outlook", 4),
    ),
    sections={
        notes("introduction", 4)[1]: ("Tides of the Inner Harbour", "1 Introduction"),
        notes("method", 5)[4]: ("Tides of the Inner Harbour", "2 Method"),
        notes("result", 3)[0]: ("Tides of the Inner Harbour", "2 Method"),
        notes("outlook", 4)[3]: ("Tides of the Inner Harbour", "3 Outlook"),
    },
    pages={notes("method", 5)[4]: 1, notes("result", 3)[0]: 2},
)
def paper(document: pymupdf.Document) -> None:
    """Title, authors and abstract over two columns; on the second page a picture over both, then columns again."""
    page = page_of(document)
    write(page, 150, 70, "Tides of the Inner Harbour", size=20)
    write(page, 230, 100, "Inge Dahl and Ada Holm", size=11)
    write_all(page, 100, 130, notes("abstract", 2), 395)
    y = write(page, MARGIN, 250, "1 Introduction", size=13, font="hebo")
    write_all(page, MARGIN, y, notes("introduction", 4), 225)
    write_all(page, 310, write(page, 310, 250, "2 Method", size=13, font="hebo"), notes("method", 5), 225)
    page = page_of(document)
    page.insert_image((MARGIN, 60, 535, 250), pixmap=grey_picture())
    write(page, MARGIN, 270, "Figure 1: Both gauges over one year, drawn over both columns.", size=9)
    write_all(page, MARGIN, 310, notes("result", 3), 225)
    write_all(page, 310, write(page, 310, 310, "3 Outlook", size=13, font="hebo"), notes("outlook", 4), 225)
    document.set_metadata({"title": "Tides of the Inner Harbour"})


@pdf("columns-with-a-stamp-in-the-margin", passages=(*notes("left", 6), *notes("right", 6)))
def stamped(document: pymupdf.Document) -> None:
    """Two columns, and a line of turned text along the left edge."""
    page = page_of(document)
    page.insert_text((28, 600), "Preprint 2503.00042 of 14 March 2025", fontsize=14, rotate=90)
    write_all(page, MARGIN, 90, notes("left", 6), 225)
    write_all(page, 310, 90, notes("right", 6), 225)


@pdf("columns-of-unequal-length", passages=(*notes("left", 7), *notes("right", 2)))
def unequal(document: pymupdf.Document) -> None:
    """The right column ends after a few lines."""
    page = page_of(document)
    write_all(page, MARGIN, 90, notes("left", 7), 225)
    write_all(page, 310, 90, notes("right", 2), 225)


@pdf("paragraphs-by-indent", passages=notes("indented", 8))
def by_indent(document: pymupdf.Document) -> None:
    """Paragraphs told by the indent of their first line, as in novels."""
    page, y = page_of(document), 90.0
    for paragraph in notes("indented", 8):
        for number, line in enumerate(wrap(paragraph, 460, 10)):
            page.insert_text((MARGIN + (0 if number else 15), y), line, fontsize=10)
            y += 12.5


# --- rotation


def _upright(document: pymupdf.Document, rotation: int) -> None:
    """A page that is stored turned and shown upright, as scanners and landscape pages are."""
    page = page_of(document)
    page.set_rotation(rotation)
    y = 90.0
    for paragraph in notes("turned", 5):
        for line in wrap(paragraph, page.rect.width - 120, 10):
            page.insert_text(pymupdf.Point(MARGIN, y) * page.derotation_matrix, line, fontsize=10, rotate=rotation)
            y += 12.5
        y += 9


for angle in (90, 180, 270):
    pdf(f"rotated-{angle}", passages=notes("turned", 5))(partial(_upright, rotation=angle))


@pdf("lying-on-its-side", passages=notes("sideways", 4))
def lying(document: pymupdf.Document) -> None:
    """Upright text on a page that is shown turned by 90 degrees."""
    write_all(page_of(document), MARGIN, 90, notes("sideways", 4))
    document[0].set_rotation(90)


# --- what is repeated on pages


HEADER, FOOTER = "Skagen Yearbook of Tides, printed edition", "Page {} of 6"


@pdf(
    "running-headers",
    passages=tuple(text for number in range(1, 7) for text in notes(f"chapter{number}", 6)),
    absent=(HEADER, "printed edition", "Page 1 of 6", "Page 3 of 6", "of 6"),
    pages={notes(f"chapter{number}", 6)[0]: number for number in range(1, 7)},
)
def running_headers(document: pymupdf.Document) -> None:
    """A header and a page number in words on six pages."""
    for number in range(1, 7):
        page = page_of(document)
        write(page, MARGIN, 40, HEADER, size=8)
        write(page, 270, 815, FOOTER.format(number), size=8)
        write_all(page, MARGIN, 90, notes(f"chapter{number}", 6))


@pdf(
    "page-numbers-alone",
    passages=tuple(text for number in range(1, 7) for text in notes(f"leaf{number}", 5)),
    absent=("137", "138", "139", "140", "141", "142"),
)
def page_numbers(document: pymupdf.Document) -> None:
    """Nothing is repeated on six pages but a number at the foot."""
    for number in range(1, 7):
        page = page_of(document)
        write(page, 290, 815, str(number + 136), size=9)
        write_all(page, MARGIN, 90, notes(f"leaf{number}", 5))


@pdf(
    "book-headers",
    passages=tuple(text for number in range(1, 9) for text in notes(f"folio{number}", 5)),
    absent=("THE LAMP KEEPER", "STORMS", "xii", "xv"),
)
def book_headers(document: pymupdf.Document) -> None:
    """The book's name on left pages, the chapter's on right ones, roman numbers at the outer edge."""
    for number, roman in enumerate(("ix", "x", "xi", "xii", "xiii", "xiv", "xv", "xvi"), 1):
        page = page_of(document)
        write(page, 230, 45, "STORMS" if number % 2 else "THE LAMP KEEPER", size=9)
        write(page, 520 if number % 2 else MARGIN, 45, roman, size=9)
        write_all(page, MARGIN, 90, notes(f"folio{number}", 5))


@pdf(
    "watermark",
    passages=tuple(text for number in range(1, 5) for text in notes(f"draft{number}", 6)),
    pages={notes("draft3", 6)[0]: 3},
)
def watermark(document: pymupdf.Document) -> None:
    """A large word across the middle of every page."""
    for number in range(1, 5):
        page = page_of(document)
        turned = (pymupdf.Point(150, 600), pymupdf.Matrix(45))
        page.insert_text((150, 600), "WATERMARK", fontsize=60, color=(0.9, 0.9, 0.9), morph=turned)
        write_all(page, MARGIN, 90, notes(f"draft{number}", 6))


LETTER = (
    ("Skagen Tide Station", "Harbour Road 4, Skagen", "14 March 2025", "Dear Mr Holm,", *notes("letter", 6)),
    ("Skagen Tide Station", "14 March 2025", *notes("answer", 3), "Yours sincerely,", "Inge Dahl, keeper", "2"),
)


@pdf("letter", passages=LETTER[0] + LETTER[1], pages={"Dear Mr Holm,": 1, "Yours sincerely,": 2})
def letter(document: pymupdf.Document) -> None:
    """Two pages that repeat sender and date: too few to call anything furniture."""
    for lines in LETTER:
        page = page_of(document)
        y = 40.0
        for line in lines:
            y = write(page, MARGIN, 815 if line == "2" else y, line)


CHAPTERS = tuple(f"Chapter {number}" for number in range(1, 7))


@pdf(
    "chapters-begin-pages",
    passages=tuple(text for number, name in enumerate(CHAPTERS, 1) for text in (name, *notes(f"story{number}", 5))),
    sections={notes(f"story{number}", 5)[1]: (name,) for number, name in enumerate(CHAPTERS, 1)},
)
def chapters(document: pymupdf.Document) -> None:
    """Large headings at the top of each page differ in a digit only, and are no furniture."""
    for number, name in enumerate(CHAPTERS, 1):
        page = page_of(document)
        write(page, MARGIN, 70, name, size=20)
        write_all(page, MARGIN, 120, notes(f"story{number}", 5))


@pdf("annexes", passages=tuple(f"Annex {number}" for number in range(1, 7)), pages={"Annex 4": 4})
def annexes(document: pymupdf.Document) -> None:
    """Pages that say nothing but which annex begins here."""
    for number in range(1, 7):
        write(page_of(document), MARGIN, 70, f"Annex {number}", size=24)


SLIDES = ("Why tides", "How gauges work", "What storms do", "Who keeps watch", "When to warn", "Where to learn more")


@pdf(
    "slides",
    passages=tuple(text for name in SLIDES for text in (name, f"First point on {name}", f"Second point on {name}")),
    absent=("Skagen Tide Station 2025",),
    sections={f"Second point on {name}": (name,) for name in SLIDES},
    pages={name: number for number, name in enumerate(SLIDES, 1)},
)
def slides(document: pymupdf.Document) -> None:
    """Landscape pages with a title, two points and the same foot."""
    for number, name in enumerate(SLIDES, 1):
        page = page_of(document, 720, 405)
        write(page, 40, 60, name, size=28)
        write(page, 60, 150, f"First point on {name}", size=16)
        write(page, 60, 190, f"Second point on {name}", size=16)
        write(page, 40, 390, "Skagen Tide Station 2025", size=8)
        write(page, 680, 390, str(number), size=8)


NAMES = ("Ada Holm", "Inge Dahl", "Per Lund", "Else Friis", "Jens Bro", "Karen Vig")


@pdf(
    "mail-merge",
    passages=tuple(text for name in NAMES for text in (f"Dear {name},", *notes("mooring", 4))),
    pages={f"Dear {name},": number for number, name in enumerate(NAMES, 1)},
)
def mail_merge(document: pymupdf.Document) -> None:
    """The same letter to six people: what is repeated on all pages is the letter."""
    for name in NAMES:
        page = page_of(document)
        write(page, MARGIN, 150, f"Dear {name},")
        write_all(page, MARGIN, 190, notes("mooring", 4))


@pdf("same-page-three-times", passages=notes("copied", 6) * 3, pages={notes("copied", 6)[0]: 1})
def same_page(document: pymupdf.Document) -> None:
    """One page three times: what is repeated is the text itself."""
    for _ in range(3):
        write_all(page_of(document), MARGIN, 200, notes("copied", 6))


# --- words


HYPHENS = (
    "The price-determining factor is the wind. After the exam-",
    "ple of last year the keepers agreed on a price-",
    "determining table for the years 10-",
    "20 and a state-of-the-",
    "art gauge, which the manu-",
    "facturer calls well-",
    "known. One example was the E-",
    "mail of the director.",
)


@pdf(
    "hyphens",
    passages=(
        "After the example of last year",
        "a price-determining table",
        "the years 10-20",
        "state-of-the-art gauge",
        "the manufacturer calls",
        "One example was the E-mail of",
    ),
    absent=("exam-", "pricedetermining", "1020", "manu-"),
)
def hyphens(document: pymupdf.Document) -> None:
    """Line ends inside a word, a known compound, a range, and compounds with several hyphens."""
    page_of(document).insert_text((MARGIN, 90), HYPHENS, fontsize=10, lineheight=1.25)


def html(document: pymupdf.Document, text: str) -> None:
    """One page laid out by PyMuPDF's HTML engine, which shapes and brings fonts for all scripts."""
    page_of(document).insert_htmlbox((MARGIN, 60, WIDTH - MARGIN, HEIGHT - 60), text)


SCRIPTS = {
    "ligatures": ("The first office found an efficient flow of fluffy waffles.",),
    "chinese": ("潮汐观测站每天早晨记录海平面的高度。", "遇到风暴，每小时记录一次！"),
    "japanese": ("潮位観測所は毎朝、海面の高さを記録します。", "嵐のときはテレメータで毎時記録します。"),
    "korean": ("조위 관측소는 매일 아침 해수면을 기록한다.",),
    "cyrillic": ("Станция прилива измеряет уровень моря каждый день.", "Ёжик в тумане слышит маяк."),
    "greek-and-accents": ("Ο σταθμός μετρά τη στάθμη της θάλασσας.", "Größe, naïveté, Łódź, Dvořák, İstanbul, œuvre."),
    "hebrew": ("תחנת הגאות מודדת את מפלס הים בכל בוקר",),
    "arabic": ("قطار سريع يمر من هنا كل يوم",),
}
for script, sentences in SCRIPTS.items():
    markup = "".join(f"<p{' dir=rtl' if script in ('hebrew', 'arabic') else ''}>{text}</p>" for text in sentences)
    pdf(script, passages=sentences)(partial(html, text=markup))


# --- tables


ROWS = tuple((f"Pier {number}", f"{number}.{number}5 m", f"{2000 + number}") for number in range(1, 56))


def table(page: pymupdf.Page, y: float, rows: tuple[tuple[str, ...], ...]) -> float:
    """A ruled table with a head; returns the y below it."""
    widths, line = (150, 120, 120), 18
    shape = page.new_shape()
    for row in (("Place", "Highest tide", "Year"), *rows):
        x = MARGIN
        for width, cell in zip(widths, row, strict=True):
            shape.draw_rect((x, y, x + width, y + line))
            shape.insert_text((x + 4, y + 13), cell, fontsize=10)
            x += width
        y += line
    shape.finish(width=0.7)
    shape.commit()
    return y


def as_markdown(row: tuple[str, ...]) -> str:
    """A table row as Markdown has it."""
    return "| " + " | ".join(row) + " |"


@pdf(
    "table",
    passages=(
        *notes("before", 2),
        "| Place | Highest tide | Year |",
        *map(as_markdown, ROWS[:6]),
        *notes("after", 2),
    ),
    kinds={as_markdown(ROWS[2]): "table", notes("after", 2)[0]: "paragraph"},
)
def ruled_table(document: pymupdf.Document) -> None:
    """A ruled table between paragraphs."""
    page = page_of(document)
    y = write_all(page, MARGIN, 90, notes("before", 2))
    write_all(page, MARGIN, table(page, y, ROWS[:6]) + 30, notes("after", 2))


@pdf(
    "table-over-two-pages",
    passages=(*map(as_markdown, ROWS), *notes("after", 2)),
    pages={as_markdown(ROWS[0]): 1, notes("after", 2)[0]: 2},
    kinds={as_markdown(ROWS[3]): "table", as_markdown(ROWS[50]): "table"},
)
def long_table(document: pymupdf.Document) -> None:
    """A ruled table with its head on both pages."""
    table(page_of(document), 60, ROWS[:38])
    page = page_of(document)
    write_all(page, MARGIN, table(page, 60, ROWS[38:]) + 30, notes("after", 2))


@pdf("table-over-five-pages", passages=tuple(map(as_markdown, ROWS)), pages={as_markdown(ROWS[54]): 5})
def very_long_table(document: pymupdf.Document) -> None:
    """A ruled table with its head on each of five pages, and nothing else on them."""
    for first in range(0, 55, 11):
        table(page_of(document), 60, ROWS[first : first + 11])


GAPS = (("North", "", "1911"), ("", "3.2 m", ""), ("A | B", "4.1 m", "1999"))


@pdf("table-with-gaps", passages=("| North | | 1911 |", "| | 3.2 m | |", "A \\| B", "4.1 m", *notes("after", 2)))
def table_with_gaps(document: pymupdf.Document) -> None:
    """Empty cells, and a cell with a vertical bar."""
    page = page_of(document)
    write_all(page, MARGIN, table(page, 60, GAPS) + 30, notes("after", 2))


@pdf("boxed-text", passages=notes("boxed", 4), kinds={notes("boxed", 4)[1]: "paragraph"})
def boxed_text(document: pymupdf.Document) -> None:
    """Paragraphs in a frame, which is no table."""
    page = page_of(document)
    page.draw_rect((MARGIN - 10, 70, 545, 320), width=1)
    write_all(page, MARGIN, 90, notes("boxed", 4))


# --- headings


@pdf(
    "outline",
    title="Handbook of the Tide Gauge",
    passages=("1 Gauges", *notes("gauge", 3), "1.1 Floats", *notes("float", 3), "2 Clocks", *notes("clock", 3)),
    sections={
        notes("gauge", 3)[0]: ("1 Gauges",),
        notes("float", 3)[2]: ("1 Gauges", "1.1 Floats"),
        notes("clock", 3)[1]: ("2 Clocks",),
    },
    pages={notes("clock", 3)[1]: 2},
)
def outline(document: pymupdf.Document) -> None:
    """Sections named by the outline and by bold type of the body's size."""
    page = page_of(document)
    y = write_all(page, MARGIN, write(page, MARGIN, 90, "1 Gauges", font="hebo"), notes("gauge", 3))
    write_all(page, MARGIN, write(page, MARGIN, y, "1.1 Floats", font="hebo"), notes("float", 3))
    page = page_of(document)
    write_all(page, MARGIN, write(page, MARGIN, 90, "2 Clocks", font="hebo"), notes("clock", 3))
    document.set_toc([[1, "1 Gauges", 1], [2, "1.1 Floats", 1], [1, "2 Clocks", 2]])
    document.set_metadata({"title": "Handbook of the Tide Gauge", "author": "Inge Dahl"})


BIG = "How the Lamp on the North Pier Was Kept Burning through Winter"


@pdf(
    "headings-by-size",
    title=BIG,
    passages=(BIG, *notes("lamp", 2), "The Wick", *notes("wick", 3), "The Oil", *notes("oil", 3)),
    sections={notes("wick", 3)[1]: (BIG, "The Wick"), notes("oil", 3)[2]: (BIG, "The Oil")},
    kinds={"The Wick": "heading", notes("oil", 3)[0]: "paragraph"},
)
def headings_by_size(document: pymupdf.Document) -> None:
    """A title over two lines and sections, told by type size alone."""
    page = page_of(document)
    y = write_all(page, MARGIN, write(page, MARGIN, 90, BIG, size=22), notes("lamp", 2))
    for name, subject in (("The Wick", "wick"), ("The Oil", "oil")):
        y = write_all(page, MARGIN, write(page, MARGIN, y + 8, name, size=14), notes(subject, 3))


BOLD = ("Purpose", "Duties of the keeper", "Pay")


@pdf(
    "headings-by-bold-type",
    passages=tuple(text for name in BOLD for text in (name, *notes(name.split()[0].lower(), 3))),
    sections={notes("duties", 3)[1]: ("Duties of the keeper",), notes("pay", 3)[0]: ("Pay",)},
)
def headings_by_bold_type(document: pymupdf.Document) -> None:
    """Sections told by bold type alone."""
    page, y = page_of(document), 90.0
    for name in BOLD:
        y = write(page, MARGIN, y, name, font="hebo")
        y = write_all(page, MARGIN, y, notes(name.split()[0].lower(), 3))


# --- parts of a page


@pdf(
    "footnotes",
    passages=(*notes("body", 4), "1 The first gauge was lost in 1911.", *notes("next", 4)),
    pages={"1 The first gauge was lost in 1911.": 1, notes("next", 4)[0]: 2},
    sections={notes("next", 4)[0]: ()},
)
def footnotes(document: pymupdf.Document) -> None:
    """A note in small type at the foot of the first of two pages."""
    page = page_of(document)
    write_all(page, MARGIN, 90, notes("body", 4))
    page.draw_line((MARGIN, 770), (200, 770))
    write(page, MARGIN, 785, "1 The first gauge was lost in 1911.", size=8)
    write_all(page_of(document), MARGIN, 90, notes("next", 4))


def grey_picture() -> pymupdf.Pixmap:
    """A small grey image."""
    pixmap = pymupdf.Pixmap(pymupdf.csRGB, pymupdf.IRect(0, 0, 60, 40))
    pixmap.clear_with(170)
    return pixmap


@pdf(
    "captions",
    passages=(*notes("above", 2), "Figure 3: The gauge house seen from the sea.", *notes("below", 2)),
    kinds={"Figure 3: The gauge house": "paragraph"},
)
def captions(document: pymupdf.Document) -> None:
    """A picture and its caption between paragraphs."""
    page = page_of(document)
    y = write_all(page, MARGIN, 90, notes("above", 2))
    page.insert_image((MARGIN, y, 300, y + 150), pixmap=grey_picture())
    y = write(page, MARGIN, y + 165, "Figure 3: The gauge house seen from the sea.", size=9)
    write_all(page, MARGIN, y, notes("below", 2))


ITEMS = ("Wind the clock before noon.", "Clean the glass with spirit.", "Write the level into the log.")


@pdf("bullets", passages=("Every day the keeper must:", *ITEMS, "Then he may rest."))
def bullets(document: pymupdf.Document) -> None:
    """A list whose bullets are drawn apart from their items."""
    page = page_of(document)
    y = write(page, MARGIN, 90, "Every day the keeper must:")
    for item in ITEMS:
        page.insert_text((MARGIN + 10, y), "\xb7", fontsize=10)
        y = write(page, MARGIN + 24, y, item)
    write(page, MARGIN, y, "Then he may rest.")


@pdf("form", passages=("Name of the keeper:", "Ada Holm", "Remarks:", "The lamp smokes."))
def form(document: pymupdf.Document) -> None:
    """Two labelled fields, filled in."""
    page = page_of(document)
    for y, label, value in ((100, "Name of the keeper:", "Ada Holm"), (140, "Remarks:", "The lamp smokes.")):
        write(page, MARGIN, y, label)
        widget = pymupdf.Widget()
        widget.field_name, widget.field_type = label.strip(":"), pymupdf.PDF_WIDGET_TYPE_TEXT
        widget.field_value, widget.rect = value, pymupdf.Rect(200, y - 12, 400, y + 6)
        page.add_widget(widget)


@pdf("annotations", passages=(*notes("marked", 3), "Approved by the board."))
def annotations(document: pymupdf.Document) -> None:
    """A highlight, a sticky note and a typed remark on a page of text."""
    page = page_of(document)
    write_all(page, MARGIN, 90, notes("marked", 3))
    page.add_highlight_annot((MARGIN, 80, 300, 95))
    page.add_text_annot((500, 90), "Is this so?")
    page.add_freetext_annot((MARGIN, 400, 300, 430), "Approved by the board.", fontsize=10)
