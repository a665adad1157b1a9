"""One index, ready to answer: the table as it is now, the model's encoder, the files behind the rows.

Every answer comes from one version of the table, whatever a run writes meanwhile. Knows nothing of
terminals or HTTP.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from rag_pipeline.config import Config
from rag_pipeline.embedding.encoder import encode_query
from rag_pipeline.embedding.model import Model, load_model
from rag_pipeline.errors import ConfigError, EmbeddingError
from rag_pipeline.records import Hit, doc_id_of
from rag_pipeline.search.files import Files, NewestVersion
from rag_pipeline.search.filters import Filters
from rag_pipeline.search.ranking import Candidate, first_of_each_document, fuse
from rag_pipeline.store import Layout, doc_filter
from rag_pipeline.store.lance import TABLE, ChunkTable

Mode = Literal["vector", "text", "hybrid"]
MODES: tuple[Mode, ...] = get_args(Mode)
MAX_QUESTION_CHARS = 10_000
MAX_NEIGHBOURS = 20
_DEPTH = 50  # candidates of each mode before fusion
_RERANK_DEPTH = 50
_CITED = ["path", "page", "section", "start_char", "text", "chunk_id"]  # the rest of a hit follows from these
_IN_ORDER = [*_CITED, "ordinal"]
_NO_FILTERS = Filters()
_CHUNK_ID = re.compile(r"[0-9a-f]{32}")


class Searcher:
    """Answers questions from one index; safe to share among threads, follows the table as it grows.

    Raises:
        IndexMissingError: There is no index.
    """

    def __init__(self, config: Config) -> None:
        self.layout = Layout.at(config.output.path)
        self.files = Files(self.layout, config.source)
        self._config = config
        self._lock = threading.Lock()
        self._newest = NewestVersion(self.layout, TABLE)
        self._stamp: tuple[str, str] | None = None
        self._open: ChunkTable | None = None
        self._beside = ThreadPoolExecutor(max_workers=4, thread_name_prefix="text-search")
        self.table()

    def table(self) -> ChunkTable:
        """The newest version; a handle stays at its version, so hold one for as long as an answer takes."""
        stamp = self._newest()
        with self._lock:
            if self._open is None or stamp != self._stamp:
                self._open, self._stamp = ChunkTable.open(self.layout), stamp
            return self._open

    @functools.cached_property
    def model(self) -> Model:
        """The recipe's model.

        Raises:
            ConfigError: It is unknown.
        """
        return load_model(self._config.recipe.embedding)

    def query(
        self,
        text: str,
        *,
        k: int = 5,
        mode: Mode = "hybrid",
        filters: Filters = _NO_FILTERS,
        group: bool = False,
        neighbours: int = 0,
        rerank: str | None = None,
        table: ChunkTable | None = None,
    ) -> list[Hit]:
        """The k chunks that answer a question best, best first; fewer when fewer pass the filters.

        Args:
            text: The question, not blank, at most `MAX_QUESTION_CHARS`; the model reads as much as fits it.
            k: How many hits, at least 1.
            mode: ``vector`` by meaning, ``text`` by words (BM25), ``hybrid`` both, fused by rank.
            filters: Which rows may answer; applied before ranking.
            group: At most one hit a document, its best.
            neighbours: Chunks before and after to give as context.
            rerank: A cross-encoder, by name or folder, that orders the best candidates anew.
            table: The version that answers, from `table`; default: the newest.

        Raises:
            ConfigError: A bad argument or filter, or another model than the table's.
            EmbeddingError: The model cannot be loaded.
        """
        _check_question(text, k, mode, neighbours)
        table = table or self.table()
        where = filters.to_sql(self.files.rows() if filters.needs_files else {})
        rows = table.rows
        k = min(k, rows)
        if not rows:
            return []
        wanted = max(k, _RERANK_DEPTH) if rerank else k
        depth = min(max(_DEPTH, 2 * wanted), rows) if mode == "hybrid" or group else wanted
        complete = depth == wanted  # every candidate will be cited: read at once what hits cite
        cited = _IN_ORDER if neighbours else _CITED
        columns = cited if complete else ["path"] if group else []
        while True:
            candidates = fuse(lists := self._lists(table, text, mode, depth, where, columns))
            candidates = first_of_each_document(candidates) if group else candidates
            if len(candidates) >= wanted or depth >= rows or all(len(found) < depth for found in lists.values()):
                break
            depth = min(4 * depth, rows)
        candidates = candidates[:wanted]
        if not complete:
            _complete(table, candidates, cited)
        if rerank:
            from rag_pipeline.search.rerank import reorder

            candidates = reorder(rerank, text, candidates)
        return self._hits(table, candidates[:k], neighbours)

    def chunk(self, chunk_id: str, neighbours: int = 0) -> Hit:
        """One chunk as an unranked hit.

        Raises:
            ConfigError: The table has no such chunk.
        """
        table = self.table()
        where = f"chunk_id = '{chunk_id}'"
        rows = table.select(where, _IN_ORDER, 1).to_pylist() if _CHUNK_ID.fullmatch(chunk_id) else []
        if not rows:
            raise ConfigError(f"chunk {chunk_id[:40]!r}: not in the index; `query --json` prints the ids of chunks")
        return replace(self._hits(table, [Candidate(rows[0])], neighbours)[0], rank=0)

    def document(self, path: str) -> list[Hit]:
        """A file's chunks in their order, unranked; none where the table has no rows of it."""
        row = self.files.rows().get(path)
        if row is None or not row.chunks:
            return []
        table = self.table()
        rows = table.select(doc_filter([row.doc_id]), _IN_ORDER, table.count()).to_pylist()
        in_order = sorted(rows, key=lambda found: found["ordinal"])
        return [replace(hit, rank=0) for hit in self._hits(table, [Candidate(found) for found in in_order], 0)]

    def vector(self, table: ChunkTable, text: str) -> np.ndarray:
        """A question's embedding by the table's model; float32 [dimension].

        Raises:
            ConfigError: The recipe names another model than the table's.
            EmbeddingError: The model cannot be loaded, or yields no number.
        """
        recorded = table.embedding
        if recorded.get("revision") != self.model.revision or recorded.get("dimension") != self.model.dimension:
            raise ConfigError(
                f"index {self.layout.root}: made with model {recorded.get('name')}, the query would use"
                f" {self.model.name}; pass -c with the config the index was made with"
            )
        vector = encode_query(self.model, text)
        if not np.isfinite(vector).all():
            raise EmbeddingError(f"model {self.model.name}: the question's vector holds NaN; use another model")
        return vector

    def _lists(
        self, table: ChunkTable, text: str, mode: Mode, depth: int, where: str | None, columns: list[str]
    ) -> dict[str, list[dict[str, Any]]]:
        """Each mode's candidates, best first; words are looked up while the model reads."""

        def by_words() -> list[dict[str, Any]]:
            return _scored(table.matching(text, depth, where, columns).to_pylist(), "_score")

        if mode == "text":
            return {"text": by_words()}
        beside = self._beside.submit(by_words) if mode == "hybrid" else None
        vector = self.vector(table, text)
        lists = {"vector": _scored(table.nearest(vector, depth, where, columns).to_pylist(), "_distance")}
        if beside:
            lists["text"] = beside.result()
        return lists

    def _hits(self, table: ChunkTable, candidates: Sequence[Candidate], neighbours: int) -> list[Hit]:
        files = self.files.rows()
        paths = {found.row["path"] for found in candidates}
        stale = {path: self.files.is_stale(path, files) for path in paths}
        hits = [
            Hit(
                rank=rank,
                score=round(found.score, 6),
                scores={name: round(value, 6) for name, value in found.scores.items()},
                location=self.files.location(found.row["path"]),
                stale=stale[found.row["path"]],
                doc_id=doc_id_of(found.row["path"]),
                end_char=found.row["start_char"] + len(found.row["text"]),
                **{name: found.row[name] for name in _CITED if name != "section"},
                section=tuple(found.row["section"] or ()),
            )
            for rank, found in enumerate(candidates, start=1)
        ]
        if not neighbours:
            return hits
        ordinals = [found.row["ordinal"] for found in candidates]
        return [_with_context(table, hit, at, neighbours) for hit, at in zip(hits, ordinals, strict=True)]


