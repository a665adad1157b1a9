"""A LlamaIndex retriever over an index; needs `pip install llama-index-core`.

retriever = IndexRetriever(Searcher(load_config("config.yaml")), k=4)
nodes = retriever.retrieve("When is the tide gauge calibrated?")
"""

from __future__ import annotations

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from rag_pipeline.search import Filters, Mode, Searcher


class IndexRetriever(BaseRetriever):
    """Hits as LlamaIndex nodes: the passage, and everything a citation needs as metadata."""

    def __init__(self, searcher: Searcher, k: int = 5, mode: Mode = "hybrid", filters: Filters | None = None) -> None:
        self._searcher = searcher
        self._k = k
        self._mode = mode
        self._filters = filters or Filters()
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        hits = self._searcher.query(query_bundle.query_str, k=self._k, mode=self._mode, filters=self._filters)
        return [
            NodeWithScore(
                score=hit.score,
                node=TextNode(
                    id_=hit.chunk_id,
                    text=hit.text,
                    start_char_idx=hit.start_char,
                    end_char_idx=hit.end_char,
                    metadata={
                        "source": hit.location,
                        "page": hit.page,
                        "section": " > ".join(hit.section),
                        "stale": hit.stale,
                    },
                ),
            )
            for hit in hits
        ]
