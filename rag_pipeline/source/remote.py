"""Any other place with a URL as a source, through fsspec: gs://, az://, https:// pages of links, ...

Credentials are the driver's business (its own variables and files). Knows nothing of file formats or of what
was indexed before.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from rag_pipeline.config import SourceConfig
from rag_pipeline.errors import ConfigError, DocumentError, SourceError
from rag_pipeline.records import File, FileBytes, Listing
from rag_pipeline.source.selection import skip_verdict

MAX_ATTEMPTS = 5
_HTTP = ("http", "https")
_ETAGS = ("etag", "ETag", "md5Hash", "Content-MD5")
_TIMES = ("mtime", "LastModified", "last_modified", "Last-Modified", "updated", "modified", "created")
_T = TypeVar("_T")


class RemoteSource:
    """Lists and reads what lies below a URL that fsspec has a driver for."""

    requests_in_flight = 16

    def __init__(self, config: SourceConfig) -> None:
        """Checks the URL; contacts nothing.

        Raises:
            ConfigError: No driver for such a URL is installed, or the URL carries a password.
        """
        self._config = config
        self._scheme = config.path.split("://", 1)[0]
        self._check()

    @property
    def root(self) -> str:
        """The URL, without a slash at its end."""
        return self._config.path.rstrip("/")

    def list(self) -> Listing:
        """Lists every object; see `Source.list`. One folder that cannot be listed fails the whole listing."""
        driver, root = self._open()
        driver.invalidate_cache()
        try:
            found = dict(self._walk(driver, root))
        except FileNotFoundError:
            raise SourceError(f"source {self.root}: no such place; check the URL") from None
        except Exception as error:  # each driver raises its own
            raise SourceError(f"source {self.root}: cannot be listed: {_reason(error)}") from None
        with ThreadPoolExecutor(self.requests_in_flight) as threads:
            files = threads.map(lambda path: self._file(driver, path, found[path]), sorted(found))
            return Listing(tuple(files))

    def read(self, file: File) -> FileBytes:
        """Reads one object whole; a body of another length than the source says is read again, then refused."""
        driver, _ = self._open()
        asked = {"headers": {"Accept-Encoding": "identity"}} if self._scheme in _HTTP else {}
        for _ in range(3):
            try:
                data = bytes(_again(partial(driver.cat_file, file.location, **asked)))
                size_bytes, mtime_ns, etag = file.size_bytes, file.mtime_ns, file.etag
                if len(data) != size_bytes:  # overwritten since it was listed, or of a length that no listing says
                    info = _again(partial(driver.info, file.location))
                    size_bytes, mtime_ns, etag = info.get("size"), _mtime_ns(info), _etag(info)
            except FileNotFoundError:
                raise DocumentError("failed:vanished", "listed, but gone when it was read; run again") from None
            except Exception as error:  # each driver raises its own
                raise DocumentError("failed:unreadable", f"{file.location}: {_reason(error)}") from None
            if size_bytes in (len(data), None):
                return FileBytes(file.path, data, hashlib.sha256(data).hexdigest(), len(data), mtime_ns, etag)
        said = f"{len(data)} bytes read, {size_bytes} announced"
        raise DocumentError("failed:unreadable", f"{file.location}: {said}; run again when it is complete")

    def _check(self) -> None:
        import fsspec

        url = urlsplit(self._config.path)
        if url.password:
            raise ConfigError(f"source {url.scheme}://{url.hostname}: a password in a URL would end in reports")
        if self._scheme in ("file", "local"):
            raise ConfigError(f"source {self.root}: use the folder's path, without '{self._scheme}://'")
        try:
            fsspec.get_filesystem_class(self._scheme)
        except ImportError as error:
            raise ConfigError(f"source {self.root}: needs one more package: {_reason(error)}") from None
        except ValueError:
            what = "use a folder, an s3:// URL or one that fsspec has a driver for"
            raise ConfigError(f"source {self.root}: no reader for '{self._scheme}://'; {what}") from None

    def _open(self) -> tuple[Any, str]:
        """The driver, one a process, and the root as it names it."""
        from fsspec.core import url_to_fs

        options = {"simple_links": False} if self._scheme in _HTTP else {}  # links, not every URL in a text
        driver, root = url_to_fs(self.root, **options)
        return driver, str(root).rstrip("/")

    def _walk(self, driver: Any, root: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yields the path below the root and what the listing says of every object, folder by folder."""
        pending, seen = [root], {root}
        while pending:
            folder = pending.pop()
            inside = folder.rstrip("/") + "/"
            for info in _again(partial(driver.ls, folder, detail=True)):
                name = str(info["name"])
                if not name.startswith(inside) or name in seen:
                    continue
                seen.add(name)
                if info["type"] == "directory":
                    pending.append(name)
                elif name != inside:  # else the folder's own marker
                    yield name[len(root) :].lstrip("/"), info

    def _file(self, driver: Any, path: str, info: dict[str, Any]) -> File:
        location = str(info["name"])
        if info["type"] != "file" or (self._scheme in _HTTP and ("?" in path or "#" in path)):
            return File(path, location, skip="skipped:special", reason="not a file of its own")
        if path.endswith("/") and not info.get("size"):
            return File(path, location, skip="skipped:special", reason="an empty object that stands for a folder")
        verdict = skip_verdict(self._config, path, info.get("size") or 0)
        if verdict is None and info.get("size") is None:  # a page of links says names only
            with suppress(Exception):  # reading it will say what is wrong
                info = {**info, **_again(partial(driver.info, location))}
            verdict = skip_verdict(self._config, path, info.get("size") or 0)
        skip, reason = verdict or (None, "")
        return File(path, location, info.get("size") or 0, _mtime_ns(info), skip, reason, etag=_etag(info))


def _again(call: Callable[[], _T]) -> _T:
    """Calls, again where the failure may pass."""
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

    wait = wait_random_exponential(multiplier=0.2, max=5)
    return Retrying(
        retry=retry_if_exception(_is_transient), stop=stop_after_attempt(MAX_ATTEMPTS), wait=wait, reraise=True
    )(call)


def _is_transient(error: BaseException) -> bool:
    for answer in (error, error.__cause__):  # the http driver says "not found" of whatever its server answered
        status = getattr(answer, "status", None)
        if isinstance(status, int):
            return status >= 500 or status == 429
    final = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError, NotImplementedError)
    return isinstance(error, Exception) and not isinstance(error, final)


def _etag(info: dict[str, Any]) -> str:
    return next((str(info[name]) for name in _ETAGS if info.get(name)), "").strip('"')


def _mtime_ns(info: dict[str, Any]) -> int:
    """When the object was last changed; this very moment where the source does not say, so that bytes decide."""
    said: Any = next((info[name] for name in _TIMES if info.get(name)), None)
    if isinstance(said, str):
        text = said
        for read in (datetime.fromisoformat, parsedate_to_datetime):
            with suppress(ValueError):
                said = read(text)
    if isinstance(said, datetime):
        said = said.timestamp()
    return int(said * 1e9) if isinstance(said, (int, float)) else time.time_ns()


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
