"""The typed records that travel between stages, and the typed results that doors show.

Nothing but data and what can be derived from it; standard library only. Knows nothing of Ray, Arrow,
engines or stores.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Protocol

BLOCK_SEPARATOR = "\n\n"


def short_hash(*parts: str) -> str:
    """Hashes strings to 32 hex digits (BLAKE2b, 128 bit); parts cannot run into each other."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def doc_id_of(path: str) -> str:
    """Identity of a place below the source: a hash of its path, 32 hex digits, safe inside any filter."""
    return short_hash(path)


@dataclass(frozen=True, slots=True)
class File:
    """One listed object of the source.

    Attributes:
        path: Relative to the source root, ``/`` between parts, non-UTF-8 bytes percent-encoded.
        location: What the source needs to open it: an absolute path (``os.fsdecode``d) or a URL.
        size_bytes: Size at listing time.
        mtime_ns: Modification time at listing time, nanoseconds since the epoch.
        skip: A final state such as ``skipped:hidden`` when the file is not to be read, else ``None``.
        reason: Why it is skipped, in words.
        content_hash: Hash of its bytes, where that is known without reading it.
        recall: Where the log holds its cleaned document, where it does.
        etag: The source's own name for the version that was listed, where it has one.
    """

    path: str
    location: str
    size_bytes: int = 0
    mtime_ns: int = 0
    skip: str | None = None
    reason: str = ""
    content_hash: str = ""
    recall: str = ""
    etag: str = ""

    @property
    def doc_id(self) -> str:
        """Identity of the place, see `doc_id_of`."""
        return doc_id_of(self.path)


@dataclass(frozen=True, slots=True)
class Listing:
    """What a source said it holds.

    Attributes:
        files: Every object found, each exactly once, sorted by path.
        unreadable: Folders that could not be listed, as path prefixes: what lies below is unknown,
            not gone.
    """

    files: tuple[File, ...]
    unreadable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileBytes:
    """One file as read: its bytes and the stamps that belong to exactly these bytes."""

    path: str
    data: bytes
    content_hash: str
    size_bytes: int
    mtime_ns: int
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A run of text that belongs together: a heading, paragraph, list, table or code block.

    Attributes:
        text: The block's text, never blank.
        kind: ``heading``, ``paragraph``, ``list``, ``table`` or ``code``.
        level: Heading depth from 1, otherwise 0.
        page: Page it starts on, counted from 1, or ``None`` where there are no pages.
    """

    text: str
    kind: str = "paragraph"
    level: int = 0
    page: int | None = None


@dataclass(frozen=True)
class Document:
    """One parsed file as a sequence of blocks; its text is the blocks joined by a blank line.

    Attributes:
        path: The file's path relative to the source root.
        media_type: One of `config.MEDIA_TYPES`.
        title: From the document itself (metadata, front matter, first heading), never from its name.
        blocks: In reading order.
        pages: Number of pages, or ``None`` where there are none.
        partial: Why text is known to be missing, or empty.
        replaced_chars: Characters that could not be decoded and were replaced.
        repaired: The file was damaged and its reader mended it.
        ocr_pages: Pages whose text was recognized from their image.
        metadata: What the file says of itself beyond its title (author, date, tags), as words.
    """

    path: str
    media_type: str
    title: str
    blocks: tuple[Block, ...]
    pages: int | None = None
    partial: str = ""
    replaced_chars: int = 0
    repaired: bool = False
    ocr_pages: int = 0
    metadata: dict[str, str] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """The whole text; character spans of chunks count code points of this."""
        return BLOCK_SEPARATOR.join(block.text for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one text: ids, and the code points [start, end) each stands for; arrays of int32."""

    ids: array[int]
    starts: array[int]
    ends: array[int]


class Tokenizer(Protocol):
    """What splitting needs of a model.

    Attributes:
        max_tokens: The longest prompt the model takes, special tokens included.
        head_ids: Special tokens before a prompt.
        tail_ids: Special tokens after it.
        cuts_at_blanks: Ids of a text are the ids of its parts when cut next to a blank, so that a
            chunk's ids are a slice of its document's. True for WordPiece.
        document_prefix: Put before every document prompt.
    """

    max_tokens: int
    head_ids: tuple[int, ...]
    tail_ids: tuple[int, ...]
    cuts_at_blanks: bool
    document_prefix: str

    def encode(self, texts: Sequence[str]) -> list[Tokens]:
        """Tokenizes a batch without special tokens or truncation."""
        ...


