"""A PDF page as a PNG with a passage marked, drawn by a process of its own that a bad file can only kill.

As a program it reads a PDF on stdin and writes the PNG to stdout. Knows nothing of indexes.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import unicodedata
from collections.abc import Iterable
from typing import Any

from rag_pipeline.errors import SourceError

_TIMEOUT_S = 20
_MEMORY_BYTES = 2**31
_PIXELS_PER_POINT = 2.0
_MAX_SIDE_PIXELS = 3000
_WINDOW_CHARS = 16  # a passage is looked for in pieces of this size, so that a header in its middle costs one
_YELLOW = (1.0, 0.93, 0.5)


def draw_page(pdf: bytes, page: int, passage: str = "", password: str | None = None) -> bytes:
    """Draws one page, from 1, as PNG and marks what it holds of a passage.

    Raises:
        SourceError: Not a PDF that can be drawn, no such page, or it takes too long.
    """
    wanted = json.dumps({"page": page, "passage": passage, "password": password})
    command = [sys.executable, "-m", "rag_pipeline.search.page_image", wanted]
    try:
        done = subprocess.run(command, input=pdf, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise SourceError(f"page {page}: cannot be drawn within {_TIMEOUT_S} s; open the file itself") from None
    if done.returncode or not done.stdout:
        reason = done.stderr.decode(errors="replace").strip().split("\n")[-1][:200]
        raise SourceError(f"page {page}: cannot be drawn: {reason or 'the PDF library stopped'}")
    return done.stdout


def find_passage(words: Iterable[str], passage: str) -> set[int]:
    """Numbers of the page's words that a passage covers, whatever became of blanks, hyphens and line ends."""
    page, owner = "", list[int]()
    for number, word in enumerate(words):
        bare = _bare(word)
        page += bare
        owner += [number] * len(bare)
    wanted = _bare(passage)
    size = min(_WINDOW_CHARS, max(1, len(wanted)))
    found: set[int] = set()
    end = 0
    for first in range(0, len(wanted), size):
        piece = wanted[max(0, min(first, len(wanted) - size)) : first + size]
        at = page.find(piece, max(0, end - size))
        at = page.find(piece) if at < 0 else at
        if at < 0:
            continue
        if 0 < at - end <= 2 * size and found:  # a piece between two that were found
            found.update(owner[end:at])
        found.update(owner[at : at + len(piece)])
        end = at + len(piece)
    return found


def _bare(text: str) -> str:
    return "".join(char for char in unicodedata.normalize("NFKC", text).casefold() if char.isalnum())


def _draw(pdf: bytes, page: int, passage: str, password: str | None) -> bytes:
    import pymupdf

    pymupdf.TOOLS.mupdf_display_errors(False)
    document: Any = pymupdf.open(stream=pdf, filetype="pdf")
    if document.needs_pass and not document.authenticate(password or ""):
        raise ValueError("the PDF is encrypted; set recipe.parse.pdf.password")
    if not 1 <= page <= document.page_count:
        raise ValueError(f"the PDF has {document.page_count} pages")
    sheet = document[page - 1]
    words = sheet.get_text("words")
    marked = find_passage((word[4] for word in words), passage)
    for corners in _joined(words[number] for number in sorted(marked)):
        mark = sheet.add_highlight_annot(pymupdf.Rect(corners))
        mark.set_colors(stroke=_YELLOW)
        mark.update()
    scale = min(_PIXELS_PER_POINT, _MAX_SIDE_PIXELS / max(sheet.rect.width, sheet.rect.height, 1))
    return bytes(sheet.get_pixmap(matrix=pymupdf.Matrix(scale, scale), alpha=False).tobytes("png"))


def _joined(words: Iterable[Any]) -> list[tuple[float, float, float, float]]:
    """Rectangles of marked words, those of one line as one."""
    lines: dict[tuple[int, int], tuple[float, float, float, float]] = {}
    for x0, y0, x1, y1, _, block, line, _ in words:
        old = lines.get((block, line), (x0, y0, x1, y1))
        lines[block, line] = (min(x0, old[0]), min(y0, old[1]), max(x1, old[2]), max(y1, old[3]))
    return list(lines.values())


def main() -> int:
    """The program: a JSON argument, a PDF on stdin, a PNG on stdout."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_TIMEOUT_S, _TIMEOUT_S))
    wanted = json.loads(sys.argv[1])
    try:
        sys.stdout.buffer.write(_draw(sys.stdin.buffer.read(), wanted["page"], wanted["passage"], wanted["password"]))
    except Exception as error:  # whatever the PDF library raises
        print(" ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
