"""Sources: what a folder or a prefix holds, each entry once, and one file's bytes as one version."""

import contextlib
import functools
import hashlib
import http.server
import itertools
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import fsspec
import pytest

from rag_pipeline.config import SourceConfig
from rag_pipeline.errors import ConfigError, DocumentError, SourceError
from rag_pipeline.records import File, Listing
from rag_pipeline.source import open_source
from rag_pipeline.source.local import LocalSource
from rag_pipeline.source.s3 import S3Source


def _write(file: Path, text: str = "text") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def _source(folder: Path, **settings: Any) -> LocalSource:
    return LocalSource(SourceConfig(path=str(folder), **settings))


def _list(folder: Path, **settings: Any) -> dict[str, str | None]:
    """Path to skip state of everything a folder holds; checks that each is listed once and in order."""
    listing = _source(folder, **settings).list()
    paths = [file.path for file in listing.files]
    assert paths == sorted(set(paths))
    return {file.path: file.skip for file in listing.files}


def _file(listing: Listing, path: str) -> File:
    return next(file for file in listing.files if file.path == path)


def test_nested_files_are_listed_sorted_with_slashes(tmp_path: Path) -> None:
    """Every file below the root is listed once, sorted by its path relative to the root, with its size and time."""
    for name in ("b.md", "a/z.txt", "a/b/c.pdf", "a.md", "Z.md"):
        _write(tmp_path / name, name)
    listing = _source(tmp_path).list()
    assert [file.path for file in listing.files] == ["Z.md", "a.md", "a/b/c.pdf", "a/z.txt", "b.md"]
    file = _file(listing, "a/b/c.pdf")
    assert file.size_bytes == len("a/b/c.pdf")
    assert file.mtime_ns == (tmp_path / "a/b/c.pdf").stat().st_mtime_ns
    assert listing.unreadable == ()


def test_an_empty_folder_is_an_empty_listing(tmp_path: Path) -> None:
    """A root without any entry gives no files and no error; empty folders below it are no entries."""
    (tmp_path / "nothing" / "in" / "here").mkdir(parents=True)
    assert _list(tmp_path) == {}


def test_a_trailing_slash_a_link_and_a_tilde_name_the_same_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The root may be written with a slash at its end, through a link, or below the home folder."""
    _write(tmp_path / "docs/a.md")
    (tmp_path / "link").symlink_to("docs")
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in (f"{tmp_path}/docs/", f"{tmp_path}/link", "~/docs"):
        assert [file.path for file in LocalSource(SourceConfig(path=path)).list().files] == ["a.md"]


def test_hidden_files_and_folders_are_counted_as_one_entry_each(tmp_path: Path) -> None:
    """A name with a leading dot is skipped:hidden; a hidden folder is one entry, whatever it holds."""
    for name in (".env", ".git/config", ".git/objects/aa", "sub/.cache/x.md", "sub/kept.md"):
        _write(tmp_path / name)
    assert _list(tmp_path) == {
        ".env": "skipped:hidden",
        ".git/": "skipped:hidden",
        "sub/.cache/": "skipped:hidden",
        "sub/kept.md": None,
    }


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    """A link to a file is a file of its own, with the target's bytes, even outside the root."""
    target = _write(tmp_path / "elsewhere.md", "linked text")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link.md").symlink_to(target)
    source = _source(tmp_path / "root")
    file = _file(source.list(), "link.md")
    assert (file.skip, file.size_bytes) == (None, len("linked text"))
    assert source.read(file).data == b"linked text"


def test_a_link_to_a_folder_is_skipped_by_default(tmp_path: Path) -> None:
    """A link to a folder is one skipped:symlink entry unless following is asked for."""
    _write(tmp_path / "outside/a.md")
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    assert _list(tmp_path / "root") == {"link/": "skipped:symlink"}


