"""Files have each record once, whatever dies, stands still or is run twice; and a reader who lists them sees as much.

Intervals are run by the product's own commands, as processes of their own where one has to die.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from sluice.errors import ActionRequiredError, IntervalError, SluiceError
from sluice.protocol.messages import AckCommit, EndCommit, StartCommit, WriteStatus
from sluice.protocol.offsets import TRANSACTION_KEY

from ..thorough import also
from .harness import Pause, finish, once_the_lease_is_free, wait_for
from .harness.files import FileFlow, rows_of
from .harness.streams import Streams, two_clusters

LAYOUTS = ["interval", "connect"]


@pytest.fixture
def make_files(tmp_path, bootstrap, shared_jvm, drivers, topic_name):
    def make(partitions: int = 2, **settings) -> FileFlow:
        flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, topic_name("t"), **settings)
        flow.create_topic(partitions)
        return flow

    return make


def _settled(flow: FileFlow) -> None:
    """Rows are the records, and nothing is left beside the log."""
    flow.check()
    assert flow.left() == []
    assert flow.committed() == list(range(1, len(flow.log()) + 1))


@pytest.mark.thorough
def test_intervals_by_the_commands_of_the_product(make_files):
    flow = make_files(write__ranges=2, sink__files__layout="connect", sink__files__topics_dir="topics")
    flow.produce(300)
    started = flow.step("start", "--run-id", "first").started()
    jobs = [flow.write_alone(started, number) for number in range(2)]
    for job in jobs:
        job.succeed()
    assert flow.files() == {}
    committed = flow.step("commit", "--control-offset", str(started.control_offset))
    assert committed.status == 0, committed.err
    _settled(flow)
    assert [type(m) for m in flow.messages()] == [StartCommit, WriteStatus, WriteStatus, EndCommit, AckCommit]
    t = flow.topic
    names = {f"{t}/partition={p}/{t}+{p}+0000000000+0000000149.avro" for p in (0, 1)}
    assert flow.files().keys() == names
    (record,) = flow.log()
    assert (record["rows"], record["transaction"]) == (300, started.instant)
    assert {one["path"] for one in record["files"]} == {f"topics/{name}" for name in names}
    flow.produce(10)
    flow.interval()
    _settled(flow)
    assert flow.files().keys() - names == {f"{t}/partition={p}/{t}+{p}+0000000150+0000000154.avro" for p in (0, 1)}
    for name, file in flow.files().items():  # each file has the records of its name, in their order
        partition, start, end = map(int, name.removesuffix(".avro").rpartition("/")[2].split("+")[1:])
        own = [s for s in flow.sent if s.partition == partition and start <= s.offset <= end]
        assert rows_of(file) == [(s.id, s.value) for s in sorted(own, key=lambda s: s.offset)]
    flow.interval_is_empty()


@pytest.mark.parametrize("layout", ["connect", *also("interval")])
def test_killed_between_any_two_renames_while_a_reader_lists(make_files, layout):
    """At each point another interval's commit is killed; the same run or the next one goes on."""
    flow = make_files(sink__files__layout=layout)
    flow.produce(20)
    flow.interval()
    points = ["before_log", "before_publish_0", "before_publish_1", "before_publish", "before_committed_mark"]
    if layout == "connect":
        points.remove("before_publish")  # the one rename of the other layout
    with flow.reader() as reader:
        for number, point in enumerate(points):
            flow.produce(20)
            started = flow.start()
            flow.write_all(started)
            before = flow.rows(metadata=False)
            commit = ("commit", "--control-offset", str(started.control_offset))
            step = flow.step(*commit, failpoint=f"sink.{point}=kill")
            assert step.killed, step.err
            assert len(flow.log()) == number + (1 if point == "before_log" else 2)
            if layout == "interval" and point != "before_committed_mark":
                assert flow.rows(metadata=False) == before
            if number % 2:
                again = flow.step(*commit)
                assert again.status == 0, again.err
            else:
                flow.interval_is_empty()  # its START goes on with the commit, and finds nothing more to read
            _settled(flow)
    _saw_whole_files_only(reader.seen, flow)
    if layout == "interval":
        _saw_whole_intervals_only(reader.seen, flow)


def _saw_whole_files_only(seen, flow: FileFlow) -> None:
    sizes = {name: file.stat().st_size for name, file in flow.files().items()}
    assert len(seen) > 3
    for listing in seen:
        assert all(sizes[name] == size for name, size in listing)
    for earlier, later in pairwise(seen):
        assert earlier <= later, "a file that was visible went"


def _saw_whole_intervals_only(seen, flow: FileFlow) -> None:
    whole = Counter(name.partition("/")[0] for name in flow.files())
    for listing in seen:
        found = Counter(name.partition("/")[0] for name, _ in listing)
        assert all(whole[interval] == number for interval, number in found.items())


ENDS = ["aborted", "superseded", "committed"]


