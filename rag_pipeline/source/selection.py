"""Which listed objects are read: hidden names, include and exclude patterns, the size cap.

Every object that is not read still gets a state and a reason, so that states add up to the listing.
Knows nothing of where the listing came from.
"""

from __future__ import annotations

import functools
from typing import Any

import pathspec

from rag_pipeline.config import SourceConfig


@functools.lru_cache(maxsize=16)
def _patterns(lines: tuple[str, ...]) -> pathspec.PathSpec[Any]:
    return pathspec.PathSpec.from_lines("gitignore", lines)


def skip_verdict(config: SourceConfig, path: str, size_bytes: int) -> tuple[str, str] | None:
    """Says why an object is not read, as (state, reason), or ``None`` when it is."""
    if any(part.startswith(".") for part in path.split("/")):
        return "skipped:hidden", "the name starts with a dot"
    if config.exclude and _patterns(config.exclude).match_file(path):
        return "skipped:excluded", "matches a pattern of source.exclude"
    if config.include and not path.endswith("/") and not _patterns(config.include).match_file(path):
        return "skipped:excluded", "matches no pattern of source.include"
    if size_bytes > config.max_file_mb * 1e6:
        return "skipped:too_large", f"{size_bytes} bytes, more than source.max_file_mb ({config.max_file_mb:g} MB)"
    return None