def _check_question(text: str, k: int, mode: str, neighbours: int) -> None:
    if not text.strip():
        raise ConfigError("query: the question is blank")
    if len(text) > MAX_QUESTION_CHARS:
        raise ConfigError(f"query: a question of {len(text)} characters; at most {MAX_QUESTION_CHARS} are read")
    if k < 1:
        raise ConfigError(f"query: -k must be at least 1, not {k}")
    if mode not in MODES:
        raise ConfigError(f"query: mode {mode!r}: choose {', '.join(MODES)}")
    if not 0 <= neighbours <= MAX_NEIGHBOURS:
        raise ConfigError(f"query: neighbours must be 0 to {MAX_NEIGHBOURS}, not {neighbours}")


def _scored(rows: list[dict[str, Any]], column: str) -> list[dict[str, Any]]:
    """Rows with their own score as ``score``, higher is better; equal ones in a fixed order."""
    for row in rows:
        value = row.pop(column)
        row["score"] = float("nan") if value is None else 1.0 - value if column == "_distance" else value
    return sorted(rows, key=lambda row: (-row["score"], row["_rowid"]))


def _complete(table: ChunkTable, candidates: Sequence[Candidate], columns: list[str]) -> None:
    """Reads what hits cite, for the rows that made it only: of 100 candidates it costs more than finding them."""
    if candidates:
        taken = table.take([found.row["_rowid"] for found in candidates], columns).to_pylist()
        rows = {row["_rowid"]: row for row in taken}
        for found in candidates:
            found.row = rows[found.row["_rowid"]]


def _with_context(table: ChunkTable, hit: Hit, ordinal: int, neighbours: int) -> Hit:
    """A hit with its neighbours' text; what they share with it by overlap is given once."""
    where = f"{doc_filter([hit.doc_id])} AND ordinal BETWEEN {ordinal - neighbours} AND {ordinal + neighbours}"
    rows = table.select(where, ["ordinal", "text", "start_char"], 2 * neighbours + 1).to_pylist()
    before, after, start, end = [], [], hit.start_char, hit.end_char
    for row in sorted((row for row in rows if row["ordinal"] < ordinal), key=lambda row: -row["ordinal"]):
        before.append(row["text"][: max(0, start - row["start_char"])])
        start = min(start, row["start_char"])
    for row in sorted((row for row in rows if row["ordinal"] > ordinal), key=lambda row: row["ordinal"]):
        after.append(row["text"][max(0, end - row["start_char"]) :])
        end = max(end, row["start_char"] + len(row["text"]))
    return replace(hit, before="\n\n".join(reversed(before)), after="\n\n".join(after))
