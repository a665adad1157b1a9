"""The tools that stand side by side, each as index, rows and a killed update; a peer's program runs as a process.

Does not know the steps, nor what a right result is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
OURS = {"ours (vllm)": "vllm", "ours (ray-llm)": "ray-llm"}
KILL_SHARE = 0.4  # of the chunks to embed again, as a peer's progress; ours is killed at its first written part


@dataclass(frozen=True)
class Settings:
    """What a step may change beside the folder."""

    model: str
    max_tokens: int = 256


@dataclass(frozen=True)
class Outcome:
    """One run of a tool."""

    embedded: int
    seconds: float
    fault: str = ""


class Peer:
    """A tool whose program lies in `peers/`."""

    may_start_over = True

    def __init__(self, name: str, python: Path, work: Path) -> None:
        self.name = self.kind = name
        self.python = python
        self.work = work
        self.program = HERE / f"with_{name}.py"

    def command(self, docs: Path, state: Path, settings: Settings, *flags: str) -> list[str]:
        """The program's command line."""
        command = [str(self.python), str(self.program), str(docs), str(state), "--model", settings.model]
        return [*command, "--max-tokens", str(settings.max_tokens), "--rows", str(state) + ".parquet", *flags]

    def environment(self, state: Path, answer: bool) -> dict[str, str]:
        """Where the program keeps its count, and whether it may answer from vectors it knows."""
        known = self.work / "known"
        known.mkdir(exist_ok=True)
        more = {"PEERS_PROGRESS": str(state) + ".progress", "PEERS_KNOWN": str(known)}
        return os.environ | more | ({"PEERS_ANSWER": "1"} if answer else {}) | {"ANONYMIZED_TELEMETRY": "False"}

    def index(self, docs: Path, state: Path, settings: Settings, again: bool = False, answer: bool = False) -> Outcome:
        """Runs the program to its end."""
        started = time.time()
        command = self.command(docs, state, settings, *(["--again"] if again else []))
        done = subprocess.run(command, env=self.environment(state, answer), capture_output=True, text=True, check=False)
        lines = [line for line in done.stdout.splitlines() if line.startswith('{"embedded"')]
        if done.returncode or not lines:
            raise RuntimeError(f"{self.name} failed:\n{done.stderr[-3000:]}")
        report = json.loads(lines[-1])
        return Outcome(report["embedded"], report["ended"] - started)

    def rows(self, docs: Path, state: Path, settings: Settings, stored: bool = False) -> pa.Table:
        """What the store returns: as the last run wrote it, or, where `stored`, read anew after a kill."""
        if stored:
            command = self.command(docs, state, settings, "--rows-only")
            subprocess.run(command, env=self.environment(state, False), capture_output=True, check=True)
        return pq.read_table(str(state) + ".parquet")

    def start_killed(self, docs: Path, state: Path, settings: Settings, chunks: int) -> int:
        """Starts an update and kills it once KILL_SHARE of the chunks is embedded; returns how many were."""
        progress = Path(str(state) + ".progress")
        progress.unlink(missing_ok=True)

        def embedded() -> int:
            return sum(map(int, progress.read_text().split())) if progress.exists() else 0

        command = self.command(docs, state, settings)
        kill_when(command, self.environment(state, False), self.work, lambda: embedded() >= KILL_SHARE * chunks)
        return embedded()


class Ours:
    """The installed rag-pipeline with one of its engines.

    Its processes start in the work folder: `python -m` would take a package in the current one for the installed.
    """

    may_start_over = False
    kind = "ours"  # both engines give the same vectors: a fresh index by one is the yardstick of both

    def __init__(self, name: str, work: Path) -> None:
        self.name = name
        self.engine = OURS[name]
        self.work = work

    def command(self, docs: Path, state: Path, settings: Settings) -> list[str]:
        """`rag-pipeline index` with a config that says model, chunk size and engine."""
        state.mkdir(parents=True, exist_ok=True)
        config = state / "config.json"  # JSON is YAML
        embedding = {"engine": self.engine, "model": settings.model}
        config.write_text(
            json.dumps({"recipe": {"chunk": {"max_tokens": settings.max_tokens}, "embedding": embedding}})
        )
        command = [sys.executable, "-m", "rag_pipeline.cli", "index", str(docs), "--index", str(state / "index")]
        return [*command, "-c", str(config), "--json", "--quiet"]

    def index(self, docs: Path, state: Path, settings: Settings, again: bool = False, answer: bool = False) -> Outcome:
        """Runs the command to its end; there is nothing to do again, nor another's vectors to answer from."""
        started = time.time()
        done = subprocess.run(
            self.command(docs, state, settings), cwd=self.work, capture_output=True, text=True, check=False
        )
        seconds = time.time() - started
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            raise RuntimeError(f"{self.name} failed:\n{done.stderr[-3000:]}")
        report = json.loads(lines[-1])
        fault = f"exit code {done.returncode}" if done.returncode else ""
        return Outcome(report["chunks"]["embedded"], seconds, fault)

    def rows(self, docs: Path, state: Path, settings: Settings, stored: bool = False) -> pa.Table:
        """What the LanceDB table returns."""
        import lancedb

        table = lancedb.connect(state / "index" / "lancedb").open_table("chunks").to_arrow()
        return table.select(["path", "text", "vector"])

    def start_killed(self, docs: Path, state: Path, settings: Settings, chunks: int) -> int:
        """Starts an update and kills it at the first part with new vectors; returns how many it had written."""
        log = state / "index" / "parquet"
        before = set(log.glob("run=*/part-*.parquet"))
        known = {value for file in before for value in pq.read_table(file, columns=["prompt_hash"])[0].to_pylist()}

        def embedded() -> int:
            parts = set(log.glob("run=*/part-*.parquet")) - before
            new = {value for file in parts for value in pq.read_table(file, columns=["prompt_hash"])[0].to_pylist()}
            return len(new - known)

        kill_when(self.command(docs, state, settings), dict(os.environ), self.work, lambda: embedded() > 0)
        return embedded()


Tool = Peer | Ours


def kill_when(command: list[str], environment: dict[str, str], cwd: Path, reached: Callable[[], bool]) -> None:
    """Runs a command in a process group of its own and kills the group with SIGKILL once `reached`."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, cwd=cwd, start_new_session=True, **quiet) as process:
        while process.poll() is None and not reached():
            time.sleep(0.02)
        if process.poll() is not None:
            print("  the run ended before it could be killed", file=sys.stderr)
            return
        os.killpg(process.pid, signal.SIGKILL)
