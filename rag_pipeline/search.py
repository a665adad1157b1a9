"""Search: from a question to hits that cite. Knows nothing of how the table came to be."""

from __future__ import annotations

from typing import Any

from rag_pipeline.config import Config
from rag_pipeline.embedding.encoder import encode_query
from rag_pipeline.embedding.model import load_model
from rag_pipeline.errors import ConfigError
from rag_pipeline.records import Hit
from rag_pipeline.store import Layout
from rag_pipeline.store.lance import ChunkTable, check_where

_COLUMNS = ["path", "page", "section", "start_char", "end_char", "text", "chunk_id"]


def query(config: Config, text: str, *, k: int = 5, where: str | None = None) -> list[Hit]:
    """The k chunks nearest to a question, best first; fewer when the table has fewer.

    Args:
        config: Names the index and the recipe whose model must be the table's.
        text: The question, not blank.
        k: How many hits, at least 1.
        where: A SQL filter over the table's columns, applied before ranking.

    Raises:
        ConfigError: Blank question, k below 1, a bad filter, or another model than the table's.
        IndexMissingError: There is no index.
    """
    if not text.strip():
        raise ConfigError("query: the question is blank")
    if k < 1:
        raise ConfigError(f"query: -k must be at least 1, not {k}")
    if where is not None:
        check_where(where)
    layout = Layout.at(config.output.path)
    table = ChunkTable.open(layout)
    recorded = table.embedding
    model = load_model(config.recipe.embedding)
    if recorded.get("revision") != model.revision or recorded.get("dimension") != model.dimension:
        raise ConfigError(
            f"index {layout.root}: made with model {recorded.get('name')}, the query would use {model.name};"
            " pass -c with the config the index was made with"
        )
    rows = table.nearest(encode_query(model, text), k, where, _COLUMNS).to_pylist()
    return [_hit(rank, row) for rank, row in enumerate(rows, start=1)]


def _hit(rank: int, row: dict[str, Any]) -> Hit:
    score = 1.0 - row.pop("_distance")
    return Hit(rank=rank, score=round(score, 6), **{**row, "section": tuple(row["section"] or ())})