def test_linked_folders_are_followed_once_on_request(tmp_path: Path) -> None:
    """With follow_symlinks a folder reached by several links is walked once; the other links are skipped."""
    _write(tmp_path / "outside/sub/a.md")
    (tmp_path / "root").mkdir()
    for name in ("one", "two"):
        (tmp_path / "root" / name).symlink_to(tmp_path / "outside")
    assert _list(tmp_path / "root", follow_symlinks=True) == {"one/sub/a.md": None, "two/": "skipped:symlink"}


def test_a_folder_inside_the_root_wins_over_a_link_to_it(tmp_path: Path) -> None:
    """Files of a real folder keep its path even where a link to it sorts first."""
    _write(tmp_path / "real/a.md")
    (tmp_path / "alias").symlink_to("real")
    assert _list(tmp_path, follow_symlinks=True) == {"alias/": "skipped:symlink", "real/a.md": None}


@pytest.mark.parametrize("follow", [False, True])
def test_loops_of_links_end(tmp_path: Path, follow: bool) -> None:
    """Links to the root itself, to a parent and to each other neither loop nor list a file twice."""
    root = tmp_path / "root"
    _write(root / "sub/a.md")
    (root / "self").symlink_to(root)
    (root / "sub/up").symlink_to("..")
    (root / "x").symlink_to("y")
    (root / "y").symlink_to("x")
    assert _list(root, follow_symlinks=follow) == {
        "self/": "skipped:symlink",
        "sub/a.md": None,
        "sub/up/": "skipped:symlink",
        "x": "skipped:symlink",
        "y": "skipped:symlink",
    }


def test_a_link_above_the_root_ends(tmp_path: Path) -> None:
    """A followed link to the folder above the root lists the siblings, and the root's own files only once."""
    _write(tmp_path / "root/a.md")
    _write(tmp_path / "sibling/b.md")
    (tmp_path / "root/up").symlink_to(tmp_path)
    assert _list(tmp_path / "root", follow_symlinks=True) == {
        "a.md": None,
        "up/root/": "skipped:symlink",
        "up/sibling/b.md": None,
    }


def test_a_broken_link_is_skipped_with_a_reason(tmp_path: Path) -> None:
    """A link that leads nowhere is skipped:symlink and says so."""
    (tmp_path / "dangling.md").symlink_to("nowhere")
    file = _file(_source(tmp_path).list(), "dangling.md")
    assert (file.skip, file.reason) == ("skipped:symlink", "the link leads nowhere")


def test_a_fifo_is_special_and_never_opened(tmp_path: Path) -> None:
    """What is neither a file nor a folder is skipped:special, and listing it does not block."""
    os.mkfifo(tmp_path / "pipe.md")
    assert _list(tmp_path) == {"pipe.md": "skipped:special"}


def test_a_name_that_is_not_utf8_is_percent_encoded_and_read(tmp_path: Path) -> None:
    """Bytes of a name that are not UTF-8 become %XX in the path, and the file is still found and read."""
    with open(os.fsencode(tmp_path) + b"/caf\xe9.txt", "wb") as handle:
        handle.write(b"coffee")
    source = _source(tmp_path)
    (file,) = source.list().files
    assert file.path == "caf%E9.txt"
    file.path.encode("utf-8")
    assert source.read(file).data == b"coffee"


def test_names_that_encode_alike_stay_apart(tmp_path: Path) -> None:
    """No file is lost where one name's encoding equals another name, or even the way out of that."""
    names = [b"caf\xe9.txt", b"caf%E9.txt", b"caf%25E9.txt"]
    for name in names:
        with open(os.fsencode(tmp_path) + b"/" + name, "wb") as handle:
            handle.write(name)
    source = _source(tmp_path)
    files = source.list().files
    assert len({file.path for file in files}) == len(names)
    assert sorted(source.read(file).data for file in files) == sorted(names)


@pytest.mark.parametrize(
    "name",
    [
        "two\nlines.md",
        'it\'s "quoted".md',
        "x' OR '1'='1.md",
        "percent%41.md",
        "blank end .md",
        "潮汐 🌊.md",
        "é.md",
        "*.md",
    ],
)
def test_odd_names_are_plain_data(tmp_path: Path, name: str) -> None:
    """Promise 10: newlines, quotes, percent signs, stars and any script in a name are read as they are listed."""
    _write(tmp_path / name, "odd")
    source = _source(tmp_path)
    (file,) = source.list().files
    assert (file.path, file.skip) == (name, None)
    assert source.read(file).data == b"odd"
    assert len(file.doc_id) == 32
    assert set(file.doc_id) <= set("0123456789abcdef")


