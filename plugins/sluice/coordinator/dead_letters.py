"""The dead-letter topic: fed from the quarantine's committed files, a chunk of letters in each Kafka transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from sluice.connectors.sink import quarantine_of
from sluice.coordinator.session import Session
from sluice.failpoints import reach
from sluice.kafka.sent_letters import Sent, SentLetters
from sluice.kafka.transactional import Headers, Record, TransactionalSender, chunks, ensure_topic, identity_of
from sluice.logs import log
from sluice.protocol.messages import StartCommit
from sluice.protocol.quarantine import Quarantined, log_read, set_aside
from sluice.protocol.transaction import Transaction
from sluice.records.settings import CONVERTERS

_STAGES = {"key": "KEY_CONVERTER", "value": "VALUE_CONVERTER", "row": "TRANSFORMATION"}  # Connect's names
_EXCEPTION = "org.apache.kafka.connect.errors.DataException"  # what Connect's own converters throw
_BATCH_OVERHEAD = 1024


def prepare_dead_letters(session: Session) -> int:
    """See before anything is decided that the pipeline's dead-letter topic, and that of the notes, can be used.

    Returns:
        The dead-letter topic's message limit in bytes; 0 where there is no such topic.

    Raises:
        RetryableError, ActionRequiredError: Kafka doesn't answer, or one of them is not there and can't be created.
    """
    topic = session.pipeline.errors.dead_letter_topic
    if topic is None:
        return 0
    SentLetters(session.parts.kafka, topic, session.table_id).ensure()
    return ensure_topic(session.parts.kafka, topic)


def send_dead_letters(session: Session, transaction: Transaction, paths: Sequence[str]) -> None:
    """Send a committed interval's bad records to the dead-letter topic, if the pipeline names one.

    Exactly once, in chunks: the Kafka transaction of each has a note of how far the interval's letters were sent, and a
    step that is repeated goes on from there. Their order is that of the quarantine's committed files.

    The topic is the pipeline file's as it is now: where START-COMMIT's can't be used any more, a table has to get on
    once the file names another one, or none. What the old one has of the interval, it keeps; the new one gets all.

    Args:
        session: the pipeline's clusters.
        transaction: the interval.
        paths: its files in the quarantine, relative to it.

    Raises:
        RetryableError, ActionRequiredError: Kafka doesn't answer, or the topic can't be used.
    """
    start = transaction.start
    statuses = set_aside(transaction).values()
    if start.quarantine is None or not statuses:
        return
    errors = session.pipeline.errors  # not START-COMMIT's: whoever writes to that topic could name any
    topic = errors.dead_letter_topic
    if topic != start.records.errors.dead_letter_topic:
        log.warning(
            "the dead-letter topic was changed in the pipeline file while the interval was open",
            instant=transaction.id,
            was=start.records.errors.dead_letter_topic,
            sent_to=topic,
        )
    if topic is None:
        return
    limit = prepare_dead_letters(session)
    identity = identity_of("dead-letters", start.writer.name, start.table)
    letters = sum(status.records_quarantined for status in statuses)
    with TransactionalSender(session.parts.kafka, identity) as sender:
        sent = _sent(session, sender, topic, transaction.id, letters)
        reach("coordinator.before_dead_letters")
        if sent == letters:
            log.info("the dead letters were sent already", instant=transaction.id, topic=topic)
            return
        bad = quarantine_of(session.sink).bad_records(paths)
        notes = SentLetters(session.parts.kafka, topic, session.table_id)
        for chunk in chunks(islice(_letters(session.pipeline.name, start, topic, limit, bad), sent, None)):
            sent += len(chunk)
            sender.send([*chunk, notes.note(Sent(transaction.id, sent))])
            reach(f"coordinator.dead_letters_{sent}")
    log.info("dead letters sent", instant=transaction.id, topic=topic, records=sent)


def _sent(session: Session, sender: TransactionalSender, topic: str, instant: str, letters: int) -> int:
    """How many of the interval's letters were sent, by processes that `sender` has fenced out.

    A later interval's stand only where all of this one's do.
    """
    last = SentLetters(session.parts.kafka, topic, session.table_id).last()
    if last is None:  # intervals of earlier versions were sent whole
        before = sender.remembered(topic)
        return letters if before is not None and before >= instant else 0
    if last.instant > instant:
        return letters
    return last.letters if last.instant == instant else 0


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
    # The names that consumers of dead letters know: they are of releases that had these modules elsewhere.
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
    log = log_read(start, record.topic)
    ours |= {name: id_ for name, id_ in (("topic_id", log.topic), ("cluster_id", log.cluster)) if id_ is not None}
    return [
        *((f"__connect.errors.{name}", str(value).encode()) for name, value in connect.items()),
        *((f"sluice.{name}", str(value).encode()) for name, value in ours.items()),
    ]
