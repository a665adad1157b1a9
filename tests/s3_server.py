"""A real S3-speaking server on loopback: moto's, started once a session on a free port, with made-up credentials."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer


@dataclass(frozen=True)
class S3Server:
    """Where the server listens, and the credentials that it takes, like any others."""

    url: str
    key_id: str = "AKIAMADEUPMADEUP0001"
    secret: str = "made/Up+Secret/KeyThatMustNotBeShownAnywhere0"

    def variables(self, endpoint: str = "") -> dict[str, str]:
        """The AWS variables that lead to this server, or to a proxy before it, and to nothing else."""
        nowhere = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), "/dev/null")
        keys = {"AWS_ACCESS_KEY_ID": self.key_id, "AWS_SECRET_ACCESS_KEY": self.secret, "AWS_REGION": "us-east-1"}
        return {**nowhere, **keys, "AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL": endpoint or self.url}

    @property
    def client(self) -> Any:
        """A plain boto3 client, straight to the server whatever the variables say."""
        return _client(self)

    def fill(self, bucket: str, objects: Mapping[str, bytes]) -> None:
        """Makes a bucket with these objects, inside the server: a thousand through its door take ten seconds."""
        self.client.create_bucket(Bucket=bucket)
        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        for key, data in objects.items():
            backend.put_object(bucket, key, data)


@functools.cache
def _client(server: S3Server) -> Any:
    keys = {"aws_access_key_id": server.key_id, "aws_secret_access_key": server.secret}
    return boto3.session.Session().client("s3", endpoint_url=server.url, region_name="us-east-1", **keys)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """One server for the whole session."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield S3Server(f"http://{host}:{port}")
    server.stop()


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The server, with this process's AWS variables leading to it."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name, value in s3_server.variables().items():
        monkeypatch.setenv(name, value)
    return s3_server
