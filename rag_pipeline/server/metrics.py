"""What Prometheus may know: requests, their time, the size of the table. Knows no question and no answer."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.requests import Request
from starlette.responses import Response

_BUCKETS_S = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 20.0)


class Metrics:
    """A middleware that counts, and the page Prometheus reads."""

    def __init__(self, size: Callable[[], tuple[int, int]]) -> None:
        """`size` tells the table's chunks and version when asked."""
        self._size = size
        self._registry = CollectorRegistry()
        labels = ("route", "status")
        self._requests = Counter("rag_pipeline_requests", "Requests answered", labels, registry=self._registry)
        self._seconds = Histogram(
            "rag_pipeline_request_seconds",
            "Time from request to answer",
            ("route",),
            registry=self._registry,
            buckets=_BUCKETS_S,
        )
        self._chunks = Gauge("rag_pipeline_table_chunks", "Rows of the table", registry=self._registry)
        self._version = Gauge("rag_pipeline_table_version", "Version of the table", registry=self._registry)

    async def __call__(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        """Counts a request under its route, never under its path, which anyone may choose."""
        started = time.perf_counter()
        status = 500
        try:
            response = await call_next(request)
            status = response.status_code
            return response
        finally:
            route = getattr(request.scope.get("route"), "path", "other")
            self._requests.labels(route, str(status)).inc()
            self._seconds.labels(route).observe(time.perf_counter() - started)

    def render(self) -> Response:
        """The numbers as Prometheus reads them."""
        chunks, version = self._size()
        self._chunks.set(chunks)
        self._version.set(version)
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)
