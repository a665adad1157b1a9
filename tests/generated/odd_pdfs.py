"""The generated PDFs that are odd: in size, in their fonts, in what they hide, in being damaged or no PDF at all.

Knows nothing of parsers; well-made pages are in `layouts`.
"""

from __future__ import annotations

from functools import partial

import pymupdf

from generated.drawing import HEIGHT, MARGIN, WIDTH, made_by, notes, page_of, register, save, wrap, write_all
from generated.record import Generated

ODD_PDFS: list[Generated] = []
pdf = partial(register, ODD_PDFS)


# --- sizes and numbers of pages


LINES = tuple(f"Line {number} of the roll was written when the bell rang {number * 7} times." for number in range(700))


@pdf("very-long-page", passages=LINES)
def very_long_page(document: pymupdf.Document) -> None:
    """One page as long as PDF allows, 700 lines."""
    page = page_of(document, WIDTH, 14_400)
    page.insert_text((MARGIN, 60), LINES, fontsize=10, lineheight=2)


@pdf("tiny-page", passages=("Tide 3.2 m",))
def tiny_page(document: pymupdf.Document) -> None:
    """One page smaller than a stamp."""
    page_of(document, 60, 40).insert_text((5, 20), "Tide 3.2 m", fontsize=8)


@pdf(
    "two-hundred-pages",
    passages=tuple(notes(f"day{number}", 1)[0] for number in range(1, 201)),
    pages={notes(f"day{number}", 1)[0]: number for number in (1, 99, 200)},
)
def two_hundred_pages(document: pymupdf.Document) -> None:
    """Pages of one paragraph each, which differ in numbers mostly."""
    for number in range(1, 201):
        write_all(page_of(document, 300, 200), 20, 40, notes(f"day{number}", 1), 260)


@pdf("empty-page-inside", passages=notes("one", 3) + notes("three", 3), pages={notes("three", 3)[0]: 3})
def empty_page_inside(document: pymupdf.Document) -> None:
    """Three pages, the second empty."""
    write_all(page_of(document), MARGIN, 90, notes("one", 3))
    page_of(document)
    write_all(page_of(document), MARGIN, 90, notes("three", 3))


# --- pictures and hidden text


def picture_of(paragraphs: tuple[str, ...]) -> pymupdf.Pixmap:
    """Paragraphs as an image of a page."""
    with pymupdf.open() as drawn:
        write_all(page_of(drawn), MARGIN, 90, paragraphs)
        return drawn[0].get_pixmap(dpi=70)


@pdf("scan", states=("no_text",))
def scan(document: pymupdf.Document) -> None:
    """An image of a page and no text."""
    page_of(document).insert_image((0, 0, WIDTH, HEIGHT), pixmap=picture_of(notes("scanned", 5)))


@pdf("scan-with-text-layer", passages=notes("scanned", 5))
def scan_with_text(document: pymupdf.Document) -> None:
    """An image of a page with its text, invisible, over it."""
    page = page_of(document)
    page.insert_image((0, 0, WIDTH, HEIGHT), pixmap=picture_of(notes("scanned", 5)))
    for number, paragraph in enumerate(notes("scanned", 5)):
        at = (MARGIN, 90 + 46.5 * number)
        page.insert_text(at, wrap(paragraph, 475, 10), fontsize=10, lineheight=1.25, render_mode=3)


# --- fonts that do not say what they draw


def unmapped_page(document: pymupdf.Document, paragraphs: tuple[str, ...]) -> None:
    """A page of glyph numbers without a map to letters: careless readers see a shifted alphabet."""
    page = page_of(document)
    writer = pymupdf.TextWriter(page.rect)
    font = pymupdf.Font(language="en")
    for number, line in enumerate(wrap(" ".join(paragraphs), 475, 10)):
        writer.append((MARGIN, 90 + 14 * number), line, font=font, fontsize=10)
    writer.write_text(page)
    document.subset_fonts()
    for entry in document.get_page_fonts(page.number):
        document.xref_set_key(entry[0], "ToUnicode", "null")


