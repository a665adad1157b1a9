"""An index that lies on S3: the same promises as on a disk, against a real S3-speaking server on loopback."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from conftest import hash_config
from fault_proxy import FaultProxy, Request, random_faults
from simulation import index_inline
from test_store import make_rows, reader

from rag_pipeline import errors, maintenance
from rag_pipeline.cli import main
from rag_pipeline.config import Config
from rag_pipeline.search import Searcher
from rag_pipeline.search.filters import Filters
from rag_pipeline.store import LOCK, Layout, database, lease
from rag_pipeline.store.current import digest_rows
from rag_pipeline.store.lance import ChunkTable
from rag_pipeline.store.lock import writer_lock
from rag_pipeline.store.parquet import list_parts, read_part, write_part

if TYPE_CHECKING:
    from s3_server import S3Server

pytest_plugins = ["s3_server"]
TESTS = Path(__file__).parent


@pytest.fixture
def url(s3: S3Server) -> str:
    """A prefix in a bucket of its own."""
    bucket = f"index-{uuid.uuid4().hex[:12]}"
    s3.fill(bucket, {})
    return f"s3://{bucket}/team/index"


@pytest.fixture
def config(docs: Path, url: str) -> Config:
    """The fake engine, small commits, an index on S3."""
    return hash_config(docs, url, runtime={"files_per_task": 2, "commit_rows": 2, "commit_interval_s": 0})


def layout_of(config: Config) -> Layout:
    """Where the index lies."""
    return Layout.at(config.output.path)


def digest(config: Config) -> dict[str, int]:
    """What the table holds."""
    return digest_rows(ChunkTable.open(layout_of(config)).scan(), Counter())


def test_an_index_on_s3_holds_what_one_on_a_disk_holds(docs: Path, config: Config, tmp_path: Path) -> None:
    """First run, no change, an edit, a rename and a delete: rows, states and report are those of a local index."""
    local = hash_config(docs, tmp_path / "index")
    for change in (None, None, "edit"):
        if change:
            (docs / "file1.md").write_text("# Title 1\n\nWords that are new here.")
            (docs / "file2.md").rename(docs / "moved.md")
            (docs / "file3.md").unlink()
        there, here = index_inline(config), index_inline(local)
        assert (there.files, there.changes, there.chunks) == (here.files, here.changes, here.chunks)
        assert digest(config) == digest(local)
        assert maintenance.verify(config) == []
    assert there.index == config.output.path and there.exit_code == errors.EXIT_OK
    assert [file.name for file in layout_of(config).files.walk(LOCK)] == []  # given back


def test_maintenance_works_on_s3(docs: Path, config: Config, tmp_path: Path) -> None:
    """Rollback, repair of a lost table and of a damaged part, export and vacuum do what they do on a disk."""
    first = index_inline(config)
    before = digest(config)
    (docs / "file1.md").write_text("# Title 1\n\nThe vault opens at midnight.")
    index_inline(config)
    after = digest(config)
    maintenance.rollback(config, first.run_id)
    assert digest(config) == before != after and maintenance.verify(config) == []
    files = layout_of(config).files
    files.delete_folder("lancedb/chunks.lance")
    part = f"parquet/{next(iter(list_parts(layout_of(config))))}"
    files.write(part, files.read(part)[:-9] + b"\0" * 9)
    assert [problem.kind for problem in maintenance.verify(config)] == ["damaged"]
    assert f"{part}: set aside, cannot be read" in maintenance.repair(config)
    assert [file.name for file in files.walk("damaged/")] == [f"damaged/{part.replace('/', '~')}"]
    (docs / "file1.md").unlink()
    index_inline(config)
    maintenance.vacuum(config)
    assert maintenance.verify(config) == [] and maintenance.export(config, tmp_path / "out") == 4
    assert not list(texts_in(layout_of(config), "midnight")) and not list(files.walk("damaged/"))


def texts_in(layout: Layout, text: str) -> Iterator[str]:
    """Objects that hold a text, as raw bytes or inside Parquet's compression."""
    for file in layout.files.walk(""):
        data = layout.files.read(file.name)
        if file.name.endswith(".parquet"):
            data += str(pq.read_table(io.BytesIO(data)).to_pydict()).encode()
        if text.encode() in data:
            yield file.name


def test_another_model_s_table_is_built_beside_the_old_one_on_s3(docs: Path, config: Config) -> None:
    """The new table takes the old one's place when it is complete, and nothing of the building site is left."""
    index_inline(config)
    other = hash_config(docs, config.output.path, recipe={"embedding": {"model": "other"}})
    old = ChunkTable.open(layout_of(config)).embedding["fingerprint"]
    assert index_inline(other).chunks["embedded"] == 5
    assert ChunkTable.open(layout_of(config)).embedding["fingerprint"] != old
    assert maintenance.verify(other) == [] and not layout_of(config).stagings()


