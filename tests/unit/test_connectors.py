"""Sources and sinks by name, what they can do, and what a pipeline may ask of them."""

from __future__ import annotations

import subprocess
import sys
from abc import abstractmethod
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml

from sluice.connectors import metadata, registry
from sluice.connectors.capabilities import (
    RequiredCapabilities,
    SinkCapabilities,
    SinkRef,
    SourceCapabilities,
    SourceRef,
    misfits,
)
from sluice.connectors.data import SinkWriter, Written
from sluice.connectors.options import SinkOptions, SourceOptions
from sluice.connectors.sink import (
    ForbidsCommits,
    Publishes,
    SharedTimeline,
    TakesOff,
    catalogs_of,
    of_one_registry,
    quarantine_of,
    shared_timeline_of,
)
from sluice.errors import ActionRequiredError, PipelineFileError
from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source, load_pipeline
from sluice.protocol.mapping import ClusterTopics
from sluice.protocol.messages import TableSpec
from sluice.sinks.files.objects import ObjectTable
from sluice.sinks.files.renames import RenamedTable
from sluice.sinks.hudi.sink import HudiSink
from sluice.sinks.hudi.table import HudiTable
from sluice.sinks.jdbc.table import JdbcTable
from sluice.sinks.kafka.table import KafkaTable

GOOD = {"name": "a", "source": {"kafka": {"topics": "t"}}, "sink": {"hudi": {"path": "/x", "schema": "id INT"}}}
ALL = SourceCapabilities(True, True, True, True, True)
UPSERT = SinkCapabilities(True, True, True, True, True, True, True, frozenset({"compaction", "cleaning"}), True)


class Lines(SourceOptions):
    """A source of somebody else's, that promises what exactly once needs."""

    folder: str

    @property
    def capabilities(self):
        return SourceCapabilities(replayable=True, ordered=True)


class Table(SinkOptions):
    """A sink of somebody else's."""

    url: str
    together: bool = True

    @property
    def capabilities(self):
        return SinkCapabilities(atomic_with_checkpoint=self.together)

    @property
    def table_id(self):
        return self.url

    def writer(self, name, changes, *, maintained, schema_ddl="", schema_avro=""):
        return TableSpec(
            path=self.url, name=name, table_type="", operation="append", record_key=(), partition_fields=(),
            ordering_fields=(), schema_ddl=schema_ddl, schema_avro=schema_avro, options={},
        )  # fmt: skip


class Unfinished(Table):
    """A section that leaves something open."""

    @property
    @abstractmethod
    def table_id(self): ...


class OpensAlone:
    """A sink with nothing but what each has to have."""


@pytest.fixture
def installed(monkeypatch, tmp_path):
    (tmp_path / "fails_at_import.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    points = [
        EntryPoint("lines", "users_own:Lines", "sluice.sources"),
        EntryPoint("table", "users_own:Table", "sluice.sinks"),
        EntryPoint("gone", "no_such_module:Sink", "sluice.sinks"),
        EntryPoint("function", "json:dumps", "sluice.sinks"),
        EntryPoint("broken", "fails_at_import:Sink", "sluice.sinks"),
        EntryPoint("unfinished", "users_own:Unfinished", "sluice.sinks"),
    ]

    def find(group, name=None):
        return [p for p in points if p.group == group and name in (None, p.name)]

    monkeypatch.setattr(registry, "entry_points", find)
    monkeypatch.setitem(sys.modules, "users_own", sys.modules[__name__])
    registry.forget()
    yield
    registry.forget()


def load(tmp_path: Path, **changed):
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump({**GOOD, **changed}))
    return load_pipeline(file)


def test_what_comes_with_sluice_is_found_without_being_installed():
    assert registry.section("source", "kafka") is Kafka
    assert registry.section("sink", "hudi") is Hudi
    assert registry.section("sink", "cassandra") is None
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for known in (*registry.BUILT_IN.values(), metadata.BUILT_IN):
        for name, reference in known.items():
            assert f'{name} = "{reference}"' in project


