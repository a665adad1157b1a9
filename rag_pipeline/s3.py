"""The objects of an S3 bucket: listed page by page, read and written whole, every call repeated within a budget.

Credentials, region and endpoint come by the usual AWS chain and variables (AWS_PROFILE, AWS_ACCESS_KEY_ID,
AWS_REGION, AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, ...). Knows nothing of what the objects mean.
"""

from __future__ import annotations

import functools
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, TypeVar

from rag_pipeline.errors import ConfigError

Kind = Literal["missing", "denied", "changed", "unreachable", "refused"]
NO_ANSWER: tuple[Kind, ...] = ("unreachable", "denied")  # kinds that say nothing of what lies there

# A call is repeated until attempts or time are used up; waits are drawn from 0 to a bound that doubles each time.
MAX_ATTEMPTS = 10
RETRY_BUDGET_S = 60.0
FIRST_WAIT_S = 0.1
MAX_WAIT_S = 10.0
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 20.0
MAX_CONNECTIONS = 128
_KEYS_PER_DELETE = 1000

_VARIABLES = (  # those that another client is made for; small objects are cheap enough for it to matter how many
    *("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CONFIG_FILE"),
)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("NoSuchKey", "NoSuchBucket", "NotFound", "404"), "missing"),
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled", "ExpiredToken", "InvalidAccessKeyId"), "denied"),
    **dict.fromkeys(("InvalidToken", "SignatureDoesNotMatch", "401", "403"), "denied"),
    **dict.fromkeys(("PreconditionFailed", "412"), "changed"),
}
_TRANSIENT = {
    *("BadDigest", "ConditionalRequestConflict", "InternalError", "OperationAborted", "RequestTimeout"),
    *("ServiceUnavailable", "SlowDown", "Throttling", "ThrottlingException", "XAmzContentSHA256Mismatch"),
}
_ADVICE: dict[Kind, str] = {
    "missing": "; check bucket and key",
    "denied": "; check the credentials (AWS_PROFILE, AWS_ACCESS_KEY_ID, ...) and what they may do",
    "changed": "",
    "unreachable": "; check the network and AWS_ENDPOINT_URL, then run again",
    "refused": "",
}
_T = TypeVar("_T")
_making_client = threading.Lock()


class S3Error(Exception):
    """A call that S3 did not answer as asked; the message names bucket, key and what AWS said.

    Args:
        kind: ``missing`` (bucket or key), ``denied`` (permissions or credentials), ``changed`` (a condition on
            the ETag does not hold), ``unreachable`` (no usable answer within the budget) or ``refused``.
        message: For people; holds no secret.
    """

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class S3Object:
    """One object: its key relative to the bucket's prefix, and the stamps of one version, ETag without quotes."""

    key: str
    size_bytes: int
    etag: str
    mtime_ns: int