def test_queries_follow_an_index_on_s3(docs: Path, config: Config) -> None:
    """A searcher that stays open finds what a later run has written, about a second after."""
    index_inline(config)
    searcher = Searcher(config)
    assert [hit.path for hit in searcher.query("lighthouses", k=1)] == ["deep/er/note.txt"]
    (docs / "new.md").write_text("# News\n\nAll about periwinkles.")
    index_inline(config)
    time.sleep(1.1)
    assert [hit.path for hit in searcher.query("periwinkles", k=1)] == ["new.md"]


def test_a_large_part_is_read_by_ranges_of_one_version(config: Config, s3: S3Server) -> None:
    """A column, the whole and any range are right, and a part that is replaced or damaged meanwhile is noticed."""
    layout = layout_of(config)
    rows = make_rows(4000)
    part = write_part(layout.files, layout.run_parts("r1"), rows, "{}")
    assert read_part(layout, part).equals(rows)
    assert read_part(layout, part, ["prompt_hash"]).column(0).to_pylist() == rows["prompt_hash"].to_pylist()
    name = f"parquet/{part}"
    whole = layout.files.read(name)
    with layout.files.open(name) as handle:
        assert handle.size() == len(whole) > 800_000
        for first, length in ((5, 10), (len(whole) - 300_000, 200_000), (len(whole) - 7, 20)):
            handle.seek(first)
            assert handle.read(length) == whole[first : first + length]
        layout.files.write(name, whole[::-1])
        handle.seek(0)
        with pytest.raises(errors.StoreError, match=name):
            handle.read(10)
    layout.files.write(name, whole[:1000] + b"\1" + whole[1001:])
    with pytest.raises(errors.StoreError, match=part):
        read_part(layout, part)


def test_a_second_writer_on_s3_is_refused_and_told_who(config: Config) -> None:
    """Promise 9 on S3: at once, with host and process of the holder, and the lock stays the holder's."""
    layout = layout_of(config)
    with writer_lock(layout):
        held = layout.files.read(LOCK)
        with pytest.raises(errors.LockedError, match=f"process {os.getpid()} on {socket.gethostname()}"):
            index_inline(config)
        assert layout.files.read(LOCK) == held
    index_inline(config)


def leave_lock(layout: Layout, age_s: float = 0, **note: object) -> None:
    """A lock that another process left, as old as it says by the server's clock."""
    whole = {"host": "elsewhere", "pid": 7, "started_at": "2026-01-01T00:00:00", "expires_after_s": -age_s, **note}
    layout.files.write(LOCK, json.dumps(whole).encode())


def test_a_lock_that_expired_is_taken_over_by_one(config: Config) -> None:
    """Another host's lock holds while it is young; of eight that want an expired one, one gets it."""
    layout = layout_of(config)
    leave_lock(layout, expires_after_s=60)
    with pytest.raises(errors.LockedError, match="process 7 on elsewhere"):
        index_inline(config)
    leave_lock(layout, age_s=5)
    got: list[str] = []
    done = threading.Barrier(9)

    def want() -> None:
        try:
            with writer_lock(layout):
                got.append("lock")
                done.wait()
        except errors.LockedError as error:
            got.append(str(error))
            done.wait()

    threads = [threading.Thread(target=want) for _ in range(8)]
    for thread in threads:
        thread.start()
    done.wait()
    for thread in threads:
        thread.join()
    assert got.count("lock") == 1 and len(got) == 8
    index_inline(config)


def test_a_dead_process_of_this_machine_holds_nothing(config: Config) -> None:
    """Its lock is taken over at once; that of a living one, or of the same number on another machine, is not."""
    layout = layout_of(config)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        here = lease._process_here(process.pid)
        leave_lock(layout, pid=process.pid, process=here, expires_after_s=60)
        with pytest.raises(errors.LockedError):
            index_inline(config)
        process.kill()
    leave_lock(layout, pid=process.pid, process={**here, "machine": "another"}, expires_after_s=60)
    with pytest.raises(errors.LockedError):
        index_inline(config)
    leave_lock(layout, pid=process.pid, process=here, expires_after_s=60)
    assert index_inline(config).exit_code == errors.EXIT_OK


