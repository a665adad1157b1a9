"""The HTTP API and the web page. Knows how answers travel, not how they are found."""

from __future__ import annotations

import functools
import threading
import time
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles

from rag_pipeline.config import Config
from rag_pipeline.embedding.encoder import encode_prompts
from rag_pipeline.embedding.tokenizer import load_tokenizer
from rag_pipeline.errors import ConfigError, RagPipelineError, SourceError
from rag_pipeline.records import Hit, count_states
from rag_pipeline.search import Searcher
from rag_pipeline.search.page_image import draw_page
from rag_pipeline.server.guard import Guard
from rag_pipeline.server.metrics import Metrics
from rag_pipeline.server.models import (
    DocumentAnswer,
    EmbeddingsRequest,
    SearchAnswer,
    SearchRequest,
    StatusAnswer,
)
from rag_pipeline.store.reports import newest_reports

_PAGE = Path(__file__).parent / "page"
_MAX_INPUTS = 256
_DRAWERS = 2  # pages drawn at once; each is a process
_PAGES_KEPT = 64


def create_app(config: Config, token: str | None = None) -> FastAPI:
    """Opens the index, loads the query encoder and the indexes, and builds the application.

    Raises:
        IndexMissingError: There is no index.
        ConfigError: The recipe names another model than the table's.
    """
    searcher = Searcher(config)
    searcher.vector(searcher.table(), "warm up")
    searcher.query("warm up")  # loads the indexes, where there are rows
    app = FastAPI(
        title="rag-pipeline",
        description="Search a folder of documents and cite the place on the page.",
        docs_url=None,  # its page loads scripts from elsewhere; /openapi.json is the document
        redoc_url=None,
    )
    metrics = Metrics(lambda: (searcher.table().count(), searcher.table().version))
    app.middleware("http")(metrics)
    app.middleware("http")(Guard(token))
    app.add_exception_handler(RagPipelineError, _explain)
    _add_search(app, searcher)
    _add_places(app, searcher, config.recipe.parse.pdf.password)
    _add_embeddings(app, searcher)
    app.get("/metrics", include_in_schema=False)(metrics.render)
    app.mount("/page", StaticFiles(directory=_PAGE), name="page")
    app.get("/", include_in_schema=False)(lambda: FileResponse(_PAGE / "index.html"))
    return app


def _add_search(app: FastAPI, searcher: Searcher) -> None:
    @app.get("/api/search")
    def search(request: Annotated[SearchRequest, Query()]) -> SearchAnswer:
        """The chunks that answer a question best, best first, all of one version of the table."""
        started = time.perf_counter()
        table = searcher.table()
        hits = searcher.query(
            request.q,
            k=request.k,
            mode=request.mode,
            filters=request.filters(),
            group=request.group,
            neighbours=request.context,
            table=table,
        )
        took_ms = round((time.perf_counter() - started) * 1000, 1)
        return SearchAnswer(version=table.version, took_ms=took_ms, hits=hits)

    @app.get("/health")
    def health() -> dict[str, str]:
        """Whether the index answers."""
        searcher.table().count()
        return {"status": "ok"}

    @app.get("/api/status")
    def status() -> StatusAnswer:
        """What is indexed, what is not and why, and the report of the last run."""
        table, rows = searcher.table(), searcher.files.rows().values()
        return StatusAnswer(
            version=table.version,
            chunks=table.count(),
            model=str(table.embedding.get("name", "")),
            files=count_states(row.state for row in rows),
            rejects=[
                {"path": row.path, "state": row.state, "reason": row.reason} for row in rows if row.state != "indexed"
            ],
            last_run=next(newest_reports(searcher.layout), {}),
        )


def _add_places(app: FastAPI, searcher: Searcher, password: str | None) -> None:
    drawing = threading.Semaphore(_DRAWERS)

    @functools.lru_cache(maxsize=_PAGES_KEPT)
    def drawn(path: str, page: int, passage: str, content_hash: str) -> bytes:
        with drawing:
            return draw_page(searcher.files.read(path), page, passage, password)

    @app.get("/api/chunk")
    def chunk(id: str, context: Annotated[int, Query(ge=0, le=20)] = 0) -> Hit:
        """One chunk by its id, with its neighbours."""
        return searcher.chunk(id, context)

    @app.get("/api/document")
    def document(path: str) -> DocumentAnswer:
        """One file as the index has it, with its chunks in order."""
        row = searcher.files.rows().get(path)
        if row is None:
            raise HTTPException(404, "the index knows no such file")
        return DocumentAnswer(
            path=row.path,
            location=searcher.files.location(path),
            state=row.state,
            reason=row.reason,
            title=row.title,
            media_type=row.media_type,
            pages=row.pages,
            stale=searcher.files.is_stale(path),
            chunks=searcher.document(path),
        )

    @app.get("/api/page.png", response_class=Response, responses={200: {"content": {"image/png": {}}}})
    def page_image(id: str) -> Response:
        """The PDF page a chunk begins on, its passage marked."""
        hit = searcher.chunk(id)
        row = searcher.files.rows().get(hit.path)
        if row is None or row.media_type != "pdf" or not hit.page:
            raise HTTPException(404, "not a passage of a PDF")
        if hit.stale:
            raise SourceError(f"{hit.path}: it has changed since it was indexed; run `rag-pipeline index`")
        png = drawn(hit.path, hit.page, hit.text, row.content_hash)
        return Response(png, media_type="image/png", headers={"Cache-Control": "private, max-age=60"})


def _add_embeddings(app: FastAPI, searcher: Searcher) -> None:
    @app.post("/v1/embeddings")
    def embeddings(request: EmbeddingsRequest) -> dict[str, Any]:
        """Embeds texts by the index's model, as OpenAI's API does; texts are taken as they are, without a prefix."""
        model, texts = searcher.model, request.texts()
        if request.model not in ("", model.name, model.name.rsplit("/", 1)[-1]):
            raise HTTPException(404, f"only {model.name} is served")
        if not 1 <= len(texts) <= _MAX_INPUTS or not all(texts):
            raise HTTPException(400, f"1 to {_MAX_INPUTS} texts, none of them empty")
        lengths = (len(tokens.ids) for tokens in load_tokenizer(model).encode(texts))
        return request.answer(encode_prompts(model, texts), model.name, sum(min(n, model.max_tokens) for n in lengths))

    @app.get("/v1/models")
    def models() -> dict[str, Any]:
        """The one model there is."""
        return {"object": "list", "data": [{"id": searcher.model.name, "object": "model", "owned_by": "rag-pipeline"}]}


def _explain(_: Request, error: Exception) -> JSONResponse:
    """An expected error in words: 400 where the request is at fault, 404 where a place is gone, else 503."""
    code = 400 if isinstance(error, ConfigError) else 404 if isinstance(error, SourceError) else 503
    return JSONResponse({"error": str(error)}, code)