@pytest.mark.parametrize("end", [ENDS[-1], *also(*ENDS[:-1])])
def test_a_zombie_makes_nothing_visible_and_is_swept_up(make_files, end):
    flow = make_files(sink__files__layout="connect")
    flow.produce(40)
    run = flow.run()
    started = flow.start(run)
    zombie = flow.zombie(started)
    if end == "aborted":
        assert flow.abort(run).state == "aborted"
    elif end == "superseded":
        flow.interval()
    else:
        flow.write(started).succeed()
        flow.commit(started)
    before = flow.rows(metadata=False)
    zombie.write()
    assert flow.left() == [started.instant], "the zombie wrote nothing, so this test shows nothing"
    assert flow.rows(metadata=False) == before
    zombie.hear()
    assert "not open any more" in zombie.job.text()
    flow.produce(10)
    flow.interval()
    _settled(flow)


@pytest.mark.thorough
def test_a_commit_that_stands_still_before_the_log_cannot_be_completed_after_an_abort(make_files):
    flow = make_files(control__commit_timeout="2 seconds", control__clock_wait="1 second")
    flow.produce(20)
    run = flow.run()
    started = flow.start(run)
    flow.write_all(started)
    frozen, committing = flow.frozen_commit(started, "sink.before_log")
    assert once_the_lease_is_free(lambda: flow.abort(run)).state == "aborted"
    frozen.release()
    late = finish(committing)
    assert late.status != 0
    assert flow.log() == []
    assert flow.files() == {}
    flow.interval()
    _settled(flow)


@pytest.mark.parametrize("point", also("before_publish", "before_publish_0", "before_committed_mark"))
def test_a_commit_that_stands_still_while_it_publishes_is_finished_by_the_next_start(make_files, point):
    """And changes nothing when it wakes up."""
    flow = make_files(control__commit_timeout="2 seconds", control__clock_wait="1 second")
    flow.produce(20)
    started = flow.start()
    flow.write_all(started)
    frozen, committing = flow.frozen_commit(started, f"sink.{point}")
    os.killpg(committing.pid, signal.SIGSTOP)  # all of it, as a machine stands still
    once_the_lease_is_free(lambda: flow.coordinator().start(flow.run()))
    _settled(flow)
    flow.produce(20)
    flow.interval()
    files = flow.files()
    os.killpg(committing.pid, signal.SIGCONT)
    frozen.release()
    late = finish(committing)
    assert late.status == 0, late.err
    assert flow.files() == files
    _settled(flow)


def test_an_aborted_commit_that_reached_the_log_is_taken_off_before_anybody_sees_it(make_files):
    """Aborted between its look at the topic and its rename: of all orders the worst."""
    flow = make_files(control__commit_timeout="2 seconds", control__clock_wait="1 second")
    flow.produce(20)
    started = flow.step("start", "--run-id", "first").started()
    flow.write_all(started)
    frozen, committing = flow.frozen_commit(started, "sink.before_log")
    half = Pause("coordinator.after_abort_commit", flow.folder)  # ABORT-COMMIT stands, nothing is rolled back yet
    aborting = once_the_lease_is_free(
        lambda: _reached(half, flow.spawn("abort", "--run-id", "first", failpoint=half.failpoint))
    )
    frozen.release()
    late = finish(committing)
    assert late.status != 0
    assert "completed after it had been aborted" in late.out + late.err, late.err
    assert flow.log() == []
    assert flow.files() == {}
    half.release()
    assert finish(aborting).status == 0
    flow.interval()
    _settled(flow)


def _reached(pause: Pause, step):
    """The step, standing still; None if it ended, since the lease was not free."""
    wait_for(lambda: pause.reached() or step.poll() is not None, "the step")
    if pause.reached():
        return step
    ended = finish(step)
    assert "committing this table just now" in ended.err, ended
    return None


def test_each_step_twice(make_files):
    flow = make_files()
    flow.produce(20)
    run = flow.run()
    flow.start(run)
    started = flow.start(run)
    flow.write_all(started)
    flow.write_all(started)
    assert flow.commit(started).state == "committed"
    assert flow.commit(started).state == "committed"
    assert flow.abort(run).state == "nothing"
    _settled(flow)
    assert len(flow.log()) == 1


def test_an_aborted_interval_leaves_nothing_and_is_loaded_by_the_next(make_files):
    flow = make_files()
    flow.produce(20)
    run = flow.run()
    started = flow.start(run)
    flow.write_all(started)
    assert flow.abort(run).state == "aborted"
    assert flow.files() == {}
    assert flow.left() == []
    with pytest.raises(IntervalError):
        flow.commit(started)
    flow.interval()
    _settled(flow)


def test_a_participant_that_dies_is_repeated(make_files):
    flow = make_files()
    flow.produce(20)
    started = flow.start()
    job = flow.write(started, 0, failpoint="participant.after_write=kill")
    assert job.wait() is None
    flow.write_all(started)
    flow.commit(started)
    _settled(flow)


