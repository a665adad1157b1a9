"""Run reports: `runs/<id>.json`, written when a run ends. Knows nothing of what a run does."""

from __future__ import annotations

import json
from dataclasses import asdict

from rag_pipeline.records import Report
from rag_pipeline.store import Layout, write_durably


def write_report(layout: Layout, report: Report) -> None:
    """Writes a run's report as JSON, whole or not at all."""
    write_durably(layout.runs / f"{report.run_id}.json", report_json(report).encode())


def report_json(report: Report) -> str:
    """The report as `index --json` prints it: one object, one line."""
    return json.dumps(asdict(report), ensure_ascii=False)


def unfinished_runs(layout: Layout) -> list[str]:
    """Runs that wrote parts but never their report: killed, or still under way."""
    reported = {file.stem for file in layout.runs.glob("*.json")}
    started = [folder.name.removeprefix("run=") for folder in sorted(layout.parquet.glob("run=*"))]
    return [run_id for run_id in started if run_id not in reported]
