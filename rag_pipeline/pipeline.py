"""The pipeline: index a source. The whole product on one screen is `prepare` and `build_graph`.

list → plan → (read → parse → clean → chunk → filter) → reuse → embed → Parquet → LanceDB → manifest.
The only module that runs Ray. Knows nothing of command lines or screens.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from rag_pipeline import errors
from rag_pipeline.commit import Committer, busy_seconds
from rag_pipeline.config import Config, prepare_fingerprints
from rag_pipeline.embedding import embed
from rag_pipeline.embedding.model import Model, load_model
from rag_pipeline.errors import ConfigError, DocumentError, SourceError, StoppedError
from rag_pipeline.plan import PlanRules, make_plan
from rag_pipeline.records import (
    Chunk,
    File,
    Listing,
    ManifestRow,
    Plan,
    Report,
    Tokenizer,
    Verdict,
    count_states,
    is_failure,
)
from rag_pipeline.session import ray_session
from rag_pipeline.source import open_source
from rag_pipeline.stages.chunk import split
from rag_pipeline.stages.clean import clean
from rag_pipeline.stages.filter import reject_reason
from rag_pipeline.stages.parse import media_type_of, parse
from rag_pipeline.store import Layout
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.store.lock import writer_lock
from rag_pipeline.store.manifest import Manifest
from rag_pipeline.store.parquet import sweep_temporary
from rag_pipeline.store.reports import unfinished_runs, write_report
from rag_pipeline.tasks import Clock, Job, Reuse, files_to_table, prepare_block, write_block


def prepare(file: File, job: Job, tokenizer: Tokenizer) -> tuple[list[Chunk], Verdict]:
    """Turns one file into chunks worth a vector, and says what became of it; never raises for a bad file."""
    recipe, clock = job.recipe, Clock()
    facts: dict[str, Any] = {"size_bytes": file.size_bytes, "mtime_ns": file.mtime_ns}
    facts["media_type"] = media_type_of(file.path) or ""
    chunks: list[Chunk] = []
    rejects: Counter[str] = Counter()
    try:
        with clock("read"):
            data = job.source.read(file)
        facts |= {"content_hash": data.content_hash, "size_bytes": data.size_bytes, "mtime_ns": data.mtime_ns}
        with clock("parse"):
            document = parse(data, recipe.parse)
        with clock("clean"):
            document = clean(document, recipe.clean)
        with clock("chunk"):
            candidates = list(split(document, recipe.chunk, tokenizer))
        with clock("filter"):
            for chunk in candidates:
                reason = reject_reason(chunk, recipe.filter)
                if reason is None:
                    chunks.append(chunk)
                else:
                    rejects[reason] += 1
        facts |= {"media_type": document.media_type, "title": document.title, "pages": document.pages}
        facts["replaced_chars"] = document.replaced_chars
        state, why = _state(chunks, rejects, document.partial)
    except DocumentError as error:
        state, why, chunks = error.state, error.message, []
    except Exception as error:  # one bad file costs itself only, whatever a parser raises
        state, why, chunks = "failed:parse", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", []
    return chunks, Verdict(
        path=file.path,
        doc_id=file.doc_id,
        state=state,
        reason=why,
        chunks=len(chunks),
        tokens=sum(len(chunk.token_ids) for chunk in chunks),
        rejects=dict(rejects),
        fingerprint=job.fingerprints[facts["media_type"]],
        seconds=dict(clock.seconds),
        **facts,
    )


def build_graph(files: tuple[File, ...], job: Job, config: Config) -> Any:
    """The streaming graph: a Dataset of receipts, one per Parquet part written; see `tasks.write_block`."""
    import ray

    step = config.runtime.files_per_task
    blocks = [files_to_table(list(files[first : first + step])) for first in range(0, len(files), step)]
    arrow: dict[str, Any] = {"batch_size": None, "batch_format": "pyarrow"}

    chunks = ray.data.from_arrow(blocks).map_batches(_prepare_block, fn_args=(job,), num_cpus=0.5, **arrow)
    one = ray.data.ActorPoolStrategy(size=1)
    chunks = chunks.map_batches(Reuse, fn_constructor_args=(job,), compute=one, num_cpus=0.1, **arrow)
    vectors = embed(chunks, job.model, config.recipe.embedding, config.runtime)
    return vectors.map_batches(write_block, fn_args=(job,), num_cpus=0.2, **arrow)


def _prepare_block(block: Any, job: Job) -> Iterator[Any]:
    return prepare_block(block, job, prepare)


def _state(chunks: list[Chunk], rejects: Counter[str], partial: str) -> tuple[str, str]:
    if partial:
        return "partial", partial
    if chunks:
        return "indexed", ""
    if rejects:
        return "skipped:filtered", "no chunk passed the filter: " + ", ".join(
            f"{n} {why}" for why, n in rejects.items()
        )
    return "no_text", "no text that the model's tokenizer can read"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is; handed to `on_progress` after every change.

    Attributes:
        phase: ``list``, ``plan``, ``start``, ``embed`` or ``finish``.
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


def plan(config: Config, allow_deletes: bool = False) -> Plan:
    """Says what `index` would do. Reads no file but those in doubt; starts neither Ray nor an engine, writes nothing.

    Raises:
        ConfigError: A setting or the table's model is refused.
        SourceError: The source cannot be listed.
    """
    run = _Run(config, allow_deletes, None)
    return run.make_plan(run.list())[0]


def index(
    config: Config,
    *,
    allow_deletes: bool = False,
    verbose: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Brings the index in step with the source; a run with nothing to do starts neither Ray nor an engine.

    Args:
        config: All settings.
        allow_deletes: Remove the rows of vanished files however many they are.
        verbose: Let Ray and the engine print.
        on_progress: Called in this thread after every change.

    Returns:
        The run's report, which is also in `runs/<id>.json`.

    Raises:
        ConfigError, SourceError: Refused before anything was written.
        LockedError: Another process writes this index.
        StoppedError, StoreError, EmbeddingError: Stopped; finished files are committed, run again to resume.
    """
    run = _Run(config, allow_deletes, on_progress)
    listing = run.list()
    run.layout.make()
    with writer_lock(run.layout):
        sweep_temporary(run.layout)
        todo, known = run.make_plan(listing)
        report = run.new_report(todo)
        killed = unfinished_runs(run.layout)
        states = {file.path: (known[file.path].state, known[file.path].reason) for file in todo.unchanged}
        if todo.to_process or todo.deleted or killed:
            states |= run.apply(todo, known, report, verbose)
        if todo.touched:
            run.manifest.put(run.touch(file, known[file.path]) for file in todo.touched)
        if todo.to_process or todo.deleted or todo.touched or killed:
            run.manifest.snapshot()
        run.close(report, todo, states, killed)
        return report


