"""Who may ask, and what a browser may do with the answer. Knows nothing of what is asked.

Without a token only this machine is served, and only under its own names, so that no web page can reach the
server through a name of its own. With a token every request but the health check must carry it.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from rag_pipeline.errors import ConfigError

COOKIE = "rag_pipeline_token"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_MAX_BODY_BYTES = 4_000_000


def is_loopback(host: str) -> bool:
    """Whether an address or name is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_binding(host: str, token: str | None) -> None:
    """Refuses to serve other machines without a token.

    Raises:
        ConfigError: The host is not loopback and there is no token, or the token is too short to guard anything.
    """
    if token is None and not is_loopback(host):
        raise ConfigError(f"serve --host {host}: others could read the index; set RAG_PIPELINE_TOKEN to a secret first")
    if token is not None and len(token) < 16:
        raise ConfigError("serve: RAG_PIPELINE_TOKEN has fewer than 16 characters; choose a longer secret")


class Guard:
    """A middleware: checks every request, and puts the security headers on every answer."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    async def __call__(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        """Answers itself what may not pass."""
        response = self._refusal(request) or await call_next(request)
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    def _refusal(self, request: Request) -> Response | None:
        length = request.headers.get("content-length", "0")
        if request.method == "POST" and (not length.isdigit() or int(length) > _MAX_BODY_BYTES):
            return JSONResponse({"error": f"a body of at most {_MAX_BODY_BYTES} bytes, its length named"}, 413)
        if "transfer-encoding" in request.headers:
            return JSONResponse({"error": "a body needs its length named"}, 411)
        if self._token is None:
            if is_loopback(request.url.hostname or ""):
                return None
            return JSONResponse({"error": "ask under localhost or 127.0.0.1"}, 421)
        if request.url.path == "/health":
            return None
        offered = request.query_params.get("token")
        if request.url.path == "/" and offered and self._is_token(offered):  # the page's own way in
            entered = RedirectResponse("/", 303)
            entered.set_cookie(COOKIE, offered, httponly=True, samesite="strict", secure=request.url.scheme == "https")
            return entered
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_token(bearer) or self._is_token(request.cookies.get(COOKIE, "")):
            return None
        message = "send the token as `Authorization: Bearer ...`, or open /?token=... in a browser"
        return JSONResponse({"error": message}, 401, {"WWW-Authenticate": "Bearer"})

    def _is_token(self, offered: str) -> bool:
        return hmac.compare_digest(offered.encode(), (self._token or "").encode())