def test_those_of_an_installed_package_are_found_by_name(installed, tmp_path):
    pipeline = load(
        tmp_path,
        source={"lines": {"folder": "/in", "topics": "a", "value": {"converter": "string", "as": "line"}}},
        sink={"table": {"url": "jdbc:x", "schema": "line STRING"}},
        control={"connection": "kafka_default"},
    )
    assert isinstance(pipeline.source.options, Lines)
    assert (pipeline.source.place, pipeline.sink.place) == ("source.lines", "sink.table")
    assert pipeline.table_id == "jdbc:x"
    assert pipeline.sink.table.url == "jdbc:x"
    assert registry.names("sink") == [
        "broken",
        "files",
        "function",
        "gone",
        "hudi",
        "jdbc",
        "kafka",
        "table",
        "unfinished",
    ]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"source": {"kafak": {"topics": "t"}}}, "source.kafak: there is no source `kafak`; did you mean `kafka`?"),
        (
            {"sink": {"ftp": {}}},
            "sink.ftp: there is no sink `ftp`; Installed: broken, files, function, gone, hudi, jdbc, kafka, table, "
            "unfinished.",
        ),
        ({"source": {}}, "exactly one source"),
        ({"source": "kafka"}, "exactly one source"),
        ({"sink": {**GOOD["sink"], "table": {"url": "u"}}}, "exactly one sink"),
        ({"sink": {"table": {"urll": "u"}}}, "sink.table.urll: there is no such key; did you mean `url`?"),
        ({"sink": {"table": {}}}, "sink.table.url: this key is missing"),
    ],
)
def test_a_wrong_name_is_told_with_those_there_are(installed, tmp_path, changed, says):
    with pytest.raises(PipelineFileError) as caught:
        load(tmp_path, **changed)
    assert says in str(caught.value)


@pytest.mark.parametrize("name", ["gone", "function", "broken", "unfinished"])
def test_an_entry_point_that_names_nothing_of_use_is_told_as_a_mistake_of_the_file(installed, tmp_path, name):
    """Whoever reads all files passes over those that are wrong: no other error may come of one."""
    with pytest.raises(PipelineFileError, match=f"sluice.sinks: {name} = ") as caught:
        load(tmp_path, sink={name: {}})
    assert caught.value.where["file"] == tmp_path / "a.yaml"


def test_a_section_that_leaves_something_open_is_told_what(installed, tmp_path):
    with pytest.raises(PipelineFileError, match="missing=table_id"):
        load(tmp_path, sink={"unfinished": {"url": "u"}})


@pytest.mark.parametrize(
    ("part_of", "says"),
    [
        (quarantine_of, "has no quarantine.*sluice.connectors.sink.KeepsQuarantine"),
        (catalogs_of, "has no catalogs.*sluice.connectors.sink.TellsCatalogs"),
    ],
)
def test_a_sink_without_a_part_that_its_section_names_is_named(part_of, says):
    with pytest.raises(ActionRequiredError, match=f"OpensAlone {says}"):
        part_of(OpensAlone())
    assert part_of(HudiSink(Pipeline.model_validate(GOOD))) is not None


@pytest.mark.parametrize(
    ("table", "parts"),
    [
        (HudiTable, {TakesOff, SharedTimeline}),
        (RenamedTable, {TakesOff, Publishes}),
        (ObjectTable, {ForbidsCommits, Publishes}),
        (JdbcTable, {ForbidsCommits}),
        (KafkaTable, {ForbidsCommits}),
    ],
)
def test_a_table_has_no_part_that_its_storage_has_no_use_for(table, parts):
    """The part that is there is the capability: one that is there by chance would be asked."""
    every = (ForbidsCommits, TakesOff, SharedTimeline, Publishes)
    assert {part for part in every if issubclass(table, part)} == parts


def test_a_sink_that_decodes_by_one_registry_is_refused_where_clusters_have_their_own():
    same = [ClusterTopics("east", ("a", "b")), ClusterTopics("west", ("b", "c"))]
    assert of_one_registry(OpensAlone(), same) == ("a", "b", "c")
    with pytest.raises(ActionRequiredError, match="OpensAlone can't decode records by several schema registries"):
        of_one_registry(OpensAlone(), [*same, ClusterTopics("north", ("a",), registry="own")])


def test_a_table_that_shares_no_timeline_is_named_where_its_section_says_that_it_has_services():
    with pytest.raises(ActionRequiredError, match=r"OpensAlone has no services or replaces_interval.*SharedTimeline"):
        shared_timeline_of(OpensAlone())


def test_a_writer_that_cannot_delete_says_so_if_it_is_asked_to():
    class AppendsAlone(SinkWriter):
        def write(self, rows, emptied_at=None, *, truncates=False):
            return Written((), None)

    with pytest.raises(ActionRequiredError, match="AppendsAlone can't leave out what was deleted later"):
        AppendsAlone().remember_deletes(None)


