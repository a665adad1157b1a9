"""ZIP containers from strangers (DOCX, PPTX, EPUB), opened only where unpacking them is safe.

Everything is read in memory. Knows nothing of what the members mean beyond the Office properties.
"""

from __future__ import annotations

import io
import zipfile

from lxml import etree

from rag_pipeline.errors import DocumentError

_MAX_MEMBERS = 20_000
_MAX_UNPACKED_BYTES = 512 * 1024 * 1024
# Below this size any ratio is harmless; above it only a bomb is packed so tight.
_FREE_UNPACKED_BYTES = 64 * 1024 * 1024
_MAX_RATIO = 200
_PROPERTIES = {
    "title": "title",
    "creator": "author",
    "created": "date",
    "keywords": "keywords",
    "subject": "subject",
    "description": "description",
    "language": "language",
}
# What Office and its imitators write where nobody gave a title.
_NO_TITLES = frozenset({"powerpoint presentation", "word document", "presentation", "document", "untitled"})


def open_archive(data: bytes) -> zipfile.ZipFile:
    """Opens an archive whose declared sizes are bearable; `zipfile` never unpacks a member beyond its declaration.

    Raises:
        DocumentError: ``failed:parse`` for a damaged archive or one that unpacks to too much,
            ``failed:encrypted`` for one with a password.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
        members = archive.infolist()
    except Exception as error:  # a damaged table of contents raises several unrelated types
        raise DocumentError("failed:parse", f"not a readable archive: {one_line(error)}") from None
    if any(member.flag_bits & 1 for member in members):
        raise DocumentError("failed:encrypted", "needs a password: save it without one")
    unpacked = sum(member.file_size for member in members)
    bomb = unpacked > max(_FREE_UNPACKED_BYTES, _MAX_RATIO * len(data))
    if len(members) > _MAX_MEMBERS or unpacked > _MAX_UNPACKED_BYTES or bomb:
        raise DocumentError(
            "failed:parse", f"unpacks to {unpacked // 2**20} MB in {len(members)} parts: refused as a ZIP bomb"
        )
    # Other methods unpack whole blocks before their size is looked at; no such document uses them.
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise DocumentError("failed:parse", "packed by a method that such documents do not use")
    return archive


def read_xml(archive: zipfile.ZipFile, name: str) -> etree._Element | None:
    """A member's XML without entities or network, mended where broken; ``None`` where there is none to read."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, recover=True)
    try:
        return etree.fromstring(archive.read(name), parser)
    except Exception:  # missing, or damaged in one of the many ways of zipfile, zlib and lxml
        return None


def properties(archive: zipfile.ZipFile) -> tuple[str, dict[str, str]]:
    """Title and metadata from an Office file's own properties."""
    root = read_xml(archive, "docProps/core.xml")
    return ("", {}) if root is None else take_title(_fields(root))


def _fields(root: etree._Element) -> dict[str, str]:
    found: dict[str, str] = {}
    for element in root:
        name = _PROPERTIES.get(local_name(element))
        if name and element.text:
            found.setdefault(name, element.text)
    return found


def take_title(fields: dict[str, str]) -> tuple[str, dict[str, str]]:
    """The title in one line, and the other fields."""
    title = " ".join(fields.pop("title", "").split())
    return ("" if title.lower() in _NO_TITLES else title), fields


def local_name(element: etree._Element) -> str:
    """An element's name without its namespace, in lower case; empty for comments and the like."""
    return element.tag.rpartition("}")[2].lower() if isinstance(element.tag, str) else ""


def one_line(error: Exception) -> str:
    """An exception's words, short and in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
