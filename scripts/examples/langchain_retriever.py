"""A LangChain retriever over an index; needs `pip install langchain-core`.

retriever = IndexRetriever(searcher=Searcher(load_config("config.yaml")), k=4)
documents = retriever.invoke("When is the tide gauge calibrated?")
"""

from __future__ import annotations

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict

from rag_pipeline.search import Filters, Mode, Searcher


class IndexRetriever(BaseRetriever):
    """Hits as LangChain documents: the passage, and everything a citation needs as metadata."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    searcher: Searcher
    k: int = 5
    mode: Mode = "hybrid"
    filters: Filters = Filters()

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        hits = self.searcher.query(query, k=self.k, mode=self.mode, filters=self.filters)
        return [
            Document(
                id=hit.chunk_id,
                page_content=hit.text,
                metadata={
                    "source": hit.location,
                    "page": hit.page,
                    "section": " > ".join(hit.section),
                    "start_char": hit.start_char,
                    "end_char": hit.end_char,
                    "score": hit.score,
                    "stale": hit.stale,
                },
            )
            for hit in hits
        ]