def test_a_replay_is_refused_and_a_backfill_adds_what_is_missing(make_files):
    flow = make_files(1)
    flow.produce(20, partitions=(0,), dated=round(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000))
    flow.set(source__kafka__starting_offsets={flow.topic: {0: 10}})
    flow.interval()
    assert len(flow.rows(metadata=False)) == 10
    day = datetime(2026, 1, 1, tzinfo=UTC)
    flow.interval(kind="backfill", from_time=day - timedelta(1), to_time=day + timedelta(1))
    _settled(flow)
    with pytest.raises(ActionRequiredError, match="nothing can be replayed"):
        flow.start(flow.run(kind="replay", instant=flow.log()[0]["transaction"]))
    assert len(flow.log()) == 2


def test_a_topic_that_was_made_again_never_goes_over_files_of_the_first(make_files):
    flow = make_files(1, sink__files__layout="connect", source__kafka__on_offset_loss="earliest")
    flow.produce(10, partitions=(0,))
    flow.interval()
    first = {name: file.read_bytes() for name, file in flow.files().items()}
    flow.create_again()
    flow.produce(10, partitions=(0,))
    started = flow.start()
    flow.write_all(started)
    with pytest.raises(SluiceError, match="a file already of the name"):
        flow.commit(started)
    assert {name: file.read_bytes() for name, file in flow.files().items()} == first
    flow.set(sink__files__topics_dir="topics/again")
    flow.interval()
    assert flow.rows(metadata=False) == Counter((s.id, s.value) for s in flow.sent)
    assert len(flow.log()) == 2


def test_a_bad_record_is_named_and_nothing_is_committed(make_files):
    flow = make_files(1)
    flow.produce(5, partitions=(0,))
    offset = flow.produce_raw(b"no JSON")
    run = flow.run()
    job = flow.write(flow.start(run))
    assert job.wait() == 1
    assert f"offset={offset}" in job.text()
    flow.abort(run)
    assert (flow.files(), flow.left(), flow.log()) == ({}, [], [])


def test_the_log_says_what_the_commit_of_a_table_says(make_files):
    flow = make_files()
    flow.produce(20)
    flow.interval()
    note = flow.note()
    assert note["instant"] == flow.log()[0]["transaction"]
    assert flow.log()[0]["extra"].keys() >= {TRANSACTION_KEY, "sluice.offsets", "kafka.commit.offsets"}


@pytest.mark.parametrize("layout", ["connect", *also("interval")])
def test_topics_of_two_clusters_have_files_of_their_own(make_files, bootstrap, west, layout):
    """Topics, partitions and offsets are the same on both."""
    flow = make_files(partitions=1, sink__files__layout=layout)
    streams = two_clusters(Streams(flow, east=bootstrap, west=west))
    for _ in range(2):
        for cluster in ("east", "west"):
            streams.send(cluster, streams.topic, 20)
        assert flow.interval().records == 40
    streams.check(("east", streams.topic), ("west", streams.topic))
    assert flow.committed() == [1, 2]


@pytest.mark.thorough
def test_a_takeover_is_refused_for_streams(make_files, bootstrap, west):
    """Kafka Connect's names say nothing of clusters."""
    flow = make_files(partitions=1, sink__files__layout="connect", sink__files__takeover="confluent")
    streams = two_clusters(Streams(flow, east=bootstrap, west=west))
    streams.send("east", streams.topic, 5)
    file = flow.topics / streams.topic / f"{streams.topic}+0+0000000000+0000000001.avro"
    file.parent.mkdir(parents=True)
    file.touch()
    with pytest.raises(ActionRequiredError, match="streams may be on several"):
        flow.start()


def test_a_record_whose_field_is_no_time_is_a_bad_one_and_others_have_their_folders(make_files):
    """A text that ISO 8601 doesn't know as a time, and a number beyond all times."""
    by_time = {"partitioner": "daily", "timestamp_extractor": "record_field", "timestamp_field": "v"}
    flow = make_files(1, errors__tolerance="all", **{f"sink__files__{name}": value for name, value in by_time.items()})
    good = {
        "2024-02-29T22:15Z": "02/day=29", "2024-02-29T23:30-02:00": "03/day=01", "2024-03-02T01:00:00,5Z": "03/day=02",
        "2024-03-03": "03/day=03",
    }  # fmt: skip
    wrong = ["10:15:00", "T07:00", "neither", "2024", "2024-W09-4"]
    for number, at in enumerate([*good, *wrong]):
        flow.produce_raw(json.dumps({"id": number, "v": at}).encode())
    flow.produce_raw(b'{"id": 9}')
    outcome = flow.interval()
    assert outcome.records == len(good) + 1
    assert sum(m.records_quarantined for m in flow.messages() if isinstance(m, WriteStatus)) == len(wrong)
    folders = {name.split("/", 2)[2].rpartition("/")[0] for name in flow.files()}
    assert folders == {*(f"year=2024/month={day}" for day in good.values()), "__HIVE_DEFAULT_PARTITION__"}
    assert flow.verify().exit_code == 0
