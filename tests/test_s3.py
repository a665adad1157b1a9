"""S3: exact keys, whole versions, patience within a budget; against a real server with a faulty proxy in between."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import hash_config
from fault_proxy import FaultProxy, Request, random_faults

from rag_pipeline import pipeline
from rag_pipeline.commit import to_manifest_row
from rag_pipeline.config import SourceConfig
from rag_pipeline.errors import ConfigError, DocumentError, SourceError
from rag_pipeline.records import NO_LIMITS, File, FileBytes, Listing, Verdict
from rag_pipeline.run import Run
from rag_pipeline.s3 import Bucket, S3Error, _make_client
from rag_pipeline.source.ahead import reading_ahead
from rag_pipeline.source.s3 import S3Source
from rag_pipeline.store.manifest import Manifest

if TYPE_CHECKING:
    from s3_server import S3Server

pytest_plugins = ["s3_server"]

ODD_KEYS = [
    "a b.md", "a+b.md", "a%20b.md", "100%.md", "a%2Fb.md", "a//b.md", "//lead.md", "a/../b.md", "./c.md", "ü/é.md",
    "e\u0301.md", "日本.md", "emoji😀.md", "q?x=1&y#z.md", "quote'\"<>&.md", "back\\slash.md", " lead.md", "trail ",
    "tab\t.md", "esc\x1b.md", "~tilde.md", "folder/", "full-folder/", "CAPS.md", "caps.md",
]  # fmt: skip


@pytest.fixture
def bucket(s3: S3Server, request: pytest.FixtureRequest) -> Bucket:
    """The prefix `docs` in an empty bucket of this test's own."""
    name = "b" + hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:20]
    s3.fill(name, {})
    return Bucket(f"s3://{name}/docs")


@pytest.fixture(scope="session")
def one_proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    """One proxy for the session, so that its clients are made once."""
    with FaultProxy(s3_server.url).running() as proxy:
        yield proxy