@pytest.mark.parametrize(
    ("source", "sink", "asked", "says"),
    [
        (
            SourceCapabilities(holds_control_log=True),
            UPSERT,
            RequiredCapabilities(),
            "exactly once needs a source that is replayable",
        ),
        (
            ALL,
            SinkCapabilities(),
            RequiredCapabilities(),
            "exactly once needs a sink that is atomic with its checkpoint",
        ),
        (SourceCapabilities(True), UPSERT, RequiredCapabilities(), "control.connection"),
        (
            SourceCapabilities(True),
            UPSERT,
            RequiredCapabilities(window=True, control_connection=True),
            "data_interval_end",
        ),
        (SourceCapabilities(True), UPSERT, RequiredCapabilities(keys=True, control_connection=True), "have none"),
        (
            SourceCapabilities(True),
            UPSERT,
            RequiredCapabilities(changes=True, control_connection=True),
            "in their order",
        ),
        (ALL, SinkCapabilities(True), RequiredCapabilities(changes=True), "they need sink.s.mode upsert"),
        (ALL, SinkCapabilities(True, upsert=True), RequiredCapabilities(changes=True), "they need sink.s.mode upsert"),
        (
            ALL,
            SinkCapabilities(True, True, True),
            RequiredCapabilities(changes=True, empties=True),
            "more than sink.s can do",
        ),
        (ALL, SinkCapabilities(True), RequiredCapabilities(quarantine=True), "nowhere to put them"),
        (ALL, SinkCapabilities(True), RequiredCapabilities(catalogs=True), "`catalog_sync`"),
        (ALL, UPSERT, RequiredCapabilities(services=frozenset({"clustering"})), "sink.s has no clustering"),
    ],
)
def test_what_an_end_cannot_do_is_refused_and_nothing_else(source, sink, asked, says):
    found = list(misfits(SourceRef("source.s", source), SinkRef("sink.s", sink, {"upsert": "mode upsert"}), asked))
    assert len(found) == 1
    assert says in found[0]


def test_what_fits_is_not_refused():
    asked = RequiredCapabilities(True, True, True, True, True, frozenset({"compaction"}), True)
    assert list(misfits(SourceRef("source.s", ALL), SinkRef("sink.s", UPSERT), asked)) == []


def test_a_sink_without_its_checkpoint_is_refused_when_the_file_is_loaded(installed, tmp_path):
    with pytest.raises(PipelineFileError, match="a crash between the two would lose or double rows"):
        load(tmp_path, sink={"table": {"url": "u", "schema": "id INT", "together": False}})


def test_an_append_and_an_upsert_table_can_do_different_things():
    append = Hudi(path="/x").capabilities
    upsert = Hudi(path="/x", operation="upsert", record_key="id").capabilities
    hashed = Hudi(path="/x", operation="upsert", record_key="id", key_placement="hashed", buckets=4).capabilities
    assert append.atomic_with_checkpoint
    assert upsert.atomic_with_checkpoint
    assert (append.replaces_interval, upsert.replaces_interval) == (True, False)
    assert (append.upsert, append.delete, append.truncate) == (False, False, False)
    assert (upsert.upsert, upsert.delete, upsert.truncate) == (True, True, True)
    assert (upsert.finds_keys_by_partition, hashed.finds_keys_by_partition) == (True, False)
    assert append.services ^ upsert.services == {"clustering", "compaction"}


def test_messages_name_a_key_as_the_file_has_it(installed, tmp_path):
    lines = {"folder": "/in", "topics": "a", "value": {"converter": "string", "as": "line"}}
    table = {"url": "jdbc:x", "schema": "line STRING"}
    own = load(tmp_path, source={"lines": lines}, sink={"table": table}, control={"connection": "kafka_default"})
    error = ActionRequiredError("The sink's `schema`.", next_step="set the source's `until`, or the sink's `schema`.")
    error.reword(own.with_file_keys)
    assert error.next_step == "set `source.lines.until`, or `sink.table.schema`."
    assert error.args == (str(error),)
    assert load(tmp_path).with_file_keys("the source's `value.subject`") == "`source.kafka.value.subject`"


def test_a_pipeline_in_python_is_the_same_as_one_in_a_file(tmp_path):
    made = Pipeline(name="a", source=Source(kafka=Kafka(topics="t")), sink=Sink(hudi=Hudi(path="/x", schema="id INT")))
    assert made == load(tmp_path)
    assert Pipeline.model_validate(made.model_dump(by_alias=True)) == made


def test_reading_a_file_imports_no_connector_and_no_spark(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(yaml.safe_dump(GOOD))
    program = (
        "import sys\n"
        "from sluice.pipeline import load_pipeline\n"
        f"load_pipeline({str(file)!r})\n"
        "print(*(m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j', 'airflow', 'confluent_kafka')))\n"
    )
    plugins = Path(registry.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=plugins)
    assert done.stdout.strip() == ""


def test_a_file_that_names_no_other_connector_looks_through_no_packages(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "entry_points", None)
    assert load(tmp_path).source.options.topics == ("t",)
