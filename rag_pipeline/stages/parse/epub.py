"""EPUB: chapters in the order of the book's spine, title and author from its package file.

Knows nothing of how the archive is made safe or how a chapter's page becomes blocks.
"""

from __future__ import annotations

import posixpath
import zipfile
from collections.abc import Iterator
from urllib.parse import unquote

from lxml import etree

from rag_pipeline.errors import DocumentError
from rag_pipeline.records import Block, Document, FileBytes
from rag_pipeline.stages.parse.archive import local_name, one_line, open_archive, read_xml, take_title
from rag_pipeline.stages.parse.encoding import check_size, decode
from rag_pipeline.stages.parse.front_matter import words_of
from rag_pipeline.stages.parse.html import declared_encoding, read_html

_FIELDS = ("title", "creator", "date", "publisher", "language", "subject", "description")
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_NCX = "application/x-dtbncx+xml"


def parse_epub(file: FileBytes, max_chars: int) -> Document:
    """Reads every chapter; one that cannot be read is left out and the document is `partial`.

    Raises:
        DocumentError: ``failed:parse``, ``failed:encrypted`` or ``no_text``.
    """
    with open_archive(file.data) as archive:
        folder, package = _package(archive)
        title, metadata = take_title(_metadata(package))
        names = _spine(package, folder)
        labels = _labels(archive, package, folder)
        locked = _locked(archive)
        if any(name in locked for name in names):
            raise DocumentError("failed:encrypted", "its chapters are locked by copy protection")
        blocks: list[Block] = []
        broken: list[str] = []
        replaced = chars = 0
        for name in names:
            try:
                chapter, count = _chapter(archive, name, max_chars)
            except DocumentError as error:
                if error.state == "skipped:too_large":
                    raise
                broken.append(f"{name}: {error.message}")
                continue
            blocks += _headed(chapter, labels.get(name, ""))
            chars += sum(len(block.text) for block in chapter)
            check_size(chars, max_chars)
            replaced += count
    if not blocks:
        state = "failed:parse" if broken or not names else "no_text"
        raise DocumentError(state, broken[0] if broken else "no text in its chapters")
    partial = f"{len(broken)} of {len(names)} chapters could not be read, first {broken[0]}" if broken else ""
    return Document(
        file.path, "epub", title, tuple(blocks), None, partial, replaced_chars=replaced, metadata=words_of(metadata)
    )


def _package(archive: zipfile.ZipFile) -> tuple[str, etree._Element]:
    """The folder of the package file, and its root element."""
    container = read_xml(archive, "META-INF/container.xml")
    places = (
        [e.get("full-path") for e in container.iter() if local_name(e) == "rootfile"] if container is not None else []
    )
    for place in places:
        root = read_xml(archive, place) if place else None
        if root is not None:
            return posixpath.dirname(str(place)), root
    raise DocumentError("failed:parse", "not a readable EPUB: its package file is missing or damaged")


def _metadata(package: etree._Element) -> dict[str, str]:
    found: dict[str, str] = {}
    for element in package.iter():
        name = local_name(element)
        if name in _FIELDS and element.text and element.text.strip():
            key = "author" if name == "creator" else name
            if key in ("author", "subject") and key in found:
                found[key] += f", {element.text.strip()}"
            else:
                found.setdefault(key, element.text)
    return found


def _spine(package: etree._Element, folder: str) -> list[str]:
    """Names of the chapters in reading order; the table of contents is no chapter."""
    items = {element.get("id"): element for element in package.iter() if local_name(element) == "item"}
    order = [items.get(e.get("idref")) for e in package.iter() if local_name(e) == "itemref"]
    names = []
    for item in order:
        if item is None or item.get("media-type") not in _PAGES or "nav" in (item.get("properties") or "").split():
            continue
        names.append(_member(folder, item.get("href") or ""))
    return list(dict.fromkeys(names))


def _labels(archive: zipfile.ZipFile, package: etree._Element, folder: str) -> dict[str, str]:
    """What the table of contents calls each chapter, by the first of its places in it."""
    found: dict[str, str] = {}
    for item in (element for element in package.iter() if local_name(element) == "item"):
        if "nav" not in (item.get("properties") or "").split() and item.get("media-type") != _NCX:
            continue
        name = _member(folder, item.get("href") or "")
        root = read_xml(archive, name)
        for place, label in _entries(root) if root is not None else ():
            if place and label:
                found.setdefault(_member(posixpath.dirname(name), place), label)
    return found


def _entries(contents: etree._Element) -> Iterator[tuple[str, str]]:
    """Places and labels of a table of contents, of EPUB 3 (links) or EPUB 2 (points)."""
    label = ""
    for element in contents.iter():
        name = local_name(element)
        if name == "a":
            yield element.get("href") or "", " ".join("".join(element.itertext()).split())
        elif name == "text":
            label = " ".join((element.text or "").split())
        elif name == "content":
            yield element.get("src") or "", label


def _headed(chapter: list[Block], label: str) -> list[Block]:
    """A chapter without headings gets the one the table of contents has for it; books have no pages to cite."""
    if not chapter or not label or any(block.kind == "heading" for block in chapter):
        return chapter
    if chapter[0].text.split() == label.split():
        chapter = chapter[1:]
    return [Block(label, "heading", 1), *chapter]


def _member(folder: str, reference: str) -> str:
    return posixpath.normpath(posixpath.join(folder, unquote(reference.partition("#")[0])))


def _locked(archive: zipfile.ZipFile) -> set[str]:
    """Members that copy protection encrypts; obfuscated fonts are among them in many open books."""
    root = read_xml(archive, "META-INF/encryption.xml")
    if root is None:
        return set()
    return {_member("", e.get("URI") or "") for e in root.iter() if local_name(e) == "cipherreference"}


def _chapter(archive: zipfile.ZipFile, name: str, max_chars: int) -> tuple[list[Block], int]:
    """A chapter's blocks, and how many characters had to be replaced."""
    try:
        data = archive.read(name)
    except Exception as error:  # missing, cut short, or damaged in one of many ways
        raise DocumentError("failed:parse", one_line(error)) from None
    if not data.strip():
        return [], 0
    text, replaced = decode(data, max_chars, declared_encoding(data))
    return read_html(text).blocks, replaced
