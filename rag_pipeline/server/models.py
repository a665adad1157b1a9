"""The forms of requests and answers, as OpenAPI documents them. Knows nothing of who fills them in."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rag_pipeline.records import Hit
from rag_pipeline.search import Filters, Mode
from rag_pipeline.search.filters import parse_date, parse_pages
from rag_pipeline.search.searcher import MAX_NEIGHBOURS, MAX_QUESTION_CHARS


class SearchRequest(BaseModel):
    """A question and which rows may answer it."""

    model_config = ConfigDict(extra="forbid")

    q: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION_CHARS, description="The question.")]
    k: Annotated[int, Field(ge=1, le=1000, description="How many hits.")] = 10
    mode: Annotated[Mode, Field(description="By meaning, by words, or both.")] = "hybrid"
    path: Annotated[tuple[str, ...], Field(description="Patterns such as `notes/` or `*.pdf`; `!x` leaves out.")] = ()
    page: Annotated[str, Field(description="A page or a range, such as 3-9.")] = ""
    section: Annotated[str, Field(description="Words of the headings above.")] = ""
    since: Annotated[str, Field(description="Files modified from then on, ISO 8601.")] = ""
    until: Annotated[str, Field(description="Files modified before then.")] = ""
    where: Annotated[str, Field(description="A SQL expression over the table's columns.")] = ""
    group: Annotated[bool, Field(description="At most one hit a document.")] = False
    context: Annotated[int, Field(ge=0, le=MAX_NEIGHBOURS, description="Chunks before and after.")] = 0

    def filters(self) -> Filters:
        """What they come to; see `search.filters`.

        Raises:
            ConfigError: A value is not of its form.
        """
        return Filters(
            paths=self.path,
            pages=parse_pages(self.page) if self.page else None,
            section=self.section,
            since=parse_date(self.since) if self.since else None,
            until=parse_date(self.until) if self.until else None,
            where=self.where or None,
        )


class SearchAnswer(BaseModel):
    """Hits, all of one version of the table."""

    version: int
    took_ms: float
    hits: list[Hit]


class DocumentAnswer(BaseModel):
    """One file as the index has it, and its chunks in order."""

    path: str
    location: str
    state: str
    reason: str
    title: str
    media_type: str
    pages: int | None
    stale: bool | None
    chunks: list[Hit]


class StatusAnswer(BaseModel):
    """What is indexed, and what is not and why."""

    version: int
    chunks: int
    model: str
    files: dict[str, int]
    rejects: list[dict[str, str]]
    last_run: dict[str, Any]


class EmbeddingsRequest(BaseModel):
    """As OpenAI's API has it; `input` is text only, `dimensions` cannot be chosen."""

    input: Annotated[str | list[str], Field(description="One text or up to 256.")]
    model: str = ""
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = None

    def texts(self) -> list[str]:
        """The inputs as a list."""
        return [self.input] if isinstance(self.input, str) else self.input

    def answer(self, vectors: np.ndarray, model: str, tokens: int) -> dict[str, Any]:
        """Vectors, float32 [texts, dimension], in the form asked for."""
        encode: Callable[[np.ndarray], Any] = _to_base64 if self.encoding_format == "base64" else _to_list
        data = [
            {"object": "embedding", "index": index, "embedding": encode(vector)} for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": model, "usage": usage}


def _to_list(vector: np.ndarray) -> list[float]:
    return [float(value) for value in vector]


def _to_base64(vector: np.ndarray) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()
