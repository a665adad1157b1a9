"""One run: from a plan to an index that is in step, and to the report of how it got there.

Decides which database is written: the serving one, or, when the model changed, one beside it that takes
its place when it is complete. Knows nothing of what the graph does to a file.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from rag_pipeline.commit import Committer
from rag_pipeline.config import Config, document_fingerprints, prepare_fingerprints
from rag_pipeline.embedding.model import load_model
from rag_pipeline.embedding.size import computed, model_size
from rag_pipeline.errors import ConfigError, DocumentError, InconsistentIndexError, SourceError, StoppedError
from rag_pipeline.plan import RETRIED, PlanRules, is_same_file, make_plan
from rag_pipeline.records import File, Limits, Listing, ManifestRow, Plan, Report, Verdict, Work
from rag_pipeline.schema import EMBED, REUSED, TWIN, rows_of_kind
from rag_pipeline.source import open_source
from rag_pipeline.stages.filter import check_libraries
from rag_pipeline.stages.parse import media_type_of
from rag_pipeline.store import Layout
from rag_pipeline.store.audit import audit
from rag_pipeline.store.database import keep_heaps_small
from rag_pipeline.store.documents import find_documents
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.store.manifest import Manifest
from rag_pipeline.store.reports import (
    complete_report,
    newest_reports,
    note_start,
    report_began,
    unfinished_runs,
    write_report,
)
from rag_pipeline.tasks import Job, Prepare, Reuse, files_to_table, prepare_block
from rag_pipeline.upkeep import look_after

Stream = Callable[[tuple[File, ...], Job], Generator[pa.Table, None, None]]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; handed to `on_progress` after every change.

    Attributes:
        phase: ``list``, ``plan``, ``start``, ``embed`` or ``finish``.
        chunks: Chunks with a vector so far, new or reused.
        embed_s: Seconds the engine was at work.
        seconds: Wall time since the run began.
    """

    phase: str
    files_done: int = 0
    files_total: int = 0
    chunks: int = 0
    embedded: int = 0
    tokens: int = 0
    rejects: int = 0
    embed_s: float = 0.0
    seconds: float = 0.0