@pytest.fixture
def proxy(one_proxy: FaultProxy, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> FaultProxy:
    """A proxy before the server, which the AWS variables lead to; without faults until a test plans some."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", one_proxy.url)
    one_proxy.reset()
    return one_proxy


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clients that wait a second for an answer."""
    monkeypatch.setattr("rag_pipeline.s3.READ_TIMEOUT_S", 1.0)
    _make_client.cache_clear()
    yield
    _make_client.cache_clear()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two attempts, then the error."""
    monkeypatch.setattr("rag_pipeline.s3.MAX_ATTEMPTS", 2)


def _source(bucket: Bucket, **settings: Any) -> S3Source:
    return S3Source(SourceConfig(path=bucket.url, **settings))


def _error_of(call: Callable[[], Any]) -> S3Error:
    with pytest.raises(S3Error) as caught:
        call()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        assert name not in os.environ or os.environ[name] not in str(caught.value)
    return caught.value


def _first(fault: str) -> Callable[[Request], str | None]:
    return lambda request: fault if request.nth == 0 else None


def test_keys_come_back_to_the_letter(bucket: Bucket) -> None:
    """Blanks, +, %, //, dots, quotes, control characters and any script in a key survive listing and reading."""
    for key in ODD_KEYS:
        bucket.put(key, key.encode())
    listed = list(bucket.list())
    assert [item.key for item in listed] == sorted(ODD_KEYS, key=str.encode)
    assert all(bucket.get(item.key, etag=item.etag) == item.key.encode() for item in listed)
    assert all(item.size_bytes == len(item.key.encode()) for item in listed)


def test_a_prefix_is_a_folder_not_the_beginning_of_a_name(s3: S3Server) -> None:
    """`docs` lists neither `docs2/x` nor `docs.md`; without a prefix everything in the bucket is listed."""
    s3.fill("prefixes", dict.fromkeys(("docs/a.md", "docs2/b.md", "docs.md", "docs//c.md", "docs"), b"x"))
    assert [item.key for item in Bucket("s3://prefixes/docs").list()] == ["/c.md", "a.md"]
    assert [item.key for item in Bucket("s3://prefixes/docs/").list()] == ["/c.md", "a.md"]
    assert [item.key for item in Bucket("s3://prefixes/docs//").list()] == ["c.md"]
    assert [item.key for item in Bucket("s3://prefixes").list("docs2/")] == ["docs2/b.md"]
    assert len(list(Bucket("s3://prefixes/").list())) == 5


def test_an_url_is_shown_without_its_last_slash() -> None:
    """The URL of a bucket is what a person would type, and survives pickling."""
    for typed, shown in (("s3://b-1/a/b/", "s3://b-1/a/b"), ("s3://b-1", "s3://b-1"), ("s3://b-1/", "s3://b-1")):
        assert pickle.loads(pickle.dumps(Bucket(typed))).url == shown


@pytest.mark.parametrize("url", ["s3://key:secret@bucket/x", "s3://", "s3:///x", "s3://b", "s3://a b/c"])
def test_an_url_without_a_plain_bucket_is_refused_and_not_repeated(url: str) -> None:
    """What is no s3://bucket/prefix is a ConfigError that repeats nothing of it: there may be keys in it."""
    with pytest.raises(ConfigError, match="s3://bucket/prefix") as caught:
        Bucket(url)
    assert "secret" not in str(caught.value)


def test_a_long_listing_comes_page_by_page_in_order(s3: S3Server, proxy: FaultProxy) -> None:
    """2,500 objects take three calls and come in key order, each once."""
    s3.fill("pages", {f"docs/{number:04}.md": b"x" for number in range(2500)})
    assert [item.key for item in Bucket("s3://pages/docs").list()] == [f"{number:04}.md" for number in range(2500)]
    assert len(proxy.requests) == 3


@pytest.mark.parametrize("fault", ["500", "503", "reset", "lost", "hang", "cut", "slow"])
def test_a_call_that_fails_once_is_repeated(
    bucket: Bucket, proxy: FaultProxy, request: pytest.FixtureRequest, fault: str
) -> None:
    """Whatever goes wrong once, a listing, a read and a write end as if it had not."""
    if fault == "hang":
        request.getfixturevalue("hasty")
    proxy.plan = _first(fault)
    data = os.urandom(100_000)
    etag = bucket.put("a.bin", data)
    assert [(item.key, item.etag, item.size_bytes) for item in bucket.list()] == [("a.bin", etag, len(data))]
    assert bucket.get("a.bin", etag=etag) == data
    assert proxy.faults[fault] == 3
    assert len(proxy.requests) == {"slow": 3, "cut": 5}.get(fault, 6)  # the answer to a write has no body to cut


def test_a_wrong_bit_is_not_taken_for_the_object(bucket: Bucket, proxy: FaultProxy) -> None:
    """A body that does not have the checksum stored with the object is read again."""
    bucket.put("a.bin", b"x" * 1000)
    proxy.plan = lambda request: "flip" if request.method == "GET" and request.nth == 0 else None
    assert bucket.get("a.bin") == b"x" * 1000
    assert proxy.faults["flip"] == 1


@pytest.mark.parametrize(("fault", "said"), [("503", "SlowDown: Said by the proxy"), ("cut", "50"), ("reset", "onn")])
def test_what_stays_broken_is_unreachable(
    bucket: Bucket, proxy: FaultProxy, impatient: None, fault: str, said: str
) -> None:
    """When the budget is used up the error names bucket, key and cause, and how often it was tried."""
    bucket.put("a b.md", b"x" * 100)
    proxy.plan = lambda _: fault
    error = _error_of(lambda: bucket.get("a b.md"))
    assert error.kind == "unreachable"
    assert f"{bucket.url}/a b.md: " in str(error)
    assert said in str(error)
    assert "after 2 attempts" in str(error)
    assert proxy.count("GET") == 2


def test_the_budget_also_ends_by_time(
    bucket: Bucket, proxy: FaultProxy, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that never answers is given up after the budget, however many attempts are left."""
    monkeypatch.setattr("rag_pipeline.s3.RETRY_BUDGET_S", 1.0)
    proxy.plan = lambda _: "hang"
    assert _error_of(lambda: bucket.get("a.md")).kind == "unreachable"
    assert proxy.count("GET") == 1


def test_no_server_at_all_is_unreachable(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, impatient: None) -> None:
    """A port where nobody listens is unreachable; an endpoint that makes no sense is refused, its password unshown."""
    for endpoint, kind in (("http://me:hush@127.0.0.1:9", "unreachable"), ("nonsense", "refused")):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        error = _error_of(lambda: list(bucket.list()))
        assert (error.kind, "hush" in str(error)) == (kind, False)


def test_what_is_denied_or_missing_is_said_at_once(bucket: Bucket, proxy: FaultProxy) -> None:
    """A refusal is not repeated; it names bucket, key and what S3 said."""
    proxy.plan = lambda request: "403" if request.path.endswith("secret.md") else None
    error = _error_of(lambda: bucket.get("secret.md"))
    assert error.kind == "denied"
    assert str(error).startswith(f"{bucket.url}/secret.md: GetObject: AccessDenied: Said by the proxy; check the cred")
    assert _error_of(lambda: bucket.get("absent.md")).kind == "missing"
    assert _error_of(lambda: list(Bucket("s3://no-such-bucket/x").list())).kind == "missing"
    assert len(proxy.requests) == 3


def test_no_credentials_is_denied_and_says_which_variables(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the AWS chain finds nothing, or a profile that is not there, the error says so."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    error = _error_of(lambda: bucket.get("a.md"))
    assert error.kind == "denied"
    assert "AWS_PROFILE" in str(error)
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    error = _error_of(lambda: list(bucket.list()))
    assert (error.kind, "nobody" in str(error)) == ("denied", True)


def test_an_error_survives_pickling_and_shows_no_control_characters(bucket: Bucket) -> None:
    """Errors cross processes, and a key cannot reach the terminal."""
    error = _error_of(lambda: bucket.get("a\x1b[31m\n.md"))
    assert str(error).isprintable()
    again = pickle.loads(pickle.dumps(error))
    assert (again.kind, str(again)) == (error.kind, str(error))


@pytest.mark.parametrize("fault", [None, "whole"])
def test_a_range_has_exactly_its_bytes(bucket: Bucket, proxy: FaultProxy, fault: str | None) -> None:
    """Both ends count; an end left out or beyond the object is the object's; also where a server knows no ranges."""
    bucket.put("a", b"0123456789")
    proxy.plan = lambda _: fault
    ends = [(2, 4), (8, None), (None, 1), (7, 400), (0, 0)]
    assert [bucket.get("a", first=first, last=last) for first, last in ends] == [b"234", b"89", b"01", b"789", b"0"]


def test_a_version_that_is_gone_is_changed(bucket: Bucket) -> None:
    """A read of a version that was overwritten is refused; one without a version gives the newest."""
    old = bucket.put("a", b"old")
    bucket.put("a", b"new")
    assert _error_of(lambda: bucket.get("a", etag=old)).kind == "changed"
    assert bucket.get("a") == b"new"


def test_an_object_above_the_cap_is_not_read(bucket: Bucket) -> None:
    """More bytes than asked for are refused, with their number."""
    bucket.put("a", b"x" * 100)
    error = _error_of(lambda: bucket.fetch("a", max_bytes=99))
    assert (error.kind, "100 bytes" in str(error)) == ("refused", True)
    assert bucket.fetch("a", max_bytes=100)[0] == b"x" * 100


def test_a_conditional_write_wins_once(bucket: Bucket) -> None:
    """Only the first `if_absent`, and only an `if_etag` of the present version, is written."""
    first = bucket.put("lock", b"one", if_absent=True)
    assert _error_of(lambda: bucket.put("lock", b"two", if_absent=True)).kind == "changed"
    second = bucket.put("lock", b"three", if_etag=first)
    assert _error_of(lambda: bucket.put("lock", b"four", if_etag=first)).kind == "changed"
    assert _error_of(lambda: bucket.put("nothing", b"five", if_etag=second)).kind == "changed"
    assert bucket.get("lock", etag=second) == b"three"
    with ThreadPoolExecutor(8) as threads:
        outcomes = list(threads.map(lambda n: _try_put(bucket, b"%d" % n), range(8)))
    assert outcomes.count(True) == 1


def _try_put(bucket: Bucket, data: bytes) -> bool:
    try:
        return bool(bucket.put("race", data, if_absent=True))
    except S3Error as error:
        assert error.kind == "changed"
        return False


def test_a_conditional_write_whose_answer_was_lost_is_known_by_its_bytes(bucket: Bucket, proxy: FaultProxy) -> None:
    """Our own object, written by the attempt whose answer never came, is a success; another's is not."""
    proxy.plan = lambda request: "lost" if request.method == "PUT" and request.nth == 0 else None
    etag = bucket.put("lock", b"writer 1", if_absent=True)
    assert bucket.get("lock", etag=etag) == b"writer 1"
    proxy.plan = lambda request: "lost" if request.method == "PUT" and request.nth == 2 else None
    renewed = bucket.put("lock", b"writer 1, renewed", if_etag=etag)
    assert bucket.get("lock", etag=renewed) == b"writer 1, renewed"
    proxy.plan = lambda request: "reset" if request.method == "PUT" and request.nth == 4 else None
    assert _error_of(lambda: bucket.put("lock", b"writer 2", if_absent=True)).kind == "changed"


def test_deletes_go_a_thousand_a_call(s3: S3Server, proxy: FaultProxy) -> None:
    """1,500 keys take two calls, repeated where one fails; keys that are not there are no error."""
    s3.fill("deletes", {f"{number}": b"x" for number in range(1500)})
    bucket = Bucket("s3://deletes")
    proxy.plan = lambda request: "500" if request.method == "POST" and request.nth == 0 else None
    bucket.delete([*(f"{number}" for number in range(1500)), "absent"])
    assert list(bucket.list()) == []
    assert proxy.count("POST") == 3


def test_objects_get_states_by_the_rules_of_files(bucket: Bucket) -> None:
    """Hidden names, patterns, the size cap and folder markers are skipped with a state; nothing is lost."""
    for key, data in {
        ".env": b"x", ".trash/a.md": b"x", "drafts/b.md": b"x", "c.md": b"x", "d.md": b"x" * 2000, "empty.md": b"",
        "folder/": b"", "folder/e.md": b"x", "full/": b"text", "": b"",
    }.items():  # fmt: skip
        bucket.put(key, data)
    files = _source(bucket, exclude=["drafts/"], max_file_mb=0.001).list().files
    assert {file.path: file.skip for file in files} == {
        ".env": "skipped:hidden",
        ".trash/a.md": "skipped:hidden",
        "c.md": None,
        "d.md": "skipped:too_large",
        "drafts/b.md": "skipped:excluded",
        "empty.md": None,
        "folder/": "skipped:special",
        "folder/e.md": None,
        "full/": None,
    }
    included = _source(bucket, include=["folder/*.md"]).list().files
    assert [file.path for file in included if not file.skip] == ["folder/e.md", "full/"]


def test_odd_keys_are_paths_to_the_letter(bucket: Bucket) -> None:
    """A file's path is its key, and reading by it gives that object, whatever the key looks like."""
    for key in ODD_KEYS:
        bucket.put(key, key.encode())
    source = _source(bucket)
    files = source.list().files
    assert [file.path for file in files] == sorted(ODD_KEYS)
    assert all(source.read(file).data == file.path.encode() for file in files)
    assert all(file.location == f"{bucket.url}/{file.path}" for file in files)


def test_a_listing_in_doubt_is_no_listing(bucket: Bucket, proxy: FaultProxy, impatient: None, s3: S3Server) -> None:
    """A bucket that is missing, an empty prefix, a refused or failing page: SourceError, never a shorter listing."""
    with pytest.raises(SourceError, match=r"s3://no-such/x: cannot be listed: .*NoSuchBucket"):
        S3Source(SourceConfig(path="s3://no-such/x")).list()
    with pytest.raises(SourceError, match=f"source {bucket.url}: no such bucket or prefix"):
        _source(bucket).list()
    s3.fill("second-page", {f"docs/{number}.md": b"x" for number in range(1500)})
    for fault, said in (("403", "AccessDenied"), ("500", "InternalError"), ("cut", "ListObjectsV2: ")):
        proxy.plan = lambda request, fault=fault: fault if "continuation-token" in request.query else None
        with pytest.raises(SourceError, match=f"source s3://second-page/docs: cannot be listed: .*({said})"):
            S3Source(SourceConfig(path="s3://second-page/docs")).list()


def test_an_object_that_cannot_be_had_costs_itself_only(bucket: Bucket, proxy: FaultProxy, impatient: None) -> None:
    """Gone since the listing: failed:vanished; denied or broken: failed:unreadable, with what S3 said."""
    for key in ("gone.md", "denied.md", "broken.md", "fine.md"):
        bucket.put(key, b"text")
    source = _source(bucket)
    files = {file.path: file for file in source.list().files}
    bucket.delete(["gone.md"])
    faults = {"denied.md": "403", "broken.md": "cut"}
    proxy.plan = lambda request: faults.get(request.path.rsplit("/", 1)[-1])
    states = {}
    with reading_ahead(source, list(files.values())) as ahead:
        for path, file in files.items():
            try:
                states[path] = ahead.read(file).data.decode()
            except DocumentError as error:
                states[path] = f"{error.state} {error.message}"
    assert states["fine.md"] == "text"
    assert states["gone.md"] == "failed:vanished listed, but gone when it was read; run again"
    assert states["denied.md"].startswith(f"failed:unreadable {bucket.url}/denied.md: GetObject: AccessDenied")
    assert states["broken.md"].startswith(f"failed:unreadable {bucket.url}/broken.md: GetObject: ")


def test_an_object_overwritten_since_the_listing_is_read_as_it_is_now(bucket: Bucket) -> None:
    """Bytes, size and time are those of the version that was read, not of the one that was listed."""
    bucket.put("a.md", b"old")
    source = _source(bucket)
    (listed,) = source.list().files
    time.sleep(1.1)
    bucket.put("a.md", b"a newer text")
    found = source.read(listed)
    (now,) = source.list().files
    assert (found.data, found.size_bytes, found.mtime_ns) == (b"a newer text", 12, now.mtime_ns)
    assert found.etag == now.etag != listed.etag
    assert found.mtime_ns > listed.mtime_ns
    assert found.content_hash == hashlib.sha256(b"a newer text").hexdigest()


def test_an_object_of_equal_size_and_time_is_known_by_its_etag(bucket: Bucket, tmp_path: Path) -> None:
    """Overwritten within the second that S3's times resolve, by as many bytes: changed; written anew as it was: not."""
    bucket.put("a.md", b"one text")
    config = hash_config(bucket.url, tmp_path / "index")
    run = Run(config, NO_LIMITS)
    run.layout.make()
    (file,) = run.list().files
    Manifest(run.layout).put([to_manifest_row(_verdict(file, run.fingerprints["markdown"]), "run")])
    bucket.put("a.md", b"one text")
    assert pipeline.plan(config, quick=True).changes["unchanged"] == 1
    bucket.put("a.md", b"two text")
    assert pipeline.plan(config, quick=True).changes["changed"] == 1


def test_an_object_that_outgrew_the_cap_is_not_read(bucket: Bucket) -> None:
    """An object that is small when listed and huge when read is refused, not loaded."""
    bucket.put("a.md", b"small")
    source = _source(bucket, max_file_mb=0.0001)
    (listed,) = source.list().files
    bucket.put("a.md", b"x" * 101)
    with pytest.raises(DocumentError, match=r"failed:unreadable: .*101 bytes, more than the 100"):
        source.read(listed)


def test_reads_during_overwrites_are_one_version_each(bucket: Bucket, proxy: FaultProxy) -> None:
    """While a writer overwrites and bodies are cut, every read is all of one version, never a mix."""
    versions = {hashlib.sha256(letter * 300_000).hexdigest(): letter for letter in (b"a", b"b", b"c", b"d")}
    bucket.put("a.md", b"a" * 300_000)
    source = _source(bucket)
    (listed,) = source.list().files
    proxy.plan = random_faults(1, 0.3, ["cut", "reset", "slow"])
    done = threading.Event()

    def overwrite() -> None:
        while not done.is_set():
            for letter in versions.values():
                bucket.put("a.md", letter * 300_000)

    writer = threading.Thread(target=overwrite)
    writer.start()
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: source.read(listed), range(24)))
    done.set()
    writer.join()
    assert {file.content_hash for file in found} <= set(versions)
    assert all(hashlib.sha256(file.data).hexdigest() == file.content_hash for file in found)
    assert proxy.faults["cut"] > 0


