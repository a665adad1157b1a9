"""HTML to blocks: what a reader sees, in order; also what DOCX and EPUB become on their way.

The parser reports tags one by one and no tree is built, so depth costs nothing. Knows nothing of files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lxml import etree

from rag_pipeline.errors import DocumentError
from rag_pipeline.records import Block, Document
from rag_pipeline.stages.parse.front_matter import words_of
from rag_pipeline.stages.parse.table import Table

_DECLARED = re.compile(
    rb"""<(?:meta|\?xml)\b[^>]{0,200}?\b(?:charset|encoding)\s{0,9}=\s{0,9}["']?\s{0,9}([\w.:-]{1,40})""", re.I
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_UNSEEN_TAGS = (
    "script style nav template noscript svg iframe object embed canvas audio video datalist annotation "
    "annotation-xml rp"
)
_BLOCK_TAGS = (
    "p div section article main header footer aside address blockquote figure figcaption form fieldset legend "
    "details summary dl dt dd hr body html center option dialog hgroup caption optgroup menu"
)
_UNSEEN = frozenset(_UNSEEN_TAGS.split())
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_LINE_BREAK = "\x00"  # cannot be in a page: the parser replaces it
_BLANKS = re.compile(r"[ \t\n\r\f\u200b]+")
_META_NAMES = {
    "author": "author",
    "description": "description",
    "keywords": "keywords",
    "date": "date",
    "article:published_time": "date",
    "dc.creator": "author",
    "dc.date": "date",
}


def declared_encoding(data: bytes) -> str:
    """The encoding a page names in its first bytes, or empty."""
    match = _DECLARED.search(data[:2048])
    name = match[1].decode("ascii").lower() if match else ""
    return {"iso-8859-1": "cp1252", "latin1": "cp1252", "shift_jis": "cp932", "gb2312": "gb18030"}.get(name, name)


def parse_html(path: str, text: str) -> Document:
    """Blocks of a page, its title, and what its meta tags say of it.

    Raises:
        DocumentError: ``failed:parse`` when elements are nested too deep to be read.
    """
    page = read_html(text)
    return Document(path, "html", page.title, tuple(page.blocks), metadata=words_of(page.metadata))


@dataclass(slots=True)
class Page:
    """What a page shows, and what it says of itself."""

    blocks: list[Block]
    title: str
    metadata: dict[str, str]


def read_html(text: str) -> Page:
    """Reads HTML or XHTML from characters; broken markup is mended, entities are never fetched."""
    collector = _Collector()
    parser = etree.HTMLParser(target=collector, huge_tree=True, no_network=True)
    try:
        parser.feed(text)
        parser.close()
    except etree.LxmlError as error:
        raise DocumentError("failed:parse", f"not readable as HTML: {' '.join(str(error).split())[:200]}") from None
    if any("depth" in entry.message.lower() for entry in parser.error_log):
        raise DocumentError("failed:parse", "elements are nested too deep to be read")
    blocks = collector.finish()
    title = collector.title or next((b.text for b in blocks if b.kind == "heading" and b.level == 1), "")
    return Page(blocks, " ".join(title.split()), collector.metadata)


@dataclass(slots=True)
class _Frame:
    """A place blocks are collected in: the page, or one cell of a table."""

    blocks: list[Block] = field(default_factory=list)
    inline: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    numbers: list[int | None] = field(default_factory=list)
    marker: str = ""
    heading: int = 0
    pre: int = 0
    is_cell: bool = False


class _Collector:
    """The parser's target: turns start, end and text events into blocks."""

    def __init__(self) -> None:
        self.title = ""
        self.metadata: dict[str, str] = {}
        self._frames = [_Frame()]
        self._tables: list[Table] = []
        self._unseen: list[str] = []
        self._in_title = False

    # --- the parser's events

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""
        tag = tag.rpartition(":")[2].lower()
        if self._unseen:
            if tag == self._unseen[-1]:
                self._unseen.append(tag)
        elif tag in _UNSEEN or "hidden" in attributes or "display:none" in attributes.get("style", "").replace(" ", ""):
            self._unseen.append(tag)
        elif tag == "title":
            self._in_title = not self.title
        elif tag in ("meta", "html"):
            self._note(attributes)
        elif tag in ("table", "tr", "td", "th"):
            self._start_table_part(tag, attributes)
        else:
            self._start_flow(self._frames[-1], tag, attributes)

    def end(self, tag: str) -> None:
        """An element ends."""
        tag = tag.rpartition(":")[2].lower()
        frame = self._frames[-1]
        if self._unseen:
            if tag == self._unseen[-1]:
                self._unseen.pop()
        elif tag == "title":
            self._in_title = False
        elif tag in ("td", "th"):
            self._end_cell()
        elif tag == "table":
            self._end_table()
        else:
            self._end_flow(frame, tag)

    def data(self, text: str) -> None:
        """Characters."""
        if self._in_title:
            self.title += text
        elif not self._unseen:
            self._frames[-1].inline.append(text)

    def close(self) -> None:
        """The page ends."""

    def finish(self) -> list[Block]:
        """All blocks of the page; what was left open is closed."""
        while self._tables:
            self._end_table()
        self._finish_frame(self._frames[0])
        return self._frames[0].blocks

    # --- text and lists

    def _start_flow(self, frame: _Frame, tag: str, attributes: dict[str, str]) -> None:
        if tag == "br":
            frame.inline.append("\n" if frame.pre else _LINE_BREAK)
        elif tag == "img":
            frame.inline.append(f" {attributes.get('alt') or ''} ")
        elif tag in ("ul", "ol"):
            self._flush(frame)
            frame.numbers.append(_number(attributes.get("start")) if tag == "ol" else None)
        elif tag == "li":
            self._flush(frame)
            frame.marker = self._marker(frame)
        elif tag in _HEADINGS or tag == "pre":
            self._flush(frame)
            frame.heading = _HEADINGS.get(tag, 0)
            frame.pre += tag == "pre"
        elif tag in _BLOCKS:
            self._break(frame)

    def _end_flow(self, frame: _Frame, tag: str) -> None:
        if tag in ("ul", "ol"):
            self._flush(frame)
            if frame.numbers:
                frame.numbers.pop()
            if not frame.numbers:
                self._flush_items(frame)
        elif tag == "pre":
            self._flush(frame)
            frame.pre = max(0, frame.pre - 1)
        elif tag == "li" or tag in _HEADINGS:
            self._flush(frame)
            frame.heading = 0
        elif tag in _BLOCKS:
            self._break(frame)

    def _break(self, frame: _Frame) -> None:
        """A block begins or ends; inside code that is a new line only."""
        if not frame.pre:
            self._flush(frame)
        elif frame.inline and not frame.inline[-1].endswith("\n"):
            frame.inline.append("\n")

    def _marker(self, frame: _Frame) -> str:
        number = frame.numbers[-1] if frame.numbers else None
        if number is None:
            return "- "
        frame.numbers[-1] = number + 1
        return f"{number}. "

    def _flush(self, frame: _Frame) -> None:
        """Ends a run of text: a list item's lines, a heading, code or a paragraph."""
        text = "".join(frame.inline)
        frame.inline.clear()
        text = text.strip("\n") if frame.pre else _squeeze(text)
        if not text.strip():
            return
        heading, frame.heading = frame.heading, 0
        if frame.numbers and not heading:
            indent = "  " * (len(frame.numbers) - 1)
            first = indent + frame.marker if frame.marker else indent + "  "
            frame.items.append(first + text.replace("\n", "\n" + indent + "  "))
            frame.marker = ""
            return
        self._flush_items(frame)
        kind = "heading" if heading else "code" if frame.pre else "paragraph"
        frame.blocks.append(Block(" ".join(text.split()) if heading else text, kind, heading))

    def _flush_items(self, frame: _Frame) -> None:
        if frame.items:
            frame.blocks.append(Block("\n".join(frame.items), "list"))
            frame.items = []

    # --- tables

    def _start_table_part(self, tag: str, attributes: dict[str, str]) -> None:
        frame = self._frames[-1]
        if tag == "table":
            self._finish_frame(frame)
            self._tables.append(Table(layout=attributes.get("role") in ("presentation", "none")))
            self._frames.append(_Frame())
            return
        if not self._tables:  # a stray part of a table is a plain block
            self._flush(frame)
            return
        self._end_cell()
        if tag == "tr":
            self._tables[-1].rows.append([])
        else:
            self._finish_frame(self._frames[-1])
            self._frames.append(_Frame(is_cell=True))

    def _end_cell(self) -> None:
        """Moves what a cell collected into its row."""
        if self._frames[-1].is_cell:
            cell = self._frames.pop()
            self._finish_frame(cell)
            rows = self._tables[-1].rows
            if not rows:
                rows.append([])
            rows[-1].append(cell.blocks)

    def _end_table(self) -> None:
        """What stood in the table beside its cells, its caption above all, comes before it."""
        if self._tables:
            self._end_cell()
            beside = self._frames.pop()
            self._finish_frame(beside)
            self._frames[-1].blocks += [*beside.blocks, *self._tables.pop().to_blocks()]

    def _finish_frame(self, frame: _Frame) -> None:
        self._flush(frame)
        self._flush_items(frame)

    # --- what a page says of itself

    def _note(self, attributes: dict[str, str]) -> None:
        if language := attributes.get("lang") or attributes.get("xml:lang"):
            self.metadata.setdefault("language", language)
        name = _META_NAMES.get((attributes.get("name") or attributes.get("property") or "").lower())
        if name and attributes.get("content"):
            self.metadata.setdefault(name, attributes["content"])


def _number(start: str | None) -> int:
    return int(start) if start and re.fullmatch(r"\d{1,6}", start) else 1


def _squeeze(text: str) -> str:
    """Runs of blanks become one, as a browser shows them; line breaks stay."""
    lines = (_BLANKS.sub(" ", line).strip() for line in text.split(_LINE_BREAK))
    return "\n".join(line for line in lines if line)
