"""The stores on their own: what readers see meanwhile, upkeep by thresholds, the prompt index, faults of a disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import hash_config
from lancedb.index import IvfRq
from simulation import index_inline

from rag_pipeline import errors, maintenance
from rag_pipeline.config import RuntimeConfig
from rag_pipeline.records import short_hash
from rag_pipeline.schema import chunk_schema, conform, from_vectors, to_vectors
from rag_pipeline.store import Layout
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.store.manifest import Manifest
from rag_pipeline.store.parquet import list_temporary, read_part, read_parts, write_part
from rag_pipeline.store.vectors import MISSING, KeyMap, VectorIndex, fetch_vectors, to_keys

DIMENSION = 64


def make_rows(count: int, start: int = 0, docs_of: int = 10) -> pa.Table:
    """Rows whose vectors gather around thirty subjects, as texts' do; every `docs_of` rows are a file's."""
    dice = np.random.default_rng(start)
    subjects = np.random.default_rng(0).standard_normal((30, DIMENSION))
    spread = 0.7 * dice.standard_normal((count, DIMENSION))
    vectors = (subjects[dice.integers(0, len(subjects), count)] + spread).astype(np.float32)
    numbers = range(start, start + count)
    columns = {
        "chunk_id": [short_hash("chunk", str(n)) for n in numbers],
        "doc_id": [short_hash("doc", str(n // docs_of)) for n in numbers],
        "prompt_hash": [short_hash("prompt", str(n)) for n in numbers],
        "text": [f"text {n}" for n in numbers],
        "vector": to_vectors(vectors),
    }
    return conform(pa.table(columns), chunk_schema(DIMENSION))


def reader(table: pa.Table) -> pa.RecordBatchReader:
    """A table as a stream."""
    return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """An empty index."""
    made = Layout.at(tmp_path / "index")
    made.make()
    return made


def test_a_polling_reader_sees_old_or_new_rows_of_a_file(tmp_path: Path) -> None:
    """Promise 3: during swaps and compaction no reader ever sees a mix of a file's versions, or none of it."""
    docs = tmp_path / "docs"
    docs.mkdir()

    def write(version: int) -> None:
        for number in range(12):
            paragraphs = (f"# Part {n}\n\nVersion {version} of part {n} of file {number}." for n in range(4))
            (docs / f"{number}.md").write_text("\n\n".join(paragraphs))

    runtime = {"files_per_task": 2, "commit_rows": 8, "commit_interval_s": 0, "compact_after_fragments": 2}
    config = hash_config(docs, tmp_path / "index", runtime=runtime)
    write(0)
    index_inline(config)
    stop, faults, polls = threading.Event(), [], 0

    def poll() -> None:
        nonlocal polls
        while not stop.is_set():
            seen: dict[str, list[str]] = {}
            for row in ChunkTable.open(Layout.at(tmp_path / "index")).reader().read_all().to_pylist():
                seen.setdefault(row["path"], []).append(row["text"].split("Version ")[1].split()[0])
            polls += 1
            faults.extend(item for item in seen.items() if len(item[1]) != 4 or len(set(item[1])) != 1)
            if len(seen) != 12:
                faults.append(("files", sorted(seen)))

    thread = threading.Thread(target=poll)
    thread.start()
    for version in range(1, 6):
        write(version)
        index_inline(config)
    stop.set()
    thread.join()
    assert polls > 10 and not faults
    assert maintenance.verify(config) == []


def test_the_vector_index_is_trained_extended_and_trained_anew_by_thresholds(layout: Layout) -> None:
    """Below the threshold search is exact; then an index is built, takes in the tail, and is rebuilt at twice."""
    table = ChunkTable.create(layout, DIMENSION, "{}")
    settings = RuntimeConfig(index_above_rows=1000)
    table.add(reader(make_rows(900)))
    table.upkeep(settings)
    assert table.unindexed_rows() == {}
    table.add(reader(make_rows(200, 900)))
    table.upkeep(settings)
    assert table.unindexed_rows() == {"vector_in_6_bits_trained_on_1100": 0}
    table.add(reader(make_rows(200, 1100)))
    table.upkeep(settings)
    assert table.unindexed_rows() == {"vector_in_6_bits_trained_on_1100": 0}
    table.add(reader(make_rows(1000, 1300)))
    table.upkeep(settings)
    assert table.unindexed_rows() == {"vector_in_6_bits_trained_on_2300": 0}


