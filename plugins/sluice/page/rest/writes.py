"""Connect's verbs that make, change and delete connectors, where the API server has a folder for their files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NamedTuple, get_args

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import get_user
from fastapi import APIRouter, Depends, HTTPException, Request, Response, status
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from sluice.connect import text_of
from sluice.errors import ActionRequiredError
from sluice.page.access import Viewer, ViewerDep
from sluice.page.catalogue import default_folder
from sluice.page.rest import answers
from sluice.page.rest.answers import Json
from sluice.page.rest.facts import facts_of
from sluice.page.rest.files import ConnectorFiles, InitialState, Written
from sluice.page.rest.found import AirflowDep, ConnectorNotFoundError, PageDep, body_of
from sluice.page.rest.sent import Sent, sent, shown
from sluice.page.rest.validate import VALIDATING
from sluice.page.rest.verbs import AirflowApi, RefusedByAirflowError
from sluice.page.runs import dags, mark_gone
from sluice.page.service import Page
from sluice.pipeline.load import pipeline_folders
from sluice.pipeline.model import Pipeline

FOLDER_VARIABLE = "SLUICE_CONNECT_FOLDER"
router = APIRouter(dependencies=[Depends(get_user)])
_HOW_ELSE = "A pipeline is a file in git, in the folder that Airflow reads: {}"
_SWITCH_ON = f" Or name a folder for the files that this API writes in {FOLDER_VARIABLE} (docs/connect-rest.md)."
_REFUSALS = {
    "POST": "add one there. `sluice import-connect` makes it of a connector's configuration.",
    "PUT": "change it there. What becomes of Connect's keys `config/validate` says.",
    "PATCH": "change it there.",
    "DELETE": "take it out there. The table, its offsets and the control topic stay.",
}


class Switched(NamedTuple):
    """What a change is made with.

    Attributes:
        files: the folder.
        page: what is known of pipelines.
        viewer: who asks, and may edit all DAGs.
        session: Airflow's database.
        root: the address of Connect's API.
    """

    files: ConnectorFiles
    page: Page
    viewer: Viewer
    session: Session
    root: str


def files_of_environment() -> ConnectorFiles | None:
    """The folder that the environment names; None if it names none."""
    folder = os.environ.get(FOLDER_VARIABLE)
    return ConnectorFiles(Path(folder)) if folder else None


def config_of(name: str) -> dict[str, str] | None:
    """A connector's configuration as it was sent; None if its file is a person's, or can't be read."""
    files = files_of_environment()
    try:
        written = files.read(name) if files is not None else None
    except OSError:
        return None
    return shown(written.config) if written is not None else None


def _switched_on(request: Request, page: PageDep, viewer: ViewerDep, session: SessionDep, _: AirflowDep) -> Switched:
    files = files_of_environment()
    if files is None:
        raise HTTPException(
            status.HTTP_405_METHOD_NOT_ALLOWED,
            _HOW_ELSE.format(_REFUSALS[request.method]) + _SWITCH_ON,
            headers={"Allow": "GET"},
        )
    if not viewer.may_edit_dags():
        raise HTTPException(
            status.HTTP_403_FORBIDDEN, "Making, changing and deleting connectors takes the right to edit all DAGs."
        )
    known = [one.resolve() for one in pipeline_folders(default_folder())]
    if not files.folder.is_dir() or files.folder.resolve() not in known:
        raise HTTPException(
            status.HTTP_500_INTERNAL_SERVER_ERROR,
            f"{FOLDER_VARIABLE} names {files.folder}, which is no folder of pipeline files. Next step: name "
            "`pipelines` below the DAGs folder, or a folder that SLUICE_PIPELINE_FOLDERS names, too, in the API "
            "server's environment.",
        )
    return Switched(files, page, viewer, session, str(request.scope.get("root_path", "")))


SwitchedDep = Annotated[Switched, Depends(_switched_on)]


async def _given(request: Request, _: SwitchedDep) -> Json:
    return await body_of(request)


GivenDep = Annotated[Json, Depends(_given)]


@router.post("/connectors")
def create(on: SwitchedDep, given: GivenDep) -> Response:
    """Make a connector: `{"name", "config"}`, and `initial_state` as KIP-980 has it."""
    name, config = given.get("name"), given.get("config")
    if not isinstance(name, str) or not isinstance(config, dict):
        raise ActionRequiredError(
            "The body names no connector, or has no configuration.",
            next_step='send {"name": …, "config": {…}}.',
        )
    state = given.get("initial_state", "RUNNING")
    if state not in get_args(InitialState):
        raise ActionRequiredError(
            "There is no such initial_state.", next_step=f"send one of {', '.join(get_args(InitialState))}."
        )
    if "initial_state" in given:
        _require_first_state(on, name, state)
    with VALIDATING.place(), _folder_errors():
        return _made(on, name, sent(name, config), state)


@router.put("/connectors/{dag_id}/config")
def put(on: SwitchedDep, given: GivenDep, dag_id: str) -> Response:
    """Change a connector's configuration, or make the connector."""
    with VALIDATING.place(), _folder_errors():
        made = sent(dag_id, given)
        with on.files.alone():
            before = on.files.read(dag_id)
            if before is None:
                return _made(on, dag_id, made, "RUNNING")
            return _changed(on, dag_id, made, before)


