"""Starts a pipeline's runs by the records that have arrived: an asset that Airflow's triggerer watches.

Each pipeline has its own poll, which reads on in its control topic and asks for its topics' ends; the Kafka clients are
shared.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Asset

from sluice.airflow.connections import kafka_settings
from sluice.airflow.polling import PollingTrigger, watched
from sluice.control.continued import ContinuedReader
from sluice.control.reader import log_ends
from sluice.logs import log
from sluice.pipeline.model import ByArrival, Pipeline
from sluice.protocol.arrivals import ArrivalRule, Arrivals
from sluice.protocol.history import TableHistory

_REMEMBERED = 50  # transactions
_POLL = 10.0  # seconds between two polls; `at_most_every` where it is shorter


def arrivals_asset(pipeline: Pipeline, schedule: ByArrival) -> Asset:
    """An asset whose events start the pipeline's runs; nothing else updates it."""
    source = pipeline.source.options
    trigger = ArrivalTrigger(
        connection=source.connection,
        topics=list(source.topics),
        isolation=source.read_isolation,
        counts_new_ones=source.topics_pattern is None and source.starting_offsets != "earliest",
        control_connection=pipeline.control.connection or source.connection,
        control_topic=pipeline.control_topic,
        table=pipeline.table_id,
        records=schedule.records,
        at_most_every=schedule.at_most_every.total_seconds(),
    )
    return watched(f"{pipeline.name}.arrivals", trigger)


class ArrivalTrigger(PollingTrigger[int]):
    """Sends an event whenever a run is due.

    Args:
        connection: of the cluster that is read.
        topics: its topics; none where a pattern names them: those count that the table has committed.
        isolation: the isolation level of their readers.
        counts_new_ones: see `sluice.protocol.arrivals.ArrivalRule`.
        control_connection: of the control topic's cluster.
        control_topic: the control topic.
        table: the table's id.
        records: see `sluice.protocol.arrivals.ArrivalRule`.
        at_most_every: the least time between two starts, in seconds.
    """

    failed = "what has arrived can't be looked at"

    def __init__(
        self,
        *,
        connection: str,
        topics: list[str],
        isolation: str,
        counts_new_ones: bool,
        control_connection: str,
        control_topic: str,
        table: str,
        records: int,
        at_most_every: float,
    ) -> None:
        super().__init__()
        self._connection, self._topics, self._isolation = connection, topics, isolation
        self._control_connection, self._control_topic, self._table = control_connection, control_topic, table
        self._rule = ArrivalRule(records, timedelta(seconds=at_most_every), counts_new_ones)
        self._arrivals = Arrivals(self._rule)
        self._history = TableHistory(table, remembers=_REMEMBERED)
        self._continued = ContinuedReader(control_topic)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """See `PollingTrigger`."""
        return self.path(), {
            "connection": self._connection,
            "topics": self._topics,
            "isolation": self._isolation,
            "counts_new_ones": self._rule.counts_new_ones,
            "control_connection": self._control_connection,
            "control_topic": self._control_topic,
            "table": self._table,
            "records": self._rule.records,
            "at_most_every": self._rule.at_most_every.total_seconds(),
        }

    @property
    def pause(self) -> float:
        """See `PollingTrigger`."""
        return min(_POLL, self._rule.at_most_every.total_seconds())

    @property
    def where(self) -> dict[str, Any]:
        """See `PollingTrigger`."""
        return {"connection": self._connection, "topics": self._topics, "control_topic": self._control_topic}

    def payload(self, found: int) -> dict[str, Any]:
        """The offsets that wait."""
        return {"records": found}

    def look(self) -> int | None:
        """How many offsets wait, if a run is due; otherwise None. It calls Airflow and Kafka.

        Raises:
            RetryableError: a cluster can't be reached in time.
            ActionRequiredError: a connection or a topic is missing, or a topic may not be read.
        """
        topics = self._topics or sorted({tp.topic for tp in self._history.committed if tp.cluster == self._connection})
        ends = log_ends(kafka_settings(self._connection), topics, self._isolation) if topics else {}
        self._read_on()
        waiting = self._arrivals.due(self._history, ends, datetime.now(UTC))
        if waiting is not None:
            log.info("records have arrived", table=self._table, waiting=waiting)
        return waiting

    def _read_on(self) -> None:
        if self._continued.look(kafka_settings(self._control_connection)):
            self._history = TableHistory(self._table, remembers=_REMEMBERED)
        for batch in self._continued.batches():
            self._history.extend(batch)
