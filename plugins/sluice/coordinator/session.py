"""What the coordinator's steps share: the pipeline's clusters, control topic and table, and what stands committed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from sluice.connectors.sink import Table
from sluice.coordinator.parts import Parts
from sluice.coordinator.sources import Sources
from sluice.kafka.sent_letters import SUFFIX
from sluice.pipeline.model import SHARED_CONTROL_TOPIC, Pipeline
from sluice.protocol.identity import under_present_names
from sluice.protocol.messages import PlannedRange
from sluice.protocol.offsets import TRANSACTION_KEY, Checkpoint, read_checkpoint
from sluice.protocol.request import Request
from sluice.protocol.transaction import Transaction


@dataclass(frozen=True)
class Run:
    """The DAG run that is this interval, and what it is asked to do."""

    dag_id: str
    run_id: str
    request: Request = field(default_factory=Request)


@dataclass(frozen=True)
class Started:
    """An open transaction: where its START-COMMIT stands, and what its ranges are to read."""

    instant: str
    control_offset: int
    ranges: tuple[tuple[PlannedRange, ...], ...]
    control_topic: str | None = None
    digest: str | None = None  # of that START-COMMIT, which the write jobs look for (protocol/confine.py)


@dataclass(frozen=True)
class Outcome:
    """How a step left the interval, as one sentence for people and as counts for programs."""

    state: Literal["empty", "planned", "committed", "aborted", "nothing"]
    summary: str
    instant: str | None = None
    records: int = 0
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Committed:
    """What the timeline says: the last checkpoint, and our own note of the transaction that wrote it."""

    checkpoint: Checkpoint
    transaction: Mapping[str, Any]
    elsewhere: str | None = None
    """The control topic in which its START stands, None where that is the pipeline's."""

    @property
    def control_offset(self) -> int:
        """Where the START of the last commit stands in the control topic, 0 before the first in this one."""
        return 0 if self.elsewhere else int(self.transaction.get("control_offset", 0))

    @property
    def valid_through(self) -> datetime | None:
        """The time up to which the table is complete, None where it isn't known."""
        known = self.transaction.get("valid_through")
        return datetime.fromisoformat(known) if known else None

    @property
    def recent_control_offsets(self) -> list[int]:
        """Where the STARTs of the last commits stand in the control topic, oldest first."""
        return [0] if self.elsewhere else self.offsets_there

    @property
    def offsets_there(self) -> list[int]:
        """The same, in whichever control topic they stand."""
        last = int(self.transaction.get("control_offset", 0))
        return [int(offset) for offset in self.transaction.get("recent_control_offsets", [last])]


class Session:
    """One pipeline's source, control topic and table."""

    def __init__(self, pipeline: Pipeline, parts: Parts) -> None:
        self.pipeline = pipeline
        self.parts = parts
        self.sources = Sources({parts.source.name: parts.source}, self._topics_of)
        self.sink = parts.sink
        self.machine = parts.machine
        self.control = parts.control(pipeline.control_topic)
        self.table_id = pipeline.table_id
        self._topics: tuple[str, ...] | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are read: those of the pipeline file, or those that are there now and match its pattern.

        Raises:
            ActionRequiredError: none matches.
            RetryableError: the cluster can't be reached.
        """
        return self.sources.topics

    def _topics_of(self, _cluster: str) -> tuple[str, ...]:
        source = self.pipeline.source.options
        if source.topics_pattern is None:
            return source.topics
        if self._topics is None:
            letters = self.pipeline.errors.dead_letter_topic
            own = (self.pipeline.control_topic, SHARED_CONTROL_TOPIC, letters, f"{letters}{SUFFIX}")
            self._topics = self.parts.source.topics_like(source.topics_pattern, own)
        return self._topics

    def table(self) -> AbstractContextManager[Table]:
        """The table, opened for as long as the block; created on first use."""
        return self.sink.open()

    def existing_table(self) -> AbstractContextManager[Table | None]:
        """The table, for looking only: None where it was never written."""
        return self.sink.look()

    def committed(self, table: Table | None, clusters: Mapping[str, str | None] | None = None) -> Committed:
        """What the timeline says.

        Args:
            table: the table, None where there is none yet.
            clusters: Kafka's ids of the clusters by the names under which the checkpoint's offsets are wanted; by
                default they keep the names that they had when the last commit was planned.
        """
        metadata = table.last_checkpoint() if table else None
        if metadata is None:
            return Committed(Checkpoint(), {}, self._elsewhere({}))
        checkpoint = read_checkpoint(metadata, self.sources.names[0], self.topics)
        if clusters is not None:
            checkpoint = under_present_names(checkpoint, clusters)
        note = json.loads(metadata.get(TRANSACTION_KEY, "{}"))
        committed = Committed(checkpoint, note, self._elsewhere(note))
        signed_from = note.get("signed_from")
        if signed_from is not None and committed.elsewhere is None:
            self.control.signatures.require(self.table_id, int(signed_from))
        return committed

    def _elsewhere(self, note: Mapping[str, Any]) -> str | None:
        """The control topic of the last commit where it isn't this one. Earlier releases didn't note its name."""
        topic = note.get("control_topic") or self.pipeline.control.topic or SHARED_CONTROL_TOPIC
        return str(topic) if topic != self.control.topic else None

    def on_control_topic(self, topic: str) -> Session:
        """The same clusters and table, on another control topic."""
        other = copy(self)
        other.pipeline = self.pipeline.on_control_topic(topic)
        other.control = self.parts.control(topic)
        return other

    def envelope(self, transaction: str, epoch: int, run: Run) -> dict[str, Any]:
        """The fields that every message carries."""
        return {
            "table": self.table_id,
            "transaction": transaction,
            "epoch": epoch,
            "dag_id": run.dag_id,
            "run_id": run.run_id,
            "sender": "coordinator",
            "time": self.machine.now(),
        }

    def envelope_of(self, transaction: Transaction) -> dict[str, Any]:
        """The same, of a transaction that was started."""
        start = transaction.start
        return self.envelope(transaction.id, start.epoch, Run(start.dag_id, start.run_id))
