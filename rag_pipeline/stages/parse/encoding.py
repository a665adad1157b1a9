"""Encodings: bytes to characters with ``\\n`` line ends, saying how many had to be replaced.

Knows nothing of what the characters mean.
"""

from __future__ import annotations

import codecs
import re

from rag_pipeline.errors import DocumentError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# The encodings old files really have; asked about all it knows, charset-normalizer guesses DOS code pages for Latin-1.
_LEGACY = ["cp1252", "cp1250", "cp1251", "cp1253", "koi8_r", "gb18030", "cp932", "euc_jp", "euc_kr", "big5"]
_PAGE_ENCODINGS = re.compile(r"utf-8|cp\d|iso8859|koi8|gb|big5|euc|shift|iso2022|mac|hz|tis")
_GUESS_BYTES = 100_000
MAX_REPLACED_SHARE = 0.05
_BEYOND_ASCII = re.compile("[^\x00-\x7f\ufffd]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def decode(data: bytes, max_chars: int, declared: str = "") -> tuple[str, int]:
    """Decodes bytes: byte order mark, declaration, UTF-16 by its NULs, strict UTF-8, the likeliest legacy encoding.

    Returns:
        The text with ``\\n`` line ends, and how many characters had to be replaced.

    Raises:
        DocumentError: ``failed:encoding`` when it is not text at all, ``skipped:too_large`` when it
            has more characters than `max_chars`.
    """
    check_size(len(data) // 4, max_chars)  # no encoding takes more than four bytes a character
    text, replaced = _decode(data, declared)
    check_size(len(text), max_chars)
    controls = sum(1 for _ in _CONTROLS.finditer(text))
    if controls > MAX_REPLACED_SHARE * len(text):
        raise DocumentError("failed:encoding", f"not a text file: {controls} of {len(text)} characters are controls")
    return text.replace("\r\n", "\n").replace("\r", "\n"), replaced


def check_size(chars: int, max_chars: int) -> None:
    """Refuses more text than the recipe allows."""
    if chars > max_chars:
        raise DocumentError(
            "skipped:too_large", f"more than {max_chars / 1e6:g} million characters; raise recipe.parse.max_text_mb"
        )


def _decode(data: bytes, declared: str) -> tuple[str, int]:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _counted(data, encoding)
    if _is_known(declared):
        try:
            return _counted(data, declared)
        except DocumentError:  # the declaration is wrong: go by the bytes
            pass
    if encoding := _unmarked_utf16(data):
        return _counted(data, encoding)
    try:
        return data.decode("utf-8"), 0
    except UnicodeDecodeError as error:
        position = error.start
    text = data.decode("utf-8", "replace")
    replaced = text.count("\ufffd")
    proven = sum(1 for _ in _BEYOND_ASCII.finditer(text))
    if replaced <= min(MAX_REPLACED_SHARE * len(text) / 10, proven):  # a few bad bytes in a UTF-8 text
        return text, replaced
    return _counted(data, _guess(data, position) or "utf-8")


def _is_known(encoding: str) -> bool:
    """Whether a declared name is an encoding that pages have; UTF-16 declared without its mark is never true."""
    try:
        return bool(encoding) and bool(_PAGE_ENCODINGS.match(codecs.lookup(encoding).name))
    except (LookupError, ValueError):
        return False


def _unmarked_utf16(data: bytes) -> str:
    """UTF-16 without its mark, where many characters are below U+0100: every other byte is then mostly NUL."""
    head = data[:8192]
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) < len(head) * 0.15 or min(even, odd) > max(even, odd) * 0.05:
        return ""
    return "utf-16-le" if odd > even else "utf-16-be"


def _guess(data: bytes, position: int) -> str:
    """The legacy encoding that fits best, by the lines near that place that are not ASCII; empty if none does."""
    from charset_normalizer import from_bytes

    start = _blank_before(data, position - _GUESS_BYTES) + 1
    end = _blank_before(data, position + _GUESS_BYTES)
    if end <= position or len(data) <= position + _GUESS_BYTES:  # nowhere to cut, or no need to
        end = len(data)
    telling = b"\n".join(line for line in data[start:end].split(b"\n") if not line.isascii())
    best = from_bytes(telling, cp_isolation=_LEGACY).best()
    return best.encoding if best else ""


def _blank_before(data: bytes, position: int) -> int:
    """The last blank before a position, -1 for none: no encoding has one inside a character."""
    return max(data.rfind(blank, 0, max(position, 0)) for blank in (b"\n", b" "))


def _counted(data: bytes, encoding: str) -> tuple[str, int]:
    text = data.decode(encoding, "replace")
    replaced = text.count("\ufffd")
    if replaced > MAX_REPLACED_SHARE * max(len(text), 1):
        raise DocumentError("failed:encoding", f"{replaced} of {len(text)} characters cannot be decoded as {encoding}")
    return text, replaced