def test_a_run_that_lost_its_lock_commits_nothing_more(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another took it over in the middle: the run stops before its next commit, and leaves the other's lock alone."""
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.05)
    layout = layout_of(config)
    index_inline(config)
    versions = (layout.newest_version("chunks"), layout.newest_version("files"))
    with pytest.raises(errors.LockedError, match=r"process 7 on elsewhere.* took over"), writer_lock(layout):
        held = lease._held[layout.root]
        leave_lock(layout, expires_after_s=60)
        wait_until(lambda: bool(held._lost))
        with pytest.raises(errors.LockedError):
            layout.files.write("runs/x.json", b"{}")
        ChunkTable.open(layout).delete_all(["0" * 32])
    assert versions == (layout.newest_version("chunks"), layout.newest_version("files"))
    assert b"elsewhere" in layout.files.read(LOCK)


def test_a_held_lock_is_renewed(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder that lives keeps its lock beyond its time."""
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.3)
    monkeypatch.setattr(lease, "EXPIRES_AFTER_S", 2.0)
    with writer_lock(layout_of(config)):
        time.sleep(3.2)
        with pytest.raises(errors.LockedError):
            index_inline(config)


def test_a_renewal_whose_answer_is_lost_loses_no_lock(
    config: Config, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock has a version that its holder does not know of, but names the holder: it goes on."""
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.05)
    monkeypatch.setattr("rag_pipeline.s3.MAX_ATTEMPTS", 1)
    layout = layout_of(config)
    with FaultProxy(s3.url).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        with writer_lock(layout):
            proxy.plan = lambda request: "lost" if request.method == "PUT" else None
            wait_until(lambda: proxy.faults["lost"] > 2)
            proxy.plan, seen = lambda _: None, len(proxy.requests)
            wait_until(lambda: len(proxy.requests) > seen + 5)
            layout.files.write("runs/x.json", b"{}")
        assert not list(layout.files.walk(LOCK))


def wait_until(done: Callable[[], bool]) -> None:
    """Waits, at most some seconds."""
    deadline = time.monotonic() + 20
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class CarelessProxy(FaultProxy):
    """A store of an older kind: it takes every put, whatever its condition."""

    ignored = b"if-"

    async def _ask(self, head: bytes, body: bytes, dropped: tuple[bytes, ...]) -> bytes:
        return await super()._ask(head, body, (*dropped, self.ignored))


