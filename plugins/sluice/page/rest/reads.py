"""Connect's reads: connectors, their configurations, states and offsets, and the plugins that are installed."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import get_user
from fastapi import APIRouter, Depends, HTTPException, Request, status
from starlette.concurrency import run_in_threadpool

from sluice import __version__
from sluice.page.access import Viewer, ViewerDep
from sluice.page.catalogue import Entry
from sluice.page.rest import answers
from sluice.page.rest.answers import Facts, Json
from sluice.page.rest.facts import facts_of
from sluice.page.rest.found import EntryDep, FactsDep, PageDep, body_of, for_viewer
from sluice.page.rest.plugins import keys_of, plugins
from sluice.page.rest.validate import VALIDATING, validated
from sluice.page.rest.writes import config_of

router = APIRouter()
_LOGGED_IN = Depends(get_user)


@router.get("/")
def worker(page: PageDep, viewer: ViewerDep, session: SessionDep) -> Json:
    """Which release this is; the cluster's id is there where all pipelines that the caller sees read one."""
    ids = page.cluster_ids(page.of_dags(viewer, session))
    return {"version": __version__, "commit": "unknown", "kafka_cluster_id": ids.pop() if len(ids) == 1 else None}


@router.get("/connectors")
def connectors(request: Request, page: PageDep, viewer: ViewerDep, session: SessionDep) -> Any:
    """All names; with `?expand=status` and `?expand=info` what is known of each."""
    entries = page.of_dags(viewer, session)
    expand = set(request.query_params.getlist("expand")) & {"status", "info"}
    if not expand:
        return [entry.key for entry in entries]
    facts = facts_of(session, [entry.key for entry in entries])
    return {
        entry.key: _expanded(entry, for_viewer(facts[entry.key], entry, viewer), expand, viewer) for entry in entries
    }


@router.get("/connectors/{dag_id}")
def connector(entry: EntryDep, facts: FactsDep, viewer: ViewerDep) -> Json:
    """One connector with its configuration and its tasks' ids."""
    return answers.info(entry.key, _config(entry, viewer), facts, answers.type_of(entry.pipeline))


@router.get("/connectors/{dag_id}/config")
def config(entry: EntryDep, viewer: ViewerDep) -> Json:
    """What was sent by this API, else the pipeline file, flat."""
    if not viewer.may_read(entry.dag_id, DagAccessEntity.CODE):
        raise HTTPException(status.HTTP_403_FORBIDDEN, f"The configuration is the code of the DAG {entry.dag_id}.")
    return dict(_config(entry, viewer))


@router.get("/connectors/{dag_id}/status")
def state(entry: EntryDep, facts: FactsDep) -> Json:
    """The states of the connector and its tasks."""
    return answers.status(entry.key, facts, answers.type_of(entry.pipeline))


@router.get("/connectors/{dag_id}/tasks")
def tasks(entry: EntryDep, facts: FactsDep, viewer: ViewerDep) -> list[Json]:
    """The tasks and what each reads."""
    return answers.tasks(entry.key, _config(entry, viewer), facts)


@router.get("/connectors/{dag_id}/tasks/{task}/status")
def task_status(entry: EntryDep, facts: FactsDep, task: int) -> Json:
    """The state of one task."""
    known = answers.task_status(facts, task)
    if known is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"No status found for task {entry.key}-{task}")
    return known


@router.get("/connectors/{dag_id}/topics")
def topics(page: PageDep, entry: EntryDep) -> Json:
    """The file's topics, or all topics of which the table has offsets; of a source, the topics that it writes."""
    return {entry.key: {"topics": answers.topics_of(entry.pipeline, lambda: page.committed(entry))}}


@router.get("/connectors/{dag_id}/offsets")
def offsets(page: PageDep, entry: EntryDep) -> Json:
    """The position of each partition."""
    positions = entry.pipeline.source.options.positions if entry.pipeline is not None else "offsets"
    return answers.offsets(page.committed(entry), positions)


@router.get("/connector-plugins", dependencies=[_LOGGED_IN])
def installed() -> list[Json]:
    """The sources and sinks; there is nothing that `connectorsOnly` would leave out."""
    return plugins()


@router.get("/connector-plugins/{plugin}/config", dependencies=[_LOGGED_IN])
def keys(plugin: str) -> list[Json]:
    """The keys of a source's or a sink's section."""
    found = keys_of(plugin)
    if found is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"Unknown plugin {plugin}.")
    return found


@router.put("/connector-plugins/{plugin}/config/validate")
async def validate(request: Request, plugin: str, viewer: ViewerDep) -> Json:
    """What becomes here of each key of a Connect configuration, for users who may edit DAGs. Nothing is kept."""
    if not await run_in_threadpool(viewer.may_edit_dags):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "Checking a configuration takes the right to edit DAGs.")
    given = await body_of(request)
    with VALIDATING.place():
        return await run_in_threadpool(validated, plugin, given)


def _config(entry: Entry, viewer: Viewer) -> dict[str, str]:
    """What was sent for it, else the pipeline file; where the caller may read the DAG's code."""
    if entry.pipeline is not None and viewer.may_read(entry.dag_id, DagAccessEntity.CODE):
        return config_of(entry.key) or answers.config_of(entry.pipeline)
    return {"name": entry.key, "connector.class": answers.class_of("sink", entry.sink)}


def _expanded(entry: Entry, facts: Facts, expand: set[str], viewer: Viewer) -> Json:
    shown: Json = {}
    if "status" in expand:
        shown["status"] = answers.status(entry.key, facts, answers.type_of(entry.pipeline))
    if "info" in expand:
        shown["info"] = answers.info(entry.key, _config(entry, viewer), facts, answers.type_of(entry.pipeline))
    return shown