@dataclass(frozen=True, slots=True)
class Chunk:
    """An exact slice of a document's cleaned text, with the prompt the model will see.

    Attributes:
        ordinal: Position among the document's chunks, from 0.
        start_char: First code point of the slice in the cleaned text.
        end_char: One past the last; ``document.text[start_char:end_char] == text``.
        text: The slice.
        page: Page the slice starts on, from 1, or ``None``.
        section: Heading titles, outermost first.
        prompt: Exactly what is embedded: prefix, context and text.
        token_ids: The prompt's ids by the model's tokenizer, special tokens included; int32.
    """

    ordinal: int
    start_char: int
    end_char: int
    text: str
    page: int | None
    section: tuple[str, ...]
    prompt: str
    token_ids: array[int]

    @property
    def prompt_hash(self) -> str:
        """Identity of what the model sees, 32 hex digits."""
        return short_hash(self.prompt)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one file: the manifest's row before it is committed.

    Attributes:
        state: ``indexed``, ``partial``, ``no_text``, ``empty``, ``skipped:*`` or ``failed:*``.
        reason: In words; empty when indexed.
        chunks: Chunks that passed the filter.
        rejects: Filter verdicts and how many chunks got each.
        characters: Code points of the cleaned text.
        replaced_chars, repaired, ocr_pages, metadata: As in `Document`.
        etag: As in `File`, of the version that was read.
        seconds: Busy time per stage on this file.
    """

    path: str
    doc_id: str
    state: str
    reason: str = ""
    media_type: str = ""
    title: str = ""
    size_bytes: int = 0
    mtime_ns: int = 0
    content_hash: str = ""
    pages: int | None = None
    chunks: int = 0
    tokens: int = 0
    rejects: dict[str, int] = field(default_factory=dict)
    characters: int = 0
    replaced_chars: int = 0
    repaired: bool = False
    ocr_pages: int = 0
    metadata: dict[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    etag: str = ""
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the pure stages made of one file.

    Attributes:
        chunks: Those worth a vector.
        verdict: What became of the file.
        document: The cleaned document, where it was made anew and may be worth keeping.
    """

    chunks: list[Chunk]
    verdict: Verdict
    document: Document | None = None


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """One known file as the index has it; `status` shows these. Fields as in `Verdict`."""

    path: str
    doc_id: str
    state: str
    reason: str
    media_type: str
    title: str
    size_bytes: int
    mtime_ns: int
    content_hash: str
    pages: int | None
    chunks: int
    tokens: int
    rejects: dict[str, int]
    characters: int
    replaced_chars: int
    repaired: bool
    ocr_pages: int
    metadata: dict[str, str]
    fingerprint: str
    run_id: str
    indexed_at: datetime
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a run may go.

    Attributes:
        allow_deletes: Remove the rows of vanished files however many they are.
        max_deletes: Withhold deletes when more files than this are gone.
        max_embed_tokens: Refuse, before anything is embedded, a run that would embed more tokens.
    """

    allow_deletes: bool = False
    max_deletes: int | None = None
    max_embed_tokens: int | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Work:
    """What a plan would cost.

    Attributes:
        embed: Chunks whose prompt no vector is known for.
        reuse: Chunks whose vector is known, or is that of an equal prompt in the same run.
        tokens: Tokens of the chunks to embed, special tokens included.
        seconds: What embedding would take at the last runs' measured rate, or ``None`` without one.
    """

    embed: int
    reuse: int
    tokens: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do, by kind of change; paths sorted.

    Attributes:
        added: Files the manifest does not know.
        changed: Files whose bytes or recipe changed, or whose last failure may pass on a retry.
        moved: Pairs (old path, new path) of files with equal bytes.
        deleted: Paths known to the manifest and no longer listed.
        withheld: Paths that look deleted but are kept, because the doubt is too large.
        unchanged: Files to leave alone.
        touched: Unchanged files whose modification time moved; only the manifest learns of it.
        doubt: Why deletes are withheld, or empty.
        work: What it would cost, where that was asked for.
    """

    added: tuple[File, ...] = ()
    changed: tuple[File, ...] = ()
    moved: tuple[tuple[str, File], ...] = ()
    deleted: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    unchanged: tuple[File, ...] = ()
    touched: tuple[File, ...] = ()
    doubt: str = ""
    work: Work | None = None

    @property
    def to_process(self) -> tuple[File, ...]:
        """Files that must be read, in path order."""
        moved = [file for _, file in self.moved]
        return tuple(sorted([*self.added, *self.changed, *moved], key=lambda file: file.path))

    @property
    def changes(self) -> dict[str, int]:
        """Counts by kind of change, as reports show them."""
        return {
            "added": len(self.added),
            "changed": len(self.changed),
            "moved": len(self.moved),
            "deleted": len(self.deleted),
            "unchanged": len(self.unchanged),
        }


