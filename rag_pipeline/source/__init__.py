"""Where bytes come from: one protocol, one module per kind of source.

A source lists everything it holds and reads one file at a time. Knows nothing of what the bytes mean.
"""

from __future__ import annotations

from typing import Protocol

from rag_pipeline.config import SourceConfig
from rag_pipeline.errors import ConfigError
from rag_pipeline.records import File, FileBytes, Listing


class Source(Protocol):
    """A place that can be listed and read; small enough to pickle into every task."""

    @property
    def root(self) -> str:
        """The place in words a person typed or would type."""
        ...

    @property
    def requests_in_flight(self) -> int:
        """How many files are best read at once by one task; 1 where waiting is not what reading costs."""
        ...

    def list(self) -> Listing:
        """Lists every object once.

        Raises:
            SourceError: The root is missing or cannot be listed; a part that cannot be listed does
                not raise but is named in `Listing.unreadable`.
        """
        ...

    def read(self, file: File) -> FileBytes:
        """Reads one file whole, as one version.

        Raises:
            DocumentError: ``failed:unreadable`` or ``failed:vanished``.
        """
        ...


def open_source(config: SourceConfig) -> Source:
    """Picks the source for a path or URL.

    Raises:
        ConfigError: No path is set, or nothing here reads such a URL.
    """
    if not config.path:
        raise ConfigError("no source: name a folder on the command line or set 'source' in the config")
    if config.path.startswith("s3://"):
        from rag_pipeline.source.s3 import S3Source

        return S3Source(config)
    if "://" in config.path:
        from rag_pipeline.source.remote import RemoteSource

        return RemoteSource(config)
    from rag_pipeline.source.local import LocalSource

    return LocalSource(config)