@pytest.mark.parametrize("ignored", [b"if-", b"if-match"])
def test_a_store_that_ignores_conditions_is_refused(
    ignored: bytes, config: Config, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without conditional puts neither the lock nor LanceDB's commits are safe: nothing is written there."""
    with CarelessProxy(s3.url).running() as proxy:
        proxy.ignored = ignored
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        with pytest.raises(errors.StoreError, match="ignores If-None-Match"):
            index_inline(config)
        assert not list(layout_of(config).files.walk(""))


def test_a_killed_run_on_s3_is_finished_by_the_same_command(config: Config, docs: Path, tmp_path: Path) -> None:
    """Promise 4 on S3: kill -9 after rows were added and before the manifest says so, then the same command."""
    local = hash_config(docs, tmp_path / "index")
    index_inline(local)
    yaml = tmp_path / "hash.yaml"
    yaml.write_text(
        "recipe: {embedding: {engine: hash}}\n"
        "runtime: {files_per_task: 2, commit_rows: 2, commit_interval_s: 0, num_cpus: 2}\n"
    )
    index = ["index", str(docs), "--index", config.output.path, "-c", str(yaml), "--quiet"]
    command = [sys.executable, str(TESTS / "crash.py"), "after the add", "1", "driver", "--", *index]
    with (tmp_path / "said").open("wb") as said:  # a pipe would stay open as long as the last of Ray's agents
        killed = subprocess.run(command, stdout=said, stderr=said, check=False, start_new_session=True)
    assert killed.returncode == -signal.SIGKILL, (tmp_path / "said").read_text()[-2000:]
    assert list(layout_of(config).files.walk(LOCK)) and list(list_parts(layout_of(config)))
    report = index_inline(config)
    assert report.exit_code == errors.EXIT_OK and report.chunks["embedded"] < 5
    assert maintenance.verify(config) == [] and digest(config) == digest(local)


@pytest.mark.parametrize("fault", ["reset", "lost"])
def test_a_commit_whose_answer_never_comes_is_made_once(
    fault: str, config: Config, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it went well or not, which its writer cannot know: each change is one version, and no row is doubled."""
    monkeypatch.setattr(database, "_WAIT_S", 0)
    layout = layout_of(config)
    index_inline(config)
    with FaultProxy(s3.url).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        proxy.plan = lambda request: fault if request.path.endswith(".manifest") and not request.nth else None
        table, rows = ChunkTable.open(layout), make_rows(30)
        before = table.version
        table.add(reader(rows))
        assert (table.version, table.count()) == (before + 1, 35)
        table.swap(set(rows["doc_id"].to_pylist()), reader(rows.slice(0, 12)))
        assert (table.version, table.count()) == (before + 2, 17)
        table.delete_all(sorted(set(rows["doc_id"].to_pylist())))
        assert (table.version, table.count()) == (before + 3, 5)
        assert proxy.faults[fault] >= 3
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    assert maintenance.verify(config) == []


def test_a_faulty_s3_loses_and_doubles_nothing(
    config: Config, docs: Path, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tenth request goes wrong, commits among them: runs may stop, and the same command ends well."""
    local = hash_config(docs, tmp_path / "index")
    index_inline(local)
    with FaultProxy(s3.url).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        proxy.plan = random_faults(1, 0.1, ["500", "503", "reset", "lost", "cut", "slow"])
        for _ in range(20):
            try:
                report = index_inline(config)
                break
            except errors.StoreError as error:
                assert error.exit_code == errors.EXIT_STOPPED, error
        assert report.files == {"indexed": 5} and proxy.faults.total() > proxy.faults["none"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    assert maintenance.verify(config) == [] and digest(config) == digest(local)


def test_a_repair_takes_an_s3_that_does_not_answer_for_no_damage(
    config: Config, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that cannot be read because S3 refuses are left where they are."""
    index_inline(config)
    parts = list(list_parts(layout_of(config)))

    def plan(request: Request) -> str | None:
        return "403" if request.method == "GET" and "/part-" in request.path else None

    with FaultProxy(s3.url).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        proxy.plan = plan
        with pytest.raises(errors.StoreError, match="AccessDenied"):
            maintenance.repair(config)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.url)
    assert list(list_parts(layout_of(config))) == parts and maintenance.verify(config) == []


def test_errors_name_place_and_answer_and_no_secret(
    docs: Path, config: Config, s3: S3Server, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing bucket, and an index inside its source: one line each, refused; no key in any object or message."""
    index_inline(config)
    for secret in (s3.secret, s3.key_id):
        assert not list(texts_in(layout_of(config), secret))
    for command in (["index", str(docs), "--quiet"], ["query", "tides"], ["verify"]):
        assert main([*command, "--index", "s3://no-such-bucket/x"]) == errors.EXIT_REFUSED
        said = capsys.readouterr().err
        assert "s3://no-such-bucket/x" in said and "NoSuchBucket" in said and s3.secret not in said
    bucket = config.output.path.split("/")[2]
    nested = ["index", f"s3://{bucket}/team", "--index", config.output.path, "--quiet"]
    assert main(nested) == errors.EXIT_REFUSED
    assert "lies inside the source" in capsys.readouterr().err
    assert main(["status", "--index", f"s3://{bucket}/empty"]) == errors.EXIT_REFUSED
    assert "nothing is indexed here" in capsys.readouterr().err
    with pytest.raises(errors.ConfigError, match="s3://bucket/prefix"):
        Layout.at("gs://bucket/index")


@pytest.mark.parametrize("place", ["/lancedb/chunks.lance/data/", "/lancedb/files.arrow", "/parquet/", "/_versions/"])
def test_an_index_that_may_not_be_read_is_not_called_damaged(
    place: str, docs: Path, config: Config, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever S3 denies, to us or to LanceDB, `verify` and a query say so and stop; they judge no row by it."""
    index_inline(config)
    with FaultProxy(s3.url).running() as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
        proxy.plan = lambda request: "403" if place in request.path + request.query.replace("%2F", "/") else None
        with pytest.raises(errors.UnreachableError, match=r"AccessDenied|privileges") as denied:
            maintenance.verify(config)
        assert denied.value.exit_code == errors.EXIT_STOPPED
        if "chunks" in place:
            with pytest.raises(errors.UnreachableError):
                Searcher(config).query("tides", filters=Filters(where="page is null"))


def test_credentials_of_a_profile_are_enough(
    config: Config, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys, region and endpoint that only a profile has reach LanceDB, too."""
    keys = f"aws_access_key_id = {s3.key_id}\naws_secret_access_key = {s3.secret}\n"
    (tmp_path / "credentials").write_text(f"[team]\n{keys}")
    (tmp_path / "aws").write_text(f"[profile team]\nregion = us-east-1\nendpoint_url = {s3.url}\n")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_PROFILE", "team")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert index_inline(config).files == {"indexed": 5}
    assert maintenance.verify(config) == []
