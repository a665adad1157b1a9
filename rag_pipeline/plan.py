"""Plan: a listing against the manifest. What is new, changed, moved, gone, unchanged; what is doubtful stays.

Pure but for the one function it is handed, which hashes a file's bytes where size and time leave a doubt.
Knows nothing of sources, stores or how work is done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rag_pipeline.records import File, Listing, ManifestRow, Plan

# A file written this close to the moment it was indexed may have changed again with the same time stamp.
RACY_NS = 2_000_000_000
MIN_DELETES_IN_DOUBT = 10
# States another attempt may cure; all others wait for the file or the recipe to change.
RETRIED = (
    "failed:unreadable",
    "failed:vanished",
    "failed:engine",
    "failed:timeout",
    "failed:ocr",
    "failed:crash",
    "failed:memory",
    "failed:lost",
)


@dataclass(frozen=True, slots=True)
class PlanRules:
    """What a plan depends on beside listing and manifest.

    Attributes:
        fingerprints: Recipe fingerprint per media type; key ``""`` for files of unknown type.
        allow_deletes: Delete however many files are gone.
        max_deletes: More deletes than this are withheld.
        max_deleted_share: Above this share of known files, and above ten, deletes are withheld.
    """

    fingerprints: Mapping[str, str]
    allow_deletes: bool = False
    max_deleted_share: float = 0.3
    max_deletes: int | None = None


@dataclass(slots=True)
class _Sorted:
    added: list[File] = field(default_factory=list)
    changed: list[File] = field(default_factory=list)
    unchanged: list[File] = field(default_factory=list)
    touched: list[File] = field(default_factory=list)


def make_plan(
    listing: Listing, known: Mapping[str, ManifestRow], rules: PlanRules, hash_file: Callable[[File], str | None]
) -> Plan:
    """Compares what the source holds with what the index holds.

    Args:
        listing: Everything the source holds.
        known: The manifest by path.
        rules: Fingerprints and limits.
        hash_file: Content hash of a file, or ``None`` when it cannot be read; asked only in doubt.
    """
    found = _Sorted()
    for file in listing.files:
        row = known.get(file.path)
        if row is None:
            found.added.append(file)
        else:
            _compare(file, row, rules, hash_file, found)
    listed = {file.path for file in listing.files}
    gone = [path for path in known if path not in listed]
    hidden = [path for path in gone if any(path.startswith(prefix) for prefix in listing.unreadable)]
    gone = sorted(set(gone) - set(hidden))
    added, moved = _find_moves(found.added, gone, known, hash_file)
    sources = {old for old, _ in moved}
    deleted = [path for path in gone if path not in sources]
    doubt = _doubt(listing, known, deleted, hidden, rules)
    withheld = sorted([*hidden, *deleted]) if doubt else []
    return Plan(
        added=tuple(added),
        changed=tuple(found.changed),
        moved=tuple(moved),
        deleted=() if doubt else tuple(deleted),
        withheld=tuple(withheld),
        unchanged=tuple(found.unchanged),
        touched=tuple(found.touched),
        doubt=doubt,
    )


def _compare(
    file: File, row: ManifestRow, rules: PlanRules, hash_file: Callable[[File], str | None], found: _Sorted
) -> None:
    if file.skip:
        (found.unchanged if row.state == file.skip else found.changed).append(file)
    elif row.state.startswith("skipped:") and not row.content_hash:
        found.changed.append(file)  # was not to be read then, is now
    elif (
        row.state in RETRIED
        or row.fingerprint != rules.fingerprints.get(row.media_type)
        or file.size_bytes != row.size_bytes
    ):
        found.changed.append(file)
    elif is_same_file(file, row):
        found.unchanged.append(file)
    elif hash_file(file) == row.content_hash:
        found.unchanged.append(file)
        found.touched.append(file)
    else:
        found.changed.append(file)


def is_same_file(file: File, row: ManifestRow) -> bool:
    """Whether the version's name, else size and time, say beyond doubt that these are the bytes the manifest knows."""
    if file.etag and row.etag:
        return (file.etag, file.size_bytes) == (row.etag, row.size_bytes)
    return (file.size_bytes, file.mtime_ns) == (row.size_bytes, row.mtime_ns) and not _is_racy(file, row)


def _is_racy(file: File, row: ManifestRow) -> bool:
    return file.mtime_ns > row.indexed_at.timestamp() * 1e9 - RACY_NS


def _find_moves(
    added: list[File], gone: list[str], known: Mapping[str, ManifestRow], hash_file: Callable[[File], str | None]
) -> tuple[list[File], list[tuple[str, File]]]:
    """Pairs new files with vanished ones of equal bytes; only files of a vanished file's size are read."""
    by_size: dict[int, list[str]] = defaultdict(list)
    for path in gone:
        if known[path].content_hash:
            by_size[known[path].size_bytes].append(path)
    still_added, moved = [], []
    for file in added:
        candidates = by_size.get(file.size_bytes) if not file.skip else None
        content_hash = hash_file(file) if candidates else None
        match = next((path for path in candidates or () if known[path].content_hash == content_hash), None)
        if match is None or candidates is None:
            still_added.append(file)
        else:
            candidates.remove(match)
            moved.append((match, file))
    return still_added, moved


def _doubt(
    listing: Listing, known: Mapping[str, ManifestRow], deleted: list[str], hidden: list[str], rules: PlanRules
) -> str:
    if rules.max_deletes is not None and len(deleted) > rules.max_deletes:
        return f"{len(deleted)} known files are gone, more than --max-deletes {rules.max_deletes}"
    if rules.allow_deletes:
        return ""
    if hidden:
        return f"{len(hidden)} known files lie in folders that could not be listed, such as {listing.unreadable[0]}"
    if known and not listing.files:
        return f"the source is empty, while the index knows {len(known)} files"
    if len(deleted) > MIN_DELETES_IN_DOUBT and len(deleted) > rules.max_deleted_share * len(known):
        return f"{len(deleted)} of {len(known)} known files are gone at once"
    return ""
