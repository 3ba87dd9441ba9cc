"""Each line of a folder's files lands once, while files come, change, grow and go.

Real files, a real Kafka with their log, and real Spark.
"""

from __future__ import annotations

import gzip
import os

import pytest

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.transactional import ensure_topic
from sluice.sources.files.log import Appending, entries

from .harness import Pause
from .harness.files import FileFlow
from .harness.processes import kafka_settings


class Loaded:
    """A pipeline from a folder into files of another one."""

    def __init__(self, flow, folder, section):
        self.flow, self.folder, self.section = flow, folder, section

    def put(self, name, *lines, end="\n", at=None):
        """A file that appears whole, under its name."""
        file = self.folder / name
        file.parent.mkdir(exist_ok=True)
        text = "".join(f"{line}\n" for line in lines)
        new = file.with_name(f"{file.name}.tmp")
        new.write_text(text.removesuffix("\n") + end if text else "")
        if at is not None:
            os.utime(new, (at, at))
        new.rename(file)
        return file

    def add(self, name, text):
        with (self.folder / name).open("a") as file:
            file.write(text)

    def files(self):
        return sorted(str(one.relative_to(self.folder)) for one in self.folder.rglob("*") if one.is_file())

    def ids(self):
        return sorted(self.flow.rows(metadata=False).elements())

    def interval(self):
        self.flow.interval()
        return [number for number, _ in self.ids()]

    def refused(self):
        with pytest.raises(ActionRequiredError) as caught:
            self.flow.coordinator().start(self.flow.run())
        return str(caught.value)

    def fails(self, started):
        job = self.flow.write(started)
        assert job.wait() != 0
        return job.text()


@pytest.fixture
def make(tmp_path, bootstrap, shared_jvm, drivers, topic_name):
    """Makes such a pipeline: `make(grows=True)`."""

    def made(**section):
        folder = tmp_path / "in"
        folder.mkdir()
        name = topic_name("f")
        flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, name)
        files = {"path": str(folder), "log": f"files-{name}", "min_age": "0 seconds", "value": {"converter": "csv"}}
        section = {**files, **section}
        flow.set(source={"files": section}, control__connection="kafka_default")
        flow.set(sink__files__layout="connect", sink__files__topics_dir="topics")
        return Loaded(flow, folder, section)

    return made


def line(number, value=None):
    return f"{number},{value or f'v{number}'},p"


def test_new_files_are_read_once_whenever_they_come(make):
    """Late ones, too, which are older than those that were read; compressed or not; a last line needs no end."""
    loaded = make()
    loaded.put("b.csv", line(1), line(2))
    loaded.put("deep/c.csv", line(3), end="")
    loaded.put("empty.csv")
    loaded.put("_hidden.csv", line(98))
    (loaded.folder / "d.csv.tmp").write_text(line(7))
    (loaded.folder / "e %20.csv.gz").write_bytes(gzip.compress(f"{line(4)}\n{line(5)}\n".encode()))
    assert loaded.interval() == [1, 2, 3, 4, 5]
    loaded.flow.interval_is_empty()
    loaded.put("a.csv", line(6), at=1_000_000_000)
    (loaded.folder / "d.csv.tmp").rename(loaded.folder / "d.csv")
    assert loaded.interval() == [1, 2, 3, 4, 5, 6, 7]
    (loaded.folder / "b.csv").unlink()
    loaded.flow.interval_is_empty()


def test_a_backlog_is_read_in_parts_by_several_tasks(make):
    """Each interval has so many files of each partition of the log; the interval that follows has the next ones."""
    loaded = make(splits=2, max_files=2)
    for number in range(6):
        loaded.put(f"{number}.csv", line(number))
    counts = [len(loaded.interval())]
    assert 2 <= counts[0] <= 4
    while len(counts) < 3 and counts[-1] < 6:
        counts.append(len(loaded.interval()))
    assert [number for number, _ in loaded.ids()] == list(range(6))
    loaded.flow.interval_is_empty()