def test_include_patterns_choose_files_in_any_folder(tmp_path: Path) -> None:
    """With include only matching files are read; every other file is skipped:excluded, none is dropped."""
    for name in ("a.md", "deep/er/b.md", "c.txt", "deep/drafts/d.md"):
        _write(tmp_path / name)
    assert _list(tmp_path, include=["*.md", "!drafts/"]) == {
        "a.md": None,
        "c.txt": "skipped:excluded",
        "deep/drafts/d.md": "skipped:excluded",
        "deep/er/b.md": None,
    }


def test_exclude_patterns_win_and_a_folder_counts_once(tmp_path: Path) -> None:
    """Excluded files are listed as skipped:excluded; an excluded folder is one entry and is not walked."""
    for name in ("a.md", "a.tmp", "drafts/b.md", "drafts/c.md", "sub/drafts.md"):
        _write(tmp_path / name)
    assert _list(tmp_path, include=["*.md", "*.tmp"], exclude=["*.tmp", "drafts/"]) == {
        "a.md": None,
        "a.tmp": "skipped:excluded",
        "drafts/": "skipped:excluded",
        "sub/drafts.md": None,
    }


def test_an_anchored_pattern_matches_at_the_root_only(tmp_path: Path) -> None:
    """A pattern with a leading slash means the root's own entry, as in a .gitignore."""
    _write(tmp_path / "a.md")
    _write(tmp_path / "sub/a.md")
    assert _list(tmp_path, exclude=["/a.md"]) == {"a.md": "skipped:excluded", "sub/a.md": None}


def test_a_file_over_the_cap_is_too_large(tmp_path: Path) -> None:
    """A file larger than max_file_mb is skipped:too_large with both sizes in its reason; one just as large is read."""
    _write(tmp_path / "fits.md", "x" * 1000)
    _write(tmp_path / "large.md", "x" * 1001)
    assert _list(tmp_path, max_file_mb=0.001) == {"fits.md": None, "large.md": "skipped:too_large"}
    reason = _file(_source(tmp_path, max_file_mb=0.001).list(), "large.md").reason
    assert "1001 bytes" in reason
    assert "0.001 MB" in reason


def test_a_missing_root_is_an_error_with_a_hint(tmp_path: Path) -> None:
    """A root that is not there raises, names the folder, and says what to check."""
    with pytest.raises(SourceError, match="no such folder; check the path, or mount it") as caught:
        _list(tmp_path / "absent")
    assert str(tmp_path / "absent") in str(caught.value)


def test_a_file_as_root_is_an_error(tmp_path: Path) -> None:
    """A file in the root's place raises and asks for its folder."""
    file = _write(tmp_path / "a.md")
    with pytest.raises(SourceError, match="not a folder") as caught:
        _list(file)
    assert str(file) in str(caught.value)


def _refuse(folder: Path) -> Callable[[str], Any]:
    """An `os.scandir` to which one folder is closed; the tests run as root, whom permissions do not stop."""
    real = os.scandir

    def scandir(path: str) -> Any:
        if Path(path) == folder:
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    return scandir


def test_a_folder_that_cannot_be_listed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed sub-folder is one failed:unreadable entry and a prefix in Listing.unreadable; the rest is listed."""
    for name in ("a.md", "sub/closed/b.md", "sub/closed-not/c.md"):
        _write(tmp_path / name)
    monkeypatch.setattr(os, "scandir", _refuse(tmp_path / "sub/closed"))
    listing = _source(tmp_path).list()
    assert listing.unreadable == ("sub/closed/",)
    assert {file.path: file.skip for file in listing.files} == {
        "a.md": None,
        "sub/closed-not/c.md": None,
        "sub/closed/": "failed:unreadable",
    }
    assert "Permission denied" in _file(listing, "sub/closed/").reason


class _Closed:
    """A folder's entry as seen in a folder that may be listed but not entered: its name is known, no more."""

    def __init__(self, entry: "os.DirEntry[str]") -> None:
        self.name, self.path = entry.name, entry.path
        self.is_symlink, self.is_dir = entry.is_symlink, entry.is_dir
        self.is_file, self.inode = entry.is_file, entry.inode

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        raise PermissionError(13, "Permission denied", self.path)


