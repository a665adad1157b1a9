"""The pipeline: index a source. The whole product on one screen is `prepare` and `build_graph`.

list → plan → (read → parse → clean → chunk → filter) → reuse → embed → Parquet → LanceDB → manifest.
Knows nothing of command lines or screens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

from rag_pipeline.cluster import check_nodes, wait_for_gpus
from rag_pipeline.config import Config
from rag_pipeline.embedding import embed
from rag_pipeline.embedding.engine_args import count_accelerators
from rag_pipeline.errors import ConfigError, DocumentError, StoppedError
from rag_pipeline.isolation import parse
from rag_pipeline.records import NO_LIMITS, Chunk, File, Limits, Plan, Prepared, Report, Tokenizer, Verdict, Work
from rag_pipeline.run import Progress, Run
from rag_pipeline.session import ray_session, watched
from rag_pipeline.stages.chunk import split
from rag_pipeline.stages.clean import clean
from rag_pipeline.stages.filter import reject_reasons
from rag_pipeline.stages.parse import media_type_of
from rag_pipeline.store.lock import writer_lock
from rag_pipeline.store.parquet import sweep_temporary
from rag_pipeline.tasks import Clock, Job, Reuse, files_to_table, prepare_block, recall, write_block

_BLOCKS_WAITING = 16  # for the one that knows what is known: with Ray's two it is idle most of the time


def prepare(file: File, job: Job, tokenizer: Tokenizer) -> Prepared:
    """Turns one file into chunks worth a vector, and says what became of it; never raises for a bad file."""
    recipe, clock = job.recipe, Clock()
    facts: dict[str, Any] = {"size_bytes": file.size_bytes, "mtime_ns": file.mtime_ns, "etag": file.etag}
    facts |= {"media_type": media_type_of(file.path) or "", "content_hash": file.content_hash}
    chunks: list[Chunk] = []
    rejects: Counter[str] = Counter()
    document = made = None
    try:
        if file.recall:
            with clock("recall"):
                document = recall(file, job)
        if document is None:
            with clock("read"):
                data = job.source.read(file)
            facts |= {"content_hash": data.content_hash, "etag": data.etag}
            facts |= {"size_bytes": data.size_bytes, "mtime_ns": data.mtime_ns}
            with clock("parse"):
                document = parse(data, recipe.parse, **job.parse_limits)
            with clock("clean"):
                document = made = clean(document, recipe.clean)
        with clock("chunk"):
            candidates = list(split(document, recipe.chunk, tokenizer))
        with clock("filter"):
            reasons = reject_reasons(candidates, recipe.filter)
            chunks = [chunk for chunk, reason in zip(candidates, reasons, strict=True) if reason is None]
            rejects.update(reason for reason in reasons if reason)
        facts |= {"media_type": document.media_type, "title": document.title, "pages": document.pages}
        facts |= {"characters": len(document.text), "replaced_chars": document.replaced_chars}
        facts |= {"repaired": document.repaired, "ocr_pages": document.ocr_pages, "metadata": document.metadata}
        state, why = _state(chunks, rejects, document.partial)
    except DocumentError as error:
        state, why, chunks = error.state, error.message, []
    except StoppedError:
        raise
    except Exception as error:  # one bad file costs itself only, whatever a parser raises
        state, why, chunks = "failed:parse", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", []
    verdict = Verdict(
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
    return Prepared(chunks, verdict, made)


def build_graph(files: tuple[File, ...], job: Job, config: Config) -> Any:
    """The streaming graph: a Dataset of receipts, one per Parquet part written; see `tasks.write_block`."""
    import ray

    step = config.runtime.files_per_task
    blocks = [files_to_table(files[first : first + step]) for first in range(0, len(files), step)]
    arrow: dict[str, Any] = {"batch_size": None, "batch_format": "pyarrow"}

    # `from_arrow` would run a task for each block first, only to look at it.
    chunks = ray.data.from_blocks(blocks).map_batches(_prepare_block, fn_args=(job,), num_cpus=0.5, **arrow)
    # It must not forget: its node is the one that is there till the end.
    one = ray.data.ActorPoolStrategy(size=1, max_tasks_in_flight_per_actor=_BLOCKS_WAITING)
    here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
    chunks = chunks.map_batches(
        Reuse, fn_constructor_args=(job,), compute=one, num_cpus=0, label_selector=here, **arrow
    )
    unseen = any(not file.content_hash for file in files)  # else every vector may be known
    vectors = embed(chunks, job.model, config.recipe.embedding, config.runtime, start_now=unseen)
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


def plan(config: Config, limits: Limits = NO_LIMITS, quick: bool = False) -> Plan:
    """Says what `index` would do; starts neither Ray nor an engine, writes nothing.

    Args:
        config: All settings.
        limits: As for `index`.
        quick: Compare only; else new and changed files are prepared to say what would be embedded.

    Raises:
        ConfigError: A setting is refused.
        SourceError: The source cannot be listed.
    """
    run = Run(config, limits)
    todo = run.plan(run.list())
    return todo if quick else replace(todo, work=run.estimate(todo, prepare))


def index(
    config: Config,
    limits: Limits = NO_LIMITS,
    *,
    verbose: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Brings the index in step with the source; a run with nothing to do starts neither Ray nor an engine.

    Args:
        config: All settings.
        limits: How far the run may go.
        verbose: Let Ray and the engine print.
        on_progress: Called in this thread after every change.

    Returns:
        The run's report, which is also in `runs/<id>.json`.

    Raises:
        ConfigError, SourceError: Refused before anything was written.
        LockedError: Another process writes this index.
        StoppedError, StoreError, EmbeddingError: Stopped; finished files are committed, run again to resume.
    """
    run = Run(config, limits, on_progress)
    listing = run.list()
    run.layout.make()
    with writer_lock(run.layout):
        sweep_temporary(run.layout)
        todo = run.plan(listing)
        if limits.max_embed_tokens is not None:
            _refuse_cost(run.estimate(todo, prepare), limits.max_embed_tokens)
        report = run.new_report(todo)
        run.execute(todo, report, lambda files, job: _receipts(files, job, config, verbose, report))
        return report


def _receipts(
    files: tuple[File, ...], job: Job, config: Config, verbose: bool, report: Report
) -> Generator[Any, None, None]:
    """Runs the graph in a Ray session of its own, and yields blocks of receipts."""
    with ray_session(config, verbose):
        wait_for_gpus(config.runtime)
        source = job.source.root if "://" in job.source.root else files[0].location
        check_nodes(str(job.layout.root), source, job.model.path, job.run_id)
        report.accelerators = count_accelerators(config.runtime)
        graph = build_graph(files, job, config)
        blocks = graph.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
        yield from watched(blocks, config.runtime.stall_timeout_s)


def _refuse_cost(work: Work, max_tokens: int) -> None:
    if work.tokens > max_tokens:
        raise ConfigError(
            f"this run would embed {work.tokens} tokens in {work.embed} chunks, more than --max-embed-tokens"
            f" {max_tokens}; nothing was embedded"
        )
