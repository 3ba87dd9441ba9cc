"""The app that Airflow's API server mounts: the page, the JSON that it shows, and Kafka Connect's API."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException, Request, Response, status
from fastapi.responses import HTMLResponse
from starlette.types import Receive, Scope, Send

from sluice.page.access import logged_in_or_sent_to_log_in
from sluice.page.rest.app import make_connect_app
from sluice.page.rest.verbs import remember_airflow
from sluice.page.service import Page
from sluice.page.v1 import make_v1

PREFIX = "/sluice"
_FOLDER = Path(__file__).with_name("static")
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

Next = Callable[[Request], Awaitable[Response]]


def make_app() -> FastAPI:
    """The app, with its own caches."""
    app = _Mounted(title="Sluice", docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_safe_headers)
    _add_page(app)
    page = Page()
    app.mount("/api/v1", make_v1(page))
    app.mount("/connect", make_connect_app(page))
    return app


class _Mounted(FastAPI):
    """An app that knows the one that it is mounted in."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        remember_airflow(scope)
        await super().__call__(scope, receive, send)


def _add_page(app: FastAPI) -> None:
    @app.get("/", dependencies=[Depends(logged_in_or_sent_to_log_in)])
    def page() -> HTMLResponse:
        html = (_FOLDER / "index.html").read_text().replace("{version}", _version())
        return HTMLResponse(html, headers={"Cache-Control": "no-cache"})

    @app.get("/static/{version}/{name}", dependencies=[Depends(get_user)])
    def static(version: str, name: str) -> Response:
        """A file of the page. Its address changes with its content, so a browser never fetches it twice."""
        if name not in _files():
            raise HTTPException(status.HTTP_404_NOT_FOUND)
        lasting = "private, max-age=31536000, immutable" if version == _version() else "no-cache"
        return Response(_files()[name], media_type=_TYPES[Path(name).suffix], headers={"Cache-Control": lasting})


@cache
def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.suffix in _TYPES}


@cache
def _version() -> str:
    return hashlib.sha256(b"".join(content for _, content in sorted(_files().items()))).hexdigest()[:12]


async def _safe_headers(request: Request, call_next: Next) -> Response:
    response = await call_next(request)
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response
