"""A pipeline's schedule as an Airflow timetable whose runs have a data interval."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from airflow.sdk import Asset, AssetOrTimeSchedule, CronDataIntervalTimetable, DeltaDataIntervalTimetable
from airflow.sdk.exceptions import AirflowTimetableInvalid

from sluice.errors import PipelineFileError
from sluice.pipeline.model import ByArrival, Pipeline

Timetable = CronDataIntervalTimetable | DeltaDataIntervalTimetable


def timetable(pipeline: Pipeline) -> Timetable | AssetOrTimeSchedule | list[Asset] | None:
    """The timetable of the pipeline's intervals; see `timetable_of`.

    Runs that records start, or a change of where streams are, have no data interval.
    """
    schedule = pipeline.schedule
    if isinstance(schedule, ByArrival):
        from sluice.airflow.arriving import arrivals_asset  # imports Kafka's client, which other files don't need

        return AssetOrTimeSchedule(
            timetable=DeltaDataIntervalTimetable(schedule.at_least_every), assets=[arrivals_asset(pipeline, schedule)]
        )
    by_time = timetable_of(schedule, pipeline.timezone, "schedule")
    streams = pipeline.source.options.streams_settings
    if streams is None or streams.watched_every is None:
        return by_time
    from sluice.airflow.watched_streams import streams_asset  # imports Kafka's client, too

    asset = streams_asset(pipeline, streams)
    return AssetOrTimeSchedule(timetable=by_time, assets=[asset]) if by_time is not None else [asset]


def timetable_of(schedule: timedelta | str | None, timezone: str, key: str) -> Timetable | None:
    """The timetable of a schedule, or None if runs are started by hand. `key` is the schedule's key in the file.

    A plain cron string or timedelta as a DAG's schedule gives intervals of length zero, so that `until:
    data_interval_end` would read nothing; these timetables give the time since the previous run.

    Raises:
        PipelineFileError: the schedule is neither a cron expression nor a positive time, or the time zone is unknown.
    """
    if schedule is None:
        return None
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError):
        raise PipelineFileError(
            f"There is no time zone {timezone!r}.",
            next_step="give a name of the tz database, such as Europe/Berlin.",
            key="timezone",
        ) from None
    table = (
        DeltaDataIntervalTimetable(schedule)
        if isinstance(schedule, timedelta)
        else CronDataIntervalTimetable(schedule, timezone=timezone)
    )
    try:
        table.validate()
    except AirflowTimetableInvalid as error:
        raise PipelineFileError(
            f"The schedule {schedule!r} is neither a cron expression nor a time between intervals: {error}.",
            next_step="write `1 minute`, `*/5 * * * *` or `@hourly`; leave it out to start runs by hand.",
            key=key,
        ) from None
    return table