@router.patch("/connectors/{dag_id}/config")
def patch(on: SwitchedDep, given: GivenDep, dag_id: str) -> Response:
    """Change some keys of a connector's configuration; null takes a key out (KIP-477)."""
    with VALIDATING.place(), _folder_errors(), on.files.alone():
        before = _written(on, dag_id)
        config = {key: value for key, value in {**before.config, **given}.items() if value is not None}
        return _changed(on, dag_id, sent(dag_id, config), before)


@router.delete("/connectors/{dag_id}")
async def delete(on: SwitchedDep, airflow: AirflowDep, dag_id: str) -> Response:
    """Take a connector's file away, and end its run that is under way. Table, offsets and control topic stay."""
    run_id = await run_in_threadpool(_deleted, on, dag_id)
    if run_id is not None:
        await _end(airflow, dag_id, run_id)
    await run_in_threadpool(mark_gone, on.session, dag_id)
    return Response(status_code=status.HTTP_204_NO_CONTENT)


def _deleted(on: Switched, name: str) -> str | None:
    """Delete; returns the run that is under way."""
    with _folder_errors(), on.files.alone():
        _written(on, name)
        on.files.remove(name)
    on.viewer.note(on.session, "sluice_delete_connector", name)
    running = facts_of(on.session, [name])[name].under_way
    on.session.close()  # Airflow's API takes another connection
    return running.run_id if running is not None else None


async def _end(airflow: AirflowApi, dag_id: str, run_id: str) -> None:
    try:
        await airflow.fail(dag_id, run_id)
    except RefusedByAirflowError as error:
        why = f"The connector's file is deleted, but its run {run_id} was not ended. {error.why}"
        raise RefusedByAirflowError(error.status, why) from error


def _made(on: Switched, name: str, made: Sent, state: InitialState) -> Response:
    """Write a new connector's file.

    Raises:
        HTTPException: there is a connector of this name.
    """
    _require_free(on, name)
    try:
        pipeline = on.files.create(name, _file(made, state))
    except FileExistsError:
        raise HTTPException(status.HTTP_409_CONFLICT, f"Connector {name} already exists") from None
    on.viewer.note(on.session, "sluice_create_connector", name)
    return _answer(on, name, made, pipeline, status.HTTP_201_CREATED)


def _changed(on: Switched, name: str, made: Sent, before: Written) -> Response:
    pipeline = on.files.replace(name, _file(made, before.state))
    on.viewer.note(on.session, "sluice_change_connector", name)
    return _answer(on, name, made, pipeline, status.HTTP_200_OK)


def _file(made: Sent, state: InitialState) -> Written:
    keys = {**(made.imported.pipeline or {}), "paused": state != "RUNNING"}
    return Written(made.config, state, text_of(made.imported, keys, by="Made"))


def _answer(on: Switched, name: str, made: Sent, pipeline: Pipeline, code: int) -> Response:
    facts = facts_of(on.session, [name])[name]
    said = answers.info(name, made.config, facts, answers.type_of(pipeline))
    return JSONResponse(said, code, headers={"Location": f"{on.root}/connectors/{name}"})


def _require_free(on: Switched, name: str) -> None:
    """Check that no connector has the name, also none that the caller may not see.

    Raises:
        HTTPException: one has it.
    """
    where = _elsewhere(on, name)
    if where:
        raise HTTPException(status.HTTP_409_CONFLICT, f"Connector {name} already exists: {where}")


def _written(on: Switched, name: str) -> Written:
    """What was written for a connector.

    Raises:
        ConnectorNotFoundError: there is no such connector.
        HTTPException: it is a person's.
    """
    written = on.files.read(name)
    if written is not None:
        return written
    where = _elsewhere(on, name)
    if not where:
        raise ConnectorNotFoundError(name)
    raise HTTPException(status.HTTP_409_CONFLICT, f"This API hasn't written the connector {name}: {where}")


def _elsewhere(on: Switched, name: str) -> str:
    """Where a connector is, and how it is changed there; nothing if there is none."""
    path = on.files.path(name)
    file = on.page.file_of(name) or (path if path is not None and os.path.lexists(path) else None)
    if file is not None:
        return f"it is the file {file}. Next step: edit that file."
    known = dags(on.session, [name]).get(name)
    if known is not None and not known.gone:
        return (
            "Airflow has a DAG of this name without a pipeline file. Next step: change its Python file; if its file was"
            " just taken away, wait until Airflow has parsed the folder."
        )
    return ""


def _require_first_state(on: Switched, name: str, state: InitialState) -> None:
    """Check that Airflow remembers no DAG of this name in another state, which it would come back to.

    Raises:
        HTTPException: it does.
    """
    known = dags(on.session, [name]).get(name)
    if known is not None and known.paused != (state != "RUNNING"):
        raise HTTPException(
            status.HTTP_409_CONFLICT,
            f"Airflow remembers the DAG {name}, which is {'paused' if known.paused else 'not paused'}. Next step:"
            " delete that DAG in Airflow, or leave `initial_state` out, and pause or resume the connector afterwards.",
        )


@contextmanager
def _folder_errors() -> Iterator[None]:
    """Errors of the folder, as answers."""
    try:
        yield
    except OSError as error:
        raise HTTPException(
            status.HTTP_500_INTERNAL_SERVER_ERROR,
            f"The folder of {FOLDER_VARIABLE} can't be used: {error.strerror}. Next step: give the API server the right"
            " to write there, on a file system with hard links and locks.",
        ) from error