class _Run:
    """One run: where it reads and writes, what it knows, what it reports."""

    def __init__(self, config: Config, allow_deletes: bool, on_progress: Callable[[Progress], None] | None) -> None:
        self.started = time.monotonic()
        self.config = config
        self.layout = Layout.at(config.output.path)
        self.source = open_source(config.source)
        _refuse_nesting(self.source.root, self.layout)
        self.model = load_model(config.recipe.embedding)
        self.fingerprints = prepare_fingerprints(config.recipe, self.model.fingerprint)
        self.manifest = Manifest(self.layout)
        self._rules = PlanRules(self.fingerprints, allow_deletes, config.source.max_deleted_share)
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

    def make_plan(self, listing: Listing) -> tuple[Plan, dict[str, ManifestRow]]:
        """Compares listing and manifest; reads no file but those in doubt."""
        self.progress("plan", files_total=len(listing.files))
        known = self.manifest.load()
        todo = make_plan(listing, known, self._rules, self._hash_file)
        if any(not file.skip for file in todo.to_process) and ChunkTable.exists(self.layout):
            _refuse_other_model(self.layout, ChunkTable.open(self.layout).embedding, self.model)
        return todo, known

    def new_report(self, todo: Plan) -> Report:
        """An empty report of this run."""
        now = datetime.now(UTC)
        run_id = f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        report = Report(run_id, self.source.root, str(self.layout.root), now.isoformat(timespec="seconds"))
        report.changes = todo.changes
        report.recipe = {"embedding": self.model.fingerprint, **{k: v for k, v in self.fingerprints.items() if k}}
        return report

    def apply(
        self, todo: Plan, known: dict[str, ManifestRow], report: Report, verbose: bool
    ) -> dict[str, tuple[str, str]]:
        """Does what the plan says; returns state and reason of every file it touched."""
        job = Job(self.source, self.config.recipe, self.model, self.fingerprints, self.layout, report.run_id)
        exists = ChunkTable.exists(self.layout)
        table = ChunkTable.open(self.layout) if exists else None
        table = table or ChunkTable.create(self.layout, self.model.dimension, self.model.to_json())
        has_rows = table.doc_ids()
        committer = Committer(job, self.config.runtime, table, self.manifest, known, has_rows, report)
        for file in todo.to_process:
            if file.skip:
                committer.accept_verdict(_skip_verdict(file, self.fingerprints))
        files = tuple(file for file in todo.to_process if not file.skip)
        try:
            if files:
                self._stream(files, job, committer, report, verbose, len(todo.unchanged))
            for doc_id in committer.finish():
                committer.give_up(doc_id, "failed:engine", "its chunks never came out of the engine; run again")
            committer.commit()
            self.progress("finish")
            gone = [known[path].doc_id for path in (*todo.deleted, *(old for old, _ in todo.moved))]
            orphans = has_rows - {row.doc_id for row in known.values()} - committer.committed
            table.delete_all([*gone, *orphans])
            self.manifest.delete(gone)
            table.optimize()
        except KeyboardInterrupt:
            committer.commit()
            done = committer.files_committed
            raise StoppedError(f"stopped after {done} of {len(todo.to_process)} files; run again to resume") from None
        return committer.states

    def _stream(
        self, files: tuple[File, ...], job: Job, committer: Committer, report: Report, verbose: bool, unchanged: int
    ) -> None:
        """Runs the graph and commits finished files as receipts come in."""
        job.layout.run_parts(job.run_id).mkdir(parents=True, exist_ok=True)
        total = unchanged + len(files)
        self.progress("start", files_done=unchanged, files_total=total)
        with ray_session(self.config, verbose):
            for block in build_graph(files, job, self.config).iter_batches(
                batch_size=None, batch_format="pyarrow", prefetch_batches=0
            ):
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
                    embed_s=busy_seconds(committer.engine_busy),
                )
        report.add_stage("embed", busy_seconds(committer.engine_busy), report.chunks["embedded"])

    def touch(self, file: File, row: ManifestRow) -> ManifestRow:
        """The row of a file whose time moved and whose bytes did not."""
        return replace(row, mtime_ns=file.mtime_ns, indexed_at=datetime.now(UTC))

    def close(self, report: Report, todo: Plan, states: dict[str, tuple[str, str]], killed: Sequence[str]) -> None:
        """Completes the report and writes it, and one for every run that was killed before it could."""
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
        made = report.chunks["embedded"] + report.chunks["reused"]
        if made:
            report.throughput["reuse_rate"] = round(report.chunks["reused"] / made, 4)
        if any(is_failure(state) for state, _ in states.values()):
            report.exit_code = errors.EXIT_FILES_FAILED
        if todo.doubt:
            report.exit_code = errors.EXIT_DELETES_WITHHELD
            report.warnings.append(
                f"rows of {len(todo.withheld)} files are kept: {todo.doubt};"
                " if they are really gone, use --allow-deletes"
            )
        for run_id in killed:
            lost = Report(run_id, report.source, report.index, "", exit_code=errors.EXIT_STOPPED)
            lost.warnings.append(f"this run was killed; run {report.run_id} did the rest")
            write_report(self.layout, lost)
        report.seconds = round(time.monotonic() - self.started, 3)
        write_report(self.layout, report)

    def _hash_file(self, file: File) -> str | None:
        try:
            return self.source.read(file).content_hash
        except DocumentError:
            return None


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


def _refuse_nesting(root: str, layout: Layout) -> None:
    """An index inside its own source would index itself."""
    if "://" not in root and layout.root.is_relative_to(root):
        raise ConfigError(f"index {layout.root}: lies inside the source {root}; choose another --index")


def _refuse_other_model(layout: Layout, recorded: dict[str, Any], model: Model) -> None:
    if recorded.get("fingerprint") != model.fingerprint:
        raise ConfigError(
            f"index {layout.root}: made with model {recorded.get('name')} ({recorded.get('dtype')}), the recipe says"
            f" {model.name} ({model.dtype}); keep recipe.embedding as it was, or name another --index for the new model"
        )