class _SlowSource:
    """Remembers how many reads and bytes were under way at once."""

    root = "slow"

    def __init__(self, requests_in_flight: int) -> None:
        self.requests_in_flight = requests_in_flight
        self.most = self.now = self.reads = 0
        self._lock = threading.Lock()

    def list(self) -> Listing:
        return Listing(())

    def read(self, file: File) -> FileBytes:
        with self._lock:
            self.reads += 1
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.02)
        with self._lock:
            self.now -= 1
        if file.path == "3":
            raise DocumentError("failed:vanished", "gone")
        return FileBytes(file.path, file.path.encode(), "", 1, 0)


def test_files_are_read_ahead_and_come_in_order() -> None:
    """As many reads as the source likes are under way; each file gets its own bytes, or its own error, once."""
    source = _SlowSource(8)
    files = [File(str(number), "") for number in range(40)]
    found = []
    with reading_ahead(source, files) as ahead:
        for file in files:
            try:
                found.append(ahead.read(file).data.decode())
            except DocumentError as error:
                found.append(error.state)
    assert found == ["failed:vanished" if number == 3 else str(number) for number in range(40)]
    assert (source.most, source.reads) == (8, 40)


def test_reading_ahead_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed sizes bound what is read ahead; a file larger than the bound is still read."""
    monkeypatch.setattr("rag_pipeline.source.ahead.MAX_BYTES_AHEAD", 100)
    source = _SlowSource(8)
    files = [File(str(number + 10), "", size_bytes=50 if number else 1000) for number in range(12)]
    with reading_ahead(source, files) as ahead:
        assert [ahead.read(file).data.decode() for file in files] == [file.path for file in files]
    assert source.most <= 3


def test_a_source_that_need_not_wait_is_read_one_by_one() -> None:
    """A local folder is not read in threads; a file that was not announced can be read nevertheless."""
    one = _SlowSource(1)
    with reading_ahead(one, [File("1", ""), File("2", "")]) as ahead:
        assert ahead is one
    several = _SlowSource(4)
    with reading_ahead(several, [File("1", ""), File("2", "")]) as ahead:
        assert ahead.read(File("9", "")).data == b"9"


def test_a_run_without_changes_lists_and_does_nothing_else(s3: S3Server, proxy: FaultProxy, tmp_path: Path) -> None:
    """3,000 known objects: three list calls, not one read, nothing planned."""
    s3.fill("unchanged", {f"docs/{number:05}.md": b"text" for number in range(3000)})
    config = hash_config("s3://unchanged/docs", tmp_path / "index")
    run = Run(config, NO_LIMITS)
    run.layout.make()
    Manifest(run.layout).put(
        to_manifest_row(_verdict(file, run.fingerprints["markdown"]), "run") for file in run.list().files
    )
    proxy.requests.clear()
    report = pipeline.index(config)
    assert report.changes == {"added": 0, "changed": 0, "moved": 0, "deleted": 0, "unchanged": 3000}
    assert [request.is_list for request in proxy.requests] == [True] * 3


def _verdict(file: File, fingerprint: str) -> Verdict:
    stamps = {"size_bytes": file.size_bytes, "mtime_ns": file.mtime_ns, "content_hash": "x", "etag": file.etag}
    return Verdict(file.path, file.doc_id, "indexed", media_type="markdown", fingerprint=fingerprint, **stamps)


def _rag(server: S3Server, endpoint: str, *words: str) -> tuple[int, str, str]:
    """Runs the command line in a process of its own: exit code, stdout, stderr."""
    command = [sys.executable, "-m", "rag_pipeline.cli", *words]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        command, check=False, env={**ours, **server.variables(endpoint)}, capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.timeout(600)
def test_a_thousand_objects_on_a_faulty_server(s3: S3Server, proxy: FaultProxy, tmp_path: Path) -> None:
    """With a fault in every tenth call: no wrong byte, no lost file, no delete; then a run that only lists.

    A listing that fails on its second page deletes nothing either, and the secret is written nowhere.
    """
    texts = {f"{n % 7}/file {n:04}+ü.md": f"# File {n}\n\nOf {n} and {n * n}.\n".encode() for n in range(1001)}
    s3.fill("thousand", {f"docs/{path}": text for path, text in texts.items()})
    config = hash_config("s3://thousand/docs", tmp_path / "index")
    (tmp_path / "config.yaml").write_text("recipe: {embedding: {engine: hash}}")
    words = ["s3://thousand/docs", "--index", str(tmp_path / "index"), "-c", str(tmp_path / "config.yaml"), "--json"]
    proxy.plan = random_faults(7, 0.1, ["500", "503", "reset", "lost", "cut", "slow"])
    code, out, err = _rag(s3, proxy.url, "index", *words)
    assert code == 0, err
    assert json.loads(out)["files"] == {"indexed": 1001}
    assert sum(proxy.faults.values()) - proxy.faults["none"] > 60
    layout = Run(config, NO_LIMITS).layout
    rows = Manifest(layout).load()
    assert {path: row.content_hash for path, row in rows.items()} == {
        path: hashlib.sha256(text).hexdigest() for path, text in texts.items()
    }
    assert s3.secret not in out + err
    written = b"".join(file.read_bytes() for file in (tmp_path / "index").rglob("*") if file.is_file())
    assert s3.secret.encode() not in written
    proxy.reset()
    report = pipeline.index(config)
    assert (report.changes["unchanged"], proxy.count("GET")) == (1001, 0)
    proxy.plan = lambda request: "403" if "continuation-token" in request.query else None
    with pytest.raises(SourceError, match="AccessDenied"):
        pipeline.index(config)
    assert len(Manifest(layout).load()) == 1001