def test_what_lies_below_an_entry_that_cannot_be_looked_at_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sub-folder whose own stat fails is named in Listing.unreadable, so that files below it do not count as gone."""
    for name in ("open.md", "outer/inner/a.md", "outer/b.md"):
        _write(tmp_path / name)
    real = os.scandir

    def scandir(path: Any) -> Any:
        if Path(path) == tmp_path / "outer":
            return contextlib.nullcontext([_Closed(entry) for entry in real(path)])
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    listing = _source(tmp_path).list()
    states = {file.path.rstrip("/"): file.skip for file in listing.files}
    assert states == {"open.md": None, "outer/inner": "failed:unreadable", "outer/b.md": "failed:unreadable"}
    assert any("outer/inner/a.md".startswith(prefix) for prefix in listing.unreadable)


def test_a_root_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed root raises, since an empty listing would look like a deletion of everything."""
    monkeypatch.setattr(os, "scandir", _refuse(tmp_path))
    with pytest.raises(SourceError, match="cannot be listed: Permission denied"):
        _list(tmp_path)


def test_a_folder_that_vanishes_while_listing_does_not_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sub-folder deleted between being seen and being walked costs the listing nothing else."""
    for name in ("one/a.md", "two/b.md", "c.md"):
        _write(tmp_path / name)
    real = os.scandir

    def scandir(path: Any) -> Any:
        entries = real(path)
        for folder, other in (("one", "two"), ("two", "one")):
            if path == str(tmp_path / folder) and (tmp_path / other).exists():
                shutil.rmtree(tmp_path / other)
        return entries

    monkeypatch.setattr(os, "scandir", scandir)
    listing = _source(tmp_path).list()
    read = [file.path for file in listing.files if file.skip is None]
    assert read in (["c.md", "one/a.md"], ["c.md", "two/b.md"])


def test_read_gives_bytes_hash_size_and_time_of_one_version(tmp_path: Path) -> None:
    """Reading gives the file's bytes, their sha256, and the stamps of exactly these bytes, not the listing's."""
    file = _write(tmp_path / "a.md", "old")
    source = _source(tmp_path)
    (listed,) = source.list().files
    file.write_bytes(b"newer \x00 bytes")
    found = source.read(listed)
    assert found.path == "a.md"
    assert found.data == b"newer \x00 bytes"
    assert found.content_hash == hashlib.sha256(found.data).hexdigest()
    assert found.size_bytes == len(found.data)
    assert found.mtime_ns == file.stat().st_mtime_ns


def test_an_empty_file_is_read(tmp_path: Path) -> None:
    """A file without bytes is read as such; what it means is not the source's business."""
    _write(tmp_path / "empty.md", "")
    source = _source(tmp_path)
    (listed,) = source.list().files
    assert source.read(listed).data == b""


def _state_of_read(source: LocalSource, file: File) -> tuple[str, str]:
    with pytest.raises(DocumentError) as caught:
        source.read(file)
    return caught.value.state, caught.value.message


def test_a_file_that_vanished_says_so(tmp_path: Path) -> None:
    """A file deleted after listing is failed:vanished."""
    file = _write(tmp_path / "a.md")
    source = _source(tmp_path)
    (listed,) = source.list().files
    file.unlink()
    state, message = _state_of_read(source, listed)
    assert state == "failed:vanished"
    assert "run again" in message


