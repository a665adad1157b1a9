"""The main job with the fake engine: what ends up in table, log and manifest, run after run."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import Index, hash_config

from rag_pipeline import errors, maintenance, pipeline
from rag_pipeline.busy_time import BusyTime, EngineTimes
from rag_pipeline.embedding.hash import hash_vector
from rag_pipeline.run import Progress
from rag_pipeline.schema import from_vectors
from rag_pipeline.source import open_source
from rag_pipeline.stages.clean import clean
from rag_pipeline.stages.parse import parse
from rag_pipeline.store import Layout
from rag_pipeline.store.audit import audit
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.store.manifest import Manifest


def table_rows(index: Path) -> pa.Table:
    """All rows of the LanceDB table."""
    return ChunkTable.open(Layout.at(index)).reader().read_all()


def assert_consistent(index: Path) -> None:
    """Log, manifest and table hold the same rows, each once, and nothing is left over."""
    assert audit(Layout.at(index)) == []


def test_a_first_run_indexes_every_file(docs: Path, tmp_path: Path, index: Index) -> None:
    """Every file ends up indexed, its chunks in table and log, and the report counts them."""
    report = index(docs)
    assert report.exit_code == errors.EXIT_OK
    assert report.changes == {"added": 5, "changed": 0, "moved": 0, "deleted": 0, "unchanged": 0}
    assert report.files == {"indexed": 5}
    assert report.chunks["written"] == report.chunks["embedded"] == table_rows(tmp_path / "index").num_rows
    assert set(report.stages) >= {"read", "parse", "clean", "chunk", "filter", "embed", "write", "commit"}
    assert_consistent(tmp_path / "index")


def test_chunks_are_exact_slices_with_their_vectors(docs: Path, tmp_path: Path, index: Index) -> None:
    """A stored chunk's span cuts its text out of the cleaned document, and its vector is its prompt's."""
    index(docs)
    config = hash_config(docs, tmp_path / "index")
    source = open_source(config.source)
    texts = {
        file.path: clean(parse(source.read(file), config.recipe.parse), config.recipe.clean).text
        for file in source.list().files
    }
    table = table_rows(tmp_path / "index")
    assert pa.types.is_fixed_size_list(table.schema.field("vector").type)
    vectors = from_vectors(table["vector"])
    for row, vector in zip(table.to_pylist(), vectors, strict=True):
        assert texts[row["path"]][row["start_char"] : row["end_char"]] == row["text"]
        np.testing.assert_allclose(vector, hash_vector(row["prompt_hash"], 64), rtol=1e-6)


def test_a_second_run_does_nothing(docs: Path, tmp_path: Path, index: Index) -> None:
    """Nothing changed: no file is processed, no row written, no new version of the table."""
    index(docs)
    before = ChunkTable.open(Layout.at(tmp_path / "index")).version
    report = index(docs)
    assert report.changes["unchanged"] == 5
    assert report.chunks == {"written": 0, "embedded": 0, "reused": 0, "rejected": 0}
    assert ChunkTable.open(Layout.at(tmp_path / "index")).version == before


def test_a_touched_file_is_not_embedded_again(docs: Path, tmp_path: Path, index: Index) -> None:
    """A new modification time on the same bytes changes the manifest only."""
    index(docs)
    os.utime(docs / "file1.md", ns=(1, 1_000_000_000))
    report = index(docs)
    assert report.changes["unchanged"] == 5
    assert report.chunks["written"] == 0
    assert Manifest(Layout.at(tmp_path / "index")).load()["file1.md"].mtime_ns == 1_000_000_000


def test_an_edit_replaces_only_that_file(docs: Path, tmp_path: Path, index: Index) -> None:
    """A changed file's old rows are gone, its new ones are there, others are untouched."""
    index(docs)
    (docs / "file1.md").write_text("# Title 1\n\nEntirely different words now.\n")
    report = index(docs)
    assert report.changes == {"added": 0, "changed": 1, "moved": 0, "deleted": 0, "unchanged": 4}
    rows = table_rows(tmp_path / "index")
    texts = rows.filter(pc.equal(rows["path"], "file1.md"))["text"].to_pylist()
    assert texts == ["# Title 1\n\nEntirely different words now."]
    assert_consistent(tmp_path / "index")


