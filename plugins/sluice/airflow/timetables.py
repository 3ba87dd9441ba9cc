"""A pipeline's schedule as an Airflow timetable whose runs have a data interval."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow.sdk import CronDataIntervalTimetable, DeltaDataIntervalTimetable
from airflow.sdk.exceptions import AirflowTimetableInvalid

from sluice.errors import PipelineFileError
from sluice.pipeline.model import Pipeline

Timetable = CronDataIntervalTimetable | DeltaDataIntervalTimetable


def timetable(pipeline: Pipeline) -> Timetable | None:
    """The timetable, or None where runs are started by hand.

    A plain cron string or timedelta as a DAG's schedule gives intervals of length zero, so that `until:
    data_interval_end` would read nothing; these timetables give the time since the run before.

    Raises:
        PipelineFileError: the schedule is neither a cron expression nor a positive time, or the time zone is unknown.
    """
    schedule = pipeline.schedule
    if schedule is None:
        return None
    try:
        ZoneInfo(pipeline.timezone)
    except (ZoneInfoNotFoundError, ValueError):
        raise PipelineFileError(
            f"There is no time zone {pipeline.timezone!r}.",
            next_step="give a name of the tz database, such as Europe/Berlin.",
            key="timezone",
        ) from None
    table = (
        DeltaDataIntervalTimetable(schedule)
        if isinstance(schedule, timedelta)
        else CronDataIntervalTimetable(schedule, timezone=pipeline.timezone)
    )
    try:
        table.validate()
    except AirflowTimetableInvalid as error:
        raise PipelineFileError(
            f"The schedule {pipeline.schedule!r} is neither a cron expression nor a time between intervals: {error}.",
            next_step="write `1 minute`, `*/5 * * * *` or `@hourly`; leave it out to start runs by hand.",
            key="schedule",
        ) from None
    return table
