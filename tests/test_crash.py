"""Promise 4: kill -9 at any moment, the same command again: the state of a run that was never stopped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from conftest import hash_config
from crash import POINTS

from rag_pipeline import maintenance, pipeline
from rag_pipeline.config import Config
from rag_pipeline.records import Report
from rag_pipeline.store import Layout
from rag_pipeline.store.current import digest_rows
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.store.parquet import list_parts, list_temporary, read_part

TESTS = Path(__file__).parent


class Scene:
    """A folder that was indexed and then changed in every way, and what a run that nobody stops makes of it."""

    def __init__(self, folder: Path) -> None:
        self.docs, self.index = folder / "docs", folder / "index"
        self.config_file = folder / "hash.yaml"

    @property
    def config(self) -> Config:
        """Small commits, so that there are many points to be killed at."""
        runtime = {
            "files_per_task": 4,
            "commit_rows": 6,
            "commit_interval_s": 0,
            "compact_after_fragments": 2,
            "num_cpus": 2,
        }
        return hash_config(self.docs, self.index, runtime=runtime)

    def make(self) -> None:
        """Indexes 24 files and changes them: edits, a rename, deletes, copies, new ones."""
        self.docs.mkdir(parents=True)
        for number in range(24):
            paragraphs = (f"Paragraph {n} of document {number}." for n in range(number % 5 + 1))
            (self.docs / f"file{number:02}.md").write_text(f"# Document {number}\n\n" + "\n\n".join(paragraphs))
        self.config_file.write_text(
            "recipe: {embedding: {engine: hash}}\n"
            "runtime: {files_per_task: 4, commit_rows: 6, commit_interval_s: 0, compact_after_fragments: 2, "
            "num_cpus: 2}\n"
        )
        pipeline.index(self.config)
        for number in range(0, 6):
            (self.docs / f"file{number:02}.md").write_text(f"# Document {number}\n\nRewritten, all of it.")
        (self.docs / "file06.md").rename(self.docs / "moved.md")
        (self.docs / "file07.md").unlink()
        shutil.copy(self.docs / "file08.md", self.docs / "copy.md")
        for number in range(12):
            (self.docs / f"new{number:02}.txt").write_text(f"A new note with the number {number}.")

    def copy_to(self, folder: Path) -> Scene:
        """The same scene in another place; paths in reports aside, an index can be moved."""
        shutil.copytree(self.docs.parent, folder, dirs_exist_ok=True)
        return Scene(folder)

    def command(self, *words: str) -> list[str]:
        """A command line of the product on this index."""
        source = [str(self.docs)] if words[0] == "index" else []
        return [words[0], *source, *words[1:], "--index", str(self.index), "-c", str(self.config_file)]

    def digest(self) -> dict[str, int]:
        """What the table holds."""
        return digest_rows(ChunkTable.open(Layout.at(self.index)).scan(), Counter())

    def known_prompts(self) -> set[str]:
        """Prompts whose vector the log holds, finished file or not."""
        layout = Layout.at(self.index)
        parts = list(list_parts(layout))
        return {value for part in parts for value in read_part(layout, part, ["prompt_hash"]).column(0).to_pylist()}


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory, ray_once: None) -> Scene:
    """The scene before the run that will be killed."""
    made = Scene(tmp_path_factory.mktemp("scene"))
    made.make()
    return made


@pytest.fixture(scope="session")
def expected(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What a run that nobody stops makes of the scene."""
    undisturbed = scene.copy_to(tmp_path_factory.mktemp("undisturbed"))
    pipeline.index(undisturbed.config)
    assert maintenance.verify(undisturbed.config) == []
    return undisturbed.digest()


def killed(scene: Scene, point: str, count: int, whom: str, *words: str) -> None:
    """Runs a command that is killed at a point, and waits until nothing of it is left."""
    command = [sys.executable, str(TESTS / "crash.py"), point, str(count), whom, "--", *scene.command(*words)]
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE) as process:
        _, stderr = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, (point, process.returncode, stderr.decode()[-2000:])
    wait_for_children(process.pid)


