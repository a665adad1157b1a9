"""Parse: one file's bytes to a Document. What the bytes are decides the parser, not the name alone.

Knows nothing of chunks, tokens or where the bytes came from.
"""

from __future__ import annotations

from rag_pipeline.config import ParseConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.records import Document, FileBytes

_EXTENSIONS = {
    "pdf": "pdf",
    "md": "markdown",
    "markdown": "markdown",
    "mdown": "markdown",
    "mkd": "markdown",
    "txt": "text",
    "text": "text",
    "rst": "text",
    "log": "text",
}


def media_type_of(path: str) -> str | None:
    """The media type a name promises, or ``None`` where nothing here parses such files."""
    name = path.rsplit("/", 1)[-1]
    return _EXTENSIONS.get(name.rsplit(".", 1)[-1].lower()) if "." in name else None


def _is_pdf(data: bytes, named_as_text: bool) -> bool:
    """PDF readers allow junk before the mark; a text may speak of PDFs and must begin with it to be one."""
    return data.lstrip().startswith(b"%PDF-") if named_as_text else b"%PDF-" in data[:1024]


def parse(file: FileBytes, settings: ParseConfig) -> Document:
    """Turns a file into blocks in reading order.

    Raises:
        DocumentError: With the file's final state: ``empty``, ``no_text``, ``skipped:type``,
            ``failed:encrypted``, ``failed:encoding`` or ``failed:parse``.
    """
    if not file.data.strip():
        raise DocumentError("empty", "the file holds no bytes" if not file.data else "the file holds only blanks")
    media_type = media_type_of(file.path)
    if _is_pdf(file.data, named_as_text=media_type in ("markdown", "text")):
        from rag_pipeline.stages.parse.pdf import parse_pdf

        return parse_pdf(file, settings.pdf)
    if media_type == "pdf":
        raise DocumentError("failed:parse", "named .pdf but not a PDF (no %PDF- in its first 1024 bytes)")
    if media_type == "markdown":
        from rag_pipeline.stages.parse.markdown import parse_markdown

        return parse_markdown(file, settings.markdown)
    if media_type == "text":
        from rag_pipeline.stages.parse.text import parse_text

        return parse_text(file)
    raise DocumentError("skipped:type", "no parser for this type of file")
