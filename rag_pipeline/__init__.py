"""Keeps a LanceDB vector table, and a Parquet log of it, in step with a folder of documents.

The public API: `index`, `plan`, `status` and `query`, the same four things as the command line's, with
typed results; `Config` and `load_config` for settings; the error tree. Everything else is internal.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rag_pipeline.config import Config, load_config
from rag_pipeline.errors import (
    ConfigError,
    DocumentError,
    EmbeddingError,
    LockedError,
    RagPipelineError,
    SourceError,
    StoppedError,
    StoreError,
)
from rag_pipeline.records import NO_LIMITS, Hit, Limits, ManifestRow, Plan, Report

if TYPE_CHECKING:
    from rag_pipeline.run import Progress
    from rag_pipeline.search import Filters, Mode

__all__ = [
    "Config",
    "ConfigError",
    "DocumentError",
    "EmbeddingError",
    "Hit",
    "Limits",
    "LockedError",
    "ManifestRow",
    "Plan",
    "RagPipelineError",
    "Report",
    "SourceError",
    "StoppedError",
    "StoreError",
    "index",
    "load_config",
    "plan",
    "query",
    "status",
]

Settings = Config | str | Path | None


def _config(config: Settings, source: str | None, index: str | None) -> Config:
    loaded = config if isinstance(config, Config) else load_config(config)
    return loaded.with_paths(source, index)


def index(
    source: str | None = None,
    *,
    index: str | None = None,
    config: Settings = None,
    limits: Limits = NO_LIMITS,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Brings the index in step with the source; see `pipeline.index` for what it raises.

    Args:
        source: A folder; default: the config's.
        index: Where the index is; default: the config's, else ``./index``.
        config: A `Config`, or the path of a YAML file.
        limits: How far the run may go.
        on_progress: Called with a `run.Progress` after every change.
    """
    from rag_pipeline import pipeline

    settings = _config(config, source, index)
    return pipeline.index(settings, limits, on_progress=on_progress)


def plan(source: str | None = None, *, index: str | None = None, config: Settings = None) -> Plan:
    """Says what `index` would do and cost, without doing anything."""
    from rag_pipeline import pipeline

    return pipeline.plan(_config(config, source, index))


def status(*, index: str | None = None, config: Settings = None) -> list[ManifestRow]:
    """Every file the index knows, sorted by path."""
    from rag_pipeline import maintenance

    return maintenance.status(_config(config, None, index))


def query(
    text: str,
    *,
    k: int = 5,
    where: str | None = None,
    mode: Mode = "hybrid",
    filters: Filters | None = None,
    index: str | None = None,
    config: Settings = None,
) -> list[Hit]:
    """The k chunks that answer a question best, best first; see `search.query` for what it raises."""
    from rag_pipeline import search

    return search.query(_config(config, None, index), text, k=k, where=where, mode=mode, filters=filters)
