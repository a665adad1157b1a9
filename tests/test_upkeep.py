"""Upkeep of the table at the end of a run, in a process of its own where it is much work."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Index

from rag_pipeline.config import RuntimeConfig
from rag_pipeline.errors import StoreError
from rag_pipeline.store import Layout
from rag_pipeline.store.audit import audit
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.upkeep import look_after


def test_a_long_run_looks_after_its_table_in_another_process(docs: Path, tmp_path: Path, index: Index) -> None:
    """So many rows and more are indexed and joined by another process, and this one sees what it did."""
    report = index(docs, runtime={"upkeep_rows": 1, "commit_rows": 1, "commit_interval_s": 0, "files_per_task": 1})
    rows = report.chunks["written"]
    assert report.stages["upkeep"]["rows"] == rows
    assert report.versions["chunks"] == ChunkTable.open(Layout.at(tmp_path / "index")).version
    table = ChunkTable.open(Layout.at(tmp_path / "index"))
    assert table.count() == rows
    assert table._tail("words") == 0
    assert table._table.stats()["fragment_stats"]["num_fragments"] == 1
    assert audit(Layout.at(tmp_path / "index")) == []
    assert index(docs).chunks["written"] == 0


def test_upkeep_that_fails_says_why(docs: Path, tmp_path: Path, index: Index) -> None:
    """The reason of the process that failed is this process's error; rows are as they were."""
    index(docs)
    layout = Layout.at(tmp_path / "index")
    table = ChunkTable.open(layout)
    rows = table.count()
    table._table.drop_index("words")
    with pytest.raises(StoreError, match=r"looking after the table failed: .*holds no table"):
        look_after(table, Layout.at(tmp_path / "nowhere"), RuntimeConfig(upkeep_rows=1))
    assert table.count() == rows
