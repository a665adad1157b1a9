"""Plain text: bytes to characters, then paragraphs. Knows nothing of markup."""

from __future__ import annotations

import codecs
import re

from rag_pipeline.errors import DocumentError
from rag_pipeline.records import Block, Document, FileBytes

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# The encodings old files really have; asked about all it knows, charset-normalizer guesses DOS code pages for Latin-1.
_LEGACY = ["cp1252", "cp1250", "cp1251", "cp1253", "koi8_r", "gb18030", "cp932", "euc_jp", "euc_kr", "big5"]
MAX_REPLACED_SHARE = 0.05


def decode(data: bytes) -> tuple[str, int]:
    """Decodes bytes: byte order mark, strict UTF-8, then the likeliest legacy encoding.

    Returns:
        The text with ``\\n`` line ends, and how many characters had to be replaced.

    Raises:
        DocumentError: ``failed:encoding`` when it is not text at all.
    """
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _counted(data, encoding)
    if b"\x00" in data[:65536]:
        raise DocumentError(
            "failed:encoding", "holds NUL bytes: not a text file, or UTF-16 without its byte order mark"
        )
    try:
        return _newlines(data.decode("utf-8")), 0
    except UnicodeDecodeError as error:
        strict = error
    text = data.decode("utf-8", "replace")
    replaced = text.count("\ufffd")
    if replaced <= MAX_REPLACED_SHARE * len(text) / 10:  # a few bad bytes in a UTF-8 text
        return _newlines(text), replaced
    from charset_normalizer import from_bytes

    best = from_bytes(data, cp_isolation=_LEGACY).best()
    if best is None:
        raise DocumentError("failed:encoding", f"not UTF-8 (byte {strict.start}) and no other encoding fits")
    return _counted(data, best.encoding)


def _counted(data: bytes, encoding: str) -> tuple[str, int]:
    text = data.decode(encoding, "replace")
    replaced = text.count("\ufffd")
    if replaced > MAX_REPLACED_SHARE * max(len(text), 1):
        raise DocumentError("failed:encoding", f"{replaced} of {len(text)} characters cannot be decoded as {encoding}")
    return _newlines(text), replaced


def _newlines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_text(file: FileBytes) -> Document:
    """Splits plain text into paragraphs at blank lines; form feeds count as blank lines."""
    text, replaced = decode(file.data)
    paragraphs = re.split(r"\n(?:[^\S\n]*\n)+|\f", text)
    blocks = tuple(Block(part.strip("\n")) for part in paragraphs if part.strip())
    return Document(file.path, "text", "", blocks, replaced_chars=replaced)