class Bucket:
    """The objects below one prefix of a bucket. Small and picklable; its boto3 client is made per process.

    Args:
        url: ``s3://bucket/prefix``, to the letter: nothing in it is decoded, and one slash at its end is no
            part of the prefix. Keys are relative to it; a neighbour ``prefix2/`` is not below it.

    Raises:
        ConfigError: The URL names no bucket.
    """

    def __init__(self, url: str) -> None:
        self._bucket, _, rest = url.removeprefix("s3://").partition("/")
        if not url.startswith("s3://") or not _BUCKET.fullmatch(self._bucket):
            raise ConfigError(  # the URL is not repeated: credentials may have been typed into it
                "an S3 URL is s3://bucket/prefix with a plain bucket name; credentials belong into the AWS variables"
                " or a profile, not into the URL"
            )
        self._prefix = rest.removesuffix("/") + "/" if rest else ""

    def __repr__(self) -> str:
        return f"Bucket({self.url!r})"

    @property
    def url(self) -> str:
        """The place as a person would type it, without a slash at its end."""
        return f"s3://{self._bucket}/{self._prefix}".removesuffix("/")

    def list(self, prefix: str = "") -> Iterator[S3Object]:
        """Lists every object whose key starts with `prefix`, page by page, in key order.

        Raises:
            S3Error: A page cannot be had; what was yielded before is not the whole listing.
        """
        token: str | None = None
        asked: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        while True:
            more = {"ContinuationToken": token} if token else {}
            page = self._call("ListObjectsV2", prefix, functools.partial(self._page, {**asked, **more}))
            for found in page.get("Contents", ()):
                key = found["Key"].removeprefix(self._prefix)
                yield S3Object(key, found["Size"], found["ETag"].strip('"'), _to_ns(found["LastModified"]))
            if not page.get("IsTruncated"):
                return
            if page.get("NextContinuationToken") in (None, token):
                where = self._place(prefix)
                raise S3Error("refused", f"{where}: ListObjectsV2 says there is more and not where it goes on")
            token = page["NextContinuationToken"]

    def get(self, key: str, *, etag: str | None = None, first: int | None = None, last: int | None = None) -> bytes:
        """Reads an object, or the bytes `first` to `last` (included) of it, as one version.

        Args:
            key: Relative to the prefix.
            etag: The version that is meant; any, if there is none.
            first: From 0; with `last` left out, up to the end.
            last: May lie beyond the end.

        Raises:
            S3Error: ``changed`` where the object has another ETag than `etag`.
        """
        return self.fetch(key, etag=etag, first=first, last=last)[0]

    def fetch(
        self,
        key: str,
        *,
        etag: str | None = None,
        first: int | None = None,
        last: int | None = None,
        max_bytes: int | None = None,
    ) -> tuple[bytes, S3Object]:
        """Reads like `get`, and says of which version these bytes are; its size is that of the bytes read.

        Raises:
            S3Error: ``refused`` where there are more than `max_bytes`, which are not read then.
        """
        asked: dict[str, Any] = {"Bucket": self._bucket, "Key": self._prefix + key}
        if etag is not None:
            asked["IfMatch"] = f'"{etag}"'
        if first is not None or last is not None:
            asked["Range"] = f"bytes={first or 0}-{'' if last is None else last}"

        def attempt() -> tuple[bytes, S3Object]:
            answer = self._client.get_object(**asked)
            if max_bytes is not None and answer.get("ContentLength", 0) > max_bytes:
                answer["Body"].close()
                size = answer["ContentLength"]
                raise S3Error("refused", f"{self._place(key)}: {size} bytes, more than the {max_bytes} that are read")
            data = _read_body(answer)
            if "Range" in asked and "ContentRange" not in answer:  # a server that knows no ranges sends everything
                data = data[first or 0 : None if last is None else last + 1]
            return data, S3Object(key, len(data), answer["ETag"].strip('"'), _to_ns(answer["LastModified"]))

        return self._call("GetObject", key, attempt)

    def put(self, key: str, data: bytes, *, if_absent: bool = False, if_etag: str | None = None) -> str:
        """Writes an object whole; returns its new ETag.

        Args:
            key: Relative to the prefix.
            data: All its bytes. With a condition, they should name their writer: after an answer that was lost,
                only the bytes can tell whether the object that is there now is this one.
            if_absent: Only where there is no such object yet.
            if_etag: Only in place of this version.

        Raises:
            S3Error: ``changed`` where the condition does not hold.
        """
        asked: dict[str, Any] = {"Bucket": self._bucket, "Key": self._prefix + key, "Body": data}
        if if_absent:
            asked["IfNoneMatch"] = "*"
        if if_etag is not None:
            asked["IfMatch"] = f'"{if_etag}"'
        attempts = 0

        def attempt() -> str:
            nonlocal attempts
            attempts += 1
            answer = self._client.put_object(**asked)
            return str(answer["ETag"]).strip('"')

        try:
            return self._call("PutObject", key, attempt)
        except S3Error as error:
            if error.kind != "changed" or attempts == 1:
                raise
            try:
                there, version = self.fetch(key)
            except S3Error:
                raise error from None
            if there != data:
                raise
            return version.etag

    def delete(self, keys: Iterable[str]) -> None:
        """Deletes objects, a thousand a call; keys that are not there are no error."""
        pending = list(keys)
        for start in range(0, len(pending), _KEYS_PER_DELETE):
            batch = pending[start : start + _KEYS_PER_DELETE]
            doomed = {"Objects": [{"Key": self._prefix + key} for key in batch], "Quiet": True}
            self._call("DeleteObjects", batch[0], functools.partial(self._delete, doomed))

    def _page(self, asked: dict[str, Any]) -> dict[str, Any]:
        page: dict[str, Any] = self._client.list_objects_v2(**asked)
        return page

    def _delete(self, doomed: dict[str, Any]) -> None:
        from botocore.exceptions import ClientError

        answer = self._client.delete_objects(Bucket=self._bucket, Delete=doomed)
        for error in answer.get("Errors", ()):
            raise ClientError({"Error": error}, "DeleteObjects")

    def _call(self, operation: str, key: str, attempt: Callable[[], _T]) -> _T:
        """Runs `attempt`, again where the failure may pass; its reading of a body is part of it."""
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        gives_up_at = time.monotonic() + RETRY_BUDGET_S
        number = 0
        while True:
            number += 1
            try:
                return attempt()
            except (BotoCoreError, ClientError, Boto3Error, ValueError) as error:  # the last: of an endpoint's URL
                wait_s = random.uniform(0, min(MAX_WAIT_S, FIRST_WAIT_S * 2**number))
                over = number >= MAX_ATTEMPTS or time.monotonic() + wait_s > gives_up_at
                if over or not _is_transient(error):
                    raise _translate(error, self._place(key), operation, number) from None
            time.sleep(wait_s)

    def _place(self, key: str) -> str:
        where = f"s3://{self._bucket}/{self._prefix}{key}"
        return where if where.isprintable() else repr(where)[1:-1]

    @property
    def _client(self) -> Any:
        variables = hash(tuple(map(os.environ.get, _VARIABLES)))
        with _making_client:  # else the first threads of a process make one each
            return _make_client(os.getpid(), variables)


