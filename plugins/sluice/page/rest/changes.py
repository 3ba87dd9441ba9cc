"""Connect's verbs, carried out by Airflow's API; and what is no verb here, refused with how it is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NoReturn

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import get_user
from fastapi import APIRouter, Depends, HTTPException, Query, Response, status
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from sluice.airflow.notes import WRITE
from sluice.page.rest import answers
from sluice.page.rest.facts import facts_of
from sluice.page.rest.found import AirflowDep, EntryDep, KnownDep
from sluice.page.rest.verbs import RefusedByAirflowError

router = APIRouter()
_COMMITTED = "Offsets are committed with the rows, and only a commit moves them"
HOW_ELSE = {
    "PATCH /connectors/{dag_id}/offsets": f"{_COMMITTED}: read a range or replay an interval by the DAG's trigger form,"
    " pass records over with `sluice offsets FILE --pass-over`; a new pipeline begins at its `starting_offsets`.",
    "DELETE /connectors/{dag_id}/offsets": f"{_COMMITTED}: to load all anew, name another table in the file.",
    "PUT /connectors/{dag_id}/topics/reset": "The topics are those of the file, or those whose offsets the table has.",
}
"""What Connect changes by its API, and how it is done here."""


@router.put("/connectors/{dag_id}/pause")
async def pause(dag_id: str, _: KnownDep, airflow: AirflowDep) -> Response:
    """Pause the DAG: what runs ends its step, and no further step or run begins."""
    await airflow.pause(dag_id, True)
    return Response(status_code=status.HTTP_202_ACCEPTED)


@router.put("/connectors/{dag_id}/resume")
async def resume(dag_id: str, _: KnownDep, airflow: AirflowDep) -> Response:
    """Resume the DAG, also after a stop."""
    await airflow.pause(dag_id, False)
    return Response(status_code=status.HTTP_202_ACCEPTED)


@router.put("/connectors/{dag_id}/stop")
async def stop(dag_id: str, _: KnownDep, airflow: AirflowDep, session: SessionDep) -> Response:
    """Pause the DAG and end the run that is under way: its steps are killed, and none of its rows is committed.

    A scheduler does nothing for a paused DAG, so the run's `abort` waits until it is resumed; the open transaction
    does no harm meanwhile (docs/operate.md), and is rolled back by `abort` or by the next START-COMMIT.
    """
    await airflow.pause(dag_id, True)
    now = (await run_in_threadpool(facts_of, session, [dag_id]))[dag_id]  # a run may have begun or ended meanwhile
    if now.under_way is not None:
        try:
            await airflow.fail(dag_id, now.under_way.run_id)
        except RefusedByAirflowError as error:
            why = f"The DAG is paused, but its run {now.under_way.run_id} was not ended. {error.why}"
            raise RefusedByAirflowError(error.status, why) from error
    return Response(status_code=status.HTTP_204_NO_CONTENT)


@router.post("/connectors/{dag_id}/restart")
async def restart(
    dag_id: str,
    entry: EntryDep,
    facts: KnownDep,
    airflow: AirflowDep,
    session: SessionDep,
    include_tasks: Annotated[bool, Query(alias="includeTasks")] = False,
    only_failed: Annotated[bool, Query(alias="onlyFailed")] = False,
) -> Response:
    """See that an interval runs: the failed run once more from its first step, or where none has failed a new one.

    A running DAG run continues, unless `includeTasks` asks for its tasks to be restarted as well: then it is
    failed, its `abort` rolls back, and a new run follows.
    """
    running, failed = facts.under_way, facts.latest_failed
    if running is None and failed is not None:
        await airflow.clear(dag_id, failed.run_id)
    elif not only_failed and running is not None and include_tasks:
        await airflow.trigger(dag_id)  # it waits for the other's end; and nothing is killed if it is refused
        await airflow.fail(dag_id, running.run_id)
    elif not only_failed and running is None and not facts.waiting:
        await airflow.trigger(dag_id)
    if not include_tasks and not only_failed:
        return Response(status_code=status.HTTP_204_NO_CONTENT)
    now = await run_in_threadpool(facts_of, session, [dag_id])
    return JSONResponse(answers.status(dag_id, now[dag_id], answers.type_of(entry.pipeline)), status.HTTP_202_ACCEPTED)


@router.post("/connectors/{dag_id}/tasks/{task}/restart")
async def restart_task(dag_id: str, task: int, facts: KnownDep, airflow: AirflowDep) -> Response:
    """Begin the write of one range again, while its interval is open."""
    if answers.task_status(facts, task) is None:
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"Unknown task: {dag_id}-{task}")
    if facts.under_way is None or facts.under_way.run_id != facts.tasks_of:
        raise HTTPException(
            status.HTTP_409_CONFLICT,
            "The task's interval has ended: restart the connector, which reads on from the committed offsets.",
        )
    await airflow.clear_task(dag_id, facts.under_way.run_id, WRITE, task)
    return Response(status_code=status.HTTP_204_NO_CONTENT)


def _refusal(how: str, allow: str) -> Callable[[], NoReturn]:
    def refuse() -> NoReturn:
        raise HTTPException(status.HTTP_405_METHOD_NOT_ALLOWED, how, headers={"Allow": allow})

    return refuse


for _address, _how in HOW_ELSE.items():
    _method, _path = _address.split()
    router.add_api_route(
        _path,
        _refusal(_how, "" if _path.endswith("/reset") else "GET"),
        methods=[_method],
        response_model=None,
        dependencies=[Depends(get_user)],
    )
