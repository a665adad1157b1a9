"""Word and PowerPoint files: DOCX by mammoth through HTML, PPTX by python-pptx slide by slide.

Left out: headers, footers, deleted and hidden text, comments, pictures, charts and SmartArt. Knows
nothing of how the archive is made safe.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from typing import Any

from rag_pipeline.errors import DocumentError
from rag_pipeline.records import Block, Document, FileBytes
from rag_pipeline.stages.parse.archive import one_line, open_archive, properties
from rag_pipeline.stages.parse.front_matter import words_of
from rag_pipeline.stages.parse.html import read_html
from rag_pipeline.stages.parse.table import table_text

_STYLES = """
p[style-name='Title'] => h1:fresh
p[style-name='Subtitle'] => p:fresh
p[style-name='Heading 7'] => h6:fresh
p[style-name='heading 7'] => h6:fresh
p[style-name='HTML Preformatted'] => pre:separator('\\n')
p[style-name='Source Code'] => pre:separator('\\n')
p[style-name='Preformatted Text'] => pre:separator('\\n')
"""
_MAX_TITLE_CHARS = 120


def parse_docx(file: FileBytes) -> Document:
    """Headings by their styles, lists, tables and paragraphs of a Word file.

    Raises:
        DocumentError: ``failed:parse``, ``failed:encrypted`` or ``no_text``.
    """
    import mammoth

    with open_archive(file.data) as archive:
        title, metadata = properties(archive)
    try:
        html = mammoth.convert_to_html(
            io.BytesIO(file.data), style_map=_STYLES, convert_image=mammoth.images.img_element(lambda image: {})
        ).value
    except Exception as error:  # mammoth raises whatever its parts do
        raise DocumentError("failed:parse", f"not a readable Word file: {one_line(error)}") from None
    page = read_html(html)
    if not page.blocks:
        raise DocumentError("no_text", "no text in it: pictures, perhaps")
    return Document(file.path, "docx", title or page.title, tuple(page.blocks), metadata=words_of(metadata))


def parse_pptx(file: FileBytes) -> Document:
    """Slides in order, each under its title; pages are slides, notes stand after their slide's text.

    Raises:
        DocumentError: ``failed:parse``, ``failed:encrypted`` or ``no_text``.
    """
    import pptx

    with open_archive(file.data) as archive:
        title, metadata = properties(archive)
    try:
        slides = list(pptx.Presentation(io.BytesIO(file.data)).slides)
    except Exception as error:  # python-pptx and lxml raise many unrelated types
        raise DocumentError("failed:parse", f"not a readable PowerPoint file: {one_line(error)}") from None
    blocks: list[Block] = []
    broken = []
    for number, slide in enumerate(slides, 1):
        try:
            blocks.extend(list(_slide(slide, number)))
        except Exception as error:
            broken.append(f"slide {number}: {one_line(error)}")
    partial = f"{len(broken)} of {len(slides)} slides could not be read, first {broken[0]}" if broken else ""
    if not blocks:
        if broken:
            raise DocumentError("failed:parse", partial)
        raise DocumentError("no_text", f"no text on its {len(slides)} slides: pictures, perhaps")
    title = title or next((block.text for block in blocks if block.kind == "heading"), "")
    return Document(file.path, "pptx", title, tuple(blocks), len(slides), partial, metadata=words_of(metadata))


def _slide(slide: Any, number: int) -> Iterator[Block]:
    """A slide's blocks; its heading is its title, else its first line, else what PowerPoint calls it."""
    placeholder = slide.shapes.title
    heading = " ".join(placeholder.text_frame.text.split()) if placeholder is not None else ""
    shapes = [shape for shape in _shapes(slide.shapes) if placeholder is None or shape.shape_id != placeholder.shape_id]
    body = [block for shape in shapes for block in _shape(shape, number)]
    if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None and notes.text.strip():
        body.append(Block(_plain(notes.text), page=number))
    if not heading and body:
        first = body[0]
        is_line = first.kind == "paragraph" and len(first.text) <= _MAX_TITLE_CHARS and "\n" not in first.text
        heading = body.pop(0).text if is_line else f"Slide {number}"
    if heading:
        yield Block(heading, "heading", 1, number)
    yield from body


def _shapes(shapes: Any) -> Iterator[Any]:
    """All shapes in reading order, groups opened; dates, footers and slide numbers are left out."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        elif not (shape.is_placeholder and shape.placeholder_format.type in _furniture()):
            yield shape


@functools.cache
def _furniture() -> tuple[Any, ...]:
    from pptx.enum.shapes import PP_PLACEHOLDER

    return (PP_PLACEHOLDER.DATE, PP_PLACEHOLDER.FOOTER, PP_PLACEHOLDER.HEADER, PP_PLACEHOLDER.SLIDE_NUMBER)


def _shape(shape: Any, number: int) -> Iterator[Block]:
    if getattr(shape, "has_table", False) and shape.has_table:
        text = table_text([[cell.text for cell in row.cells] for row in shape.table.rows])
        if text:
            yield Block(text, "table", page=number)
    elif shape.has_text_frame:
        paragraphs = [(p.level, _plain(p.text)) for p in shape.text_frame.paragraphs]
        lines = [(level, text) for level, text in paragraphs if text]
        if len(lines) == 1:
            yield Block(lines[0][1], page=number)
        elif lines:
            yield Block("\n".join(f"{'  ' * level}- {text}" for level, text in lines), "list", page=number)


def _plain(text: str) -> str:
    """Text with PowerPoint's line breaks as spaces where they break a line, paragraphs as lines."""
    lines = (" ".join(line.replace("\v", " ").split()) for line in text.split("\n"))
    return "\n".join(line for line in lines if line)
