"""The whole pipeline, from text files to the committed table, as the number of chunks grows.

usage: .venv/bin/python scripts/bench/growth.py [--chunks 10000 100000] [-c CONFIG] [--folder DIR] [--memory]

Makes synthetic text (random words of a fixed vocabulary, about 60 chunks of 150 tokens a file), indexes it with the
command line in a process of its own, and prints for each size: seconds, the time to the first vectors, chunks/s from
then on, the engine's own rate, the seconds after the last vectors, the stage that limited, peak memory of the driver
(USS, what is its own, and RSS, with what it shares) and of all processes (PSS), sampled, and bytes of the driver's own
memory for each chunk more than the size before. `--memory` prints each sample of the driver to stderr.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import psutil

from rag_pipeline.config import DEFAULT_MODEL
from rag_pipeline.embedding.model import find_model

CHUNKS_PER_FILE = 60
WORDS_PER_CHUNK = 141  # 153 tokens


@functools.cache
def vocabulary() -> list[str]:
    """Words that are one token each for MiniLM."""
    known = json.loads((find_model(DEFAULT_MODEL) / "tokenizer.json").read_text())["model"]["vocab"]
    return sorted(word for word in known if word.isascii() and word.isalpha() and len(word) > 2)


def write_file(job: tuple[str, int]) -> None:
    """One file of random sentences, the same for the same number."""
    path, number = job
    dice, words = random.Random(number), vocabulary()
    paragraphs = []
    for _ in range(CHUNKS_PER_FILE):
        picked = dice.choices(words, k=WORDS_PER_CHUNK)
        sentences = (" ".join(picked[at : at + 15]).capitalize() + "." for at in range(0, WORDS_PER_CHUNK, 15))
        paragraphs.append(" ".join(sentences))
    Path(path).write_text("\n\n".join(paragraphs))


def measure(folder: Path, chunks: int, config: str | None, verbose: bool) -> dict[str, float]:
    """Indexes so many chunks, roughly, and returns what it took."""
    docs = folder / f"docs{chunks}"
    docs.mkdir()
    jobs = [(str(docs / f"{number:06}.txt"), number) for number in range(max(1, chunks // CHUNKS_PER_FILE))]
    with ProcessPoolExecutor() as pool:
        list(pool.map(write_file, jobs, chunksize=64))
    command = [sys.executable, "-m", "rag_pipeline.cli", "index", str(docs), "--index", str(folder / f"index{chunks}")]
    command += ["--json", *(["-c", config] if config else [])]
    peaks = {"driver_mb": 0.0, "driver_rss_mb": 0.0, "all_mb": 0.0}
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        threading.Thread(target=watch, args=(process, peaks, verbose), daemon=True).start()
        stdout, _ = process.communicate()
    seconds = time.monotonic() - started
    report = json.loads(stdout)
    assert process.returncode == 0, report
    embedded, speed = report["chunks"]["embedded"], report["throughput"]
    return {
        "chunks": embedded,
        "seconds": round(seconds, 1),
        "first_vectors_s": speed["first_vectors_s"],
        "chunks_per_s": round(embedded / (report["seconds"] - speed["first_vectors_s"]), 1),
        "engine_chunks_per_s": speed["chunks_per_s"],
        "engine_idle_share": speed["engine_idle_share"],
        "after_vectors_s": round(report["seconds"] - speed["last_vectors_s"], 1),
        "limiting_stage": report["limiting_stage"],
        "stages": {name: round(stage["seconds"], 1) for name, stage in report["stages"].items()},
        **{name: round(value) for name, value in peaks.items()},
    }


def watch(process: subprocess.Popen[str], peaks: dict[str, float], verbose: bool) -> None:
    """Samples memory until the process ends: the driver's five times a second, since a commit takes one, or less."""
    driver = psutil.Process(process.pid)
    for sample in itertools.count():
        if process.poll() is not None:
            return
        with contextlib.suppress(psutil.Error):
            own = driver.memory_full_info()
            peaks["driver_mb"] = max(peaks["driver_mb"], own.uss / 1e6)
            peaks["driver_rss_mb"] = max(peaks["driver_rss_mb"], own.rss / 1e6)
            if verbose:
                print(f"{time.strftime('%X')} {own.uss / 1e6:.0f} {own.rss / 1e6:.0f}", file=sys.stderr)
            if sample % 5 == 0:
                family = [driver, *driver.children(recursive=True)]
                peaks["all_mb"] = max(peaks["all_mb"], sum(one.memory_full_info().pss for one in family) / 1e6)
        time.sleep(0.2)


def main() -> None:
    """Measures each size in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("-c", "--config")
    parser.add_argument("--memory", action="store_true", help="print each sample of the driver's memory")
    parser.add_argument("--folder", help="where to work; default: a temporary folder")
    args = parser.parse_args()
    before: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for chunks in args.chunks:
            found = measure(Path(folder), chunks, args.config, args.memory)
            if before:
                grown = (found["driver_mb"] - before["driver_mb"]) * 1e6
                found["driver_bytes_per_chunk"] = round(grown / (found["chunks"] - before["chunks"]), 1)
            before = found
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
