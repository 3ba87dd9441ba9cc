"""The note of a commit: what is written is read again, and notes of other releases and of other writers are, too."""

from __future__ import annotations

import json

import pytest
from protocol_messages import INSTANT, TABLE, end, start, status

from sluice.errors import ActionRequiredError
from sluice.protocol.commit_note import NO_NOTE, CommitNote, RangeRead, commit_note, read_note
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.offsets import TRANSACTION_KEY
from sluice.protocol.settlement import REMEMBERED_INTERVALS, committed_statuses
from sluice.protocol.transaction import TableLog

WHOLE = CommitNote(
    instant="20260101000000000",
    epoch=3,
    control_topic="control",
    control_offset=7,
    recent_control_offsets=(1, 7),
    records_read=5,
    records_written=5,
    average_record_bytes=12.5,
    valid_through="2026-01-01T00:00:00.250001+00:00",
    streams=KnownStreams(digest="d"),
    ranges=(RangeRead(cluster="kafka", topic="t", partition=0, start=0, end=5, records=5),),
    file_groups={"t[0]": ("g",)},
    table_partitions=("day=1",),
)


def _note(**fields: object) -> dict[str, str]:
    return {TRANSACTION_KEY: json.dumps(fields)}


def test_what_is_written_is_read_again():
    assert read_note(WHOLE.metadata()) == WHOLE
    assert json.loads(WHOLE.metadata()[TRANSACTION_KEY])["ranges"][0]["topic"] == "t"


def test_a_note_says_nothing_of_what_is_not_its_subject():
    """A quarantine's commit has four fields of an interval's."""
    note = CommitNote(instant="1", table="file:///t", dag_id="d", run_id="r")
    assert json.loads(note.metadata()[TRANSACTION_KEY]) == {
        "instant": "1",
        "table": "file:///t",
        "dag_id": "d",
        "run_id": "r",
    }


def test_a_commit_of_another_writer_has_none():
    assert read_note({"schema": "{}"}) is NO_NOTE
    assert not NO_NOTE.is_ours
    assert NO_NOTE.started_at == (0,)


def test_a_note_of_an_earlier_release_lacks_what_came_later():
    """Its ranges have no counts, it doesn't name its control topic, and one offset is all that it knows of."""
    ranges = [{"cluster": "kafka", "topic": "t", "partition": 0, "start": 0, "end": 5}]
    found = read_note(_note(instant="1", control_offset=4, records_read=5, ranges=ranges, of_a_later_one={"x": 1}))
    assert (found.is_ours, found.started_at, found.control_topic, found.placement) == (True, (4,), None, None)
    assert found.ranges[0].records is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no JSON", "Expecting value"),
        ("[]", "the note: "),
        ('{"control_offset": "nine"}', "control_offset: "),
        ('{"ranges": [{"topic": "t"}]}', "ranges.0."),
        ('{"instant": {"password": "hunter2"}}', "instant: "),
    ],
)
def test_one_that_can_t_be_read_is_an_error_that_says_where_and_shows_no_value(text, why):
    with pytest.raises(ActionRequiredError, match="note in the extra metadata") as caught:
        read_note({TRANSACTION_KEY: text})
    assert why in caught.value.where["reason"]
    assert "hunter2" not in str(caught.value)


def _made(*messages: object, earlier: tuple[int, ...] = ()) -> CommitNote:
    """The note of an interval of two ranges, whose START-COMMIT is at offset 30."""
    log = TableLog(TABLE).extend(enumerate([start(INSTANT, ranges=2, on_missing_range="commit"), *messages], 30))  # type: ignore[list-item]
    transaction = log.transactions[INSTANT]
    return commit_note(transaction, committed_statuses(transaction), earlier, {}, "control")


def test_a_note_names_the_table_partitions_that_were_written_in_and_those_that_lost_attempts_had_opened():
    """A late attempt may finish a file there long after: later intervals sweep these partitions."""
    written = ({"numWrites": 6, "partitionPath": "day=1"}, {"numWrites": 4, "partitionPath": "day=2"})
    decided = end(INSTANT, missing=(1,), table_partitions=("day=2", "day=3"))
    note = _made(status(INSTANT, stats=written), decided, status(INSTANT, 1, stats=({"partitionPath": "day=4"},)))
    assert note.table_partitions == ("day=1", "day=2", "day=3")


def test_a_note_says_what_each_range_has_read_and_the_average_size_of_a_record():
    note = _made(status(INSTANT, 1), status(INSTANT), end(INSTANT, reported=(0, 1)))
    assert [(r.partition, r.start, r.end, r.records) for r in note.ranges] == [(0, 0, 10, 10), (1, 0, 10, 10)]
    assert (note.records_read, note.average_record_bytes) == (20, 10.0)


def test_a_note_remembers_the_last_intervals_its_own_the_last():
    assert _made(status(INSTANT), earlier=(3, 7)).recent_control_offsets == (3, 7, 30)
    many = _made(status(INSTANT), earlier=tuple(range(REMEMBERED_INTERVALS))).recent_control_offsets
    assert (many[0], many[-1], len(many)) == (1, 30, REMEMBERED_INTERVALS)
