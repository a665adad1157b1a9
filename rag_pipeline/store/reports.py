"""Run reports: `runs/<id>.json`, written when a run ends. Knows nothing of what a run does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rag_pipeline.errors import EXIT_DELETES_WITHHELD, EXIT_FILES_FAILED
from rag_pipeline.records import Plan, Report, count_states, is_failure
from rag_pipeline.store import LOG, RUNS, Layout, store_errors

_STARTED = ".started"
_IDLE_SHARE = 0.1  # engines that wait less than this are what the run waits for


def note_start(layout: Layout, run_id: str) -> None:
    """Notes that a run begins to change the index, until its report says that it ended."""
    name = f"{RUNS}/{run_id}{_STARTED}"
    with store_errors("noting the run's start", layout.files.where(name)):
        layout.files.write(name, b"")


def write_report(layout: Layout, report: Report) -> None:
    """Writes a run's report as JSON, whole or not at all."""
    name = f"{RUNS}/{report.run_id}.json"
    with store_errors("writing the report", layout.files.where(name)):
        layout.files.write(name, report_json(report).encode())
        layout.files.delete([f"{RUNS}/{report.run_id}{_STARTED}"])


def complete_report(report: Report, plan: Plan, states: Mapping[str, tuple[str, str]], seconds: float) -> None:
    """Fills in what is known at the end: states and rejects of the whole listing, throughput, exit code."""
    report.files = count_states(state for state, _ in states.values())
    report.rejects = [
        {"path": path, "state": state, "reason": reason}
        for path, (state, reason) in sorted(states.items())
        if state != "indexed"
    ]
    embed_s = report.stages.get("embed", {}).get("seconds", 0.0)
    if embed_s:
        report.throughput["chunks_per_s"] = round(report.chunks["embedded"] / embed_s, 1)
        report.throughput["tokens_per_s"] = round(report.tokens / embed_s, 1)
        report.limiting_stage = _limiting_stage(report)
    made = report.chunks["embedded"] + report.chunks["reused"]
    if made:
        report.throughput["reuse_rate"] = round(report.chunks["reused"] / made, 4)
    if any(is_failure(state) for state, _ in states.values()):
        report.exit_code = EXIT_FILES_FAILED
    if plan.doubt:
        report.exit_code = EXIT_DELETES_WITHHELD
        kept = f"rows of {len(plan.withheld)} files are kept: {plan.doubt}"
        report.warnings.append(f"{kept}; if they are really gone, use --allow-deletes")
    report.seconds = round(seconds, 3)


def _limiting_stage(report: Report) -> str:
    """The stage that the others waited for: the engines where they were hardly idle, else the busiest of the others."""
    if report.throughput.get("engine_idle_share", 0.0) <= _IDLE_SHARE:
        return "embed"
    others = {name: stage["seconds"] for name, stage in report.stages.items() if name != "embed"}
    return max(others, key=lambda name: others[name], default="embed")


def report_began(report: Report) -> float:
    """When the run began, in seconds since the epoch; its id says so to the microsecond."""
    return datetime.strptime(report.run_id.split("-")[0], "%Y%m%dT%H%M%S%f").replace(tzinfo=UTC).timestamp()


def report_json(report: Report) -> str:
    """The report as `index --json` prints it: one object, one line."""
    return json.dumps(asdict(report), ensure_ascii=False)


def load_reports(layout: Layout) -> list[dict[str, Any]]:
    """All reports, oldest first; one that cannot be read is left out."""
    return list(newest_reports(layout))[::-1]


def newest_reports(layout: Layout) -> Iterator[dict[str, Any]]:
    """The reports, newest first, each read when it is asked for; one that cannot be read is left out."""
    names = [file.name for file in layout.files.walk(f"{RUNS}/") if file.name.endswith(".json")]
    for name in sorted(names, reverse=True):
        try:
            yield json.loads(layout.files.read(name))
        except (OSError, ValueError):
            continue


def unfinished_runs(layout: Layout) -> list[str]:
    """Runs that began to change the index and never wrote their report: killed, or still under way."""
    logged = {file.name.split("/")[1].removeprefix("run=") for file in layout.files.walk(f"{LOG}/run=")}
    notes = [file.name.removeprefix(f"{RUNS}/") for file in layout.files.walk(f"{RUNS}/")]
    return sorted((logged | _without(_STARTED, notes)) - _without(".json", notes))


def _without(suffix: str, names: Iterable[str]) -> set[str]:
    return {name.removesuffix(suffix) for name in names if name.endswith(suffix)}