def test_an_index_that_many_runs_added_to_becomes_one_part_again(layout: Layout) -> None:
    """Each run that adds rows leaves a part of the index and a fragment; they are joined before there are many."""
    table = ChunkTable.create(layout, DIMENSION, "{}")
    settings = RuntimeConfig(index_above_rows=1000, index_tail_share=0.01)
    table.add(reader(make_rows(4000)))
    segments, rows_to_index = [], []
    for first in range(4000, 5000, 100):
        rows_to_index.append(table.rows_to_index(settings))
        table.upkeep(settings)
        segments.append(table._segments)
        table.add(reader(make_rows(100, first)))
    assert segments == [1, 2, 3, 4, 5, 6, 7, 8, 9, 1]
    assert rows_to_index == [4000, *[100] * 8, 4900]
    assert table._table.stats()["fragment_stats"]["num_fragments"] == 3  # all that was, the last run's, what is new


def test_approximate_search_finds_what_exact_search_finds(layout: Layout) -> None:
    """With the index, at least 95 % of the ten nearest are found, rows not yet in it included."""
    table = ChunkTable.create(layout, DIMENSION, "{}")
    rows = make_rows(4000)
    table.add(reader(rows))
    table.upkeep(RuntimeConfig(index_above_rows=1000))
    table.add(reader(make_rows(100, 4000)))
    everything = pa.concat_tables([rows, make_rows(100, 4000)])
    vectors = from_vectors(everything["vector"])
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = np.array(everything["chunk_id"].to_pylist())
    hits = 0
    for query in from_vectors(make_rows(20, 90_000)["vector"]):
        wanted = set(ids[np.argsort(-(unit @ query))[:10]])
        hits += len(wanted & set(table.nearest(query, 10, None, ["chunk_id"])["chunk_id"].to_pylist()))
    assert hits >= 0.95 * 200


def test_an_index_by_other_settings_is_not_used_and_is_replaced(layout: Layout) -> None:
    """A table whose vector index was made otherwise is searched exactly, until upkeep makes today's."""
    table = ChunkTable.create(layout, DIMENSION, "{}")
    rows = make_rows(4000)
    table.add(reader(rows))
    table._table.create_index("vector", config=IvfRq(distance_type="cosine"), name="vector_trained_on_4000")
    query = from_vectors(make_rows(1, 90_000)["vector"])[0]
    vectors = from_vectors(rows["vector"])
    best = np.argsort(-(vectors @ query) / np.linalg.norm(vectors, axis=1))[:100]
    found = table.nearest(query, 100, None, ["chunk_id"])["chunk_id"].to_pylist()
    assert found == [rows["chunk_id"][int(place)].as_py() for place in best]
    table.upkeep(RuntimeConfig(index_above_rows=1000))
    assert set(table._indices()) == {"vector_in_6_bits_trained_on_4000", "words"}


def test_a_key_map_finds_what_was_added_first(layout: Layout) -> None:
    """Keys added in many batches are found, unknown ones are not, and a key's first value stays."""
    keys = np.random.default_rng(1).permutation(20_000).astype(np.uint64)
    found = KeyMap()
    for first in range(0, len(keys), 700):
        batch = keys[first : first + 700]
        found.add(batch, batch * np.uint64(3))
        found.add(batch, np.zeros(len(batch), dtype=np.uint64))
    assert len(found) == 20_000
    assert (found.find(keys) == keys * np.uint64(3)).all()
    assert (found.find(np.arange(30_000, 30_010, dtype=np.uint64)) == MISSING).all()


def test_vectors_are_found_by_the_whole_hash(layout: Layout) -> None:
    """A prompt whose first 64 bits are those of a known one is not taken for it."""
    rows = make_rows(50)
    index = VectorIndex(layout)
    index.add_part(write_part(layout.files, layout.run_parts("r1"), rows, "{}"), to_keys(rows["prompt_hash"]))
    twin = rows["prompt_hash"][7].as_py()[:16] + "0" * 16
    parts, at = index.locate(pa.array([*rows["prompt_hash"].to_pylist()[5:8], twin, "f" * 32]))
    assert [part is not None for part in parts] == [True, True, True, False, False]
    vectors = fetch_vectors(layout, parts[:3], at[:3], DIMENSION)
    np.testing.assert_array_equal(vectors, from_vectors(rows["vector"])[5:8])


