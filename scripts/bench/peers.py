"""Us beside LangChain, LlamaIndex and CocoIndex: same folder, same edits, same model; chunks embedded and seconds.

usage: python scripts/bench/peers.py FOLDER [--only TOOL ...] [--work DIR] [--report]

FOLDER is copied; every tool takes the copy through the same steps: first run, no change, touch, rename of the whole
folder, one inserted line, three files deleted, smaller chunks and back, kill -9 in an update, another model. After
each step all that the tool's store returns is compared with a fresh index of the same folder by the same tool:
(path, text) as a multiset, vectors by cosine. The peers run in a virtual environment of their own, made when
missing, which borrows torch and sentence-transformers from this one. Results are kept in DIR; `--report` prints
them again. Does not know how any tool works inside, only its command line and its rows.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

from compare import differences, same_file, too_long
from prepare import PINS, prepare_environment, prepare_models
from tools import OURS, Ours, Outcome, Peer, Settings, Tool

STEPS = ["first run", "no change", "touch", "rename all", "insert a line", "delete 3 files"]
STEPS += ["chunks of 128 tokens", "chunks of 256 again", "kill -9, run again", "another model"]


class Walk:
    """One tool on its way through the steps."""

    def __init__(self, tool: Tool, folder: Path, work: Path, models: tuple[str, str]) -> None:
        self.tool = tool
        self.home = work / re.sub(r"\W+", "-", tool.name)
        shutil.rmtree(self.home, ignore_errors=True)
        self.docs, self.state, self.fresh_home = self.home / "docs", self.home / "state", work / "fresh" / tool.kind
        self.fresh_home.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, self.docs)
        for path in [self.docs, *self.docs.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        an_hour_ago = time.time() - 3600
        for file in self.files():
            os.utime(file, (an_hour_ago, an_hour_ago))
        self.settings = Settings(models[0])
        self.other_model = models[1]
        self.results: dict[str, dict[str, Any]] = {}

    def files(self) -> list[Path]:
        """The Markdown files, in order of path."""
        return sorted(self.docs.rglob("*.md"))

    def fresh(self) -> pa.Table:
        """The rows of a fresh index of the folder as it is now, by the same tool with the same settings."""
        state = self.fresh_state()
        file = state.with_suffix(".rows")
        if not file.exists():
            self.tool.index(self.docs, state, self.settings, answer=True)
            pq.write_table(self.tool.rows(self.docs, state, self.settings), file)
        return pq.read_table(file)

    def fresh_state(self) -> Path:
        """Where the fresh index of this folder and these settings lies."""
        content = hashlib.sha256(repr(self.settings).encode())
        for file in self.files():
            content.update(f"{file.relative_to(self.docs)}\0".encode() + file.read_bytes())
        return self.fresh_home / content.hexdigest()[:16]

    def step(self, name: str) -> None:
        """Runs the tool once and judges its rows; the first run, a fresh index itself, is its own yardstick."""
        outcome = self.tool.index(self.docs, self.state, self.settings)
        got = self.tool.rows(self.docs, self.state, self.settings)
        if not self.results:
            pq.write_table(got, self.fresh_state().with_suffix(".rows"))
        self.judge(name, outcome, got)

    def judge(self, name: str, outcome: Outcome, got: pa.Table, **more: Any) -> None:
        """Compares with a fresh index and notes the result; a wrong state is redone by the tool's own means."""
        wanted = self.fresh()
        verdict = outcome.fault or differences(got, wanted)
        note = asdict(outcome) | {"verdict": verdict or "right", "rows": got.num_rows, **more}
        note["too_long"] = too_long(wanted, self.settings.model)
        if verdict and self.tool.may_start_over:
            redone = self.tool.index(self.docs, self.state, self.settings, again=True, answer=True)
            rest = differences(self.tool.rows(self.docs, self.state, self.settings), wanted)
            note |= {"redone": redone.embedded, "redone_verdict": rest or "right"}
        self.results[name] = note
        print(f"{self.tool.name}: {name}: {json.dumps(note)}", file=sys.stderr, flush=True)

    def run(self) -> None:
        """Takes the tool through all steps."""
        self.step("first run")
        self.step("no change")
        for file in self.files():
            file.touch()
        self.step("touch")
        (self.docs / "moved").mkdir()
        for file in self.files():
            target = self.docs / "moved" / file.relative_to(self.docs)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
        self.step("rename all")
        insert_line(max(self.files(), key=lambda file: file.stat().st_size))
        self.step("insert a line")
        for file in self.files()[5::2][:3]:
            file.unlink()
        self.step("delete 3 files")
        self.settings = replace(self.settings, max_tokens=128)
        self.step("chunks of 128 tokens")
        self.settings = replace(self.settings, max_tokens=256)
        self.step("chunks of 256 again")
        self.kill("kill -9, run again")
        self.settings = replace(self.settings, model=self.other_model)
        self.step("another model")

    def kill(self, name: str) -> None:
        """Rewrites up to 20 files, kills the update in its middle, looks at the rows, and runs it again."""
        old = self.fresh()
        changed = self.files()[-20:]
        for file in changed:
            file.write_text(re.sub(r"\n\n(?=[A-Z])", "\n\nNow then: ", file.read_text()))
        paths = {file.relative_to(self.docs).as_posix() for file in changed}
        chunks = sum(path in paths for path in old["path"].to_pylist())
        killed = self.tool.start_killed(self.docs, self.state, self.settings, chunks)
        time.sleep(2)
        between = self.tool.rows(self.docs, self.state, self.settings, stored=True)
        outcome = self.tool.index(self.docs, self.state, self.settings)
        got = self.tool.rows(self.docs, self.state, self.settings)
        torn = sum(not same_file(between, old, path) and not same_file(between, self.fresh(), path) for path in paths)
        self.judge(name, outcome, got, killed_after=killed, torn_files=torn, rewritten=len(paths))


