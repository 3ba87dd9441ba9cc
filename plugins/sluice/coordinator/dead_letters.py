"""The dead-letter topic: fed from the quarantine's committed files, in one Kafka transaction for each interval."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sluice.coordinator.session import Session
from sluice.failpoints import reach
from sluice.hudi.quarantine_files import Quarantined, QuarantineFiles
from sluice.kafka.transactional import Headers, Record, TransactionalSender, ensure_topic, identity_of
from sluice.logs import log
from sluice.protocol.messages import StartCommit
from sluice.protocol.quarantine import quarantine_path, set_aside
from sluice.protocol.transaction import Transaction
from sluice.records.settings import CONVERTERS

_STAGES = {"key": "KEY_CONVERTER", "value": "VALUE_CONVERTER", "row": "TRANSFORMATION"}  # Connect's names
_EXCEPTION = "org.apache.kafka.connect.errors.DataException"  # what Connect's own converters throw
_BATCH_OVERHEAD = 1024


def send_dead_letters(session: Session, transaction: Transaction, paths: Sequence[str]) -> None:
    """Send a committed interval's bad records to the dead-letter topic, if the interval names one.

    Exactly once: the Kafka transaction that sends them also commits an offset of a consumer group whose metadata is
    the instant. A step that is repeated finds it there, also where a later interval's stands there meanwhile.

    Args:
        session: the pipeline's clusters.
        transaction: the interval.
        paths: its files in the quarantine, relative to it.

    Raises:
        RetryableError, ActionRequiredError: Kafka doesn't answer, or the topic can't be used.
    """
    start = transaction.start
    errors = (
        session.pipeline.errors
    )  # not what START-COMMIT says: whoever writes to the control topic could name any topic
    topic = errors.dead_letter_topic
    if topic is None or start.quarantine is None or not set_aside(transaction):
        return
    settings = session.cluster.settings
    limit = ensure_topic(settings, topic)
    with TransactionalSender(settings, identity_of("dead-letters", start.writer.name, start.table)) as sender:
        remembered = sender.remembered(topic)
        if remembered is not None and remembered >= transaction.id:
            log.info("the dead letters were sent already", instant=transaction.id, topic=topic)
            return
        reach("coordinator.before_dead_letters")
        bad = QuarantineFiles(quarantine_path(session.table_id, errors)).records(paths)
        letters = _letters(session.pipeline.name, start, topic, limit, bad)
        sent = sender.send(letters, remember=(topic, transaction.id))
    log.info("dead letters sent", instant=transaction.id, topic=topic, records=sent)


def _letters(pipeline: str, start: StartCommit, topic: str, limit: int, bad: Iterator[Quarantined]) -> Iterator[Record]:
    assert start.quarantine is not None
    words = f"more than the topic takes; the whole record is in the quarantine {start.quarantine.path}"
    for record in bad:
        context = _context(pipeline, start, record)
        cut = [*context, ("sluice.left_out", words.encode())]
        timestamp = int(record.timestamp.timestamp() * 1000) if record.timestamp is not None else None
        own = [*record.headers]
        # What makes it large is the value nearly always, but it may be the headers or the key.
        for key, value, headers in (
            (record.key, record.value, [*own, *context]),
            (record.key, None, [*own, *cut]),
            (record.key, None, cut),
            (None, None, cut),
        ):
            letter = Record(topic, key, value, headers, timestamp=timestamp)
            if letter.size + _BATCH_OVERHEAD <= limit:
                break
        yield letter


def _context(pipeline: str, start: StartCommit, record: Quarantined) -> Headers:
    """Connect's context headers, then ours."""
    pinned = start.records.key if record.stage == "key" and start.records.key else start.records.value
    name = pinned.converter
    converter = f"sluice.spark.converters.{name}.Converter" if name in CONVERTERS else name
    connect = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "connector.name": pipeline,
        "task.id": record.range_number,
        "stage": _STAGES.get(record.stage, "TRANSFORMATION"),
        "class.name": converter if record.stage in ("key", "value") else "sluice.spark.records.RecordChain",
        "exception.class.name": _EXCEPTION,
        "exception.message": record.reason,
    }
    ours = {"instant": record.instant, "range": record.range_number, "reason": record.reason}
    return [
        *((f"__connect.errors.{name}", str(value).encode()) for name, value in connect.items()),
        *((f"sluice.{name}", str(value).encode()) for name, value in ours.items()),
    ]