def test_a_deleted_file_is_gone_from_the_table(docs: Path, tmp_path: Path, index: Index) -> None:
    """Rows and manifest row of a vanished file disappear."""
    index(docs)
    (docs / "file2.md").unlink()
    report = index(docs)
    assert report.changes["deleted"] == 1
    assert "file2.md" not in table_rows(tmp_path / "index")["path"].to_pylist()
    assert "file2.md" not in Manifest(Layout.at(tmp_path / "index")).load()
    assert_consistent(tmp_path / "index")


def test_a_rename_embeds_nothing(docs: Path, tmp_path: Path, index: Index) -> None:
    """A renamed folder shows as moves; its chunks are reused under their new paths."""
    index(docs)
    (docs / "deep").rename(docs / "shallow")
    report = index(docs)
    assert report.changes["moved"] == 1
    assert report.chunks["embedded"] == 0
    assert report.chunks["reused"] == report.chunks["written"] > 0
    paths = set(table_rows(tmp_path / "index")["path"].to_pylist())
    assert "shallow/er/note.txt" in paths and "deep/er/note.txt" not in paths
    assert_consistent(tmp_path / "index")


def test_equal_prompts_are_embedded_once_in_a_run(docs: Path, tmp_path: Path, index: Index) -> None:
    """Twenty copies of a file cost one embedding a chunk, and every copy has its rows."""
    text = "# Boilerplate\n\n" + "\n\n".join(f"Clause {n} binds the parties to tide table {n}." for n in range(40))
    for number in range(20):
        (docs / f"copy{number}.md").write_text(text)
    report = index(docs, runtime={"files_per_task": 3})
    rows = table_rows(tmp_path / "index")
    per_copy = rows.filter(pc.equal(rows["path"], "copy0.md")).num_rows
    assert per_copy >= 2
    assert report.chunks["embedded"] == len(set(rows["prompt_hash"].to_pylist()))
    assert report.chunks["reused"] == 19 * per_copy
    assert_consistent(tmp_path / "index")


def test_going_back_to_an_old_chunk_size_embeds_nothing(docs: Path, tmp_path: Path, index: Index) -> None:
    """Vectors of superseded chunks stay known to the log: a recipe tried and dropped costs once."""
    (docs / "long.txt").write_text(" ".join(f"word{n} sentence number {n}." for n in range(400)))
    index(docs)
    smaller = index(docs, recipe={"chunk": {"max_tokens": 64}})
    assert smaller.changes["changed"] == 6 and smaller.chunks["embedded"] > 0
    back = index(docs)
    assert back.chunks["embedded"] == 0
    assert_consistent(tmp_path / "index")


def test_a_recipe_part_redoes_only_what_depends_on_it(docs: Path, index: Index) -> None:
    """A PDF setting leaves Markdown and text alone; a runtime setting changes nothing."""
    index(docs)
    assert index(docs, recipe={"parse": {"pdf": {"headings": False}}}).changes["unchanged"] == 5
    assert index(docs, runtime={"files_per_task": 1}).changes["unchanged"] == 5


def test_bad_files_cost_themselves_only(sample_docs: Path, tmp_path: Path, index: Index) -> None:
    """The three files that are bad on purpose get their states; all others are indexed; exit code 3."""
    report = index(sample_docs)
    assert report.exit_code == errors.EXIT_FILES_FAILED
    states = {reject["path"]: reject["state"] for reject in report.rejects}
    assert states == {
        "broken/password.pdf": "failed:encrypted",
        "broken/scan-image-only.pdf": "no_text",
        "broken/truncated.pdf": "partial",
    }
    assert sum(report.files.values()) == 12
    assert all(reject["reason"] for reject in report.rejects)
    assert_consistent(tmp_path / "index")


def test_every_listed_object_has_one_state(docs: Path, tmp_path: Path, index: Index) -> None:
    """Promise 1: hidden, linked, odd and unparsable entries are counted too: states add up to the listing."""
    (docs / ".hidden").write_text("secret")
    (docs / "picture.png").write_bytes(b"\x89PNG")
    (docs / "empty.md").write_text("")
    (docs / "loop").symlink_to(docs)
    Path(os.fsdecode(os.fsencode(docs) + b"/caf\xe9.txt")).write_text("Coffee is served at four o'clock.")
    (docs / "line\nbreak 'quoted'.txt").write_text("A name with a newline and quotes is still a name.")
    report = index(docs)
    assert report.files == {
        "empty": 1,
        "indexed": 7,
        "skipped:hidden": 1,
        "skipped:symlink": 1,
        "skipped:type": 1,
    }
    assert "caf%E9.txt" in table_rows(tmp_path / "index")["path"].to_pylist()
    assert_consistent(tmp_path / "index")
    assert index(docs).changes["unchanged"] == 11


