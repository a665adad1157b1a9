"""Trouble from outside while Ray runs: a full disk, a worker that dies, an engine that cannot start."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from conftest import hash_config

from rag_pipeline import errors, maintenance, pipeline
from rag_pipeline.config import Config


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 300 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)], check=False)
    if made.returncode:
        pytest.skip("mounting a small file system is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("size_kb", [300, 500])
def test_a_full_disk_stops_the_run_and_loses_nothing(
    size_kb: int, small_disk: Path, tmp_path: Path, ray_once: None
) -> None:
    """Exit code 4 and the disk's own words; with room again, the same command ends in a clean index."""
    docs = tmp_path / "docs"
    docs.mkdir()
    for number in range(150):
        words = " ".join(f"word{(number * 31 + n) % 997}" for n in range(150))
        (docs / f"{number}.txt").write_text(f"Document {number}: {words}.")
    resize(small_disk, f"{size_kb}k")
    config = hash_config(docs, small_disk / "index", runtime={"files_per_task": 8, "commit_interval_s": 0})
    with pytest.raises(errors.StoreError) as stopped:
        pipeline.index(config)
    assert stopped.value.exit_code == errors.EXIT_STOPPED
    assert "o space left" in str(stopped.value)
    resize(small_disk, "64m")
    report = pipeline.index(config)
    assert report.files == {"indexed": 150} and maintenance.verify(config) == []


def resize(disk: Path, size: str) -> None:
    """Gives the file system another size."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


@pytest.mark.parametrize("victim", ["MapBatches(_prepare_block)", "MapWorker(MapBatches(Reuse))"])
def test_a_worker_that_is_killed_is_replaced(victim: str, docs: Path, tmp_path: Path) -> None:
    """A task's process or the reuse actor dies of SIGKILL in the middle: the run ends well, with every row once."""
    for number in range(300):
        (docs / f"many{number}.txt").write_text(f"Document number {number} of many, about tides and moons.")
    yaml = tmp_path / "hash.yaml"
    yaml.write_text("recipe: {embedding: {engine: hash}}\nruntime: {files_per_task: 4, commit_interval_s: 0.2}\n")
    arguments = ["index", str(docs), "--index", str(tmp_path / "index"), "-c", str(yaml)]
    command = [sys.executable, "-m", "rag_pipeline.cli", *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert kill_one(process.pid, victim)
        _, rest = process.communicate(timeout=120)
        assert process.returncode == errors.EXIT_OK, rest
    config = hash_config(docs, tmp_path / "index")
    assert maintenance.verify(config) == []
    assert len(maintenance.status(config)) == 305


def kill_one(pid: int, name: str) -> bool:
    """Kills a process of the run's tree whose title begins so, as soon as there is one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for child in psutil.Process(pid).children(recursive=True):
            try:
                if name in "".join(child.cmdline()):
                    child.kill()
                    return True
            except psutil.Error:
                continue
        time.sleep(0.02)
    return False


@pytest.mark.engine
def test_an_engine_that_cannot_start_ends_the_run_with_its_reason(docs: Path, tmp_path: Path, ray_once: None) -> None:
    """Arguments that vLLM refuses: the run ends, in under two minutes, with vLLM's own words and exit code 4."""
    embedding = {"engine_args": {"max_model_len": 100_000}}
    config = Config.model_validate(
        {"source": str(docs), "output": str(tmp_path / "index"), "recipe": {"embedding": embedding}}
    )
    started = time.monotonic()
    with pytest.raises(errors.EmbeddingError, match="max_model_len") as stopped:
        pipeline.index(config)
    assert time.monotonic() - started < 120
    assert stopped.value.exit_code == errors.EXIT_STOPPED


@pytest.mark.engine
def test_an_embedding_actor_that_is_killed_is_replaced(sample_docs: Path, tmp_path: Path) -> None:
    """The engine's process dies of SIGKILL in the middle of the run: another takes over, every row is there once."""
    config = tmp_path / "config.yaml"
    config.write_text("runtime: {files_per_task: 1, commit_interval_s: 0.2}\n")
    index = tmp_path / "index"
    command = [sys.executable, "-m", "rag_pipeline.cli", "index", str(sample_docs), "--index", str(index)]
    command += ["-c", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert kill_one(process.pid, "MapWorker(MapBatches(Engine))")
        _, rest = process.communicate(timeout=250)
        assert process.returncode == errors.EXIT_FILES_FAILED, rest  # two of the samples are bad on purpose
    whole = Config().with_paths(str(sample_docs), str(index))
    assert maintenance.verify(whole) == []
    assert "engine" not in {reason for row in maintenance.status(whole) for reason in row.rejects}
