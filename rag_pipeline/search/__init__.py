"""Search: from a question to hits that cite the place on the page. Knows nothing of how the table came to be.

`Searcher` answers questions (`filters`: which rows; `ranking`: in which order; `rerank`: read again by a
cross-encoder), `files` knows the documents behind the rows, `page_image` draws a cited page.
"""

from __future__ import annotations

from rag_pipeline.config import Config
from rag_pipeline.records import Hit
from rag_pipeline.search.filters import Filters
from rag_pipeline.search.searcher import MODES, Mode, Searcher

__all__ = ["MODES", "Filters", "Mode", "Searcher", "query"]


def query(
    config: Config,
    text: str,
    *,
    k: int = 5,
    where: str | None = None,
    mode: Mode = "hybrid",
    filters: Filters | None = None,
    group: bool = False,
    neighbours: int = 0,
    rerank: str | None = None,
) -> list[Hit]:
    """The k chunks that answer a question best, best first; see `Searcher.query`, to which `where` adds SQL."""
    chosen = filters or Filters()
    if where is not None:
        chosen = chosen.narrowed(where)
    searcher = Searcher(config)
    return searcher.query(text, k=k, mode=mode, filters=chosen, group=group, neighbours=neighbours, rerank=rerank)
