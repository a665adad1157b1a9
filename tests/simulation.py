"""A folder changed at random, an index kept in step with it, and a dictionary that says what it must hold.

The run's own code does everything but the distribution: the stages run in this process instead of Ray's
tasks, so that thousands of steps take minutes. Also a program, for the long form:

usage: .venv/bin/python tests/simulation.py [--seeds N] [--steps N]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pyarrow as pa
from conftest import hash_config

from rag_pipeline import maintenance
from rag_pipeline.config import Config
from rag_pipeline.embedding.hash import _embed_block
from rag_pipeline.pipeline import prepare
from rag_pipeline.records import File, Limits, Report
from rag_pipeline.run import Run
from rag_pipeline.store import Layout
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.store.lock import writer_lock
from rag_pipeline.tasks import Job, Reuse, files_to_table, prepare_block, write_block

SUBJECTS = ["tides", "harbours", "lamps", "gulls", "ropes", "winds", "charts", "buoys"]
RECIPES: list[dict[str, Any]] = [{}, {"chunk": {"max_tokens": 48}}, {"filter": {"min_chars": 40}}]


def receipts_inline(files: tuple[File, ...], job: Job) -> Generator[pa.Table, None, None]:
    """What the graph yields, made in this process: prepare, reuse, embed with the fake engine, write."""
    reuse = Reuse(job)
    for first in range(0, len(files), 3):
        for table in prepare_block(files_to_table(list(files[first : first + 3])), job, prepare):
            yield write_block(_embed_block(reuse(table), job.model.dimension), job)


def index_inline(config: Config, limits: Limits = Limits()) -> Report:  # noqa: B008
    """`pipeline.index` without Ray."""
    run = Run(config, limits)
    listing = run.list()
    run.layout.make()
    with writer_lock(run.layout):
        todo = run.plan(listing)
        report = run.new_report(todo)
        run.execute(todo, report, receipts_inline)
    return report


class Simulation:
    """One seed's folder, its model in memory, and its index."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.docs, self.index = folder / "docs", folder / "index"
        self.docs.mkdir(parents=True)
        self.dice = random.Random(seed)
        self.files: dict[str, str] = {}
        self.old: list[str] = []
        self.recipe: dict[str, Any] = {}
        self.ever: set[str] = set()  # prompts that were ever embedded
        self.clock = 1_600_000_000
        for _ in range(6):
            self.add()
        self.run()

    def step(self) -> str:
        """One random change, one run, one comparison; returns what was done."""
        actions = [self.add, self.edit, self.insert, self.touch, self.delete, self.rename, self.swap]
        actions += [self.copy, self.restore, self.empty, self.change_recipe, self.nothing]
        action = self.dice.choice(actions)
        if len(self.files) < 3:
            action = self.add
        action()
        self.run()
        return action.__name__

    def run(self) -> None:
        """Indexes and compares table and manifest with the model."""
        config = hash_config(self.docs, self.index, recipe=self.recipe)
        before = self.prompts()
        report = index_inline(config, Limits(allow_deletes=True))
        assert maintenance.verify(config) == []
        rows = ChunkTable.open(Layout.at(self.index)).reader().read_all().to_pylist()
        fresh = index_inline(hash_config(self.docs, self.index.parent / "fresh", recipe=self.recipe))
        wanted = ChunkTable.open(Layout.at(self.index.parent / "fresh")).reader().read_all().to_pylist()
        shutil.rmtree(self.index.parent / "fresh")
        assert sorted(map(_essence, rows)) == sorted(map(_essence, wanted))
        assert report.files == fresh.files and set(report.files) <= {"indexed", "empty", "skipped:filtered"}
        found = {row["path"] for row in rows}
        assert {path for path, text in self.files.items() if len(text) > 60} <= found <= set(self.files)
        for row in rows:
            assert row["text"] in self.files[row["path"]]
        new = self.prompts() - before
        assert report.chunks["embedded"] == len(new)
        self.ever |= new

    def prompts(self) -> set[str]:
        """Prompts whose vector the log holds."""
        from rag_pipeline.store.parquet import list_parts, read_part

        parts = (read_part(Layout.at(self.index), part, ["prompt_hash"]) for part in list_parts(Layout.at(self.index)))
        return {value for part in parts for value in part.column(0).to_pylist()}

    def write(self, path: str, text: str) -> None:
        """Writes a file with a time stamp of its own, in the past."""
        self.clock += self.dice.randint(1, 1000)
        self.files[path] = text
        file = self.docs / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        os.utime(file, (self.clock, self.clock))

    def text(self) -> str:
        """A few paragraphs; short ones are common to many files."""
        paragraphs = [f"# On {self.dice.choice(SUBJECTS)}"]
        for _ in range(self.dice.randint(1, 6)):
            words = " ".join(self.dice.choice(SUBJECTS) for _ in range(self.dice.choice([6, 25, 60])))
            paragraphs.append(f"Of {self.dice.randint(1, 9)} {words} and more.")
        return "\n\n".join(paragraphs)

    def pick(self) -> str:
        """Any file."""
        return self.dice.choice(sorted(self.files))

    def add(self) -> None:  # noqa: D102
        self.write(f"{self.dice.choice('abc')}/{self.dice.randint(0, 10**6)}.md", self.text())

    def edit(self) -> None:  # noqa: D102
        path = self.pick()
        self.old.append(self.files[path])
        self.write(path, self.text())

    def insert(self) -> None:  # noqa: D102
        path = self.pick()
        self.write(path, self.files[path] + f"\n\nOne more line about {self.dice.choice(SUBJECTS)}, the last.")

    def touch(self) -> None:  # noqa: D102
        path = self.pick()
        self.write(path, self.files[path])

    def delete(self) -> None:  # noqa: D102
        path = self.pick()
        self.old.append(self.files.pop(path))
        (self.docs / path).unlink()

    def rename(self) -> None:  # noqa: D102
        path, new = self.pick(), f"{self.dice.choice('abc')}/moved{self.dice.randint(0, 10**6)}.md"
        (self.docs / new).parent.mkdir(exist_ok=True)
        (self.docs / path).rename(self.docs / new)
        self.files[new] = self.files.pop(path)

    def swap(self) -> None:  # noqa: D102
        one, two = self.pick(), self.pick()
        spare = self.docs / "spare"
        if one != two:
            (self.docs / one).rename(spare)
            (self.docs / two).rename(self.docs / one)
            spare.rename(self.docs / two)
            self.files[one], self.files[two] = self.files[two], self.files[one]

    def copy(self) -> None:  # noqa: D102
        self.write(f"c/copy{self.dice.randint(0, 10**6)}.md", self.files[self.pick()])

    def restore(self) -> None:  # noqa: D102
        if self.old:
            self.write(self.pick(), self.dice.choice(self.old))

    def empty(self) -> None:  # noqa: D102
        self.write(self.pick(), "")

    def change_recipe(self) -> None:  # noqa: D102
        self.recipe = self.dice.choice(RECIPES)

    def nothing(self) -> None:  # noqa: D102
        return


def _essence(row: dict[str, Any]) -> str:
    """A row without what differs between runs."""
    return repr({key: value for key, value in row.items() if key != "run_id"})


def main() -> int:
    """Runs many seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    args = parser.parse_args()
    for seed in range(args.first, args.first + args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            simulation = Simulation(Path(folder), seed)
            done = Counter(simulation.step() for _ in range(args.steps))
        print(f"seed {seed}: {args.steps} steps, equal after each: {dict(sorted(done.items()))}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