def test_a_file_that_cannot_be_opened_is_unreadable(tmp_path: Path) -> None:
    """A file that became a folder, like one without permission, is failed:unreadable with the system's reason."""
    file = _write(tmp_path / "a.md")
    source = _source(tmp_path)
    (listed,) = source.list().files
    file.unlink()
    file.mkdir()
    assert _state_of_read(source, listed) == ("failed:unreadable", "Is a directory; check its permissions")


def test_a_file_that_keeps_changing_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose stamps differ before and after every attempt is refused after a few attempts."""
    _write(tmp_path / "a.md", "abc")
    source = _source(tmp_path)
    (listed,) = source.list().files
    ticks = itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", lambda _: SimpleNamespace(st_mtime_ns=next(ticks), st_size=3))
        state, message = _state_of_read(source, listed)
    assert state == "failed:unreadable"
    assert "kept changing" in message
    assert next(ticks) <= 20


def test_a_file_that_changes_once_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that settles is read; the stamps are those of the attempt that held still."""
    _write(tmp_path / "a.md", "abc")
    source = _source(tmp_path)
    (listed,) = source.list().files
    times = iter([1, 2, 2, 2])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", lambda _: SimpleNamespace(st_mtime_ns=next(times), st_size=3))
        found = source.read(listed)
    assert (found.data, found.mtime_ns) == (b"abc", 2)


def test_a_path_gives_a_local_source(tmp_path: Path) -> None:
    """A folder's path is read by the local source, whose root is absolute."""
    source = open_source(SourceConfig(path=os.path.relpath(tmp_path)))
    assert isinstance(source, LocalSource)
    assert source.root == str(tmp_path)


def test_an_s3_url_gives_an_s3_source() -> None:
    """An s3:// URL is read by the S3 source, whose root has no slash at its end; nothing is contacted."""
    source = open_source(SourceConfig(path="s3://bucket/some/prefix/"))
    assert isinstance(source, S3Source)
    assert source.root == "s3://bucket/some/prefix"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("gs://bucket/x", "gcsfs"),
        ("az://container/x", "adlfs"),
        ("file:///tmp", "use the folder's path"),
        ("nonsense://host/x", "no reader for 'nonsense://'; use a folder, an s3:// URL or"),
        ("s3://", "an S3 URL is s3://bucket/prefix"),
    ],
)
def test_a_url_that_nothing_reads_is_refused(path: str, said: str) -> None:
    """A URL without a driver is a ConfigError that names the URL, and the package to install where there is one."""
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        open_source(SourceConfig(path=path))
    assert path.rstrip("/") in str(caught.value)


def test_a_url_with_a_password_is_refused_without_repeating_it() -> None:
    """The source's URL is written into reports, so it may hold no password."""
    with pytest.raises(ConfigError, match=r"https://host\.example: a password") as caught:
        open_source(SourceConfig(path="https://me:hush@host.example/x"))
    assert "hush" not in str(caught.value)


def test_no_path_is_refused() -> None:
    """Without a path the error says where to set one."""
    with pytest.raises(ConfigError, match="name a folder on the command line or set 'source'"):
        open_source(SourceConfig())


@pytest.fixture
def memory() -> Iterator[Any]:
    """Fsspec's file system in memory, empty."""
    driver = fsspec.filesystem("memory")
    driver.store.clear()
    driver.pseudo_dirs[:] = [""]
    yield driver
    driver.store.clear()


def test_a_place_that_fsspec_knows_is_listed_and_read(memory: Any) -> None:
    """What lies below the URL is listed in order with size and time, by the rules of files, and read."""
    for name in ("b.md", "a/c.md", "a/.hidden/d.md", "a/big.md", "a+ b%20.md", "é.md"):
        memory.pipe(f"/docs/{name}", name.encode() * (100 if name == "a/big.md" else 1))
    memory.pipe("/docs2/e.md", b"a neighbour")
    source = open_source(SourceConfig(path="memory://docs/", max_file_mb=0.0001))
    files = source.list().files
    assert {file.path: file.skip for file in files} == {
        "a+ b%20.md": None,
        "a/.hidden/d.md": "skipped:hidden",
        "a/big.md": "skipped:too_large",
        "a/c.md": None,
        "b.md": None,
        "é.md": None,
    }
    assert [file.path for file in files] == sorted(file.path for file in files)
    assert source.root == "memory://docs"
    for file in files:
        if not file.skip:
            found = source.read(file)
            assert (found.data, found.size_bytes) == (file.path.encode(), file.size_bytes)
            assert found.mtime_ns == file.mtime_ns > 1_600_000_000 * 10**9