def wait_for_children(pid: int) -> None:
    """No process of the killed run may outlive it by more than seconds.

    Ray's two agents, which do none of our work, end by themselves after a minute; they are not waited for.
    """
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        left = [child for child in psutil.process_iter() if _belongs(child, pid)]
        agents = [child for child in left if "Agent" in _command_line(child)]
        left = [child for child in left if child not in agents]
        if not left:
            for agent in agents:
                agent.kill()
            return
        time.sleep(0.2)
    raise AssertionError(f"left over: {[_command_line(child)[:200] for child in left]}")


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has just ended
        return ""


def _belongs(process: psutil.Process, pid: int) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and os.getsid(process.pid) == pid
    except (psutil.Error, ProcessLookupError):
        return False


def resume(scene: Scene, expected: dict[str, int]) -> Report:
    """The same command again; asserts the state of a run that was never stopped."""
    known = scene.known_prompts()
    report = pipeline.index(scene.config)
    assert report.exit_code == 0
    assert maintenance.verify(scene.config) == []
    assert scene.digest() == expected
    assert not list_temporary(Layout.at(scene.index)) and not Layout.at(scene.index).stagings()
    assert report.chunks["embedded"] == len(scene.known_prompts() - known)
    assert pipeline.index(scene.config).chunks["written"] == 0
    return report


INDEX_POINTS = [
    point for point in POINTS if point == "during optimize" or not point.startswith(("during ", "before the switched"))
]
# The suite's share of them; scripts/crash_test.py kills at all of them, and at random times.
SHORT = ["after listing", "mid-parse", "mid-embed", "before a part's rename", "after the add", "after the swap"]
SHORT += ["before the manifest", "after the deletes"]


@pytest.mark.parametrize("point", SHORT)
def test_a_killed_run_is_finished_by_the_same_command(
    point: str, scene: Scene, expected: dict[str, int], tmp_path: Path
) -> None:
    """Killed at this point: nothing lost, nothing doubled, nothing torn, only what was in flight embedded again."""
    place = scene.copy_to(tmp_path)
    killed(place, point, 2 if point == "before the manifest" else 1, "group" if "part" in point else "driver", "index")
    resume(place, expected)


def test_a_killed_model_switch_is_finished(scene: Scene, tmp_path: Path) -> None:
    """Killed while another model's table takes its place: the next run has one model's rows, all of them."""
    place = scene.copy_to(tmp_path)
    pipeline.index(place.config)
    text = place.config_file.read_text().replace("{engine: hash}", "{engine: hash, model: other}")
    place.config_file.write_text(text)
    killed(place, "before the switched manifest", 1, "driver", "index")
    other = hash_config(place.docs, place.index, recipe={"embedding": {"model": "other"}})
    report = pipeline.index(other)
    assert report.chunks["embedded"] == 0
    assert maintenance.verify(other) == [] and not Layout.at(place.index).stagings()


MAINTENANCE = [("during repair", ["repair"]), ("during vacuum, log", ["vacuum"]), ("during vacuum, table", ["vacuum"])]


@pytest.mark.parametrize(("point", "words"), MAINTENANCE[:2])
def test_killed_maintenance_can_be_run_again(
    point: str, words: list[str], scene: Scene, expected: dict[str, int], tmp_path: Path
) -> None:
    """Killed in the middle of it: the same command again ends well, and the index holds the same rows."""
    place = scene.copy_to(tmp_path)
    pipeline.index(place.config)
    killed(place, point, 1, "driver", *words)
    maintenance.repair(place.config) if words == ["repair"] else maintenance.vacuum(place.config)
    assert maintenance.verify(place.config) == []
    assert place.digest() == expected


def test_a_killed_rollback_is_found_and_mended(scene: Scene, expected: dict[str, int], tmp_path: Path) -> None:
    """Killed between table and manifest: `verify` says so, `repair` mends it, `index` goes on."""
    place = scene.copy_to(tmp_path)
    report = pipeline.index(place.config)
    first = min(file.stem for file in (place.index / "runs").glob("*.json"))
    assert first != report.run_id
    killed(place, "during rollback", 1, "driver", "rollback", first)
    assert maintenance.verify(place.config)
    maintenance.repair(place.config)
    assert maintenance.verify(place.config) == []
    resume(place, expected)
