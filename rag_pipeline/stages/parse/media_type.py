"""Which kind of file it is: what a name promises, and what the first bytes and a ZIP's table of contents prove.

Knows nothing of how any of them is read.
"""

from __future__ import annotations

import io
import re
import zipfile

_ENDINGS = {
    "pdf": "pdf",
    "markdown": "md markdown mdown mkd mdx",
    "text": "txt text rst log csv tsv adoc asciidoc org tex srt vtt",
    "html": "html htm xhtml",
    "docx": "docx docm",
    "pptx": "pptx pptm ppsx",
    "epub": "epub",
    "code": (
        "py pyi js mjs cjs jsx ts tsx java kt kts scala groovy c h cc cpp cxx hh hpp cs m mm swift go rs rb php pl pm "
        "lua r jl ex exs erl hs ml clj dart sh bash zsh fish ps1 bat sql graphql proto yaml yml toml json jsonl ini "
        "cfg conf properties css scss less vue svelte xml xsd xsl cmake gradle tf dockerfile makefile mk"
    ),
}
_NAMES = {
    "text": "readme license licence copying notice authors contributors changelog changes news todo",
    "code": "makefile gnumakefile dockerfile containerfile jenkinsfile vagrantfile gemfile rakefile",
}
_TYPES = {ending: media_type for media_type, endings in _ENDINGS.items() for ending in endings.split()}
_NAMED = {name: media_type for media_type, names in _NAMES.items() for name in names.split()}

_PDF_MARK = b"%PDF-"
_OLE_MARK = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# A page begins with its doctype or root, after nothing but blanks, comments and an XML declaration.
_HTML_MARK = re.compile(rb"\s*+(?:<\?xml[^>]*+>\s*+|<!--(?>.*?-->)\s*+)*+<(?:!doctype\s+html|html)[\s>]", re.I | re.S)
_ZIP_MEMBERS = (("word/document", "docx"), ("ppt/presentation", "pptx"), ("META-INF/container.xml", "epub"))


def media_type_of(path: str) -> str | None:
    """The media type a name promises, or ``None`` where nothing here parses such files."""
    name = path.rsplit("/", 1)[-1].lower()
    return _TYPES.get(name.rsplit(".", 1)[-1]) if "." in name else _NAMED.get(name)


def type_of_content(data: bytes, named: str | None) -> str | None:
    """The media type that bytes prove: one of those parsed here, ``ole``, ``zip``, or ``None`` for no proof.

    Args:
        data: The whole file.
        named: What its name promises. A text may speak of PDFs and source code may hold a page, so
            they need stronger proof than a file whose name says nothing of the kind.
    """
    written = named in ("markdown", "text", "html", "code")
    # PDF readers allow junk before the mark.
    if data.lstrip()[:5] == _PDF_MARK if written else _PDF_MARK in data[:1024]:
        return "pdf"
    if data.startswith(b"PK\x03\x04"):
        return _type_of_zip(data)
    if data.startswith(_OLE_MARK):
        return "ole"
    head = data[:4096].replace(b"\x00", b"").removeprefix(b"\xef\xbb\xbf").lstrip(b"\xff\xfe")
    return "html" if named != "code" and _HTML_MARK.match(head) else None


def _type_of_zip(data: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()
    except Exception:  # a damaged table of contents raises several unrelated types
        return "zip"
    for member, media_type in _ZIP_MEMBERS:
        if any(name.startswith(member) for name in names):
            return media_type
    return "zip"
