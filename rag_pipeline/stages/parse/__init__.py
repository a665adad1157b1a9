"""Parse: one file's bytes to a Document. What the bytes are decides the parser, the name only where they do not say.

Knows nothing of chunks, tokens or where the bytes came from.
"""

from __future__ import annotations

from dataclasses import replace

from rag_pipeline.config import ParseConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.records import Document, FileBytes
from rag_pipeline.stages.parse.encoding import check_size, decode
from rag_pipeline.stages.parse.media_type import media_type_of, type_of_content

__all__ = ["media_type_of", "parse"]

_WRITTEN = ("markdown", "text", "html", "code")


def parse(file: FileBytes, settings: ParseConfig) -> Document:
    """Turns a file into blocks in reading order.

    Raises:
        DocumentError: With the file's final state: ``empty``, ``no_text``, ``skipped:type``,
            ``skipped:too_large``, ``failed:encrypted``, ``failed:encoding`` or ``failed:parse``.
    """
    if not file.data.strip():
        raise DocumentError("empty", "the file holds no bytes" if not file.data else "the file holds only blanks")
    named = media_type_of(file.path)
    proven = type_of_content(file.data, named)
    max_chars = int(settings.max_text_mb * 1e6)
    if proven == "html" or (proven is None and named in _WRITTEN):
        document = _parse_written(file, proven or str(named), max_chars, settings)
    else:
        document = _parse_binary(file, proven, named, settings)
    check_size(sum(len(block.text) for block in document.blocks), max_chars)
    return document


def _parse_written(file: FileBytes, media_type: str, max_chars: int, settings: ParseConfig) -> Document:
    """Files that are characters: decoded first."""
    if media_type == "html":
        from rag_pipeline.stages.parse.html import declared_encoding, parse_html

        text, replaced = decode(file.data, max_chars, declared_encoding(file.data))
        return replace(parse_html(file.path, text), replaced_chars=replaced)
    text, replaced = decode(file.data, max_chars)
    if media_type == "markdown":
        from rag_pipeline.stages.parse.markdown import parse_markdown

        return replace(parse_markdown(file.path, text, settings.markdown), replaced_chars=replaced)
    if media_type == "code":
        from rag_pipeline.stages.parse.code import parse_code

        return replace(parse_code(file.path, text), replaced_chars=replaced)
    from rag_pipeline.stages.parse.text import parse_text

    return replace(parse_text(file.path, text), replaced_chars=replaced)


def _parse_binary(file: FileBytes, proven: str | None, named: str | None, settings: ParseConfig) -> Document:
    if proven == "pdf":
        from rag_pipeline.stages.parse.pdf import parse_pdf

        return parse_pdf(file, settings.pdf)
    if proven == "docx":
        from rag_pipeline.stages.parse.office import parse_docx

        return parse_docx(file)
    if proven == "pptx":
        from rag_pipeline.stages.parse.office import parse_pptx

        return parse_pptx(file)
    if proven == "epub":
        from rag_pipeline.stages.parse.epub import parse_epub

        return parse_epub(file, int(settings.max_text_mb * 1e6))
    raise _not_parsed(file.data, proven, named)


def _not_parsed(data: bytes, proven: str | None, named: str | None) -> DocumentError:
    """Why a file that proves to be nothing that is parsed here is left alone."""
    if proven == "ole" and "EncryptedPackage".encode("utf-16-le") in data:
        return DocumentError("failed:encrypted", "needs a password: save it without one")
    if named in ("docx", "pptx") and proven == "ole":
        return DocumentError("failed:parse", f"an old binary Office file named .{named}: save it as .{named}")
    if named == "pdf":
        return DocumentError("failed:parse", "named .pdf but not a PDF (no %PDF- in its first 1024 bytes)")
    if named in ("docx", "pptx", "epub"):
        return DocumentError("failed:parse", f"named .{named} but not one, or damaged: no such archive can be opened")
    if named in _WRITTEN:
        return DocumentError("failed:encoding", "not a text file but an archive or an old Office file")
    return DocumentError("skipped:type", "no parser for this type of file")
