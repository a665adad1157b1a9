"""How long a run with nothing to do takes, as a whole process: `rag-pipeline index` on FILES unchanged files.

usage: python scripts/bench/unchanged.py [FILES] [--rounds N]

Makes FILES small text files in a temporary folder, indexes them once with the fake engine, then times further
runs of the same command and prints their seconds and peak memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main() -> None:
    """Makes the files, indexes once, times the rest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=int, nargs="?", default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        config = root / "hash.yaml"
        config.write_text("recipe: {embedding: {engine: hash}}\nruntime: {files_per_task: 256}\n")
        an_hour_ago = time.time() - 3600
        for number in range(args.files):
            file = root / "docs" / f"{number % 100:02}" / f"{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"Document number {number} is about subject {number % 977}.")
            os.utime(file, (an_hour_ago, an_hour_ago))
        command = [sys.executable, "-m", "rag_pipeline.cli", "index", str(root / "docs")]
        command += ["--index", str(root / "index"), "-c", str(config), "--quiet"]
        started = time.time()
        subprocess.run(command, check=True)
        print(f"first run: {time.time() - started:.1f} s", flush=True)
        seconds, peaks = [], []
        for _ in range(args.rounds):
            started = time.time()
            with subprocess.Popen(command) as process:
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0
            seconds.append(time.time() - started)
            peaks.append(usage.ru_maxrss / 1024)
        print(
            f"nothing to do, {args.files} files: median {statistics.median(seconds):.2f} s",
            [f"{s:.2f}" for s in seconds],
        )
        print(f"peak memory of such a run: {max(peaks):.0f} MiB")


if __name__ == "__main__":
    main()
