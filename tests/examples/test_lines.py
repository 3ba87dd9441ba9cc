"""A package of connectors of one's own: found by its entry points, played through Sluice's own protocol."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice.connectors import registry
from sluice.coordinator import Coordinator, Outcome, Run, Started
from sluice.coordinator.parts import parts_of
from sluice.coordinator.services import Services
from sluice.errors import ActionRequiredError, IntervalError, PipelineFileError, RetryableError, SluiceError
from sluice.jvm.gateway import HudiJvm
from sluice.kafka.config import KafkaSettings
from sluice.participant.participant import Assignment, Participant
from sluice.pipeline import Pipeline, load_pipeline
from sluice.protocol.messages import PartitionResult, StartCommit
from sluice.protocol.request import Request
from sluice.testing import MemoryLogs
from sluice_lines.options import JsonLines, Lines
from sluice_lines.reader import planned_lines
from sluice_lines.sink import read, write_file

NOWHERE = KafkaSettings("kafka_default", {"bootstrap.servers": "nowhere:1"})


class _Job:
    """What a write job does, without a Spark that would have to be started first."""

    @contextmanager
    def running(self, start: StartCommit) -> Iterator[_Job]:
        yield self

    def write(self, start: StartCommit, number: int, attempt: str, check: Callable[[], None]) -> dict[str, Any]:
        rows, results = [], []
        for planned in start.ranges[number]:
            lines = planned_lines(planned)
            rows += [json.dumps({"line": line}) for line in lines]
            place = {**planned.topic_partition._asdict(), "start": planned.start, "next_offset": planned.end}
            results.append(PartitionResult(**place, records_read=len(lines), gaps=0, bytes_read=sum(map(len, lines))))
        written = write_file(start.writer.path, start.transaction, attempt, rows)
        check()
        counts = {"records_read": len(rows), "records_written": len(rows)}
        return {**counts, "partitions": tuple(results), "stats": (written,)}

    def cancel(self) -> None:
        """It is over at once."""

    def classified(self, error: Exception, start: StartCommit, number: int) -> SluiceError:
        return RetryableError("The lines could not be written.", next_step="try again.", reason=str(error))


class Runs:
    """DAG runs of a pipeline, as Airflow would have them."""

    def __init__(self, pipeline: Pipeline, jvm: HudiJvm) -> None:
        self.pipeline = pipeline
        self._jvm = jvm
        self.logs = MemoryLogs()
        self._number = 0

    def coordinator(self) -> Coordinator:
        parts = parts_of(self.pipeline, NOWHERE, jvm=lambda: nullcontext(self._jvm))
        return Coordinator.with_parts(self.pipeline, replace(parts, control=self.logs))

    def next(self) -> Run:
        self._number += 1
        return Run(self.pipeline.name, f"run-{self._number}")

    def write(self, started: Started) -> None:
        for number in range(len(started.ranges)):
            topic = self.pipeline.control_topic
            place = Assignment(self.pipeline.table_id, topic, started.control_offset, number, started.digest)
            Participant(place, self.logs(topic), _Job()).run()

    def interval(self) -> Outcome:
        started = self.coordinator().start(self.next())
        if isinstance(started, Outcome):
            return started
        self.write(started)
        return self.coordinator().commit(started.control_offset, started.instant)


def append(file: Path, lines: Sequence[str]) -> None:
    with file.open("a") as out:
        out.writelines(f"{line}\n" for line in lines)


def loaded(pipeline: Pipeline) -> list[str]:
    return sorted(row["line"] for row in read(pipeline.table_id))


def test_its_sections_are_those_of_the_installed_package(pipeline):
    assert isinstance(pipeline.source.options, Lines)
    assert isinstance(pipeline.sink.options, JsonLines)
    assert {"kafka", "lines"} <= set(registry.names("source"))
    made = Pipeline.model_json_schema(by_alias=True)["$defs"]["Source"]
    assert (made["maxProperties"], sorted(made["properties"])) == (1, ["files", "jdbc", "kafka", "lines"])


def test_every_line_is_loaded_once_over_many_intervals(pipeline, files, jvm):
    runs = Runs(pipeline, jvm)
    assert runs.interval().state == "empty"
    append(files / "a.log", [f"a{i}" for i in range(7)])
    append(files / "b.log", [f"b{i}" for i in range(4)])
    for _ in range(3):
        assert runs.interval().state == "committed"
    assert runs.interval().state == "empty"
    assert loaded(pipeline) == sorted([*(f"a{i}" for i in range(7)), *(f"b{i}" for i in range(4))])
    append(files / "a.log", ["a7"])
    assert runs.interval().state == "committed"
    assert len(loaded(pipeline)) == 12


@pytest.mark.parametrize("kind", ["backfill", "range"])
def test_a_window_by_times_is_refused_where_lines_have_none(pipeline, files, kind, jvm):
    """Taken for a window without bounds it would read all there is."""
    append(files / "a.log", ["one"])
    runs = Runs(pipeline, jvm)
    request = Request(kind=kind, from_time=datetime(2026, 1, 1, tzinfo=UTC), to_time=datetime(2026, 1, 2, tzinfo=UTC))
    with pytest.raises(ActionRequiredError, match=r"by their times, which source\.lines doesn't know"):
        runs.coordinator().start(replace(runs.next(), request=request))
    assert isinstance(runs.interval(), Outcome)
    assert loaded(pipeline) == ["one"]


def test_lines_that_are_gone_stop_it_and_the_key_to_set_is_named(pipeline, files, jvm):
    append(files / "a.log", ["one", "two"])
    runs = Runs(pipeline, jvm)
    runs.interval()
    (files / "a.log").write_text("one\n")
    with pytest.raises(ActionRequiredError, match=r"set `source\.lines\.on_offset_loss` to earliest"):
        runs.interval()


def test_a_service_that_the_table_does_not_have_is_refused(pipeline):
    with pytest.raises(ActionRequiredError, match=r"sink\.json_lines as this one have no cleaning"):
        Services(pipeline, NOWHERE).run(Run("visits", "by hand"), "cleaning")


def test_a_run_that_dies_is_undone_by_the_next(pipeline, files, jvm):
    runs = Runs(pipeline, jvm)
    append(files / "a.log", ["one", "two"])
    started = runs.coordinator().start(runs.next())
    assert isinstance(started, Started)
    runs.write(started)
    assert loaded(pipeline) == []
    assert runs.interval().state == "committed"
    assert loaded(pipeline) == ["one", "two"]
    with pytest.raises(IntervalError):
        runs.coordinator().commit(started.control_offset, started.instant)
    assert loaded(pipeline) == ["one", "two"]


def test_a_file_that_was_made_again_is_another_log(pipeline, files, jvm):
    runs = Runs(pipeline, jvm)
    append(files / "a.log", ["one", "two"])
    runs.interval()
    (files / "a.log").rename(files / "old.log")
    append(files / "a.log", ["three", "four", "five"])
    with pytest.raises(ActionRequiredError):
        runs.interval()
    assert loaded(pipeline) == ["one", "two"]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"source": {"lines": {"folder": "/in", "topics": "a", "until": "data_interval_end"}}}, "by their times"),
        ({"control": {}}, "control.connection"),
        ({"errors": {"tolerance": "all"}}, "nowhere to put them"),
        ({"changes": {"format": "tombstones"}}, "more than sink.json_lines can do"),
        ({"table_services": {}}, "has no archiving"),
        ({"catalog_sync": {"hive": {"uris": "thrift://h:1"}}}, "catalogs"),
    ],
)
def test_what_they_cannot_do_is_refused_when_the_file_is_loaded(tmp_path, pipeline, changed, says):
    data = yaml.safe_load((tmp_path / "visits.yaml").read_text())
    file = tmp_path / "changed.yaml"
    file.write_text(yaml.safe_dump({**data, "schedule": "1 hour", **changed}))
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(file)
    assert says in str(caught.value)
