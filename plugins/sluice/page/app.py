"""The page as a FastAPI app that Airflow's API server mounts: JSON and one page that shows it. It is read-only."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import get_user, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response, status
from fastapi.responses import HTMLResponse, JSONResponse

from sluice.errors import SluiceError
from sluice.page.access import ViewerDep, logged_in_or_sent_to_log_in
from sluice.page.service import NotFoundError, Page
from sluice.redact import redact

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
_LARGEST_WINDOW = 500
_log = logging.getLogger(__name__)
_MAY_READ_DAG = Depends(requires_access_dag("GET", DagAccessEntity.RUN))

Next = Callable[[Request], Awaitable[Response]]
Window = Annotated[int, Query(ge=1, le=_LARGEST_WINDOW)]


def make_app() -> FastAPI:
    """The app, with its own caches."""
    app = FastAPI(title="Sluice", docs_url=None, redoc_url=None, openapi_url=None)
    app.middleware("http")(_safe_headers)
    app.exception_handler(NotFoundError)(_not_found)
    app.exception_handler(SluiceError)(_unavailable)
    _add_page(app)
    _add_data(app, Page())
    return app


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


def _add_data(app: FastAPI, page: Page) -> None:
    @app.get("/api/pipelines")
    def pipelines(viewer: ViewerDep, session: SessionDep) -> dict[str, Any]:
        return page.pipelines(viewer, session)

    @app.get("/api/pipeline")
    def pipeline(
        viewer: ViewerDep, session: SessionDep, key: str, before: str | None = None, limit: Window = 60
    ) -> dict[str, Any]:
        return page.pipeline(viewer, session, key, before, limit)

    @app.get("/api/transaction")
    def transaction(viewer: ViewerDep, session: SessionDep, key: str, instant: str) -> dict[str, Any]:
        return page.transaction(viewer, session, key, instant)

    @app.get("/api/messages")
    def messages(viewer: ViewerDep, session: SessionDep, key: str, instant: str) -> dict[str, Any]:
        return page.messages(viewer, session, key, instant)

    @app.get("/api/dag", dependencies=[_MAY_READ_DAG])
    def of_dag(viewer: ViewerDep, session: SessionDep, dag_id: str) -> dict[str, Any]:
        return page.of_dag(viewer, session, dag_id)

    @app.get("/api/run", dependencies=[_MAY_READ_DAG])
    def of_run(viewer: ViewerDep, session: SessionDep, dag_id: str, run_id: str) -> dict[str, Any]:
        return page.of_run(viewer, session, dag_id, run_id)


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


async def _not_found(_: Request, __: Exception) -> JSONResponse:
    return JSONResponse({"detail": "There is no such thing, or you may not read it."}, status.HTTP_404_NOT_FOUND)


async def _unavailable(_: Request, error: Exception) -> JSONResponse:
    return JSONResponse({"detail": redact(str(error))}, status.HTTP_503_SERVICE_UNAVAILABLE)