def insert_line(file: Path) -> None:
    """Puts one sentence between two paragraphs, a quarter into the file."""
    text = file.read_text()
    at = text.index("\n\n", len(text) // 4)
    file.write_text(text[:at] + "\n\nThis one line was not here before.\n" + text[at + 1 :])


def cell(note: dict[str, Any] | None) -> str:
    """One result as a table cell."""
    if note is None:
        return "–"
    text = f"{note['embedded']:,} of {note['rows']:,} · {note['seconds']:.0f} s"
    if "killed_after" in note:
        text = f"{note['killed_after']:,} + {text}; {note['torn_files']} of {note['rewritten']} files torn meanwhile"
    if note["verdict"] != "right":
        text += f" · **wrong**: {note['verdict']}"
    if note.get("too_long"):
        text += f"; {note['too_long']} texts cut off by the model"
    if "redone" in note:
        text += f"; all redone: {note['redone']:,}, {note['redone_verdict']}"
    return text


def report(results: dict[str, dict[str, Any]]) -> str:
    """The results as a Markdown table."""
    names = list(results)
    lines = [
        "| chunks embedded of those in the index · seconds | " + " | ".join(names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    for step in STEPS:
        lines.append(f"| {step} | " + " | ".join(cell(results[name].get(step)) for name in names) + " |")
    return "\n".join(lines)


def beaten(results: dict[str, dict[str, Any]]) -> list[str]:
    """Where one of our engines is wrong, or embeds more than a peer that is right."""
    lines = []
    for step in STEPS:
        for name in set(OURS) & set(results):
            own = results[name].get(step, {"verdict": "not run", "embedded": 0})
            if own["verdict"] != "right":
                lines.append(f"{step}: {name}: {own['verdict']}")
            for peer in set(results) - set(OURS):
                other = results[peer].get(step)
                if other and other["verdict"] == "right" and spent(other) < spent(own):
                    lines.append(f"{step}: {peer} {spent(other):,}, {name} {spent(own):,}")
    return sorted(lines)


def spent(note: dict[str, Any]) -> int:
    """Chunks embedded in a step, those of a killed run included."""
    return note["embedded"] + note.get("killed_after", 0)


def main() -> None:
    """Runs the tools one after another and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", metavar="TOOL", choices=[*OURS, "langchain", "llamaindex", "cocoindex"])
    parser.add_argument("--work", type=Path, default=Path("build/peers"))
    parser.add_argument("--report", action="store_true", help="print the results that --work holds, run nothing")
    args = parser.parse_args()
    work = args.work.resolve()
    (work / "results").mkdir(parents=True, exist_ok=True)
    # Ray lowers the priority of its workers; on a busy machine the others would be served first.
    os.environ |= {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1", "RAY_worker_niceness": "0"}
    names = args.only or [*OURS, "langchain", "llamaindex", "cocoindex"]
    for kind in [] if args.report else {"ours" if name in OURS else name for name in names}:
        shutil.rmtree(work / "fresh" / kind, ignore_errors=True)
    for name in [] if args.report else names:
        models = prepare_models(work)
        tool = Ours(name, work) if name in OURS else Peer(name, prepare_environment(work.parent / "peers-venv"), work)
        walk = Walk(tool, args.folder, work, models)
        try:
            walk.run()
        finally:
            (work / "results" / f"{name}.json").write_text(json.dumps(walk.results, indent=1))
    order = [*OURS, "langchain", "llamaindex", "cocoindex"]
    files = {name: work / "results" / f"{name}.json" for name in order}
    results = {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}
    for name, group in PINS.items():
        print(f"- {name}: {', '.join(group)}")
    print(report(results))
    print("ours not right or not the lowest:", *(beaten(results) or ["nowhere"]), sep="\n- ")


if __name__ == "__main__":
    main()
