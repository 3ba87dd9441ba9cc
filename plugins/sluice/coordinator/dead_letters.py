"""The dead-letter topic: fed from the quarantine's committed files, a chunk of letters in each Kafka transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice

from sluice.connectors.sink import quarantine_of
from sluice.coordinator.session import Session
from sluice.coordinator.sources import AT_ONCE
from sluice.errors import ActionRequiredError, RetryableError
from sluice.failpoints import reach
from sluice.kafka.config import KafkaSettings
from sluice.kafka.rights import READ, WRITE, require_rights
from sluice.kafka.sent_letters import SUFFIX, Sent, SentLetters
from sluice.kafka.transactional import Headers, Record, TransactionalSender, chunks, ensure_topic, identity_of
from sluice.logs import log
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.mapping import ClusterAddress
from sluice.protocol.messages import StartCommit
from sluice.protocol.quarantine import Quarantined, log_read, logs_by_row_topic, set_aside
from sluice.protocol.transaction import Transaction
from sluice.records.settings import CONVERTERS

_STAGES = {"key": "KEY_CONVERTER", "value": "VALUE_CONVERTER", "row": "TRANSFORMATION"}  # Connect's names
_EXCEPTION = "org.apache.kafka.connect.errors.DataException"  # what Connect's own converters throw
_BATCH_OVERHEAD = 1024


@dataclass(frozen=True)
class _Destination:
    """A cluster that gets the dead letters of some clusters, by their names in offsets."""

    kafka: KafkaSettings
    of: frozenset[str]


def prepare_dead_letters(session: Session) -> None:
    """See before anything is decided that the pipeline's dead-letter topic, and that of the notes, can be written.

    With streams, on each cluster that is read now.

    Raises:
        RetryableError, ActionRequiredError: Kafka doesn't answer, one of them is read as well, is not there and can't
            be created, or may not be written.
    """
    topic = session.pipeline.errors.dead_letter_topic
    if topic is None:
        return
    own = {topic, f"{topic}{SUFFIX}"}
    if not own.isdisjoint(session.topics):
        raise ActionRequiredError(
            "The dead-letter topic is one of the topics that are read, so a bad record would come again and again.",
            next_step="name another one in errors.dead_letter_topic, or take it out of the mapping.",
            table=session.table_id,
            topic=", ".join(sorted(own.intersection(session.topics))),
        )
    streams = session.followed.known if session.followed is not None else None
    destinations = _destinations(session, streams, session.sources.names)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda one: _require_usable(session, one.kafka, topic), destinations))


def _require_usable(session: Session, kafka: KafkaSettings, topic: str) -> None:
    """See that both topics are there, and may be written: else the first bad record would be the one to say so."""
    _ensure(session, kafka, topic)
    require_rights(kafka, {topic: (WRITE,), f"{topic}{SUFFIX}": (READ, WRITE)})


def _ensure(session: Session, kafka: KafkaSettings, topic: str) -> int:
    """See that both topics are there; returns the dead-letter topic's message limit in bytes."""
    SentLetters(kafka, topic, session.table_id).ensure()
    return ensure_topic(kafka, topic)


def _destinations(session: Session, streams: KnownStreams | None, clusters: Iterable[str]) -> list[_Destination]:
    """Where dead letters go: to the cluster that they are from, unless the pipeline file names another one.

    Args:
        session: the pipeline's clusters.
        streams: where streams are; None where the pipeline names its topics itself.
        clusters: the clusters that letters may be from.
    """
    parts, own = session.parts, session.pipeline.errors.dead_letter_connection
    of = frozenset(clusters)
    if own is not None:
        return [_Destination(parts.kafka_of(own, ClusterAddress(connection=own)), of)]
    if streams is None:
        return [_Destination(parts.kafka, of)]
    return [_Destination(parts.kafka_of(name, streams.clusters[name]), frozenset([name])) for name in sorted(of)]