def test_a_file_that_becomes_unreadable_as_text_loses_its_rows(docs: Path, tmp_path: Path, index: Index) -> None:
    """A new version without text replaces the old one: what is no longer there is not found."""
    index(docs)
    (docs / "file0.md").write_text("")
    report = index(docs)
    assert report.files == {"empty": 1, "indexed": 4}
    assert "file0.md" not in table_rows(tmp_path / "index")["path"].to_pylist()
    assert_consistent(tmp_path / "index")


def test_files_are_committed_in_groups_while_the_run_goes_on(docs: Path, tmp_path: Path, ray_once: None) -> None:
    """A reader finds the first files before the last are done."""
    for number in range(60):
        (docs / f"more{number}.txt").write_text(f"Another document, number {number}, about lighthouses.")
    seen: list[int] = []

    def watch(state: Progress) -> None:
        if ChunkTable.exists(Layout.at(tmp_path / "index")):
            seen.append(ChunkTable.open(Layout.at(tmp_path / "index")).count())

    runtime = {"files_per_task": 4, "commit_rows": 8, "commit_interval_s": 0}
    report = pipeline.index(hash_config(docs, tmp_path / "index", runtime=runtime), on_progress=watch)
    assert any(0 < count < report.chunks["written"] for count in seen)
    assert_consistent(tmp_path / "index")


def test_a_part_that_no_receipt_names_is_dropped(docs: Path, tmp_path: Path, index: Index) -> None:
    """What a task wrote before its node was lost stands in the log again by the task that did its work: once, then."""
    files = Layout.at(tmp_path / "index").files

    def write_again(state: Progress) -> None:
        parts = [file.name for file in files.walk("parquet/run=") if "/part-" in file.name]
        for part in parts if state.phase == "embed" else []:
            folder, name = part.rsplit("/", 1)
            files.write(f"{folder}/part-{'0' * 16}-{name.split('-')[-1]}", files.read(part))

    report = pipeline.index(hash_config(docs, tmp_path / "index"), on_progress=write_again)
    parts = [file.name for file in files.walk("parquet/run=") if "/part-" in file.name]
    assert parts
    assert not [part for part in parts if f"part-{'0' * 16}" in part]
    assert report.chunks["written"] == table_rows(tmp_path / "index").num_rows
    assert_consistent(tmp_path / "index")


def test_vanished_files_in_doubt_keep_their_rows(docs: Path, tmp_path: Path, index: Index) -> None:
    """Promise 7: an emptied source deletes nothing and says so by exit code 7, until --allow-deletes."""
    index(docs)
    shutil.move(docs, tmp_path / "away")
    docs.mkdir()
    before = table_rows(tmp_path / "index").num_rows
    report = index(docs)
    assert report.exit_code == errors.EXIT_DELETES_WITHHELD
    assert table_rows(tmp_path / "index").num_rows == before
    assert "--allow-deletes" in report.warnings[0]
    assert index(docs, allow_deletes=True).exit_code == errors.EXIT_OK
    assert table_rows(tmp_path / "index").num_rows == 0


def test_an_index_inside_its_source_is_refused(docs: Path) -> None:
    """The index never lies where it would index itself."""
    with pytest.raises(errors.ConfigError, match="inside the source"):
        pipeline.plan(hash_config(docs, docs / "index"))


def test_the_report_is_the_same_on_disk(docs: Path, tmp_path: Path, index: Index) -> None:
    """runs/<id>.json holds what the run returned."""
    report = index(docs)
    stored = json.loads((tmp_path / "index" / "runs" / f"{report.run_id}.json").read_text())
    assert stored["chunks"] == report.chunks and stored["files"] == report.files
    assert stored["exit_code"] == report.exit_code


