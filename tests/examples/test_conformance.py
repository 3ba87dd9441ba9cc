"""`sluice.testing` on the example's connectors, and on ones that break a rule: the suite finds each."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from inspect import signature
from pathlib import Path

import pytest

from sluice.pipeline import Pipeline, Sink, Source
from sluice.protocol.committable import Committable
from sluice.testing import SinkConformance, SourceConformance
from sluice_lines.options import JsonLines, Lines
from sluice_lines.reader import LinesReader
from sluice_lines.sink import JsonLinesSink, JsonLinesTable, read, write_file
from sluice_lines.source import LinesSource

# PySpark leaves it to the garbage collector to close the socket that rows came by.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


class TestLines(SourceConformance):
    """What `sluice.testing` asks of every source."""

    calls = tuple((Path, name) for name in ("read_bytes", "stat"))
    make_source, make_reader = LinesSource, LinesReader

    @pytest.fixture(autouse=True)
    def _in_one_session(self, spark):
        self._spark = spark

    def topics(self, folder):
        for name in ("a.log", "b.log"):
            (folder / name).touch()
        return "a.log", "b.log"

    def source(self, folder):
        return self.make_source(f"file://{folder}")

    def reader(self, folder):
        return self.make_reader(self._spark, None)

    def capabilities(self):
        return Lines(folder="/in", topics=("a",)).capabilities

    def add(self, folder, topic, records):
        with (folder / topic).open("ab") as file:
            file.writelines(record.value + b"\n" for record in records)

    def make_again(self, folder, topic):
        (folder / topic).rename(folder / f"{topic}.old")
        (folder / topic).touch()


class TestJsonLines(SinkConformance):
    """What `sluice.testing` asks of every sink."""

    def pipeline(self, folder: Path) -> Pipeline:
        return Pipeline(
            name="t",
            source=Source(lines=Lines(folder="/in", topics=("a",))),
            sink=Sink(json_lines=JsonLines(path=str(folder / "table"), schema_="id BIGINT")),
            control={"connection": "kafka_default"},
        )

    @pytest.fixture(autouse=True)
    def _in_one_jvm(self, jvm):
        self._jvm = jvm

    def sink(self, folder):
        return JsonLinesSink(self.pipeline(folder), lambda: nullcontext(self._jvm))

    def capabilities(self):
        return self.pipeline(Path("/any")).sink.capabilities

    def write(self, folder, table, instant, attempt, rows):
        return [write_file(table.writer.path, instant, attempt, map(json.dumps, rows))]

    def rows(self, folder):
        return read(str(folder / "table"))


class _ShowsBeforeItsCheckpoint(JsonLinesTable):
    def commit(self, instant, committables, extra):
        committables = list(committables)
        said = super().commit(instant, committables, {})
        manifest = self._manifest(instant)
        self._manifest_of(instant).write_text(json.dumps({**manifest, "extra": dict(extra)}))
        return said


class _CommitsWhatWasRolledBack(JsonLinesTable):
    def commit(self, instant, committables, extra):
        self._begun(instant).touch()
        return super().commit(instant, committables, extra)

    def take_off(self, instant, files):
        pass


class _CommitsTwice(JsonLinesTable):
    def commit(self, instant, committables, extra):
        committables = list(committables)
        if self.state_of(instant) == "completed":
            manifest = self._manifest(instant)
            files = [*manifest["files"], *(one.path for one in committables)]
            self._manifest_of(instant).write_text(json.dumps({**manifest, "files": files}))
            return []
        return super().commit(instant, committables, extra)


class _CommitsAllThatIsThere(JsonLinesTable):
    def commit(self, instant, committables, extra):
        there = [Committable(path=f"rows/{file.name}") for file in self._rows.glob(f"{instant}_*")]
        return super().commit(instant, there, extra)


class _RollsBackWhatIsCommitted(JsonLinesTable):
    def rollback(self, instant):
        self._manifest_of(instant).unlink(missing_ok=True)
        self._begun(instant).touch()
        return super().rollback(instant)


class _SweepsNothing(JsonLinesTable):
    def sweep(self, ended):
        return []


class _SweepsAll(JsonLinesTable):
    def sweep(self, ended):
        files = [f for instant in ended.registered for f in self._rows.glob(f"{instant}_*")]
        for file in files:
            file.unlink()
        return [file.name for file in files]


class _SaysNothingOfItsCommit(JsonLinesTable):
    def commit(self, instant, committables, extra):
        super().commit(instant, committables, extra)


class _ForgetsWhatHasBegun(JsonLinesTable):
    def open(self, instant):
        pass

    def commit(self, instant, committables, extra):
        self._begun(instant).touch()
        return super().commit(instant, committables, extra)


class _NeverTakesOff(JsonLinesTable):
    completions = None


_NAMES = sorted(  # those that take a second come last
    (name for name in dir(SinkConformance) if name.startswith("test_")), key=lambda name: "may_die" in name
)


@pytest.mark.parametrize(
    "broken",
    [
        _ShowsBeforeItsCheckpoint,
        _CommitsWhatWasRolledBack,
        _CommitsTwice,
        _CommitsAllThatIsThere,
        _RollsBackWhatIsCommitted,
        _SweepsNothing,
        _SweepsAll,
        _SaysNothingOfItsCommit,
        _ForgetsWhatHasBegun,
        _NeverTakesOff,
    ],
)
def test_a_sink_that_breaks_a_rule_fails(tmp_path, broken, jvm):
    class Sink(JsonLinesSink):
        @contextmanager
        def open(self):
            writer = self._pipeline.writer()
            table = broken(writer, self._pipeline.control.clock_wait)
            table.written_as = lambda _writer, _further=(): table
            yield table

    class Tested(TestJsonLines):
        def sink(self, folder):
            return Sink(self.pipeline(folder), lambda: nullcontext(jvm))

    for name in _NAMES:
        test = getattr(Tested(), name)
        marks = {m.args[0]: m.args[1] for m in getattr(test, "pytestmark", ()) if m.name == "parametrize"}
        cases = [{key: value} for key, values in marks.items() for value in values] or [{}]
        for i, case in enumerate(cases):
            folder = tmp_path / name / str(i)
            folder.mkdir(parents=True)
            try:
                test(folder, **case) if "tmp_path" in signature(test).parameters else test()
            except (Exception, pytest.fail.Exception):
                return
    pytest.fail("no test of the conformance suite has found it")


@pytest.mark.parametrize(
    "named",
    [{"quarantine": True}, {"services": frozenset({"cleaning"})}, {"catalogs": True}, {"replaces_interval": True}],
)
def test_a_sink_without_a_part_that_it_names_fails(tmp_path, named, jvm):
    class Tested(TestJsonLines):
        _jvm = jvm

        def capabilities(self):
            return replace(super().capabilities(), **named)

    with pytest.raises(AssertionError):
        Tested().test_it_has_the_parts_that_the_capabilities_name(tmp_path)


@pytest.mark.parametrize("of", ["an_interval", "a_roll_back"])
def test_deaths_at_calls_that_the_sink_never_makes_prove_nothing(tmp_path, of, jvm):
    class Tested(TestJsonLines):
        calls = ((os, "mkfifo"),)
        _jvm = jvm

    with pytest.raises(AssertionError, match="none of the `calls`"):
        getattr(Tested(), f"test_a_process_may_die_at_each_call_of_{of}")(tmp_path, "before")