@dataclass(frozen=True, slots=True)
class Hit:
    """One query result, with everything a citation needs.

    Attributes:
        rank: From 1, best first.
        score: What ranked it, higher is better: cosine similarity (mode ``vector``), BM25 (``text``),
            reciprocal rank fusion (``hybrid``), or the reranking model's score.
        scores: The parts it is made of: ``vector`` and ``text`` with their ranks, ``fusion``, ``rerank``.
        path: Relative to the source.
        location: The whole path or ``s3://`` URL; the path alone where the source is not known.
        start_char, end_char: The span in the document's cleaned text.
        before, after: Text of the neighbouring chunks, where asked for.
        stale: Whether the file has changed or gone since it was indexed; ``None`` where that is not known.
    """

    rank: int
    score: float
    path: str
    page: int | None
    section: tuple[str, ...]
    start_char: int
    end_char: int
    text: str
    chunk_id: str
    doc_id: str = ""
    location: str = ""
    scores: dict[str, float] = field(default_factory=dict)
    before: str = ""
    after: str = ""
    stale: bool | None = None


@dataclass(slots=True)
class Report:
    """What a run did; `runs/<id>.json` and `index --json` are exactly this.

    Attributes:
        changes: Files by kind of change.
        files: State to count, over the whole listing.
        chunks: ``written``, ``embedded``, ``reused`` and ``rejected``.
        tokens: Tokens embedded in this run.
        seconds: Wall time.
        stages: Stage to ``{seconds, rows}``; busy seconds summed over workers, except ``embed``,
            whose seconds are wall time with at least one batch in the engine.
        throughput: ``chunks_per_s`` and ``tokens_per_s`` of the embed stage, ``reuse_rate`` in 0..1,
            ``first_vectors_s`` and ``last_vectors_s`` from the run's begin to the engines' first work and the end
            of their last, ``engine_idle_share`` of the engines' time in between that they had nothing to embed,
            ``model_tflops`` computed while at work, and their ``peak_share`` of the GPUs' bfloat16 peak.
        accelerators: GPUs the engines could use, by type.
        limiting_stage: The stage that the others waited for; empty when nothing was embedded.
        versions: Versions of the tables `chunks` and `files` after the run, for `rollback`.
        rejects: Files not fully indexed: path, state, reason.
        warnings: One sentence each.
    """

    run_id: str
    source: str
    index: str
    started_at: str
    exit_code: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    chunks: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(("written", "embedded", "reused", "rejected"), 0)
    )
    tokens: int = 0
    seconds: float = 0.0
    stages: dict[str, dict[str, float]] = field(default_factory=dict)
    throughput: dict[str, float] = field(default_factory=dict)
    accelerators: dict[str, int] = field(default_factory=dict)
    limiting_stage: str = ""
    recipe: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    rejects: list[dict[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add_stage(self, name: str, seconds: float, rows: int) -> None:
        """Adds busy time and rows to a stage."""
        stage = self.stages.setdefault(name, {"seconds": 0.0, "rows": 0})
        stage["seconds"] += seconds
        stage["rows"] += rows


def is_failure(state: str) -> bool:
    """Says whether a state keeps a run from ending with "all well"."""
    return state == "partial" or state.startswith("failed:")


def count_states(states: Iterable[str]) -> dict[str, int]:
    """Counts states, sorted by name."""
    return dict(sorted(Counter(states).items()))