def test_a_replaced_file_is_told_and_never_mixed(make):
    """Before START, between START and the read, and while it is read; what was read stays."""
    loaded = make()
    loaded.put("a.csv", line(1), at=1_000_000_000)
    assert loaded.interval() == [1]
    loaded.put("b.csv", line(2), line(3))
    started = loaded.flow.start()
    kept = (loaded.folder / "b.csv").rename(loaded.folder / "b.kept.tmp")
    loaded.put("b.csv", line(7), line(8))
    assert "was replaced or changed after it was listed" in loaded.fails(started)
    (loaded.folder / "b.csv").unlink()
    assert "was deleted after it was listed" in loaded.fails(started)
    kept.rename(loaded.folder / "b.csv")
    pause = Pause("participant.after_write", loaded.folder.parent)
    job = loaded.flow.write(started, failpoint=pause.failpoint)
    pause.wait(job)
    loaded.put("b.csv", line(7), line(8))
    pause.release()
    assert job.wait() != 0
    assert "was replaced or changed after it was listed" in job.text()
    assert [number for number, _ in loaded.ids()] == [1]


def test_a_replaced_file_is_read_whole_or_not_at_all_by_choice(make):
    loaded = make(on_change="reread")
    loaded.put("a.csv", line(1), at=1_000_000_000)
    assert loaded.interval() == [1]
    loaded.put("a.csv", line(2), line(3))
    assert loaded.interval() == [1, 2, 3]
    loaded.flow.interval_is_empty()
    loaded.put("a.csv", line(4))
    loaded.flow.set(source__files__on_change="ignore")
    loaded.flow.interval_is_empty()
    loaded.flow.set(source__files__on_change="fail")
    refused = loaded.refused()
    assert "was replaced under its name" in refused
    assert "a.csv" in refused


def test_files_that_grow_and_rotate_are_read_line_by_line(make):
    """A line is read when it ends; a renamed file is the same one; one that lost lines is reported."""
    loaded = make(grows=True)
    loaded.add("app.log", f"{line(1)}\n{line(2)}\n3,")
    assert loaded.interval() == [1, 2]
    loaded.add("app.log", f"v3,p\n\n{line(4)}\r\n5,v")
    assert loaded.interval() == [1, 2, 3, 4]
    loaded.add("app.log", "5,p\n")
    (loaded.folder / "app.log").rename(loaded.folder / "app.log.1")
    loaded.add("app.log", f"{line(6)}\n")
    assert loaded.interval() == [1, 2, 3, 4, 5, 6]
    assert loaded.ids()[4] == (5, "v5")
    loaded.flow.interval_is_empty()
    (loaded.folder / "app.log").write_text("")
    assert "was replaced under its name" in loaded.refused()


def test_committed_files_leave_the_folder_by_choice(make, tmp_path):
    """Not before they are committed; a later file may have the name again."""
    done = tmp_path / "done"
    loaded = make(clean_source="archive", archive_path=str(done), clean_after="0 seconds", on_change="reread")
    loaded.put("a.csv", line(1))
    loaded.put("deep/b.csv", line(2))
    loaded.flow.start()
    loaded.flow.start()  # the first one is superseded, and nothing is committed
    assert loaded.files() == ["a.csv", "deep/b.csv"]
    assert loaded.interval() == [1, 2]
    assert loaded.files() == []
    assert sorted(str(one.relative_to(done)) for one in done.rglob("*.csv")) == ["a.csv", "deep/b.csv"]
    loaded.put("a.csv", line(3))
    assert loaded.interval() == [1, 2, 3]
    assert (done / "a-1.csv").read_text() == f"{line(3)}\n"
    loaded.flow.interval_is_empty()