class Run:
    """Where a run reads and writes, what it knows, what it reports."""

    def __init__(self, config: Config, limits: Limits, on_progress: Callable[[Progress], None] | None = None) -> None:
        self.started = time.monotonic()
        self.config = config
        self.layout = self._serving = Layout.at(config.output.path)
        self.source = open_source(config.source)
        _refuse_nesting(self.source.root, self.layout)
        check_libraries(config.recipe.filter)
        self.model = load_model(config.recipe.embedding)
        self.fingerprints = prepare_fingerprints(config.recipe, self.model.fingerprint)
        self.manifest = Manifest(self.layout)
        self.known: dict[str, ManifestRow] = {}
        self.states: dict[str, tuple[str, str]] = {}
        self._rules = PlanRules(
            self.fingerprints, limits.allow_deletes, config.source.max_deleted_share, limits.max_deletes
        )
        self._keep = timedelta(days=config.runtime.keep_days)
        self._on_progress = on_progress or (lambda _: None)

    def progress(self, phase: str, **numbers: Any) -> None:
        """Tells whoever watches."""
        self._on_progress(Progress(phase, seconds=time.monotonic() - self.started, **numbers))

    def list(self) -> Listing:
        """Lists the source; files that nothing here can parse are marked as skipped."""
        self.progress("list")
        listing = self.source.list()
        if not listing.files and not self.manifest.exists():
            raise SourceError(f"source {self.source.root}: holds no files; check the path")
        return replace(listing, files=tuple(_mark_unparsable(file) for file in listing.files))

    def plan(self, listing: Listing) -> Plan:
        """Compares listing and manifest; reads no file but those in doubt. A changed model plans a new table."""
        self.progress("plan", files_total=len(listing.files))
        self.known = self._trusted(self.manifest.load())
        todo = make_plan(listing, self.known, self._rules, self._hash_file)
        if not any(not file.skip for file in todo.to_process) or not ChunkTable.exists(self.layout):
            return todo
        if ChunkTable.open(self.layout).embedding.get("fingerprint") == self.model.fingerprint:
            return todo
        serving = self.known
        self.layout = self.layout.staging(self.model.fingerprint)
        self.manifest = Manifest(self.layout)
        self.known = self._trusted(self.manifest.load())
        new = make_plan(listing, self.known, self._rules, self._hash_file)
        changed = tuple(file for file in new.added if file.path in serving)
        added = tuple(file for file in new.added if file.path not in serving)
        return replace(new, added=added, changed=(*new.changed, *changed), doubt=todo.doubt, withheld=todo.withheld)

    def _trusted(self, known: dict[str, ManifestRow]) -> dict[str, ManifestRow]:
        """After a kill: files whose rows in the table are not those of the manifest are to be done again."""
        if not unfinished_runs(self.layout) or not ChunkTable.exists(self.layout):
            return known
        runs = ChunkTable.open(self.layout).run_of_doc()
        return {
            path: row if not row.chunks or runs.get(row.doc_id) == row.run_id else replace(row, fingerprint="")
            for path, row in known.items()
        }

    def job(self, run_id: str) -> Job:
        """What every task needs to know."""
        runtime = self.config.runtime
        limits = {"timeout_s": runtime.parse_timeout_s, "memory_mb": runtime.parse_memory_mb}
        return Job(self.source, self.config.recipe, self.model, self.fingerprints, self.layout, run_id, limits)

    def estimate(self, todo: Plan, prepare: Prepare) -> Work:
        """What a plan would cost: reads and prepares its files in this process, without Ray or an engine."""
        job = self.job("plan")
        reuse = Reuse(job)
        counts, tokens = Counter[str](), 0
        files = self._recalled(todo)
        for first in range(0, len(files), self.config.runtime.files_per_task):
            block = files_to_table(files[first : first + self.config.runtime.files_per_task])
            for table in map(reuse, prepare_block(block, job, prepare, keep_documents=False)):
                counts.update(table["kind"].to_pylist())
                tokens += sum(table["token_count"].take(pa.array(rows_of_kind(table, EMBED))).to_pylist())
        rates = (report.get("throughput", {}).get("tokens_per_s") for report in newest_reports(self.layout))
        rate = next((rate for rate in rates if rate), None)
        return Work(counts[EMBED], counts[REUSED] + counts[TWIN], tokens, round(tokens / rate, 1) if rate else None)

    def new_report(self, todo: Plan) -> Report:
        """An empty report of this run."""
        now = datetime.now(UTC)
        run_id = f"{now:%Y%m%dT%H%M%S%f}-{secrets.token_hex(4)}"
        report = Report(run_id, self.source.root, self.layout.root, now.isoformat(timespec="seconds"))
        report.changes = todo.changes
        report.recipe = {"embedding": self.model.fingerprint, **{k: v for k, v in self.fingerprints.items() if k}}
        return report

    def execute(self, todo: Plan, report: Report, stream: Stream) -> None:
        """Does what the plan says and completes the report; `stream` turns files into receipts."""
        unchanged = [self.known[file.path] for file in todo.unchanged]
        self.states = {row.path: (row.state, row.reason) for row in unchanged}
        killed = unfinished_runs(self.layout)
        works = bool(todo.to_process or todo.deleted or killed)
        if works:
            self._apply(todo, report, stream)
        if todo.touched:
            self.manifest.put(_touched(file, self.known[file.path]) for file in todo.touched)
        if self.layout.is_staging:
            self._promote(todo, report)
        elif works:  # left by a run that was killed while it promoted this very model
            self.layout.files.delete_folder(self.layout.staging(self.model.fingerprint).database)
        if works or todo.touched:
            self.manifest.snapshot(self._keep)
            report.versions = {"chunks": ChunkTable.open(self.layout).version, "files": self.manifest.version}
        complete_report(report, todo, self.states, time.monotonic() - self.started)
        for run_id in killed:
            write_report(self.layout, _report_of_killed(run_id, report))
        write_report(self.layout, report)

    def _apply(self, todo: Plan, report: Report, stream: Stream) -> None:
        note_start(self.layout, report.run_id)
        keep_heaps_small()
        job = self.job(report.run_id)
        table = (
            ChunkTable.open(self.layout)
            if ChunkTable.exists(self.layout)
            else ChunkTable.create(self.layout, self.model.dimension, self.model.to_json(), self.model.storage)
        )
        has_rows = set(table.run_of_doc())
        committer = Committer(job, self.config.runtime, table, self.manifest, self.known, has_rows, report)
        for file in todo.to_process:
            if file.skip:
                committer.accept_verdict(_skip_verdict(file, self.fingerprints))
        try:
            files = self._recalled(todo)
            if files:
                self._stream(stream, files, job, committer, report, len(todo.unchanged))
            for doc_id in committer.finish():
                committer.give_up(doc_id, "failed:engine", "its chunks never came out of the engine; run again")
            committer.commit()
            self.progress("finish")
            gone = [self.known[path].doc_id for path in (*todo.deleted, *(old for old, _ in todo.moved))]
            orphans = has_rows - {row.doc_id for row in self.known.values()} - committer.committed
            table.delete_all([*gone, *orphans])
            self.manifest.delete(gone)
            committer.look_after_table()
        except KeyboardInterrupt:
            committer.commit()
            done = committer.files_committed
            raise StoppedError(f"stopped after {done} of {len(todo.to_process)} files; run again to resume") from None
        self.states |= committer.states

    def _stream(
        self, stream: Stream, files: tuple[File, ...], job: Job, committer: Committer, report: Report, unchanged: int
    ) -> None:
        """Takes receipts as they come in and commits finished files."""
        total = unchanged + len(files)
        self.progress("start", files_done=unchanged, files_total=total)
        with contextlib.closing(stream(files, job)) as blocks:
            for block in blocks:
                for receipt in block.to_pylist():
                    committer.accept(receipt)
                if committer.is_due:
                    committer.commit()
                self.progress(
                    "embed",
                    files_done=unchanged + committer.files_committed,
                    files_total=total,
                    chunks=report.chunks["embedded"] + report.chunks["reused"],
                    embedded=report.chunks["embedded"],
                    tokens=report.tokens,
                    rejects=report.chunks["rejected"],
                    embed_s=committer.engines.any.seconds,
                )
        report.add_stage("embed", committer.engines.any.seconds, report.chunks["embedded"])
        if committer.engines.any.seconds and self.config.recipe.embedding.engine != "hash":
            done = (report.tokens, report.chunks["embedded"], committer.engines.any.seconds)
            report.throughput |= computed(model_size(self.model), *done, report.accelerators)
        first, last = committer.engines.any.between
        if last > first:
            report.throughput["first_vectors_s"] = round(first - report_began(report), 1)
            report.throughput["last_vectors_s"] = round(last - report_began(report), 1)
            report.throughput["engine_idle_share"] = round(committer.engines.idle_share, 3)

    def _recalled(self, todo: Plan) -> tuple[File, ...]:
        """The files to prepare; those whose bytes are known say where the log holds their cleaned document."""
        prints = document_fingerprints(self.config.recipe)
        moved = {file.path: self.known[old] for old, file in todo.moved}
        files = [file for file in todo.to_process if not file.skip]
        keys = {}
        for file in files:
            row = moved.get(file.path) or self.known.get(file.path)
            if row and row.content_hash and (file.path in moved or is_same_file(file, row)):
                keys[file.path] = (row.content_hash, prints.get(row.media_type, ""))
        places = find_documents(self.layout, set(keys.values())) if keys else {}
        return tuple(
            replace(file, content_hash=keys[file.path][0], recall=places[keys[file.path]])
            if keys.get(file.path) in places
            else file
            for file in files
        )

    def _promote(self, todo: Plan, report: Report) -> None:
        """Puts the new model's table in the serving one's place, in one version, if it is complete and agrees.

        A kill between table and manifest leaves the new table with an old manifest: the next run finds every file
        changed and every vector known.
        """
        staging = self.layout
        missing = [path for path, (state, _) in self.states.items() if state in RETRIED]
        if missing or todo.doubt:
            why = todo.doubt or f"{len(missing)} files are not done, such as {missing[0]}"
            report.warnings.append(f"the new model's table is not complete ({why}): the old one keeps answering")
            return
        problems = [problem for problem in audit(staging) if problem.kind != "leftover"]
        if problems:
            raise InconsistentIndexError(f"{staging.lancedb}: {problems[0].what}; delete it and run again")
        rows = self.manifest.load().values()
        self.layout, self.manifest = self._serving, Manifest(self._serving)
        table = ChunkTable.overwrite(self.layout, ChunkTable.open(staging).reader(), self.model.to_json())
        self.manifest.overwrite(rows)
        look_after(table, self.layout, self.config.runtime)
        for database in self.layout.stagings():
            self.layout.files.delete_folder(database)

    def _hash_file(self, file: File) -> str | None:
        try:
            return self.source.read(file).content_hash
        except DocumentError:
            return None


