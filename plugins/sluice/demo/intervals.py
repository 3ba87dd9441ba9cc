"""The intervals as the control topic tells them, which is where everybody else reads them too."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from sluice.kafka.config import KafkaSettings
from sluice.protocol.messages import AbortCommit, AckCommit, StartCommit, decode
from sluice.protocol.transaction import State, TableLog, Transaction

_POLL = 0.2  # seconds to wait for a message before the topic is taken to be at its end


@dataclass(frozen=True)
class Interval:
    """One transaction interval. `end` is its ACK-COMMIT or ABORT-COMMIT, None while it has neither."""

    transaction: Transaction
    end: AckCommit | AbortCommit | None

    @property
    def start(self) -> StartCommit:
        """Its START-COMMIT."""
        return self.transaction.start

    @property
    def state(self) -> State:
        """Where it stands."""
        return self.transaction.state

    @property
    def committed(self) -> bool:
        """Whether a reader of the table sees it."""
        return self.state is State.COMMITTED

    @property
    def rows(self) -> int | None:
        """How many records became rows or new versions of rows."""
        return self.end.records_written if isinstance(self.end, AckCommit) else None

    @property
    def seconds(self) -> float | None:
        """From START-COMMIT to ACK-COMMIT or ABORT-COMMIT."""
        return (self.end.time - self.start.time).total_seconds() if self.end else None


@dataclass
class _Table:
    log: TableLog
    ends: dict[str, AckCommit | AbortCommit] = field(default_factory=dict)


class ControlTopicWatch:
    """Follows the control topic from its beginning."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self._tables: dict[str, _Table] = {}
        self._consumer = Consumer(
            settings.client(
                group_id=f"demo-{uuid.uuid4()}",  # never joined or committed; librdkafka wants one
                enable_auto_commit=False,
                enable_partition_eof=True,
                auto_offset_reset="error",
            )
        )
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def poll(self) -> None:
        """Take in what has come since the last time."""
        while (record := self._consumer.poll(_POLL)) is not None:
            error = record.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise KafkaException(error)
            message = decode(record.value())
            table = self._tables.setdefault(message.table, _Table(TableLog(message.table)))
            table.log.extend([(record.offset(), message)])
            if isinstance(message, AckCommit | AbortCommit):
                table.ends[message.transaction] = message

    def intervals(self, dag_id: str) -> list[Interval]:
        """All intervals of a pipeline, oldest first."""
        return [
            Interval(transaction, table.ends.get(transaction.id))
            for table in self._tables.values()
            for transaction in table.log.transactions.values()
            if transaction.start.dag_id == dag_id
        ]

    def committed_offsets(self, dag_id: str) -> dict[int, int]:
        """The next offset of each partition, by the pipeline's last ACK-COMMIT."""
        ends = [i.end for i in self.intervals(dag_id) if isinstance(i.end, AckCommit)]
        return {r.partition: r.end for r in ends[-1].offsets} if ends else {}

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()
