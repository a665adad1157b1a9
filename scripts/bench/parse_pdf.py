"""Measures how fast PDFs become documents, beside what PyMuPDF's plain `page.get_text()` takes for the same files.

All ways read the same bytes in the same process, interleaved, so that a busy machine slows them alike:

    .venv/bin/python scripts/bench/parse_pdf.py FOLDER [--mode fast] [--mode layout] [--repeats 5]

Prints, for each way, medians of pages/s and million characters/s, and the ratio of pages/s to raw `get_text()`.
`isolated` is `fast` in a child process, as runs have it. Counts CPU time, the child's included. Knows nothing of
cleaning or chunks.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from rag_pipeline.config import ParseConfig, PdfConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.isolation import IsolatedParser
from rag_pipeline.records import FileBytes
from rag_pipeline.stages.parse.pdf import parse_pdf
from rag_pipeline.stages.parse.pdf.mupdf import pymupdf

Way = Callable[[bytes], tuple[int, int]]


def raw(data: bytes) -> tuple[int, int]:
    """Pages and characters by `get_text()`; what cannot be read counts nothing."""
    pages = characters = 0
    try:
        with pymupdf.open(stream=data, filetype="pdf") as document:
            for page in document:
                characters += len(page.get_text())
                pages += 1
    except Exception:
        return 0, 0
    return pages, characters


def ours(settings: PdfConfig) -> Way:
    def way(data: bytes) -> tuple[int, int]:
        try:
            document = parse_pdf(FileBytes("a.pdf", data, "", len(data), 0), settings)
        except DocumentError:
            return 0, 0
        return document.pages or 0, len(document.text)

    return way


def isolated(parser: IsolatedParser) -> Way:
    def way(data: bytes) -> tuple[int, int]:
        try:
            document = parser.parse(FileBytes("a.pdf", data, "", len(data), 0), ParseConfig())
        except DocumentError:
            return 0, 0
        return document.pages or 0, len(document.text)

    return way


def cpu_s() -> float:
    """CPU seconds of this process and its child so far."""
    children = psutil.Process().children()
    return time.process_time() + sum(sum(child.cpu_times()[:2]) for child in children)


def measure(ways: dict[str, Way], files: list[bytes], repeats: int) -> dict[str, list[tuple[float, int]]]:
    """Seconds of CPU and characters of each repeat by way."""
    found: dict[str, list[tuple[float, int]]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            way(files[0])  # whoever is not up yet gets up
            start = cpu_s()
            characters = sum(way(data)[1] for data in files)
            found[name].append((cpu_s() - start, characters))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mode", choices=("fast", "layout"), action="append", help="default: fast")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    files = [path.read_bytes() for path in sorted(arguments.folder.rglob("*.pdf"))]
    pages = sum(raw(data)[0] for data in files)
    ways: dict[str, Way] = {"get_text": raw}
    ways |= {mode: ours(PdfConfig(mode=mode)) for mode in arguments.mode or ["fast"]}
    print(f"{len(files)} files, {pages} pages")
    with IsolatedParser(timeout_s=60, memory_mb=2048) as parser:
        ways["isolated"] = isolated(parser)
        found = measure(ways, files, arguments.repeats)
    for name, repeats in found.items():
        seconds = statistics.median(seconds for seconds, _ in repeats)
        ratio = statistics.median(base / own for (base, _), (own, _) in zip(found["get_text"], repeats, strict=True))
        rate = repeats[0][1] / seconds / 1e6
        print(f"{name:10} {pages / seconds:8.0f} pages/s {rate:8.2f} M characters/s {ratio:8.0%} of get_text")


if __name__ == "__main__":
    main()
