"""The intervals as recorded in the control topic, the source that all other readers use too."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from sluice import runtime
from sluice.kafka.config import KafkaSettings
from sluice.local.errors import LocalRuntimeError
from sluice.protocol.messages import AbortCommit, AckCommit, ControlMessage, StartCommit
from sluice.protocol.transaction import State, TableLog, Transaction
from sluice.protocol.wire import MessagePart, decode

_POLL = 0.2  # seconds to wait for news
_TIMEOUT = 30.0


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
        """Its state."""
        return self.transaction.state

    @property
    def committed(self) -> bool:
        """Whether a reader of the table sees it."""
        return self.state is State.COMMITTED

    @property
    def over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.state not in (State.OPEN, State.DECIDED)

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
    """Follows the control topic: present messages are read at once.

    Raises:
        LocalRuntimeError: the broker doesn't answer, or a message is of a release that wrote them otherwise.
    """

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
        if not self._read_on(_TIMEOUT):
            raise LocalRuntimeError(
                f"The control topic {topic} could not be read: the broker doesn't answer.",
                next_step=f"run `{runtime.command('status')}`; `{runtime.command('up')}` starts missing parts.",
            )

    def poll(self) -> None:
        """Take in the messages that came since the last call."""
        self._read_on(_POLL)

    def _read_on(self, timeout: float) -> bool:
        """Read present messages, waiting at most `timeout` seconds for each; returns whether the end was reached."""
        while (record := self._consumer.poll(timeout)) is not None:
            error = record.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return True
                raise KafkaException(error)
            message = _decode(record.value())
            if isinstance(message, MessagePart):
                continue  # of a message so large as no demo's interval is
            table = self._tables.setdefault(message.table, _Table(TableLog(message.table)))
            table.log.extend([(record.offset(), message)])
            if isinstance(message, AckCommit | AbortCommit):
                table.ends[message.transaction] = message
        return False

    def intervals(self, dag_id: str) -> list[Interval]:
        """All intervals of a pipeline, oldest first."""
        return [
            Interval(transaction, table.ends.get(transaction.id))
            for table in self._tables.values()
            for transaction in table.log.transactions.values()
            if transaction.start.dag_id == dag_id
        ]

    def committed_offsets(self, dag_id: str) -> dict[int, int]:
        """The next offset of each partition, by the last ACK-COMMIT of an interval that read on."""
        read_on = (i for i in self.intervals(dag_id) if i.start.kind == "continue")
        ends = [i.end for i in read_on if isinstance(i.end, AckCommit)]
        return {r.partition: r.end for r in ends[-1].offsets} if ends else {}

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()


def _decode(value: bytes) -> ControlMessage | MessagePart:
    try:
        return decode(value)
    except ValueError as error:
        raise LocalRuntimeError(
            "The control topic holds messages that this release can't read.",
            next_step=f"run `{runtime.command('clean')}`, which removes topics and tables, and then the demo again.",
            detail=str(error),
        ) from error