def test_a_remote_place_that_is_not_there_is_an_error(memory: Any) -> None:
    """A URL below which nothing can be listed raises; an object gone since listing is failed:vanished."""
    memory.pipe("/docs/a.md", b"text")
    with pytest.raises(SourceError, match="memory://absent: no such place"):
        open_source(SourceConfig(path="memory://absent")).list()
    source = open_source(SourceConfig(path="memory://docs"))
    (file,) = source.list().files
    memory.rm("/docs/a.md")
    with pytest.raises(DocumentError) as caught:
        source.read(file)
    assert caught.value.state == "failed:vanished"


class _Pages(http.server.SimpleHTTPRequestHandler):
    """A folder as pages of links; the first `failing` requests for a path get status 500."""

    failing: ClassVar[dict[str, int]] = {}

    def send_head(self) -> Any:
        if self.failing.get(self.path, 0) > 0:
            self.failing[self.path] -= 1
            return self.send_error(500)
        return super().send_head()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def website(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and the URL under which a web server shows it."""
    folder = tmp_path / "site"
    folder.mkdir()
    handler = functools.partial(_Pages, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
    _Pages.failing.clear()


def test_a_website_of_links_is_listed_and_read(website: tuple[Path, str]) -> None:
    """Links below the URL are followed into folders; sizes and times are asked for; a failed answer is asked again."""
    folder, url = website
    for name in ("docs/a b.md", "docs/sub/c.md", "docs/sub/deep/d.html", "docs2/e.md"):
        _write(folder / name, f'text of {name} <a href="http://elsewhere.example/x">x</a>')
    _Pages.failing.update({"/docs/sub/": 1, "/docs/a%20b.md": 2})
    source = open_source(SourceConfig(path=f"{url}/docs/"))
    files = source.list().files
    assert [file.path for file in files] == ["a%20b.md", "sub/c.md", "sub/deep/d.html"]
    for file, name in zip(files, ("a b.md", "sub/c.md", "sub/deep/d.html"), strict=True):
        on_disk = folder / "docs" / name
        assert source.read(file).data == on_disk.read_bytes()
        assert file.size_bytes == on_disk.stat().st_size
        assert file.mtime_ns == int(on_disk.stat().st_mtime) * 10**9


def test_a_page_of_links_that_stays_broken_fails_the_listing(
    website: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that cannot be listed is no shorter listing, and a file that cannot be read costs itself only."""
    folder, url = website
    for name in ("a.md", "sub/b.md"):
        _write(folder / name)
    monkeypatch.setattr("rag_pipeline.source.remote.MAX_ATTEMPTS", 2)
    source = open_source(SourceConfig(path=url))
    files = source.list().files
    _Pages.failing.update({"/sub/": 9, "/a.md": 9})
    with pytest.raises(SourceError, match=f"source {url}: cannot be listed: .*500"):
        source.list()
    with pytest.raises(DocumentError) as caught:
        source.read(files[0])
    assert (caught.value.state, "500" in caught.value.message) == ("failed:unreadable", True)


def test_a_remote_file_overwritten_since_the_listing_is_read_as_it_is_now(website: tuple[Path, str]) -> None:
    """Bytes, size and time are those of the version that was read."""
    folder, url = website
    file = _write(folder / "a.md", "old")
    source = open_source(SourceConfig(path=url))
    (listed,) = source.list().files
    _write(file, "a newer text")
    os.utime(file, (2_000_000_000, 2_000_000_000))
    found = source.read(listed)
    assert (found.data, found.size_bytes, found.mtime_ns) == (b"a newer text", 12, 2_000_000_000 * 10**9)
