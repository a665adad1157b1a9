"""Parse damaged variants of a folder's PDFs for some minutes, each as a run would: in an isolated child process.

Counts the states that come out. Fails if anything but a document or a DocumentError comes, if cleaning a
document fails, or if a child process is left at the end. The same seed makes the same variants; one that
fails is written to the folder for temporary files.

Usage: python scripts/mutate_pdfs.py [--seconds 240] [--seed N] FOLDER
"""

import argparse
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

from rag_pipeline.config import CleanConfig, ParseConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.isolation import IsolatedParser
from rag_pipeline.records import Document, FileBytes
from rag_pipeline.stages.clean import clean
from rag_pipeline.stages.parse import parse

MAX_BYTES, MAX_VARIANT_BYTES = 2_000_000, 8_000_000
TIMEOUT_S, MEMORY_MB = 5, 1024
UNEXPECTED = "unexpected"  # no state of the package: what `parse_strictly` calls an exception of another type
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
REFERENCE = re.compile(rb"\b\d+ 0 R\b")
OBJECT = re.compile(rb"\b\d+ 0 obj\b.*?\bendobj\b", re.DOTALL)
NAME = re.compile(rb"/[A-Z][A-Za-z0-9]+")
OPENING = re.compile(rb"<<|\[|\bBT\b|\bq\b")
NUMBERS = [b"0", b"-1", b"1", b"7", b"65536", b"2147483647", b"-2147483649", b"99999999999999999999", b"0.00000001"]


def parse_strictly(file: FileBytes, settings: ParseConfig) -> Document:
    """What the child calls: any exception that is neither a DocumentError nor a lack of memory has a name of its own.

    Raises:
        DocumentError: As the parser does, or with state `UNEXPECTED`.
    """
    try:
        return parse(file, settings)
    except (DocumentError, MemoryError):
        raise
    except Exception as error:
        raise DocumentError(UNEXPECTED, f"{type(error).__name__}: {error}") from None


def expand(file: FileBytes, settings: ParseConfig) -> bytes:
    """The same PDF with its streams uncompressed, so that a changed byte is a changed drawing instruction."""
    import pymupdf

    with pymupdf.open(stream=file.data, filetype="pdf") as document:
        return bytes(document.tobytes(expand=255, ascii=False))


# --- ways to damage a file: each takes bytes, another file's bytes and a source of chance


