"""Columns for which no JVM is asked. That Spark and Hudi say the same, test_file_sink_settings.py has."""

from __future__ import annotations

import pytest

from sluice.pipeline import Kafka, Pipeline, Sink, Source
from sluice.protocol.mapping import ClusterTopics
from sluice.records.plain import plain_avro, plain_ddl, plain_struct
from sluice.records.structs import field, struct
from sluice.sinks.files.options import Files
from sluice.sinks.files.sink import FilesSink


def test_plain_columns():
    found = plain_struct("id BIGINT NOT NULL, Name\n string,at date")
    expected = [field("id", "long", nullable=False), field("Name", "string"), field("at", "date")]
    assert found == struct(expected)
    assert plain_ddl(found) == "id BIGINT NOT NULL,Name STRING,at DATE"
    assert plain_avro(found, "t").startswith(
        '{"type":"record","name":"t","namespace":"hoodie.t","fields":[{"name":"id"'
    )


@pytest.mark.parametrize(
    "ddl",
    [
        "", "id", "id BIGINT,", "id: BIGINT", "id DECIMAL(9,2)", "a STRUCT<b: INT>", "a ARRAY<INT>", "`a b` INT",
        "a INT COMMENT 'x'", "a INT, A STRING", "a INT NULL", "1a INT", "\u00e9 INT",
        "a TIMESTAMP_NTZ", "a INT DEFAULT 1", "a VARCHAR(9)",
    ],
)  # fmt: skip
def test_others_are_left_to_spark(ddl):
    assert plain_struct(ddl) is None


@pytest.mark.parametrize(
    "kind",
    [
        "string", struct([field("a", struct([field("b", "long")]))]), struct([field("a", "decimal(9,2)")]),
        struct([{**field("a", "long"), "metadata": {"comment": "x"}}]), struct([field("a b", "long")]),
    ],
)  # fmt: skip
def test_other_structs_are_left_to_spark(kind):
    assert plain_ddl(kind) is None
    assert plain_avro(kind, "t") is None


def test_a_record_whose_name_avro_refuses_is_left_to_hudi():
    assert plain_avro(struct([field("a", "long")]), "1t") is None


class AskedForError(Exception):
    pass


def no_jvm():
    raise AskedForError


@pytest.mark.parametrize(
    ("schema", "transforms", "asks"),
    [
        ("id BIGINT, day STRING", [], False),
        ("id BIGINT, price DECIMAL(9,2)", [], True),
        ("id BIGINT, day STRING", [{"set": {"day": "upper(day)"}}], True),
    ],
)
def test_a_start_on_a_local_disk_starts_a_jvm_for_what_needs_one(tmp_path, schema, transforms, asks):
    files = Files(path=str(tmp_path / "lake"), schema_=schema)
    pipeline = Pipeline(name="t", source=Source(kafka=Kafka(topics="t")), sink=Sink(files=files), transforms=transforms)
    sink = FilesSink(pipeline, no_jvm)
    with sink.open() as table:
        if asks:
            with pytest.raises(AskedForError):
                sink.pin(table, None, [ClusterTopics("kafka", ("t",))])
        else:
            pinned = sink.pin(table, None, [ClusterTopics("kafka", ("t",))])
            type_of_id = pinned.records.value.struct["fields"][0]["type"]
            assert (pinned.writer.schema_ddl, type_of_id) == ("id BIGINT,day STRING", "long")
