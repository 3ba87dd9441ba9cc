"""A run's request: the trigger form of a pipeline's DAG, and the request made of a run's parameters and type."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.sdk import Context, Param
from pydantic import ValidationError

from sluice.errors import ActionRequiredError
from sluice.pipeline.model import Pipeline
from sluice.protocol.request import Request
from sluice.sections import words_of

MODE, CONTINUE, OFFSETS, TIMES, REPLAY = "mode", "continue", "range by offsets", "range by times", "replay"
_FIELDS = {
    OFFSETS: ("offsets",),
    TIMES: ("from_time", "to_time", "partitions"),
    REPLAY: ("instant",),
}


def trigger_form(pipeline: Pipeline) -> dict[str, Param]:
    """The fields of the form. With their defaults a run reads on from the committed offsets, like a scheduled one."""
    topic = next(iter(pipeline.source.options.topics), "topic")
    window, again, every = "A range of offsets or times", "A replay", "Any run"
    return {
        MODE: Param(
            CONTINUE,
            type="string",
            enum=[CONTINUE, OFFSETS, TIMES, REPLAY],
            title="What to read",
            description_md="**continue**: on from the committed offsets, as the schedule does. **range**: offsets or "
            "times that you name; what the table has already is left out. **replay**: a committed interval once more; "
            "its rows replace the rows of the first reading, in one commit.",
        ),
        "offsets": Param(
            None,
            type=["null", "object"],
            title="Offsets",
            description_md=f'`[start, end)` of each partition, as `{{"{topic}": {{"0": [100, 200]}}}}`.',
            section=window,
        ),
        "from_time": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="From",
            description_md="Records with this time or a later one.",
            section=window,
        ),
        "to_time": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="To",
            description_md="Records before this time.",
            section=window,
        ),
        "partitions": Param(
            None,
            type=["null", "array"],
            items={"type": "string"},
            title="Partitions",
            description_md=f"Only these, for a range by times: `{topic}[0]`, or a topic's name for all of its "
            "partitions, one a line.",
            section=window,
        ),
        "instant": Param(
            None,
            type=["null", "string"],
            title="Instant",
            description_md="Of the committed interval, as the page, `sluice transactions` and the run's note show it.",
            section=again,
        ),
        "reason": Param(
            None,
            type=["null", "string"],
            title="Reason",
            description_md="Why, for later readers of the history.",
            section=every,
        ),
        "dry_run": Param(
            False,
            type="boolean",
            title="Dry run",
            description_md="Only say, in the run's note, what would be read and replaced.",
            section=every,
        ),
    }


def request_of(context: Context, pipeline: Pipeline) -> Request:
    """This DAG run's request.

    A backfill's run reads the records of the run's data interval, unless its parameters say otherwise.

    Raises:
        ActionRequiredError: the parameters contradict each other, or a data interval is needed but missing.
    """
    params = context["params"]
    mode = params.get(MODE, CONTINUE)
    if not isinstance(mode, str) or mode not in (CONTINUE, *_FIELDS):
        raise ActionRequiredError(
            "The run's parameters can't be used: mode is none of the form's.",
            next_step=f"trigger it again with one of {', '.join((CONTINUE, *_FIELDS))}.",
        )
    common = {"reason": params.get("reason"), "dry_run": bool(params.get("dry_run"))}
    if mode != CONTINUE:
        kind = "replay" if mode == REPLAY else "range"
        given = {name: params.get(name) for name in _FIELDS[mode] if params.get(name) is not None}
        return _checked({"kind": kind, **given, **common})
    if getattr(context["dag_run"], "run_type", None) == "backfill":
        start, end = _data_interval(context)
        return _checked({"kind": "backfill", "from_time": start, "to_time": end, **common})
    end_of_window = None if pipeline.source.options.until == "latest" else _data_interval(context)[1]
    return _checked({"to_time": end_of_window, **common})


def reads_on(context: Context) -> bool:
    """Whether the run reads on as the schedule does, so that its outcome shows the pipeline's health."""
    params = context["params"]
    asked = params.get(MODE, CONTINUE) != CONTINUE or params.get("dry_run")
    return not asked and getattr(context["dag_run"], "run_type", None) != "backfill"


def _checked(fields: dict[str, Any]) -> Request:
    try:
        return Request.model_validate(fields)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, p['loc'])) or 'the form'}: {words_of(p)}" for p in error.errors())
        raise ActionRequiredError(
            f"The run's parameters can't be used: {problems}.",
            next_step="trigger it again with what the form's descriptions ask for.",
        ) from None


def _data_interval(context: Context) -> tuple[datetime, datetime]:
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None:
        raise ActionRequiredError(
            "This DAG run has no data interval, and it is to read just the records of one.",
            next_step="start it with a logical date, or set the source's `until` to latest.",
            run=context["run_id"],
        )
    return start, end
