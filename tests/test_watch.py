"""Watching a source: a run after every change and none without, failures outlived, a graceful end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from rag_pipeline import errors
from rag_pipeline.config import SourceConfig
from rag_pipeline.watch import watch

RAG = [sys.executable, "-m", "rag_pipeline.cli"]


class Runs:
    """A job that writes down what it finds, watched in a thread until its last run."""

    def __init__(self, folder: Path, interval_s: float | None, codes: list[int] | None = None, last: int = 2) -> None:
        self.found: list[list[str]] = []
        self.told: list[str] = []
        self._folder, self._codes, self._last = folder, codes or [], last
        source = SourceConfig(path=str(folder), exclude=("drafts/",))
        self._thread = threading.Thread(target=self._watch, args=(source, interval_s), daemon=True)
        self._thread.start()

    def _watch(self, source: SourceConfig, interval_s: float | None) -> None:
        try:
            watch(source, self._run, interval_s, self.told.append)
        except KeyboardInterrupt:
            self.found.append(["interrupted"])

    def _run(self) -> int:
        if len(self.found) == self._last:
            raise KeyboardInterrupt
        self.found.append(sorted(file.name for file in self._folder.rglob("*") if file.is_file()))
        return self._codes[len(self.found) - 1] if len(self.found) <= len(self._codes) else errors.EXIT_OK

    def wait_for(self, count: int, timeout_s: float = 10) -> None:
        """Returns when so many runs have begun."""
        wait_until(lambda: len(self.found) >= count, timeout_s)


def wait_until(condition: Callable[[], object], timeout_s: float = 10) -> None:
    """Waits for something that must come true."""
    give_up = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.05)


@pytest.mark.parametrize("interval_s", [None, 0.2])
def test_a_change_makes_one_run_and_none_makes_none(interval_s: float | None, docs: Path) -> None:
    """At once a run, then one for a burst of changes, deep ones too; what is never read wakes nobody."""
    runs = Runs(docs, interval_s, last=9)
    runs.wait_for(1)
    if interval_s is None:
        (docs / ".hidden.md").write_text("x")
        (docs / "drafts").mkdir()
        (docs / "drafts" / "later.md").write_text("x")
    time.sleep(1.5)
    assert len(runs.found) == 1
    for number in range(5):
        (docs / "deep" / "er" / f"new{number}.md").write_text("Of lighthouses.")
    runs.wait_for(2)
    wait_until(lambda: "new4.md" in runs.found[-1])
    (docs / "file1.md").unlink()
    wait_until(lambda: "file1.md" not in runs.found[-1])
    assert len(runs.found) <= 5


def test_a_change_during_a_run_is_not_lost(docs: Path) -> None:
    """What is written while a run is under way brings about the next one."""
    states: list[bool] = []

    def run() -> int:
        states.append((docs / "meanwhile.md").exists())
        if len(states) == 3:
            raise KeyboardInterrupt
        time.sleep(0.2)
        (docs / "meanwhile.md").write_text(str(states))
        return errors.EXIT_OK

    with pytest.raises(KeyboardInterrupt):
        watch(SourceConfig(path=str(docs)), run, None, print)
    assert states == [False, True, True]


def test_a_run_that_did_not_finish_is_tried_again(docs: Path) -> None:
    """Stopped, locked or killed: again after the interval without a change; failed files wait for a change."""
    codes = [errors.EXIT_STOPPED, errors.EXIT_LOCKED, -9, errors.EXIT_FILES_FAILED]
    runs = Runs(docs, 0.1, codes, last=9)
    runs.wait_for(4)
    assert [text.split(";")[0] for text in runs.told] == [
        f"watch: the run ended with exit code {code}" for code in codes[:3]
    ]
    time.sleep(0.5)
    assert len(runs.found) == 4


def test_a_first_run_that_is_refused_ends_it(tmp_path: Path) -> None:
    """A missing folder or a bad config will not mend itself."""
    source = SourceConfig(path=str(tmp_path / "nowhere"))
    assert watch(source, lambda: errors.EXIT_REFUSED, None, print) == errors.EXIT_REFUSED


@pytest.mark.parametrize("interval_s", [None, 0.2])
def test_a_source_that_goes_and_comes_back_is_followed(interval_s: float | None, docs: Path, tmp_path: Path) -> None:
    """A folder swapped for another of its name, or away for a while, is watched as what it is then."""
    runs = Runs(docs, interval_s, [0, *[errors.EXIT_REFUSED] * 50], last=99)
    runs.wait_for(1)
    docs.rename(tmp_path / "away")
    time.sleep(0.7)
    docs.mkdir()
    (docs / "back.md").write_text("Back again.")
    wait_until(lambda: runs.found[-1] == ["back.md"])
    (docs / "more.md").write_text("And more.")
    wait_until(lambda: runs.found[-1] == ["back.md", "more.md"])


@contextmanager
def watching(docs: Path, folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """`rag-pipeline watch` on a folder, ended if the test did not."""
    config = folder / "hash.yaml"
    config.write_text("recipe: {embedding: {engine: hash}}\nruntime: {num_cpus: 2}\n")
    command = [*RAG, "watch", str(docs), "--index", str(folder / "index"), "-c", str(config), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_watch_indexes_until_it_is_told_to_stop(docs: Path, tmp_path: Path) -> None:
    """A report a line per run; without a change no run and no Ray; SIGTERM while idle ends it with 0."""
    with watching(docs, tmp_path, "--json", "--quiet", "--interval", "0.3") as process:
        assert process.stdout
        assert json.loads(process.stdout.readline())["changes"]["added"] == 5
        time.sleep(1)
        assert len(list((tmp_path / "index" / "runs").iterdir())) == 1
        os.utime(docs / "file1.md")
        assert json.loads(process.stdout.readline())["changes"]["unchanged"] == 5
        wait_until(lambda: not psutil.Process(process.pid).children())
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == errors.EXIT_OK
        assert process.stdout.read() == ""


def test_an_interrupt_of_a_run_that_dies_of_it_is_told_all_the_same(docs: Path, tmp_path: Path) -> None:
    """A run that is killed while it stops cannot say how to resume; `watch` does, with the same exit code."""
    for number in range(300):
        shutil.copy(docs / "file1.md", docs / f"copy{number}.md")
    with watching(docs, tmp_path) as process:
        wait_until(lambda: list((tmp_path / "index").glob("parquet/run=*/part-*")), 180)
        run = next(child for child in psutil.Process(process.pid).children() if "index" in child.cmdline())
        run.suspend()
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        run.kill()
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == errors.EXIT_STOPPED
    assert "run again to resume" in stderr and "Traceback" not in stderr


def test_an_interrupt_ends_the_run_under_way_as_index_does(docs: Path, tmp_path: Path) -> None:
    """Ctrl-C during a run: it commits what is finished, says how to resume, and its exit code is the command's."""
    for number in range(300):
        shutil.copy(docs / "file1.md", docs / f"copy{number}.md")
    with watching(docs, tmp_path) as process:
        wait_until(lambda: list((tmp_path / "index").glob("parquet/run=*/part-*")), 180)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == errors.EXIT_STOPPED
    assert "run again to resume" in stderr and "Traceback" not in stderr