def send_dead_letters(session: Session, transaction: Transaction, paths: Sequence[str]) -> None:
    """Send a committed interval's bad records to the dead-letter topic, if the pipeline names one.

    Exactly once, in chunks: the Kafka transaction of each has a note of how far the interval's letters were sent to
    that cluster, and a repeated step continues from there. Before each the id is taken anew and the note looked
    at. Their order is that of the quarantine's committed files.

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
    statuses = set_aside(transaction)
    if start.quarantine is None or not statuses:
        return
    errors = session.pipeline.errors  # not START-COMMIT's: any writer to the control topic could name another
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
    clusters = {r.cluster for number in statuses for r in start.ranges[number]}
    logs = logs_by_row_topic(start)
    for there in _destinations(session, start.streams, clusters):
        bad = quarantine_of(session.sink).bad_records(paths)
        if there.of != clusters:
            bad = (record for record in bad if logs[record.topic][0] in there.of)
            first = next(bad, None)
            if first is None:
                continue
            bad = chain([first], bad)
        _send(session, transaction, topic, there, bad)


def _send(
    session: Session, transaction: Transaction, topic: str, there: _Destination, bad: Iterator[Quarantined]
) -> None:
    start, kafka, clusters = transaction.start, there.kafka, tuple(sorted(there.of))
    limit = _ensure(session, kafka, topic)
    identity = identity_of("dead-letters", start.writer.name, start.table)
    most = sum(status.records_quarantined for status in set_aside(transaction).values())
    where = {"instant": transaction.id, "topic": topic, "cluster": kafka.name}
    # Where the interval's START has to be signed to count, so have the notes of its letters.
    signed = bool(kafka.control_secrets) and session.control.signatures.are_required(
        start.table, transaction.start_offset
    )
    with TransactionalSender(kafka, identity) as sender:
        notes = SentLetters(kafka, topic, session.table_id, all_signed=signed)
        last = notes.last()
        if last is None:  # intervals of earlier versions were sent whole; nothing signs what a group remembers
            before = sender.remembered(topic) if not signed else None
            sent = most if before is not None and before >= transaction.id else 0
        else:
            sent = last.of(transaction.id, clusters, most)
        first = sent
        reach("coordinator.before_dead_letters")
        if sent == most:
            log.info("the dead letters were sent already", **where)
            return
        for chunk in chunks(islice(_letters(session.pipeline.name, start, topic, limit, bad), sent, None)):
            if sent > first:
                sender.take_anew()
                _require_last(notes, Sent(transaction.id, sent, clusters), where)
            sent += len(chunk)
            sender.send([*chunk, notes.note(Sent(transaction.id, sent, clusters))])
            reach(f"coordinator.dead_letters_{sent}")
    log.info("dead letters sent", records=sent, **where)


def _require_last(notes: SentLetters, own: Sent, where: Mapping[str, str]) -> None:
    if notes.last() != own:
        raise RetryableError(
            "Another process has sent dead letters of this table meanwhile.",
            next_step="none: the step is retried, and continues after them.",
            **where,
        )


def _letters(pipeline: str, start: StartCommit, topic: str, limit: int, bad: Iterator[Quarantined]) -> Iterator[Record]:
    assert start.quarantine is not None
    logs = logs_by_row_topic(start)
    words = f"more than the topic takes; the whole record is in the quarantine {start.quarantine.path}"
    for record in bad:
        context = _context(pipeline, start, record, logs.get(record.topic, (None, record.topic)))
        cut = [*context, ("sluice.left_out", words.encode())]
        if record.left_out is not None:
            gone = f"{record.left_out}: more than the topic of bad records takes; the whole record is at its place"
            context = cut = [*context, ("sluice.left_out", gone.encode())]
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


def _context(pipeline: str, start: StartCommit, record: Quarantined, place: tuple[str | None, str]) -> Headers:
    """Connect's context headers, then ours; `place` is the record's cluster and topic."""
    pinned = start.records.key if record.stage == "key" and start.records.key else start.records.value
    name = pinned.converter
    converter = f"sluice.rows.converters.{name}.Converter" if name in CONVERTERS else name
    connect = {
        "topic": place[1],
        "partition": record.partition,
        "offset": record.offset,
        "connector.name": pipeline,
        "task.id": record.range_number,
        "stage": _STAGES.get(record.stage, "TRANSFORMATION"),
        "class.name": converter if record.stage in ("key", "value") else "sluice.rows.records.RecordChain",
        "exception.class.name": _EXCEPTION,
        "exception.message": record.reason,
    }
    ours = {"instant": record.instant, "range": record.range_number, "reason": record.reason}
    log = log_read(start, record.topic)
    known = {"cluster": place[0], "topic_id": log.topic, "cluster_id": log.cluster}
    ours |= {name: value for name, value in known.items() if value is not None}
    return [
        *((f"__connect.errors.{name}", str(value).encode()) for name, value in connect.items()),
        *((f"sluice.{name}", str(value).encode()) for name, value in ours.items()),
    ]