def test_plan_says_what_index_would_do_and_writes_nothing(docs: Path, tmp_path: Path, index: Index) -> None:
    """Planned changes equal those of the run that follows; the index stays as it was."""
    index(docs)
    (docs / "file0.md").write_text("Changed.")
    (docs / "file1.md").rename(docs / "file9.md")
    (docs / "file2.md").unlink()
    (docs / "new.md").write_text("# New\n\nA new file.")
    before = sorted(path for path in (tmp_path / "index").rglob("*"))
    todo = pipeline.plan(hash_config(docs, tmp_path / "index"))
    assert sorted(path for path in (tmp_path / "index").rglob("*")) == before
    assert todo.changes == {"added": 1, "changed": 1, "moved": 1, "deleted": 1, "unchanged": 2}
    assert [(old, file.path) for old, file in todo.moved] == [("file1.md", "file9.md")]
    assert index(docs).changes == todo.changes


def test_vectors_may_be_stored_as_float16(docs: Path, tmp_path: Path, index: Index) -> None:
    """`storage: float16` halves vectors in table and log, which agree, are rebuilt, and never mix with float32."""
    half = {"embedding": {"storage": "float16"}}
    config = hash_config(docs, tmp_path / "index", recipe=half)
    wide = index(docs)
    exact = table_rows(tmp_path / "index").sort_by("chunk_id")
    report = index(docs, recipe=half)
    assert report.recipe["embedding"] != wide.recipe["embedding"]
    maintenance.repair(config)
    assert_consistent(tmp_path / "index")
    rows = table_rows(tmp_path / "index").sort_by("chunk_id")
    assert rows.schema.field("vector").type == pa.list_(pa.float16(), 64)
    np.testing.assert_allclose(from_vectors(rows["vector"]), from_vectors(exact["vector"]), atol=1e-3)
    vector = from_vectors(exact["vector"])[3]
    hits = ChunkTable.open(Layout.at(tmp_path / "index")).nearest(vector, 1, None, ["chunk_id"])
    assert hits["chunk_id"].to_pylist() == [exact["chunk_id"][3].as_py()]
    assert index(docs, recipe=half).chunks["embedded"] == 0


def test_a_changed_filter_or_chunk_size_parses_nothing_again(docs: Path, tmp_path: Path, index: Index) -> None:
    """Cleaned documents are recalled from the log; a changed clean setting, and new bytes, are parsed."""
    index(docs)
    filtered = index(docs, recipe={"filter": {"min_chars": 50}})
    assert filtered.changes["changed"] == 5 and filtered.chunks["embedded"] == 0
    assert "parse" not in filtered.stages and filtered.stages["recall"]["rows"] == 5
    smaller = index(docs, recipe={"chunk": {"max_tokens": 32}})
    assert "parse" not in smaller.stages
    assert_consistent(tmp_path / "index")
    (docs / "file1.md").write_text("# Title 1\n\nNew bytes must be read and parsed.")
    assert index(docs, recipe={"chunk": {"max_tokens": 64}}).stages["parse"]["rows"] == 1
    cleaned = index(docs, recipe={"clean": {"unicode_form": "NFKC"}})
    assert cleaned.stages["parse"]["rows"] == 5
    assert_consistent(tmp_path / "index")


def test_busy_time_counts_overlaps_once() -> None:
    """Intervals in any order; what two of them cover counts once, gaps do not."""
    engine = BusyTime()
    for start, end in ((5.0, 7.0), (0.0, 2.0), (1.0, 3.0), (6.0, 6.5), (9.0, 9.5), (3.0, 4.0)):
        engine.add(start, end)
    assert engine.seconds == 4.0 + 2.0 + 0.5
    assert engine.between == (0.0, 9.5)


def test_an_engine_is_idle_while_it_has_no_batch() -> None:
    """Batches that one engine has in hand at once are no second engine; of two engines one can be idle alone."""
    alone, both = EngineTimes(), EngineTimes()
    for start, end in ((0.0, 4.0), (2.0, 6.0), (8.0, 10.0)):
        alone.add("", start, end)
        both.add("one", start, end)
    both.add("two", 2.0, 4.0)  # there for eight seconds, at work for two
    assert alone.idle_share == pytest.approx(0.2)
    assert both.idle_share == pytest.approx(1 - (8 + 2) / (10 + 8))
    assert both.any.seconds == alone.any.seconds == 8.0
    assert EngineTimes().idle_share == 0.0
