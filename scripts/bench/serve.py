"""Questions to `serve` while an `index` run changes the table: errors, milliseconds, versions seen.

usage: .venv/bin/python scripts/bench/serve.py FOLDER QUERIES.jsonl [--per-s 50] [-c CONFIG]

Indexes half of FOLDER's files in a folder of its own, serves it, then adds the other half and edits a tenth, indexes
again, and asks at a fixed rate, whether answers come or not, until the run has ended and ten seconds more. The
questions are real (lines with `query`, as `eval` reads them). An answer counts as wrong when it is not a 200, has no
hits, or cites a chunk twice, as one that mixes a file's old rows with its new ones would.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from rag_pipeline.evaluate import load_questions

RAG = [sys.executable, "-m", "rag_pipeline.cli"]


def main() -> None:
    """Measures before the run, during it and after it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("queries", type=Path)
    parser.add_argument("--per-s", type=float, default=50)
    parser.add_argument("-c", "--config")
    args = parser.parse_args()
    questions = itertools.cycle([question.query for question in load_questions(args.queries)])
    options = ["-c", args.config] if args.config else []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=64) as pool:
        docs, index = Path(folder) / "docs", Path(folder) / "index"
        files = sorted(file for file in args.folder.rglob("*") if file.is_file())
        copy(files[::2], args.folder, docs)
        command = [*RAG, "index", str(docs), "--index", str(index), *options]
        subprocess.run(command, check=False, capture_output=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server = subprocess.Popen([*RAG, "serve", "--index", str(index), "--port", str(port), *options])
        try:
            wait_for(port)
            ask(port, next(questions), time.perf_counter())  # loads the encoder
            report("quiet", [pool.submit(ask, port, *due) for due in paced(questions, args.per_s, 10)])
            copy(files[1::2], args.folder, docs)
            for file in sorted(docs.rglob("*.md"))[::10]:
                file.write_text(file.read_text(errors="replace").replace(" the ", " this ", 3))
            run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            during = paced(itertools.takewhile(lambda _: run.poll() is None, questions), args.per_s, 600)
            report("indexing", [pool.submit(ask, port, *due) for due in during])
            print(f"index: exit code {run.wait()}")
            report("after", [pool.submit(ask, port, *due) for due in paced(questions, args.per_s, 10)])
        finally:
            server.terminate()
            server.wait()


def copy(files: list[Path], source: Path, target: Path) -> None:
    """Copies files with their folders."""
    for file in files:
        to = target / file.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, to)


def wait_for(port: int) -> None:
    """Waits until the server answers."""
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except OSError:
            time.sleep(0.2)
    raise SystemExit("serve does not answer")


def paced(questions: Iterable[str], per_s: float, most_s: float) -> Iterator[tuple[str, float]]:
    """Yields each question when it is due, with the moment it was due."""
    began = time.perf_counter()
    for number, question in enumerate(questions):
        due = began + number / per_s
        if due - began > most_s:
            return
        time.sleep(max(0.0, due - time.perf_counter()))
        yield question, due


Answer = tuple[str, float, int]  # what was wrong, milliseconds since it was due, the version that answered


def ask(port: int, question: str, due: float) -> Answer:
    """One question."""
    url = f"http://127.0.0.1:{port}/api/search?" + urllib.parse.urlencode({"q": question, "k": 10})
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            answer = json.load(response)
    except (OSError, ValueError) as error:
        return f"{type(error).__name__}: {error}", (time.perf_counter() - due) * 1e3, 0
    ids = [hit["chunk_id"] for hit in answer["hits"]]
    wrong = "" if ids and len(ids) == len(set(ids)) else f"{len(ids)} hits, {len(set(ids))} of them different"
    return wrong, (time.perf_counter() - due) * 1e3, answer["version"]


def report(name: str, futures: list[Future[Answer]]) -> None:
    """One line for a phase."""
    answers = [future.result() for future in futures]
    wrong = [what for what, _, _ in answers if what]
    p50, p95, most = np.percentile([took for _, took, _ in answers], [50, 95, 100])
    versions = len({version for _, _, version in answers})
    print(
        f"{name:<9} {len(answers):6} questions, {len(wrong)} wrong, p50 {p50:.0f}  p95 {p95:.0f}  most {most:.0f} ms,"
        f" {versions} versions {wrong[:1] or ''}",
        flush=True,
    )


if __name__ == "__main__":
    main()