def flip_bytes(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Sets up to forty bytes to anything."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 40)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Drops the end, or a part in the middle."""
    start = chance.randrange(len(data))
    return data[:start] + (data[chance.randrange(start, len(data)) :] if chance.random() < 0.5 else b"")


def splice(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Puts a part of another file over a part of this one."""
    start, length = chance.randrange(len(data)), chance.randint(1, 20_000)
    at = chance.randrange(len(other))
    return data[:start] + other[at : at + length] + data[start + chance.choice([0, length]) :]


def _replace(data: bytes, pattern: re.Pattern[bytes], new: Callable[[bytes], bytes], chance: random.Random) -> bytes:
    """Replaces up to six matches."""
    matches = list(pattern.finditer(data))
    for match in sorted(chance.sample(matches, min(len(matches), chance.randint(1, 6))), key=re.Match.start)[::-1]:
        data = data[: match.start()] + new(match.group()) + data[match.end() :]
    return data


def change_numbers(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Makes sizes, counts and operands extreme."""
    return _replace(data, NUMBER, lambda _: chance.choice(NUMBERS), chance)


def change_references(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Lets objects refer to others: cycles, wrong types."""
    all_references = REFERENCE.findall(data) or [b"1 0 R"]
    return _replace(data, REFERENCE, lambda _: chance.choice(all_references), chance)


def change_names(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Swaps keys and types with others of the same file."""
    names = NAME.findall(data) or [b"/Type"]
    return _replace(data, NAME, lambda _: chance.choice(names), chance)


def duplicate_objects(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Repeats objects somewhere else, now and then hundreds of times."""
    objects = OBJECT.findall(data) or [data[:200]]
    copies = [chance.choice(objects) for _ in range(chance.choice([1, 3, 300]))]
    at = chance.randrange(len(data))
    return data[:at] + b"\n".join(copies)[:MAX_BYTES] + data[at:]


def nest(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Opens arrays, dictionaries, text objects and graphics states thousands of times."""
    depth = chance.choice([50, 3_000, 100_000])
    return _replace(data, OPENING, lambda found: (b"<</A " if found == b"<<" else found + b" ") * depth, chance)


DAMAGES = (
    flip_bytes,
    cut,
    splice,
    change_numbers,
    change_references,
    change_names,
    duplicate_objects,
    nest,
)


def file_of(name: str, data: bytes) -> FileBytes:
    """A file as the parser gets it."""
    return FileBytes(name, data, "hash", len(data), 0)


def originals(folder: Path) -> list[FileBytes]:
    """The folder's PDFs that are not too large, as they are and, where they can be, uncompressed."""
    files = [path for path in sorted(folder.rglob("*.pdf")) if 0 < path.stat().st_size <= MAX_BYTES]
    found = [file_of(path.name, path.read_bytes()) for path in files]
    with IsolatedParser(TIMEOUT_S, MEMORY_MB, function=f"{Path(__file__).stem}:expand") as expander:
        for file in list(found):
            try:
                data = expander.parse(file, ParseConfig())
            except DocumentError:
                continue
            if len(data) <= MAX_BYTES:
                found.append(file_of(f"{file.path} (uncompressed)", data))
    return found


def damage(files: list[FileBytes], chance: random.Random) -> tuple[FileBytes, str]:
    """One variant of one file, and how it was made."""
    file, other = chance.choice(files), chance.choice(files)
    data, steps = file.data, []
    for change in chance.choices(DAMAGES, k=chance.choice([1, 1, 2, 3])):
        data = change(data, other.data, chance) or b"%PDF-1.7"
        steps.append(change.__name__)
    return file_of("variant.pdf", data[:MAX_VARIANT_BYTES]), f"{file.path}: {', '.join(steps)}"


def judge(parser: IsolatedParser, file: FileBytes) -> tuple[str, str]:
    """The state a variant ends in, and what is wrong with that, if anything."""
    try:
        document = parser.parse(file, ParseConfig())
        clean(document, CleanConfig())
    except DocumentError as error:
        return error.state, error.message if error.state == UNEXPECTED else ""
    except Exception as error:
        return UNEXPECTED, f"{type(error).__name__}: {error}"
    return "partial" if document.partial else "indexed", ""


def main() -> int:
    """Damages, parses and counts until the time is up; returns the exit code."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--seconds", type=float, default=240)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    files = originals(given.folder)
    if not files:
        print(f"{given.folder} holds no PDFs of at most {MAX_BYTES} bytes", file=sys.stderr)
        return 2
    states: Counter[str] = Counter()
    wrong, slowest, end = [], (0.0, ""), time.monotonic() + given.seconds
    with IsolatedParser(TIMEOUT_S, MEMORY_MB, function=f"{Path(__file__).stem}:parse_strictly") as parser:
        number = 0
        while time.monotonic() < end:
            variant, story = damage(files, random.Random(f"{given.seed}/{number}"))
            started = time.monotonic()
            state, fault = judge(parser, variant)
            slowest = max(slowest, (time.monotonic() - started, story))
            states[state] += 1
            if fault:
                kept = Path(tempfile.gettempdir()) / f"mutation-{given.seed}-{number}.pdf"
                kept.write_bytes(variant.data)
                wrong.append(f"{kept}: {story}: {fault}")
            number += 1
    left = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=2)[1]
    for state, count in states.most_common():
        print(f"{count:8} {state}")
    print(f"{number:8} variants of {len(files)} files; slowest {slowest[0]:.1f} s: {slowest[1]}")
    for line in [*wrong, *(f"left behind: process {process.pid}" for process in left)]:
        print(line)
    return 1 if wrong or left else 0


if __name__ == "__main__":
    sys.exit(main())
