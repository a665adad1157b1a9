"""Run reports: `runs/<id>.json`, written when a run ends. Knows nothing of what a run does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rag_pipeline.errors import EXIT_DELETES_WITHHELD, EXIT_FILES_FAILED
from rag_pipeline.records import Plan, Report, count_states, is_failure
from rag_pipeline.store import Layout, write_durably

_IDLE_SHARE = 0.1  # engines that wait less than this are what the run waits for


def write_report(layout: Layout, report: Report) -> None:
    """Writes a run's report as JSON, whole or not at all."""
    write_durably(layout.runs / f"{report.run_id}.json", report_json(report).encode())


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
    reports = []
    for file in sorted(layout.runs.glob("*.json")):
        try:
            reports.append(json.loads(file.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return reports


def unfinished_runs(layout: Layout) -> list[str]:
    """Runs that wrote parts but never their report: killed, or still under way."""
    reported = {file.stem for file in layout.runs.glob("*.json")}
    started = [folder.name.removeprefix("run=") for folder in sorted(layout.parquet.glob("run=*"))]
    return [run_id for run_id in started if run_id not in reported]
