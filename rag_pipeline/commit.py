"""Commit: receipts of written parts in, finished files into the table and the manifest, group by group.

A file is finished when its verdict has come and every chunk of it lies in the log or was refused. A group
of finished files is swapped into the table, then written to the manifest, so that a kill at any moment
leaves each file old or new, and the next run does the rest. Knows nothing of Ray.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rag_pipeline import schema
from rag_pipeline.busy_time import EngineTimes
from rag_pipeline.config import RuntimeConfig
from rag_pipeline.plan import RETRIED
from rag_pipeline.records import ManifestRow, Report, Verdict
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.store.manifest import Manifest
from rag_pipeline.store.parquet import delete_part, list_parts, read_parts
from rag_pipeline.store.vectors import VectorIndex, fetch_vectors
from rag_pipeline.tasks import Job, from_ipc, ordinals_by_doc, write_rows
from rag_pipeline.upkeep import look_after

_MAX_SWAPS_PER_COMMIT = 500  # files whose rows are replaced: a commit names each of them


@dataclass(slots=True)
class _Pending:
    """A file under way: what of it has arrived."""

    verdict: Verdict | None = None
    written: set[int] = field(default_factory=set)
    rejected: dict[int, str] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)
    doubled: bool = False

    @property
    def complete(self) -> bool:
        return self.verdict is not None and len(self.written) + len(self.rejected) >= self.verdict.chunks


class Committer:
    """Collects receipts and commits what is finished; the only writer of table and manifest in a run."""

    def __init__(
        self,
        job: Job,
        runtime: RuntimeConfig,
        table: ChunkTable,
        manifest: Manifest,
        known: Mapping[str, ManifestRow],
        has_rows: set[str],
        report: Report,
    ) -> None:
        self._job = job
        self._runtime = runtime
        self._table = table
        self._manifest = manifest
        self._known = known
        self._has_rows = has_rows
        self._report = report
        self._pending: dict[str, _Pending] = {}
        self._twins: list[pa.Table] = []
        self._claimed: set[str] = set()  # parts that receipts named
        self._made = VectorIndex(job.layout)  # vectors of this run, for twins
        self._refused: dict[str, str] = {}  # prompt hash -> why the engine refused it
        self._last_commit = time.monotonic() - runtime.commit_interval_s
        self.engines = EngineTimes()
        self.committed: set[str] = set()
        self.states: dict[str, tuple[str, str]] = {}  # path -> state and reason, of files committed in this run

    def accept(self, receipt: dict[str, Any]) -> None:
        """Takes one receipt of `tasks.write_block`."""
        facts = json.loads(receipt["receipt"])
        if facts["part"]:
            keys = np.frombuffer(bytes.fromhex(receipt["hashes"]), dtype=">u8").reshape(-1, 2)[:, 0]
            self._made.add_part(facts["part"], keys.astype(np.uint64))
            self._note_written(facts["part"], facts["ordinals"])
        for reject in facts["rejects"]:
            self._of(reject["doc_id"]).rejected[reject["ordinal"]] = reject["reason"]
            self._refused[reject["prompt_hash"]] = reject["reason"]
        for text in facts["verdicts"]:
            verdict = Verdict(**json.loads(text))
            self._of(verdict.doc_id).verdict = verdict
            self._count_prepared(verdict)
        if receipt["twins"]:
            self._twins.append(from_ipc(receipt["twins"]))
        self._count_block(facts)

    def accept_verdict(self, verdict: Verdict) -> None:
        """Takes the verdict on a file that never entered the graph."""
        self._of(verdict.doc_id).verdict = verdict

    @property
    def files_committed(self) -> int:
        """Files committed so far."""
        return len(self.committed)

    def give_up(self, doc_id: str, state: str, reason: str) -> None:
        """Ends a file of which chunks never arrived; what did arrive of it is not used."""
        verdict = self._of(doc_id).verdict
        if verdict is not None:
            verdict = replace(verdict, state=state, reason=reason, chunks=0)
            self._pending[doc_id] = _Pending(verdict)
        else:
            del self._pending[doc_id]  # without a verdict there is no path to report; the next run finds it again

    @property
    def is_due(self) -> bool:
        """Whether enough is finished, or enough time has passed, for a commit."""
        finished = {
            doc_id: pending.verdict.chunks
            for doc_id, pending in self._pending.items()
            if pending.verdict and pending.complete
        }
        if not finished and not self._twins:
            return False
        waited = time.monotonic() - self._last_commit >= self._runtime.commit_interval_s
        swaps = len(self._has_rows.intersection(finished))
        return waited or sum(finished.values()) >= self._runtime.commit_rows or swaps >= _MAX_SWAPS_PER_COMMIT

    def commit(self) -> int:
        """Commits every finished file.

        Returns:
            How many files were committed.

        Raises:
            StoreError: A store refused; what earlier commits did stays.
        """
        self._write_twins()
        group = {doc_id: pending for doc_id, pending in self._pending.items() if pending.complete}
        started = time.perf_counter()
        manifest_rows = [self._manifest_row(pending) for pending in group.values()]
        kept = {row.doc_id for row in manifest_rows if row.run_id != self._job.run_id}
        new = {d: p for d, p in group.items() if p.written and d not in self._has_rows}
        old = {d: p for d, p in group.items() if d in self._has_rows and d not in kept}
        if new:
            self._table.add(self._reader(new))
        if old:
            self._table.swap(old, self._reader(old))
        self._manifest.put(manifest_rows)
        for doc_id in group:
            del self._pending[doc_id]
        self._has_rows.update(new)
        self._report.chunks["written"] += sum(len(pending.written) for pending in group.values())
        self._report.add_stage("commit", time.perf_counter() - started, sum(len(p.written) for p in group.values()))
        self._last_commit = time.monotonic()
        self.committed.update(group)
        self.states.update((row.path, (row.state, row.reason)) for row in manifest_rows)
        return len(group)

    def look_after_table(self) -> None:
        """Compacts and indexes what is new, at the end of a run.

        Raises:
            StoreError: It failed; all that is committed stays.
        """
        started = time.perf_counter()
        look_after(self._table, self._job.layout, self._runtime)
        self._report.add_stage("upkeep", time.perf_counter() - started, self._report.chunks["written"])

    def finish(self) -> list[str]:
        """Commits the rest; returns the doc ids of files of which chunks never arrived.

        Drops parts of this run that no receipt named: a task wrote them and was lost with its node, and what did its
        work again may have made vectors that differ in their last bits.
        """
        self.commit()
        for part in list_parts(self._job.layout, self._job.run_id):
            if part not in self._claimed:
                delete_part(self._job.layout, part)
        return list(self._pending)

    def _of(self, doc_id: str) -> _Pending:
        return self._pending.setdefault(doc_id, _Pending())

    def _note_written(self, part: str, ordinals: dict[str, list[int]]) -> None:
        self._claimed.add(part)
        for doc_id, numbers in ordinals.items():
            pending = self._of(doc_id)
            pending.doubled |= not pending.written.isdisjoint(numbers)
            pending.written.update(numbers)
            pending.parts.append(part)

    def _write_twins(self) -> None:
        """Gives twins the vectors their owners brought meanwhile and writes them as one part."""
        if not self._twins:
            return
        table = pa.concat_tables(self._twins)
        parts, at = self._made.locate(table["prompt_hash"])
        found = parts != None  # noqa: E711, an elementwise comparison
        ready = np.flatnonzero(found)
        if len(ready):
            vectors = fetch_vectors(self._job.layout, parts[ready], at[ready], self._job.model.dimension)
            rows = schema.fill_vectors(table, ready, vectors).take(pa.array(ready))
            self._note_written(write_rows(rows, self._job), ordinals_by_doc(rows))
        waiting = table.filter(pa.array(~found))
        for row in waiting.select(["doc_id", "ordinal", "prompt_hash"]).to_pylist():
            if row["prompt_hash"] in self._refused:
                self._of(row["doc_id"]).rejected[row["ordinal"]] = self._refused[row["prompt_hash"]]
        refused = pc.is_in(waiting["prompt_hash"], pa.array(list(self._refused), pa.string()))
        waiting = waiting.filter(pc.invert(refused))
        self._twins = [waiting] if waiting.num_rows else []

    def _reader(self, docs: dict[str, _Pending]) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self._table.schema, self._batches(docs))

    def _batches(self, docs: dict[str, _Pending]) -> Iterator[pa.RecordBatch]:
        """The log's rows of these files, a part at a time, each chunk once."""
        wanted = pa.array(list(docs))
        doubled = any(pending.doubled for pending in docs.values())
        seen: set[str] = set()
        parts = dict.fromkeys(part for pending in docs.values() for part in pending.parts)
        for _, rows in read_parts(self._job.layout, parts):
            rows = rows.filter(pc.is_in(rows["doc_id"], wanted))
            if doubled:
                fresh = [chunk_id not in seen for chunk_id in rows["chunk_id"].to_pylist()]
                seen.update(rows["chunk_id"].to_pylist())
                rows = rows.filter(pa.array(fresh))
            yield from schema.conform(rows, self._table.schema).to_batches()

    def _manifest_row(self, pending: _Pending) -> ManifestRow:
        verdict = pending.verdict
        assert verdict is not None
        if pending.rejected:
            first = next(iter(pending.rejected.values()))
            state = "partial" if pending.written else "failed:engine"
            reason = f"{len(pending.rejected)} of {verdict.chunks} chunks were not embedded: {first}"
            verdict = replace(verdict, state=state, reason=reason, chunks=len(pending.written))
        before = self._known.get(verdict.path)
        if verdict.state in RETRIED and before and before.chunks:  # may pass on a retry: the old rows stay till then
            return replace(
                before, state=verdict.state, reason=f"{verdict.reason}; its earlier version stays searchable"
            )
        return to_manifest_row(verdict, self._job.run_id)

    def _count_prepared(self, verdict: Verdict) -> None:
        for stage, seconds in verdict.seconds.items():
            self._report.add_stage(stage, seconds, 1)
        self._report.chunks["rejected"] += sum(verdict.rejects.values())

    def _count_block(self, facts: dict[str, Any]) -> None:
        self._report.chunks["embedded"] += facts["embedded"]
        self._report.chunks["reused"] += facts["reused"] + facts["twins"]
        self._report.chunks["rejected"] += len(facts["rejects"])
        self._report.tokens += facts["tokens"]
        self._report.add_stage("write", facts["write_s"], facts["embedded"] + facts["reused"])
        for engine, start, end in facts["engines"]:
            self.engines.add(engine, start, end)


def to_manifest_row(verdict: Verdict, run_id: str) -> ManifestRow:
    """A verdict as the manifest keeps it, stamped with this moment."""
    facts = asdict(verdict)
    del facts["seconds"]
    return ManifestRow(**facts, run_id=run_id, indexed_at=datetime.now(UTC))
