"""Looking after an index: verify, repair, export, vacuum, rollback, and the switch to another model."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import Index, hash_config

from rag_pipeline import errors, maintenance, pipeline
from rag_pipeline.config import Config
from rag_pipeline.records import Limits
from rag_pipeline.store import Layout
from rag_pipeline.store.current import digest_rows
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.store.parquet import list_parts


@pytest.fixture
def config(docs: Path, tmp_path: Path) -> Config:
    """The config that the `index` fixture uses by default."""
    return hash_config(docs, tmp_path / "index")


def digest(config: Config) -> dict[str, int]:
    """What the table holds, whoever wrote it when."""
    from collections import Counter

    return digest_rows(ChunkTable.open(Layout.at(config.output.path)).scan(), Counter())


def test_verify_finds_a_row_that_is_missing_doubled_or_changed(docs: Path, index: Index, config: Config) -> None:
    """Promise 2: every way in which the table can differ from the log is found and named."""
    index(docs)
    assert maintenance.verify(config) == []
    table = ChunkTable.open(Layout.at(config.output.path))._table
    good = table.version
    table.delete("path = 'file1.md'")
    assert [problem.kind for problem in maintenance.verify(config)] == ["missing"]
    table.restore(good)
    table.add(table.search().where("path = 'file1.md'").limit(1).to_arrow())
    assert {problem.kind for problem in maintenance.verify(config)} == {"duplicate", "different"}
    table.restore(good)
    table.update(where="path = 'file1.md'", values={"text": "someone else's words"})
    assert [problem.kind for problem in maintenance.verify(config)] == ["different"]
    table.restore(good)
    assert maintenance.verify(config) == []


def test_verify_finds_what_can_never_be_found(docs: Path, index: Index, config: Config) -> None:
    """Vectors of zeros, which LanceDB takes and never returns, are reported."""
    index(docs)
    table = ChunkTable.open(Layout.at(config.output.path))._table
    table.update(where="path = 'file1.md'", values={"vector": [0.0] * 64})
    assert {problem.kind for problem in maintenance.verify(config)} == {"vector", "different"}


@pytest.mark.parametrize("lost", ["rows", "table", "half a file", "newest version"])
def test_repair_makes_the_table_anew_without_embedding(lost: str, docs: Path, index: Index, config: Config) -> None:
    """From a table with rows missing, none at all, cut files or an emptied newest version: the same rows as before."""
    index(docs)
    before = digest(config)
    folder = Path(config.output.path) / "lancedb" / "chunks.lance"
    if lost == "rows":
        ChunkTable.open(Layout.at(config.output.path))._table.delete("ordinal >= 0")
    elif lost == "table":
        shutil.rmtree(folder)
    elif lost == "half a file":
        for file in folder.glob("data/*"):
            os.truncate(file, file.stat().st_size // 2)
        assert [problem.kind for problem in maintenance.verify(config)] == ["damaged"]
    else:
        min(folder.glob("_versions/*.manifest")).write_bytes(b"")
    assert maintenance.verify(config)
    maintenance.repair(config)
    assert maintenance.verify(config) == []
    assert digest(config) == before
    assert index(docs).changes["unchanged"] == 5


def test_repair_redoes_what_the_log_lost(docs: Path, index: Index, config: Config) -> None:
    """A damaged part of the log is set aside; its files are named, and the next run embeds them again."""
    index(docs)
    before = digest(config)
    layout = Layout.at(config.output.path)
    part = Path(layout.root, "parquet", next(iter(list_parts(layout))))
    data = bytearray(part.read_bytes())
    data[len(data) // 3] ^= 0xFF
    part.write_bytes(bytes(data))
    assert [problem.kind for problem in maintenance.verify(config)] == ["damaged"]
    maintenance.repair(config)
    assert "failed:lost" in {row.state for row in maintenance.status(config)}
    assert maintenance.verify(config) == []
    assert index(docs).exit_code == errors.EXIT_OK
    assert digest(config) == before


def test_export_writes_exactly_the_current_rows(docs: Path, tmp_path: Path, index: Index, config: Config) -> None:
    """Superseded rows and deleted files are not in the export; an occupied folder is refused."""
    index(docs)
    (docs / "file1.md").write_text("# Title 1\n\nNew words for the export.")
    (docs / "file2.md").unlink()
    index(docs)
    rows = maintenance.export(config, tmp_path / "out")
    exported = pq.read_table(tmp_path / "out")
    assert exported.num_rows == rows == ChunkTable.open(Layout.at(config.output.path)).count()
    assert "file2.md" not in exported["path"].to_pylist()
    with pytest.raises(errors.ConfigError, match="not empty"):
        maintenance.export(config, tmp_path / "out")


def test_vacuum_leaves_nothing_of_a_deleted_document(docs: Path, index: Index, config: Config) -> None:
    """After a vacuum a deleted document's text and an edited file's old text are in no file of the index."""
    secret, old = "the-vault-opens-at-midnight", "an-opinion-held-once"
    (docs / "secret.txt").write_text(f"Nobody may know that {secret} on Fridays.")
    (docs / "opinion.txt").write_text(f"This is {old} and no longer.")
    index(docs)
    (docs / "secret.txt").unlink()
    (docs / "opinion.txt").write_text("This is another view of the same thing.")
    index(docs)
    before = digest(config)
    freed = maintenance.vacuum(config)
    assert freed["rows_dropped"] == 2
    assert not texts_on_disk(Path(config.output.path), [secret, old])
    assert digest(config) == before and maintenance.verify(config) == []
    assert index(docs).changes["unchanged"] == 6


def texts_on_disk(folder: Path, texts: list[str]) -> list[Path]:
    """Files that hold one of these texts, as raw bytes or inside Parquet's compression."""
    found = []
    for file in folder.rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            if file.suffix == ".parquet":
                data += str(pq.read_table(file).to_pydict()).encode()
            if any(text.encode() in data for text in texts):
                found.append(file)
    return found


