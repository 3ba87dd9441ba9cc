"""The versioned read API: all that the page shows, by the routes from which the page itself reads it."""

from __future__ import annotations

from typing import Annotated, Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import APIRouter, Depends, FastAPI, Query, Request, status
from fastapi.responses import JSONResponse

from sluice.errors import SluiceError
from sluice.page import models
from sluice.page.access import ViewerDep
from sluice.page.service import ForbiddenError, NotFoundError, Page
from sluice.redact import redact

_LARGEST_WINDOW = 500
_MAY_READ_DAG = Depends(requires_access_dag("GET", DagAccessEntity.RUN))
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    401: {"model": models.Problem, "description": "No user is logged in."},
    403: {"model": models.Problem, "description": "The caller may read the DAG's runs, and not this."},
    404: {"model": models.Problem, "description": "There is no such thing, or the caller may not read it."},
    503: {"model": models.Problem, "description": "The control topic can't be read now."},
}
router = APIRouter(responses=_PROBLEMS)
Window = Annotated[int, Query(ge=1, le=_LARGEST_WINDOW, description="How many transactions at most.")]
Key = Annotated[str, Query(description="The pipeline's name.")]
Before = Annotated[str | None, Query(description="An instant: only transactions that are older.")]
Instant = Annotated[str, Query(description="The transaction.")]


def make_v1(page: Page) -> FastAPI:
    """The app of version 1.

    Args:
        page: what is known of pipelines.
    """
    app = FastAPI(
        title="Sluice",
        version="1",
        description="Pipelines and their transactions, to be read. Within version 1 fields are added, never removed."
        " Log-in and permissions are Airflow's.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    app.state.page = page
    app.include_router(router)
    app.exception_handler(NotFoundError)(_not_found)
    app.exception_handler(ForbiddenError)(_forbidden)
    app.exception_handler(SluiceError)(_unavailable)
    return app


def _page(request: Request) -> Page:
    found: Page = request.app.state.page
    return found


PageDep = Annotated[Page, Depends(_page)]


@router.get("/pipelines", response_model=models.Pipelines)
def pipelines(page: PageDep, viewer: ViewerDep, session: SessionDep) -> Any:
    """All pipelines."""
    return page.pipelines(viewer, session)


@router.get("/health", response_model=models.Healths)
def health(page: PageDep, viewer: ViewerDep, session: SessionDep) -> Any:
    """The state and the lag of all pipelines."""
    return page.pipelines(viewer, session)


@router.get("/pipeline", response_model=models.WholePipeline)
def pipeline(
    page: PageDep, viewer: ViewerDep, session: SessionDep, key: Key, before: Before = None, limit: Window = 60
) -> Any:
    """One pipeline with a window of its transactions."""
    return page.pipeline(viewer, session, key, before, limit)


@router.get("/transactions", response_model=models.Transactions)
def transactions(
    page: PageDep, viewer: ViewerDep, session: SessionDep, key: Key, before: Before = None, limit: Window = 60
) -> Any:
    """A window of a pipeline's transactions, newest first."""
    return page.pipeline(viewer, session, key, before, limit)


@router.get("/offsets", response_model=models.Offsets)
def offsets(page: PageDep, viewer: ViewerDep, session: SessionDep, key: Key) -> Any:
    """The position and the lag of every partition."""
    return page.positions(viewer, session, key)


@router.get("/transaction", response_model=models.WholeTransaction)
def transaction(page: PageDep, viewer: ViewerDep, session: SessionDep, key: Key, instant: Instant) -> Any:
    """One transaction."""
    return page.transaction(viewer, session, key, instant)


@router.get("/messages", response_model=models.Messages)
def messages(page: PageDep, viewer: ViewerDep, session: SessionDep, key: Key, instant: Instant) -> Any:
    """One transaction's messages as they are in the control topic."""
    return page.messages(viewer, session, key, instant)


@router.get("/workers", response_model=models.Workers)
def workers(page: PageDep, viewer: ViewerDep, session: SessionDep) -> Any:
    """The workers that stay, by their groups."""
    return page.workers(viewer, session)


@router.get("/dag", dependencies=[_MAY_READ_DAG], response_model=models.OfDag)
def of_dag(page: PageDep, viewer: ViewerDep, session: SessionDep, dag_id: str) -> Any:
    """The pipelines of a DAG."""
    return page.of_dag(viewer, session, dag_id)


@router.get("/run", dependencies=[_MAY_READ_DAG], response_model=models.OfRun)
def of_run(page: PageDep, viewer: ViewerDep, session: SessionDep, dag_id: str, run_id: str) -> Any:
    """The transactions of a DAG run."""
    return page.of_run(viewer, session, dag_id, run_id)


async def _not_found(_: Request, __: NotFoundError) -> JSONResponse:
    return JSONResponse({"detail": "There is no such thing, or you may not read it."}, status.HTTP_404_NOT_FOUND)


async def _forbidden(_: Request, __: ForbiddenError) -> JSONResponse:
    return JSONResponse({"detail": "Messages have all that the pipeline file says: ask for the right to read the DAG's"
                         " code."}, status.HTTP_403_FORBIDDEN)  # fmt: skip


async def _unavailable(_: Request, error: SluiceError) -> JSONResponse:
    return JSONResponse({"detail": redact(str(error))}, status.HTTP_503_SERVICE_UNAVAILABLE)
