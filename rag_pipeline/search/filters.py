"""Filters: which rows may answer, as one SQL condition that is applied before anything is ranked.

Values never become SQL but as quoted literals. Knows nothing of queries or scores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from rag_pipeline.errors import ConfigError
from rag_pipeline.records import ManifestRow
from rag_pipeline.store import doc_filter
from rag_pipeline.store.lance import checked_where


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions that a row must all meet.

    Attributes:
        paths: Patterns as in `source.include`: ``notes/``, ``*.pdf``, ``!drafts/``; one must match, no ``!`` may.
        pages: First and last page, from 1.
        section: Words that the section path (``Chapter > Section``) holds, whatever their case.
        since, until: When the file was last modified: from, and before.
        where: A SQL expression over the table's columns.
    """

    paths: tuple[str, ...] = ()
    pages: tuple[int, int] | None = None
    section: str = ""
    since: datetime | None = None
    until: datetime | None = None
    where: str | None = None

    def narrowed(self, where: str) -> Filters:
        """The same filters and one SQL expression more."""
        checked = checked_where(where)
        return replace(self, where=checked if self.where is None else f"{checked_where(self.where)} AND {checked}")

    @property
    def needs_files(self) -> bool:
        """Whether the manifest must be read to apply them."""
        return bool(self.since or self.until)

    def to_sql(self, files: Mapping[str, ManifestRow]) -> str | None:
        """One SQL condition, or ``None`` where every row may answer.

        Args:
            files: The manifest; read only if `needs_files`.

        Raises:
            ConfigError: A pattern, a page range or the SQL is not one.
        """
        parts = [] if self.where is None else [checked_where(self.where)]
        parts += _path_conditions(self.paths)
        if self.pages:
            first, last = self.pages
            if not 1 <= first <= last < 2**31:
                raise ConfigError(f"pages {first}-{last}: the first page is 1, and the last is not before the first")
            parts.append(f"page BETWEEN {int(first)} AND {int(last)}")
        if self.section.strip():
            wanted = _literal(self.section.strip())
            parts.append(f"strpos(lower(array_to_string(section, ' > ')), lower({wanted})) > 0")
        if self.needs_files:
            parts.append(_date_condition(files.values(), self.since, self.until))
        return " AND ".join(parts) or None


def parse_pages(text: str) -> tuple[int, int]:
    """Reads ``7`` or ``3-9``.

    Raises:
        ConfigError: It is neither.
    """
    found = re.fullmatch(r"\s*(\d{1,9})\s*(?:-\s*(\d{1,9})\s*)?", text)
    if not found:
        raise ConfigError(f"pages {text!r}: write one page, such as 7, or a range, such as 3-9")
    return int(found[1]), int(found[2] or found[1])


def parse_date(text: str) -> datetime:
    """Reads a day or a moment in ISO 8601; without an offset it is this machine's time.

    Raises:
        ConfigError: It is not one.
    """
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        raise ConfigError(f"date {text!r}: write it as 2026-01-31 or 2026-01-31T12:00") from None


def _path_conditions(patterns: Iterable[str]) -> list[str]:
    from pathspec.patterns.gitignore.basic import GitIgnoreBasicPattern

    wanted: list[str] = []
    unwanted: list[str] = []
    for pattern in patterns:
        try:
            regex, include = GitIgnoreBasicPattern.pattern_to_regex(pattern)
        except ValueError as error:
            raise ConfigError(f"path {pattern!r}: not a pattern: {error}") from None
        if regex is None:
            raise ConfigError(f"path {pattern!r}: the pattern is empty")
        (wanted if include else unwanted).append(f"regexp_like(path, {_literal(str(regex))})")
    return [f"({' OR '.join(wanted)})"] * bool(wanted) + [f"NOT {condition}" for condition in unwanted]


def _date_condition(rows: Iterable[ManifestRow], since: datetime | None, until: datetime | None) -> str:
    first = since.timestamp() * 1e9 if since else float("-inf")
    end = until.timestamp() * 1e9 if until else float("inf")
    ids = [row.doc_id for row in rows if row.chunks and first <= row.mtime_ns < end]
    return doc_filter(ids) if ids else "false"


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
