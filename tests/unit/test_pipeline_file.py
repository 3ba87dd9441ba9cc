"""Pipeline files: what is right loads, and what is wrong is told with file, line, key and remedy."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice.cli import app
from sluice.errors import ActionRequiredError, PipelineFileError
from sluice.pipeline import Pipeline, load_pipeline
from sluice.protocol.plan import Grouping

PROJECT = Path(__file__).parents[2]
GOOD = """\
name: orders
schedule: 5 minutes
source:
  kafka:
    topics: orders
    max_bytes: 2 GiB
sink:
  hudi:
    path: ${SLUICE_LAKE_FOR_TEST:-/lake}/orders
    operation: upsert
    record_key: id
    ordering_field: at
    schema: id BIGINT NOT NULL, at TIMESTAMP
    options:
      hoodie.metadata.enable: true
"""


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "orders.yaml"
    file.write_text(text)
    return file


def test_a_good_file_loads(tmp_path, monkeypatch):
    pipeline = load_pipeline(write(tmp_path, GOOD))
    assert pipeline.schedule == timedelta(minutes=5)
    assert pipeline.source.kafka.topics == ("orders",)
    assert pipeline.source.kafka.max_bytes == 2 * 1024**3
    assert pipeline.sink.hudi.path == "file:///lake/orders"
    assert pipeline.sink.hudi.options == {"hoodie.metadata.enable": "true"}
    assert pipeline.on_missing_range == "abort"
    monkeypatch.setenv("SLUICE_LAKE_FOR_TEST", "s3a://bucket")
    assert load_pipeline(write(tmp_path, GOOD)).sink.hudi.path == "s3a://bucket/orders"


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("    topics: orders", "    topic: orders", 5, "did you mean `topics`"),
        ("    operation: upsert", "    operation: merge", 10, "'append' or 'upsert'"),
        ("    record_key: id\n", "", 8, "needs `record_key`"),
        ("schedule: 5 minutes", "schedul: 5 minutes", 2, "did you mean `schedule`"),
        ("    path: ${SLUICE_LAKE_FOR_TEST:-/lake}/orders", "    path: lake/orders", 9, "absolute path"),
        (
            "    path: ${SLUICE_LAKE_FOR_TEST:-/lake}/orders",
            "    path: ${SLUICE_NOT_SET_ANYWHERE}/orders",
            9,
            "SLUICE_NOT_SET_ANYWHERE",
        ),
        ("    max_bytes: 2 GiB", "    max_bytes: a lot", 6, "byte"),
        ("source:", "write: {ranges: 0}\nsource:", 3, "write.ranges: Input should be greater than 0"),
        ("source:", "write: {ranges: car}\nsource:", 3, "write.ranges: "),
        ("source:", "write: {ranges: {atmost: 3}}\nsource:", 3, "write.ranges.atmost: there is no such key; did you"),
        ("      hoodie.metadata.enable: true", "      metadata.enable: true", 8, "hoodie.*"),
        ("name: orders\n", "", 1, "missing"),
        ("name: orders\n", "name: orders\nstr: 5\n", 2, "str: there is no such key"),
        ("name: orders\n", "name: orders\n'literal[:': 5\n", 2, "literal[:: there is no such key"),
        ("    max_bytes: 2 GiB", "    timedelta: 2 GiB", 6, "source.kafka.timedelta: there is no such key"),
        ("    schema: id BIGINT NOT NULL, at TIMESTAMP\n", "", 8, "schema"),
    ],
    ids=lambda value: str(value).strip()[:30],
)
def test_a_mistake_is_told_with_its_line_and_key(tmp_path, old, new, line, says):
    assert old in GOOD
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(write(tmp_path, GOOD.replace(old, new)))
    assert f"orders.yaml:{line}: " in str(caught.value)
    assert says in str(caught.value)


def test_all_mistakes_are_told_at_once(tmp_path):
    text = GOOD.replace("topics: orders", "topic: orders").replace("operation: upsert", "operation: merge")
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(write(tmp_path, text))
    assert str(caught.value).count("orders.yaml:") >= 2


def test_what_is_not_yaml_is_told_with_its_line(tmp_path):
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(write(tmp_path, "name: orders\nsource: {kafka: [\n"))
    assert caught.value.where["line"] >= 2


def test_a_window_by_data_interval_needs_a_schedule(tmp_path):
    text = GOOD.replace("schedule: 5 minutes\n", "").replace(
        "topics: orders", "topics: orders\n    until: data_interval_end"
    )
    with pytest.raises(PipelineFileError, match="needs a `schedule`"):
        load_pipeline(write(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "    topics: orders",
            "    topics: orders\n    until: data_interval_end",
            "`until: data_interval_end` stops before it",
        ),
        (
            "  kafka:\n    topics: orders\n    max_bytes: 2 GiB",
            "  files: {path: /in, log: orders-files}",
            "those of source.files aren't numbers",
        ),
    ],
    ids=["until a time", "files"],
)
def test_what_can_t_be_caught_up_is_refused(tmp_path, old, new, says):
    text = f"{GOOD}catch_up: true\ncontrol: {{connection: kafka_default}}\n"
    assert load_pipeline(write(tmp_path, text)).catch_up
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(write(tmp_path, text.replace(old, new)))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("records: 100", "records: 0", "orders.yaml:2: schedule.records"),
        ("records: 100", "records: 1, at_most_every: 0.5 s", "greater than or equal to 1 second (found: 0.5 seconds)"),
        ("records: 100", "records: 1, at_most_every: 2 hours", "`at_most_every` is longer than `at_least_every`"),
        (
            "    topics: orders",
            "    streams: orders\n    metadata: {service: file, path: streams.yaml}",
            "`streams` name none",
        ),
        (
            "  kafka:\n    topics: orders\n    max_bytes: 2 GiB",
            "  files: {path: /in, log: orders-files}",
            "`schedule.records` is for Kafka topics, and source.files isn't one",
        ),
        (
            "  kafka:\n    topics: orders\n    max_bytes: 2 GiB",
            "  jdbc: {connection: shop, tables: orders, mode: incrementing, incrementing_column: id}",
            "`schedule.records` is for Kafka topics, and source.jdbc isn't one",
        ),
    ],
    ids=["none", "too often", "times", "streams", "files", "jdbc"],
)
def test_where_records_can_t_start_a_run_it_is_refused(tmp_path, old, new, says):
    text = GOOD.replace("5 minutes", "{records: 100}") + "control: {connection: kafka_default}\n"
    assert load_pipeline(write(tmp_path, text)).schedule.at_least_every == timedelta(hours=1)
    with pytest.raises(PipelineFileError) as caught:
        load_pipeline(write(tmp_path, text.replace(old, new)))
    assert says in str(caught.value)


def test_the_command_line_says_the_same(tmp_path):
    good, bad = write(tmp_path, GOOD), tmp_path / "bad.yaml"
    bad.write_text(GOOD.replace("topics:", "topic:"))
    result = CliRunner().invoke(app, ["validate", str(good), str(bad)])
    assert result.exit_code == 1
    assert "orders -> upsert file:///lake/orders" in result.output
    assert "bad.yaml:5: source.kafka.topic" in result.output
    assert CliRunner().invoke(app, ["validate", str(good)]).exit_code == 0


@pytest.mark.parametrize(
    ("written", "average", "grouping"),
    [
        ("3", 8.0, Grouping(3)),
        ("auto", None, Grouping(16, 1_000_000)),
        ("auto", 2048.0, Grouping(16, 524_288)),
        ("{at_most: 4, records: 500, bytes: 1 KiB}", 8.0, Grouping(4, 128)),
    ],
)
def test_ranges_are_a_number_or_bounds_of_the_work_of_each(tmp_path, written, average, grouping):
    pipeline = load_pipeline(write(tmp_path, GOOD.replace("source:", f"write: {{ranges: {written}}}\nsource:")))
    assert pipeline.write.grouping(average) == grouping
    assert pipeline.write.most_ranges == grouping.at_most


def test_ranges_by_work_need_offsets_that_count_records(tmp_path):
    text = GOOD.replace("source:", "write: {ranges: auto}\nsource:")
    text = text.replace("  kafka:\n    topics: orders\n    max_bytes: 2 GiB", "  files: {path: /in, log: orders-files}")
    text = text.replace("name: orders\n", "name: orders\ncontrol: {connection: kafka_default}\n")
    with pytest.raises(PipelineFileError, match=r"`write.ranges` must be a number: offsets of source.files"):
        load_pipeline(write(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("source:\n", "source:\n  1: 2\n", "source.1"),
        ("schedule: 5 minutes", "schedule: 99999999999 days", "schedule: this is longer than any time"),
        (
            "    topics:",
            f"    value: {{schema_file: {'x' * 400}}}\n    topics:",
            "correct source.kafka.value.schema_file",
        ),
        ("    topics:", '    value: {schema_file: "a\\0b"}\n    topics:', "correct source.kafka.value.schema_file"),
    ],
)
def test_a_value_of_a_strange_kind_is_one_message_and_no_stack_trace(tmp_path, old, new, says):
    assert old in GOOD
    bad = write(tmp_path, GOOD.replace(old, new, 1))
    result = CliRunner().invoke(app, ["validate", str(bad)])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert says in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("command", "arguments", "says"),
    [
        ("plan", ("--from", "2026-02-01", "--to", "2026-01-01"), "the window's start must lie before its end"),
        ("replay", ("",), "a replay needs the instant"),
        ("offsets", ("--pass-over", "orders[0]:1-2"), "a reason"),
    ],
)
def test_arguments_that_do_not_add_up_are_one_message(tmp_path, command, arguments, says):
    with pytest.raises(ActionRequiredError, match=f"can't be asked for: .*{says}"):
        CliRunner().invoke(app, [command, str(write(tmp_path, GOOD)), *arguments], catch_exceptions=False)


def test_the_pipelines_that_come_with_the_project_are_right():
    files = sorted((PROJECT / "dags" / "pipelines").glob("*.yaml"))
    assert [load_pipeline(file).name for file in files] == ["flight_status", "flights"]


def test_the_json_schema_for_editors_is_up_to_date():
    written = json.loads((PROJECT / "docs" / "pipeline.schema.json").read_text())
    assert written == Pipeline.model_json_schema(by_alias=True), "run: sluice schema > docs/pipeline.schema.json"