def test_rollback_goes_back_to_the_state_after_a_run(docs: Path, index: Index, config: Config) -> None:
    """Table and manifest are as they were; the next run goes forward again without embedding anew."""
    first = index(docs)
    before = digest(config)
    (docs / "file1.md").write_text("# Title 1\n\nA change that is regretted.")
    index(docs)
    after = digest(config)
    maintenance.rollback(config, first.run_id)
    assert digest(config) == before != after
    assert maintenance.verify(config) == []
    again = index(docs)
    assert again.changes["changed"] == 1 and again.chunks["embedded"] == 0
    assert digest(config) == after
    with pytest.raises(errors.ConfigError, match="no run of that name"):
        maintenance.rollback(config, "yesterday")


def test_a_new_model_is_built_beside_the_old_one(docs: Path, tmp_path: Path, index: Index, config: Config) -> None:
    """Promise 8: while the new table grows the old one answers; it gives way at once, and can be rolled back to."""
    first = index(docs)
    old = ChunkTable.open(Layout.at(config.output.path)).embedding["fingerprint"]
    seen = set()

    def watch(_: object) -> None:
        seen.add(ChunkTable.open(Layout.at(config.output.path)).embedding["fingerprint"])

    other = hash_config(docs, tmp_path / "index", recipe={"embedding": {"model": "other"}})
    report = pipeline.index(other, on_progress=watch)
    new = ChunkTable.open(Layout.at(config.output.path)).embedding["fingerprint"]
    assert seen == {old} and new != old
    assert report.changes["changed"] == 5 and report.chunks["embedded"] == 5
    assert maintenance.verify(other) == [] and not Layout.at(config.output.path).stagings()
    maintenance.rollback(config, first.run_id)
    assert ChunkTable.open(Layout.at(config.output.path)).embedding["fingerprint"] == old
    assert index(docs).changes["unchanged"] == 5


def test_a_new_model_s_table_that_is_not_complete_does_not_serve(
    docs: Path, tmp_path: Path, index: Index, config: Config
) -> None:
    """Files in doubt or not done keep the old table in place, and the report says so."""
    index(docs)
    before = digest(config)
    for file in docs.rglob("*.*"):
        file.unlink()
    (docs / "left.md").write_text("The only one left.")
    for number in range(20):
        (docs / f"extra{number}.md").write_text(f"Extra {number} for a while.")
    index(docs, allow_deletes=True)
    before = digest(config)
    for number in range(20):
        (docs / f"extra{number}.md").unlink()
    other = hash_config(docs, tmp_path / "index", recipe={"embedding": {"model": "other"}})
    report = pipeline.index(other)
    assert report.exit_code == errors.EXIT_DELETES_WITHHELD
    assert any("old one keeps answering" in warning for warning in report.warnings)
    assert digest(config) == before


def test_plan_says_what_a_run_would_cost(docs: Path, tmp_path: Path, index: Index, config: Config) -> None:
    """Chunks to embed and to reuse, and tokens, are those of the run that follows."""
    index(docs)
    (docs / "file1.md").rename(docs / "file9.md")
    (docs / "new.md").write_text("# New\n\nWords that no vector is known for.")
    work = pipeline.plan(config).work
    report = index(docs)
    assert work is not None
    assert (work.embed, work.reuse, work.tokens) == (
        report.chunks["embedded"],
        report.chunks["reused"],
        report.tokens,
    )
    assert pipeline.plan(config, quick=True).work is None


def test_limits_stop_a_run_before_it_spends(docs: Path, index: Index, config: Config) -> None:
    """Too many tokens refuse the run; too many deletes are withheld."""
    with pytest.raises(errors.ConfigError, match="more than --max-embed-tokens 10"):
        pipeline.index(config, Limits(max_embed_tokens=10))
    index(docs)
    (docs / "file1.md").unlink()
    (docs / "file2.md").unlink()
    report = pipeline.index(config, Limits(max_deletes=1))
    assert report.exit_code == errors.EXIT_DELETES_WITHHELD
    assert maintenance.verify(config) == []
    assert pipeline.index(config, Limits(max_deletes=2)).changes["deleted"] == 2
