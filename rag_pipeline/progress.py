"""What a person sees on stderr: live progress while a run lasts, a summary when it ends.

Knows nothing of how runs work; it is handed numbers and prints them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

from rag_pipeline.errors import EXIT_OK
from rag_pipeline.records import Plan, Report

_PHASES = {
    "list": "listing the source",
    "plan": "comparing with the index",
    "start": "starting Ray and the engine",
    "embed": "indexing",
    "finish": "finishing",
}
_PLAIN_EVERY_S = 10.0


@contextmanager
def show_progress(console: Console, quiet: bool) -> Iterator[Callable[[Any], None]]:
    """Yields a function that takes `run.Progress`: a bar on a terminal, a line every 10 s elsewhere."""
    if quiet:
        yield lambda _: None
        return
    if not console.is_terminal:
        yield _Plain(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None, detail="")

        def update(state: Any) -> None:
            total = state.files_total or None
            bar.update(
                task, description=_PHASES[state.phase], total=total, completed=state.files_done, detail=_rates(state)
            )

        yield update


class _Plain:
    """One line a phase, then one every ten seconds: for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase = ""
        self._last = 0.0

    def __call__(self, state: Any) -> None:
        now = time.monotonic()
        if state.phase == self._phase and now - self._last < _PLAIN_EVERY_S:
            return
        self._phase, self._last = state.phase, now
        files = f" {state.files_done}/{state.files_total} files" if state.files_total else ""
        self._console.print(f"{_PHASES[state.phase]}{files} {_rates(state)}".rstrip(), highlight=False)


def _rates(state: Any) -> str:
    if not state.chunks:
        return ""
    rates = ""
    if state.embed_s and state.embedded:
        rates = f", {state.embedded / state.embed_s:.0f} chunks/s, {state.tokens / state.embed_s:.0f} tokens/s"
    rejects = f", {state.rejects} rejects" if state.rejects else ""
    return f"{state.chunks} chunks{rates}{rejects}"


def print_summary(console: Console, report: Report) -> None:
    """A run's report for a person."""
    changes = ", ".join(f"{count} {kind}" for kind, count in report.changes.items() if count) or "no files"
    states = ", ".join(f"{count} {state}" for state, count in report.files.items())
    chunks = report.chunks
    console.print(f"[bold]{report.index}[/bold] is in step with {report.source}", highlight=False)
    console.print(f"  files   {changes}  →  {states}", highlight=False)
    console.print(
        f"  chunks  {chunks['written']} written, {chunks['embedded']} embedded, {chunks['reused']} reused,"
        f" {chunks['rejected']} rejected",
        highlight=False,
    )
    rate = report.throughput.get("chunks_per_s")
    speed = f"; engine {rate:.0f} chunks/s, {report.throughput['tokens_per_s']:.0f} tokens/s" if rate else ""
    limit = f", limited by {report.limiting_stage}" if report.limiting_stage else ""
    console.print(f"  time    {report.seconds:.1f} s{speed}{limit}", highlight=False)
    for reject in report.rejects[:10]:
        console.print(f"  [yellow]{reject['state']}[/yellow]  {reject['path']!r}: {reject['reason']}", highlight=False)
    if len(report.rejects) > 10:
        console.print(f"  ... and {len(report.rejects) - 10} more: rag-pipeline status --rejects", highlight=False)
    for warning in report.warnings:
        console.print(f"  [red]warning[/red]  {warning}", highlight=False)
    if report.exit_code != EXIT_OK:
        console.print(f"  exit code {report.exit_code}", highlight=False)


def print_plan(plan: Plan) -> None:
    """A plan for a person: counts, then a line for every path that would change, on stdout."""
    print(", ".join(f"{count} {kind}" for kind, count in plan.changes.items()))
    for kind, paths in plan_paths(plan).items():
        for path in paths:
            shown = path if isinstance(path, str) else " → ".join(path)
            print(f"{kind:<9} {shown if shown.isprintable() else repr(shown)[1:-1]}")
    if plan.work:
        work = plan.work
        time_needed = "" if work.seconds is None else f", about {work.seconds:.0f} s at the last run's rate"
        print(f"{work.embed} chunks to embed ({work.tokens} tokens{time_needed}), {work.reuse} to reuse")
    if plan.doubt:
        print(f"deletes withheld: {plan.doubt}")


def plan_paths(plan: Plan) -> dict[str, list[Any]]:
    """Paths by kind of change; moves as [old, new]. Unchanged files are counted, not listed."""
    return {
        "added": [file.path for file in plan.added],
        "changed": [file.path for file in plan.changed],
        "moved": [[old, file.path] for old, file in plan.moved],
        "deleted": list(plan.deleted),
        "withheld": list(plan.withheld),
    }