def test_a_flipped_bit_in_the_log_is_noticed(layout: Layout) -> None:
    """Page checksums: damage raises an error that names the part; it never yields other data."""
    rows = make_rows(200)
    part = write_part(layout.files, layout.run_parts("r1"), rows, "{}")
    file = Path(layout.root, "parquet", part)
    whole = file.read_bytes()
    for position in range(10, len(whole) - 10, len(whole) // 40):
        data = bytearray(whole)
        data[position] ^= 1 << (position % 8)
        file.write_bytes(bytes(data))
        try:
            assert read_part(layout, part).equals(rows)
        except errors.StoreError as error:
            assert part in str(error)


@pytest.mark.parametrize("call", ["open", "fsync", "rename"])
@pytest.mark.parametrize("number", [1, 2])
def test_a_disk_that_says_no_stops_the_run_and_loses_nothing(
    call: str, number: int, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The n-th open, fsync or rename fails for good: a StoreError, exit code 4; later the same command ends well."""
    config = hash_config(docs, tmp_path / "index", runtime={"files_per_task": 1, "commit_interval_s": 0})
    with monkeypatch.context() as patch:
        _fail_from(patch, call, number)
        with pytest.raises(errors.StoreError, match="No space left on device") as stopped:
            index_inline(config)
    assert stopped.value.exit_code == errors.EXIT_STOPPED
    assert not list_temporary(Layout.at(tmp_path / "index"))
    report = index_inline(config)
    assert report.files == {"indexed": 5} and maintenance.verify(config) == []


def test_a_run_that_stopped_before_it_wrote_a_part_is_remembered(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that it took out of the table come back when the file is what it was again, its time stamp included."""
    config = hash_config(docs, tmp_path / "index")
    index_inline(config)
    file = docs / "file1.md"
    text, stamp = file.read_text(), file.stat().st_mtime
    file.write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(Manifest, "put", _no_space)
        with pytest.raises(OSError, match="No space"):
            index_inline(config)
    file.write_text(text)
    os.utime(file, (stamp, stamp))
    assert {problem.kind for problem in maintenance.verify(config)} == {"missing"}
    assert index_inline(config).changes["changed"] == 1
    assert maintenance.verify(config) == []
    assert not list((tmp_path / "index" / "runs").glob("*.started"))


def test_a_writer_gives_back_the_memory_a_commit_took() -> None:
    """What sixteen threads had in hand is the machine's again: Arrow's own allocator keeps hundreds of megabytes."""
    program = """
        from concurrent.futures import ThreadPoolExecutor
        import numpy as np, psutil, pyarrow as pa
        from rag_pipeline.store.database import keep_heaps_small

        def read(part):
            for buffer in [pa.allocate_buffer(1_500_000 + 10_000 * n) for n in range(10)]:
                np.asarray(memoryview(buffer))[:] = 1

        keep_heaps_small()
        with ThreadPoolExecutor(16) as pool:
            before = psutil.Process().memory_info().rss
            list(pool.map(read, range(64)))
            print(psutil.Process().memory_info().rss - before)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    kept = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert kept < 50_000_000


def test_whole_parts_on_a_disk_are_not_read_far_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit holds the part it hands on and the next one, however many there are: more would only be memory."""
    read: list[str] = []
    monkeypatch.setattr("rag_pipeline.store.parquet.read_part", lambda _, part, columns: read.append(part))
    parts = read_parts(Layout(str(tmp_path)), map(str, range(20)))
    used = [part for part, _ in islice(parts, 5)]
    parts.close()  # type: ignore[attr-defined]
    assert (used, sorted(read)) == (list("01234"), list("012345"))


def _no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def _fail_from(patch: pytest.MonkeyPatch, call: str, number: int) -> None:
    """Makes the n-th and every later call on a file of the log fail as a full disk does."""
    owner: Any = os if call == "fsync" else Path
    real: Callable[..., Any] = getattr(owner, call)
    left = number

    def failing(first: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal left
        if call == "fsync" or "part-" in str(first):
            left -= 1
            if left <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
        return real(first, *args, **kwargs)

    patch.setattr(owner, call, failing)
