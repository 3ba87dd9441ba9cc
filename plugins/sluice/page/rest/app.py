"""Kafka Connect's REST API: a separate app below the page's, with errors in Connect's shape."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from sluice.errors import ActionRequiredError, SluiceError
from sluice.page.rest import answers, changes, reads, writes
from sluice.page.rest.found import ConnectorNotFoundError
from sluice.page.rest.verbs import RefusedByAirflowError
from sluice.page.service import Page
from sluice.redact import redact


def make_connect_app(page: Page) -> FastAPI:
    """The app.

    Args:
        page: what is known of pipelines, shared with the page.
    """
    app = FastAPI(title="Sluice as Kafka Connect", docs_url=None, redoc_url=None, openapi_url=None)
    app.state.page = page
    app.include_router(reads.router)
    app.include_router(changes.router)
    app.include_router(writes.router)
    app.exception_handler(HTTPException)(_http)
    app.exception_handler(RequestValidationError)(_wrong_value)
    app.exception_handler(ConnectorNotFoundError)(_not_found)
    app.exception_handler(RefusedByAirflowError)(_refused)
    app.exception_handler(SluiceError)(_failed)
    return app


async def _http(_: Request, error: HTTPException) -> JSONResponse:
    return _error(error.status_code, str(error.detail), error.headers)


async def _wrong_value(_: Request, error: RequestValidationError) -> JSONResponse:
    where = ", ".join(".".join(map(str, one["loc"][1:])) for one in error.errors())
    return _error(status.HTTP_400_BAD_REQUEST, f"A value can't be read: {where}.")


async def _not_found(_: Request, error: ConnectorNotFoundError) -> JSONResponse:
    return _error(status.HTTP_404_NOT_FOUND, f"Connector {error} not found")


async def _refused(_: Request, error: RefusedByAirflowError) -> JSONResponse:
    return _error(error.status, error.why)


async def _failed(_: Request, error: SluiceError) -> JSONResponse:
    wrong = isinstance(error, ActionRequiredError)
    return _error(status.HTTP_400_BAD_REQUEST if wrong else status.HTTP_503_SERVICE_UNAVAILABLE, str(error))


def _error(code: int, message: str, headers: Any = None) -> JSONResponse:
    return JSONResponse(answers.error(code, redact(message)), code, headers=headers)