def test_files_that_no_interval_has_read_never_leave_the_folder(make):
    """Their offsets are below the position, and not committed; nor does a file that has come since START."""
    loaded = make(clean_source="delete", clean_after="0 seconds", on_change="reread", starting_offsets="latest")
    loaded.put("a.csv", line(1))
    assert loaded.interval() == []
    loaded.put("b.csv", line(2))
    started = loaded.flow.start()
    loaded.put("c.csv", line(3))
    loaded.flow.write_all(started)
    loaded.flow.commit(started)
    assert [number for number, _ in loaded.ids()] == [2]
    assert loaded.files() == ["a.csv", "c.csv"]


def test_a_start_that_is_repeated_or_has_died_adds_no_file_twice(make):
    """Nor does one that wakes up behind another: the log is the later one's."""
    loaded = make()
    loaded.put("a.csv", line(1))
    first = loaded.flow.run()
    loaded.flow.start(first)
    loaded.flow.abort(first)
    loaded.put("b.csv", line(2))
    assert loaded.interval() == [1, 2]
    settings, topic = kafka_settings(loaded.flow.bootstrap), loaded.flow.pipeline.source.options.log
    log = list(entries(settings, topic, 0, 0))
    assert len(log) == 2
    zombie = Appending(settings, topic, lambda: 0)
    Appending(settings, topic, lambda: 0).append(())
    with pytest.raises(RetryableError, match="Another process"):
        zombie.append([(0, log[0][1])])
    assert list(entries(settings, topic, 0, 0)) == log


def test_a_killed_write_job_is_repeated_without_a_trace(make):
    loaded = make()
    loaded.put("a.csv", line(1), line(2))
    started = loaded.flow.start()
    assert loaded.flow.write(started, failpoint="participant.after_write=kill").wait() != 0
    loaded.put("c.csv", line(3))
    loaded.flow.write(started).succeed()
    loaded.flow.commit(started)
    assert [number for number, _ in loaded.ids()] == [1, 2]
    assert loaded.interval() == [1, 2, 3]


def test_a_bad_line_is_told_with_file_and_line(make):
    """So is a file whose header is another one, or which is cut off: nothing of it is loaded."""
    loaded = make(header="id,v,p")
    loaded.put("a.csv", "id,v,p", line(1), "", "x,v2,p")
    said = loaded.fails(loaded.flow.start())
    assert f"file=file://{loaded.folder}/a.csv, line=4" in said
    (loaded.folder / "a.csv").unlink()
    loaded.flow.set(source__files__log=f"{loaded.flow.topic}-2")
    loaded.put("b.csv", "v,id,p", line(2))
    said = loaded.fails(loaded.flow.start())
    assert "first line isn't the header" in said
    assert f"file=file://{loaded.folder}/b.csv" in said
    (loaded.folder / "b.csv").unlink()
    loaded.flow.set(source__files__log=f"{loaded.flow.topic}-3")
    whole = gzip.compress("".join(f"{line(i)}\n" for i in range(10_000)).encode())
    (loaded.folder / "c.csv.gz").write_bytes(whole[: len(whole) // 2])
    loaded.flow.set(source__files__header=None)
    assert "cut off or damaged" in loaded.fails(loaded.flow.start())
    assert loaded.ids() == []


def test_a_log_that_could_lose_entries_is_refused(make):
    loaded = make()
    loaded.put("a.csv", line(1))
    ensure_topic(kafka_settings(loaded.flow.bootstrap), loaded.flow.pipeline.source.options.log)
    assert "retention.ms=-1" in loaded.refused()


def test_an_interval_is_replayed_from_its_files(make_flow, make):
    """The same lines take the place of the rows that were read of them."""
    loaded = make()
    hudi = make_flow(0, source={"files": loaded.section}, control__connection="kafka_default")
    loaded.put("a.csv", line(1), line(2))
    first = hudi.interval().instant
    loaded.put("b.csv", line(3))
    hudi.interval()
    hudi.interval(kind="replay", instant=first)
    assert sorted(hudi.read("id", "v")) == [(1, "v1"), (2, "v2"), (3, "v3")]
