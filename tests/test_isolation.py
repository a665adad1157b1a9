"""Promise 5: one bad file costs itself only, in bounded time and memory; its neighbours are not parsed twice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rag_pipeline.config import ParseConfig
from rag_pipeline.errors import DocumentError
from rag_pipeline.isolation import IsolatedParser
from rag_pipeline.records import FileBytes

SETTINGS = ParseConfig()


@pytest.fixture(scope="module")
def parser() -> Iterator[IsolatedParser]:
    """An isolated parser that does what a file says, with short limits."""
    with IsolatedParser(timeout_s=1.5, memory_mb=256, function="bad_parsers:parse") as made:
        yield made


def file_of(words: str, folder: Path, path: str = "a.txt") -> FileBytes:
    """A file whose words tell the parser what to do."""
    data = f"{words} {folder}".encode()
    return FileBytes(path, data, "hash", len(data), 0)


def nested_forms(depth: int = 10, width: int = 10) -> bytes:
    """A small PDF of form objects that draw each other: width ** depth drawings."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 100 100] /Resources << /XObject << /F 5 0 R >> "
        b"/Font << /T << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> /Contents 4 0 R >>",
        b"<< /Length 33 >>\nstream\n/F Do BT /T 9 Tf (start) Tj ET   \nendstream",
    ]
    for level in range(depth):
        last = level == depth - 1
        drawing = b"BT /T 9 Tf (x) Tj ET" if last else b"/F Do " * width
        inner = b"" if last else b"/XObject << /F %d 0 R >>" % (level + 6)
        fonts = b"/Font << /T << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >>"
        objects.append(
            b"<< /Type /XObject /Subtype /Form /BBox [0 0 100 100] /Resources << %s %s >> /Length %d >>\n"
            b"stream\n%s\nendstream" % (inner, fonts, len(drawing), drawing)
        )
    body, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return body + b"xref\n0 %d\n0000000000 65535 f \n%strailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (
        len(objects) + 1,
        table,
        len(objects) + 1,
        len(body),
    )


@pytest.mark.parametrize(
    ("words", "state"),
    [
        ("segfault", "failed:crash"),
        ("abort", "failed:crash"),
        ("exit", "failed:crash"),
        ("spin", "failed:timeout"),
        ("wait", "failed:timeout"),
        ("eat", "failed:memory"),
        ("gulp", "failed:memory"),
        ("refuse", "failed:encrypted"),
        ("raise", "failed:parse"),
    ],
)
def test_a_parser_that_ends_badly_costs_its_file_only(
    words: str, state: str, parser: IsolatedParser, tmp_path: Path
) -> None:
    """Whatever native code does, the file gets its state, and files before and after are parsed once."""
    assert parser.parse(file_of("fine", tmp_path, "before.txt"), SETTINGS).text == "fine"
    with pytest.raises(DocumentError) as caught:
        parser.parse(file_of(words, tmp_path, "bad.txt"), SETTINGS)
    assert caught.value.state == state
    assert parser.parse(file_of("fine", tmp_path, "after.txt"), SETTINGS).text == "fine"
    calls = Counter((tmp_path / "calls").read_text().split())
    tries = 1 if words in ("refuse", "raise") else 2
    assert calls == {"before.txt": 1, "bad.txt": tries, "after.txt": 1}


def test_a_child_that_died_once_is_forgiven(parser: IsolatedParser, tmp_path: Path) -> None:
    """The file is tried once more in a fresh child."""
    assert parser.parse(file_of("once", tmp_path), SETTINGS).text == "once"


def test_limits_are_named_in_the_reason(parser: IsolatedParser, tmp_path: Path) -> None:
    """A person learns which limit it was."""
    with pytest.raises(DocumentError, match=r"1\.5 s, twice"):
        parser.parse(file_of("wait", tmp_path), SETTINGS)
    with pytest.raises(DocumentError, match="SIGABRT"):
        parser.parse(file_of("abort", tmp_path), SETTINGS)


def test_a_pdf_that_never_ends_ends() -> None:
    """A PDF of 2 kB whose forms draw each other ten billion times is `failed:timeout` in bounded time."""
    data = nested_forms()
    assert len(data) < 4096
    started = time.monotonic()
    with IsolatedParser(timeout_s=2, memory_mb=1024) as parser, pytest.raises(DocumentError) as caught:
        parser.parse(FileBytes("bomb.pdf", data, "hash", len(data), 0), SETTINGS)
    assert caught.value.state in ("failed:timeout", "failed:memory")
    assert time.monotonic() - started < 20


def test_no_child_outlives_its_parent(tmp_path: Path) -> None:
    """A parent killed with SIGKILL takes its child along, even one that spins in native code."""
    code = (
        "from test_isolation import *; import threading\n"
        "parser = IsolatedParser(600, 256, 'bad_parsers:parse')\n"
        f"parser.parse(file_of('fine', {str(tmp_path)!r}), SETTINGS); print(parser._child.pid, flush=True)\n"
        f"parser.parse(file_of('spin', {str(tmp_path)!r}), SETTINGS)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout
        child = psutil.Process(int(process.stdout.readline()))
        time.sleep(0.5)
        process.kill()
        process.wait()
    deadline = time.monotonic() + 5
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_close_leaves_no_child(tmp_path: Path) -> None:
    """After `close` the child is gone."""
    parser = IsolatedParser(timeout_s=5, memory_mb=256, function="bad_parsers:parse")
    parser.parse(file_of("fine", tmp_path), SETTINGS)
    before = psutil.Process().children()
    parser.close()
    assert len(psutil.Process().children()) == len(before) - 1
