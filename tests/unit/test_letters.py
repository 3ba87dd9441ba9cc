"""Dead letters: to which cluster a bad record goes, what of it fits into the topic, and what it says of itself."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_messages import INSTANT, TABLE, WRITER, ack, end, start, status

from sluice.coordinator import dead_letters
from sluice.coordinator.dead_letters import (
    _BATCH_OVERHEAD,
    _destinations,
    _letters,
    _require_last,
    prepare_dead_letters,
    send_dead_letters,
)
from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.sent_letters import Sent
from sluice.kafka.transactional import Record
from sluice.protocol.identity import LogId
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.mapping import ClusterAddress
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice.protocol.quarantine import Quarantined
from sluice.protocol.transaction import TableLog
from sluice.records.settings import Errors

EAST, WEST = ClusterAddress(connection="k_east"), ClusterAddress(connection="k_west")
STREAMS = KnownStreams(clusters={"east": EAST, "west": WEST})


def _session(topic: str | None = "dead", *, connection: str | None = None, reads: tuple[str, ...] = ("t",)) -> Any:
    return SimpleNamespace(
        table_id=TABLE,
        topics=reads,
        followed=None,
        sink=None,
        sources=SimpleNamespace(names=("kafka",)),
        pipeline=SimpleNamespace(
            name="p", errors=SimpleNamespace(dead_letter_topic=topic, dead_letter_connection=connection)
        ),
        parts=SimpleNamespace(kafka="the source's", kafka_of=lambda name, address: (name, address.connection)),
    )


def _bad(offset: int = 3, topic: str = "t", **more: Any) -> Quarantined:
    fields = {"instant": INSTANT, "partition": 0, "reason": "no JSON", "stage": "value", "range_number": 0, **more}
    return Quarantined(topic=topic, offset=offset, run_id="run", log=LogId(), **fields)


def _start(*clusters: str) -> StartCommit:
    """An interval of one range that reads topic `t` of some clusters, named in rows by its cluster."""
    ranges = tuple(
        PlannedRange(cluster=name, topic="t", partition=0, start=0, end=10, row_topic=f"{name}/t") for name in clusters
    )
    quarantine = WRITER.model_copy(update={"path": f"{TABLE}_quarantine"})
    made = start(INSTANT, quarantine=quarantine, cluster_ids={name: name.upper() for name in clusters})
    records = made.records.model_copy(update={"errors": Errors(tolerance="all", dead_letter_topic="dead")})
    return made.model_copy(update={"records": records, "ranges": (ranges,)})


# Topics


@pytest.mark.parametrize(
    ("letters", "reads", "is_refused"),
    [("dead", ("t",), False), ("dead", ("t", "dead"), True), ("dead", ("dead.sent",), True), (None, ("dead",), False)],
)
def test_a_dead_letter_topic_that_is_read_is_refused_before_an_interval_is_opened(
    letters, reads, is_refused, monkeypatch
):
    ensured: list[Any] = []
    usable = lambda _session, kafka, topic: ensured.append((kafka, topic))  # noqa: E731
    monkeypatch.setattr(dead_letters, "_require_usable", usable)
    refused = pytest.raises(ActionRequiredError, match="again and again") if is_refused else nullcontext()
    with refused:
        prepare_dead_letters(_session(letters, reads=reads))
    assert ensured == ([("the source's", "dead")] if letters and not is_refused else [])


@pytest.mark.parametrize(
    ("connection", "streams", "clusters", "expected"),
    [
        (None, None, ["kafka"], [("the source's", {"kafka"})]),
        (None, STREAMS, ["west", "east"], [(("east", "k_east"), {"east"}), (("west", "k_west"), {"west"})]),
        (None, STREAMS, ["west"], [(("west", "k_west"), {"west"})]),
        ("own", STREAMS, ["west", "east"], [(("own", "own"), {"west", "east"})]),
        ("own", None, ["kafka"], [(("own", "own"), {"kafka"})]),
    ],
    ids=["one cluster", "streams", "of one of them", "streams to one cluster", "another cluster"],
)
def test_letters_go_to_the_cluster_that_they_are_from_unless_the_file_names_another(
    connection, streams, clusters, expected
):
    found = _destinations(_session(connection=connection), streams, clusters)
    assert [(one.kafka, one.of) for one in found] == expected


def _sent(session: Any, begun: StartCommit, records: list[Quarantined], monkeypatch: Any, **counts: int) -> list[Any]:
    sent: list[Any] = []
    keeps = SimpleNamespace(bad_records=lambda paths: iter(records) if paths == ["one.parquet"] else None)
    monkeypatch.setattr(dead_letters, "quarantine_of", lambda _: keeps)
    monkeypatch.setattr(
        dead_letters,
        "_send",
        lambda _session, _transaction, topic, there, bad: sent.append((topic, there.kafka, [r.offset for r in bad])),
    )
    set_aside = {"records_quarantined": len(records), "records_written": 10 - len(records), **counts}
    log = TableLog(TABLE).extend(enumerate([begun, status(INSTANT, **set_aside), end(INSTANT), ack(INSTANT)]))
    send_dead_letters(session, log.transactions[INSTANT], ["one.parquet"])
    return sent


def test_of_streams_each_cluster_gets_its_own_letters_and_one_without_any_gets_none(monkeypatch):
    begun = _start("east", "west", "north").model_copy(update={"streams": _known("east", "west", "north")})
    records = [_bad(1, "west/t"), _bad(2, "east/t"), _bad(3, "west/t")]
    assert _sent(_session(), begun, records, monkeypatch) == [
        ("dead", ("east", "k_east"), [2]),
        ("dead", ("west", "k_west"), [1, 3]),
    ]


def _known(*names: str) -> KnownStreams:
    return KnownStreams(clusters={name: ClusterAddress(connection=f"k_{name}") for name in names})


def test_letters_of_one_cluster_go_as_they_are_and_to_the_topic_that_the_file_names_now(monkeypatch):
    begun, records = _start("kafka"), [_bad(2), _bad(1)]
    assert _sent(_session(), begun, records, monkeypatch) == [("dead", "the source's", [2, 1])]
    assert _sent(_session("new"), begun, records, monkeypatch) == [("new", "the source's", [2, 1])]
    assert _sent(_session(None), begun, records, monkeypatch) == []


def test_an_interval_without_bad_records_or_without_a_quarantine_sends_none(monkeypatch):
    assert _sent(_session(), _start("kafka"), [], monkeypatch) == []
    without = _start("kafka").model_copy(update={"quarantine": None})
    assert _sent(_session(), without, [_bad()], monkeypatch) == []


def test_letters_that_another_process_sends_meanwhile_are_not_sent_twice():
    own = Sent(INSTANT, 2, ("kafka",))
    notes: Any = SimpleNamespace(last=lambda: own)
    _require_last(notes, own, {})
    for last in (None, Sent(INSTANT, 4, ("kafka",))):
        notes.last = lambda last=last: last
        with pytest.raises(RetryableError, match="Another process"):
            _require_last(notes, own, {})


# Letters


def _letter(record: Quarantined, limit: int = 1 << 20) -> Record:
    (made,) = _letters("p", _start("kafka"), "dead", limit, iter([record]))
    return made


def _said(letter: Record) -> dict[str, str]:
    return {name: (value or b"").decode() for name, value in letter.headers}


def test_a_letter_is_the_record_with_its_place_and_its_problem_as_connect_and_sluice_say_them():
    at = datetime(2026, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)
    letter = _letter(_bad(topic="kafka/t", key=b"k", value=b"v", headers=(("own", None),), timestamp=at))
    assert (letter.topic, letter.key, letter.value, letter.timestamp) == ("dead", b"k", b"v", 1_767_225_600_250)
    assert letter.headers[0] == ("own", None)
    said = _said(letter)
    assert {name: said[f"__connect.errors.{name}"] for name in ("topic", "partition", "offset", "stage")} == {
        "topic": "t",
        "partition": "0",
        "offset": "3",
        "stage": "VALUE_CONVERTER",
    }
    assert said["__connect.errors.connector.name"] == "p"
    assert (said["sluice.cluster"], said["sluice.cluster_id"]) == ("kafka", "KAFKA")
    assert (said["sluice.instant"], said["sluice.reason"]) == (INSTANT, "no JSON")
    assert "sluice.topic_id" not in said  # not known
    assert "sluice.left_out" not in said


def test_a_letter_of_a_topic_that_the_interval_does_not_name_says_nothing_of_its_cluster():
    letter = _letter(_bad(topic="of a release before", stage="other"))
    said = _said(letter)
    assert letter.timestamp is None
    assert (said["__connect.errors.topic"], said["__connect.errors.stage"]) == ("of a release before", "TRANSFORMATION")
    assert "sluice.cluster" not in said


@pytest.mark.parametrize(
    ("stage", "named"), [("key", "converters"), ("value", "converters"), ("row", "sluice.rows.records.RecordChain")]
)
def test_a_letter_names_what_failed(stage, named):
    assert named in _said(_letter(_bad(stage=stage)))["__connect.errors.class.name"]


LARGE = b"x" * 5000


@pytest.mark.parametrize(
    ("record", "kept"),
    [
        ({"key": b"k", "value": LARGE}, (True, False, True)),
        ({"key": b"k", "value": LARGE, "headers": (("own", LARGE),)}, (True, False, False)),
        ({"key": LARGE, "value": b"v"}, (False, False, False)),
    ],
    ids=["a large value", "large headers", "a large key"],
)
def test_of_a_record_that_is_too_large_for_the_topic_the_rest_is_sent_and_it_says_where_the_whole_is(record, kept):
    record = {"headers": (("own", b"h"),), **record}
    letter = _letter(_bad(**record), limit=4000)
    own = letter.headers[0][0] == "own"
    assert (letter.key is not None, letter.value is not None, own) == kept
    assert f"{TABLE}_quarantine" in _said(letter)["sluice.left_out"]
    assert letter.size + _BATCH_OVERHEAD <= 4000


def test_a_record_that_fits_to_the_byte_is_whole():
    record = _bad(key=b"k", value=b"v" * 100, topic="kafka/t")
    size = _letter(record).size + _BATCH_OVERHEAD
    assert _letter(record, limit=size).value == b"v" * 100
    assert _letter(record, limit=size - 1).value is None


def test_a_record_that_the_quarantine_does_not_have_whole_says_so():
    said = _said(_letter(_bad(left_out="its value")))
    assert said["sluice.left_out"].startswith("its value: more than the topic of bad records takes")