@functools.lru_cache(maxsize=4)
def _make_client(pid: int, variables: int) -> Any:
    """A client of this process and these AWS variables; safe in threads, not over a fork."""
    import boto3
    from botocore.config import Config
    from botocore.session import get_session

    core = get_session()
    core.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_parse_time)
    session = boto3.session.Session(botocore_session=core)
    region = os.environ.get("AWS_REGION") or session.region_name or "us-east-1"  # S3 itself redirects to others
    settings = Config(
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=READ_TIMEOUT_S,
        max_pool_connections=MAX_CONNECTIONS,
        parameter_validation=False,  # all parameters are made here; a tenth of what a small object costs
        retries={"total_max_attempts": 1},  # `Bucket._call` repeats, since botocore does not repeat a body
    )
    return session.client("s3", region_name=region, config=settings)


def _read_body(answer: dict[str, Any]) -> bytes:
    from botocore.exceptions import IncompleteReadError

    body = answer["Body"]
    try:
        data = bytes(body.read())
    finally:
        body.close()
    if len(data) != answer.get("ContentLength", len(data)):
        raise IncompleteReadError(actual_bytes=len(data), expected_bytes=answer["ContentLength"])
    return data


def _is_transient(error: BaseException) -> bool:
    """Whether the same call may go well a moment later: nothing or half an answer, or S3 asking for patience."""
    from botocore import exceptions as boto
    from botocore.parsers import ResponseParserError

    if isinstance(error, boto.ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return status >= 500 or status == 429 or error.response.get("Error", {}).get("Code") in _TRANSIENT
    if isinstance(error, boto.SSLError):
        return False
    unanswered = (boto.ConnectionError, boto.HTTPClientError, boto.IncompleteReadError)
    return isinstance(error, (*unanswered, boto.FlexibleChecksumError, boto.ChecksumError, ResponseParserError))


def _translate(error: Exception, place: str, operation: str, attempts: int) -> S3Error:
    """What went wrong, where, and what to do next."""
    from botocore import exceptions as boto

    again = f" (after {attempts} attempts)" if attempts > 1 else ""
    kind: Kind = "refused"
    said = str(error)
    keyless = (boto.NoCredentialsError, boto.PartialCredentialsError, boto.ProfileNotFound)
    tokenless = (boto.CredentialRetrievalError, boto.SSOError, boto.TokenRetrievalError)
    if isinstance(error, boto.ClientError):
        code = str(error.response.get("Error", {}).get("Code", ""))
        said = f"{code}: {error.response.get('Error', {}).get('Message', '')}"
        kind = _KINDS.get(code, "refused")
        if (operation, code) == ("PutObject", "NoSuchKey"):  # the version that was to be replaced is gone
            kind = "changed"
    if _is_transient(error):
        kind = "unreachable"
    elif isinstance(error, (*keyless, *tokenless)):
        kind = "denied"
    return S3Error(kind, f"{place}: {operation}: {_clean(said)}{again}{_ADVICE[kind]}")


def _clean(text: str) -> str:
    """One line without control characters, and without what must not be shown."""
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        if os.environ.get(name):
            text = text.replace(os.environ[name], "***")
    text = re.sub(r"//[^/@\s]+@", "//***@", text)
    return "".join(char if char.isprintable() else " " for char in " ".join(text.split()))[:300]


def _parse_time(text: str) -> datetime:
    """Reads S3's two forms of time; botocore's own reader takes any form, and most of a long listing's time."""
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return parsedate_to_datetime(text)


def _to_ns(moment: datetime) -> int:
    """Nanoseconds since the epoch, in whole seconds: answers to GET carry no more."""
    return int(moment.timestamp()) * 1_000_000_000