@pdf("no-tounicode", states=("no_text",))
def no_tounicode(document: pymupdf.Document) -> None:
    """Text that only eyes can read."""
    unmapped_page(document, notes("nameless", 5))


@pdf(
    "no-tounicode-on-one-page",
    states=("indexed", "partial"),
    passages=notes("named", 5),
    absent=("ZDWHU",),
    pages={notes("named", 5)[4]: 2},
)
def no_tounicode_on_one_page(document: pymupdf.Document) -> None:
    """A page that only eyes can read before one that all can."""
    unmapped_page(document, notes("nameless", 5))
    write_all(page_of(document), MARGIN, 90, notes("named", 5))


@pdf("nul-characters", passages=("The log of", "day by day, the keeper"), absent=("\x00", "\x01"))
def nul_characters(document: pymupdf.Document) -> None:
    """Characters 0 and 1, which have no letter, between words and inside one."""
    line = "The log of \x00 was wro\x01ten day by day, the keeper says.\x00"
    page_of(document).insert_text((MARGIN, 90), line, fontsize=10)


# --- files that are not what they should be


def _six_pages(document: pymupdf.Document) -> None:
    for number in range(1, 7):
        write_all(page_of(document), MARGIN, 90, notes(f"chapter{number}", 6))


@pdf("user-password", states=("failed:encrypted",))
def user_password(document: pymupdf.Document) -> bytes:
    """Cannot be opened without a password."""
    _six_pages(document)
    return save(document, encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="harbour", owner_pw="master")


@pdf("owner-password", passages=notes("chapter1", 6), pages={notes("chapter6", 6)[5]: 6})
def owner_password(document: pymupdf.Document) -> bytes:
    """Can be opened by anybody; printing needs a password."""
    _six_pages(document)
    return save(document, encryption=pymupdf.PDF_ENCRYPT_AES_256, owner_pw="master")


@pdf("cut-in-half", states=("partial", "failed:parse"))
def cut_in_half(document: pymupdf.Document) -> bytes:
    """The first half of a file's bytes."""
    _six_pages(document)
    whole = save(document)
    return whole[: len(whole) // 2]


@pdf("no-cross-references", states=("indexed", "partial"), passages=notes("chapter1", 6) + notes("chapter6", 6))
def no_cross_references(document: pymupdf.Document) -> bytes:
    """The file's table of objects is missing."""
    _six_pages(document)
    whole = save(document)
    return whole[: whole.rindex(b"xref", 0, whole.rindex(b"startxref"))] + b"%%EOF\n"


@pdf("junk-before-the-mark", passages=notes("chapter1", 6))
def junk_before(document: pymupdf.Document) -> bytes:
    """A mail's header line before the file."""
    _six_pages(document)
    return b"Content-Type: application/pdf\r\n\r\n" + save(document)


@pdf("no-bytes", states=("empty",))
def no_bytes(document: pymupdf.Document) -> bytes:
    """A file of zero bytes."""
    return b""


@pdf("not-a-pdf", states=("failed:parse",))
def not_a_pdf(document: pymupdf.Document) -> bytes:
    """Bytes that are nothing at all."""
    return bytes(range(128, 256)) * 40


@pdf(
    "html-page",
    media_type="html",
    title="The harbour's opening hours",
    passages=("Opening hours", "The harbour opens at six & closes at ten."),
    absent=("<p>", "&amp;", "var x", "color: red"),
    sections={"The harbour opens": ("Opening hours",)},
)
def html_page(document: pymupdf.Document) -> bytes:
    """A web page that somebody named .pdf."""
    return (
        b"<!DOCTYPE html>\n<html><head><title>The harbour's opening hours</title><style>p {color: red}</style>"
        b"<script>var x = 1;</script></head><body><h1>Opening hours</h1>\n"
        b"<p>The harbour opens at six &amp; closes at ten.</p></body></html>\n"
    )


def _one_page(document: pymupdf.Document) -> None:
    write_all(page_of(document), MARGIN, 90, notes("misnamed", 6))


ODD_PDFS.append(Generated("pdf-page.md", partial(made_by, _one_page), media_type="pdf", passages=notes("misnamed", 6)))