def _touched(file: File, row: ManifestRow) -> ManifestRow:
    """The row of a file whose time moved and whose bytes did not."""
    return replace(row, mtime_ns=file.mtime_ns, etag=file.etag, indexed_at=datetime.now(UTC))


def _report_of_killed(run_id: str, report: Report) -> Report:
    """What there is to say of a run that could not report itself."""
    warning = f"this run was killed or stopped; run {report.run_id} did the rest"
    return Report(run_id, report.source, report.index, "", exit_code=StoppedError.exit_code, warnings=[warning])


def _mark_unparsable(file: File) -> File:
    if file.skip or media_type_of(file.path):
        return file
    return replace(file, skip="skipped:type", reason="no parser for this type of file")


def _skip_verdict(file: File, fingerprints: Mapping[str, str]) -> Verdict:
    return Verdict(
        file.path,
        file.doc_id,
        str(file.skip),
        file.reason,
        size_bytes=file.size_bytes,
        mtime_ns=file.mtime_ns,
        fingerprint=fingerprints[""],
    )


def _refuse_nesting(source: str, layout: Layout) -> None:
    """An index inside its own source would index itself."""
    root = source.rstrip("/")
    if layout.root == root or layout.root.startswith(f"{root}/"):
        raise ConfigError(f"index {layout.root}: lies inside the source {source}; choose another --index")
