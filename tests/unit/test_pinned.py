"""A sink's settings travel as texts, as they did before they had types, and are refused if they can't be read."""

from __future__ import annotations

import pytest

from sluice.errors import ActionRequiredError
from sluice.protocol.pinned import Flag, PinnedSettings
from sluice.records.settings import Changes
from sluice.sinks.files.options import Files
from sluice.sinks.files.options.pinned import PinnedFiles
from sluice.sinks.jdbc.options import Jdbc
from sluice.sinks.jdbc.options.pinned import PinnedJdbc
from sluice.sinks.kafka.options import KafkaTopic
from sluice.sinks.kafka.options.pinned import PinnedTopic

DDL = "id BIGINT, v STRING"
FILES = Files.model_validate(
    {"path": "/lake/t", "format": "avro", "partitioner": "field", "partition_fields": ["id", "a,b"], "schema": DDL}
)
JDBC = Jdbc.model_validate({"connection": "warehouse", "table": "t", "pk_mode": "kafka", "schema": DDL})
LINES = {"table": "lines", "topics": "l", "schema": DDL}
TOPIC = KafkaTopic.model_validate(
    {
        "connection": "target", "topic": "out", "staging": "/staging/out", "key_fields": ["id"],
        "headers": {"from": "v"}, "compression": "zstd", "producer": {"compression.level": 7}, "schema": DDL,
    }
)  # fmt: skip


def options(section, changes=None):
    return section.writer("t", changes, maintained=False).options


def test_files():
    assert options(FILES) == {
        "format": "avro", "codec": "snappy", "layout": "interval", "topics_dir": "topics", "locale": "en",
        "max_rows_per_file": "0", "partitioner": "field", "fields": "id\na,b", "path_format": "", "duration": "0",
        "timezone": "UTC", "extractor": "wallclock", "timestamp_field": "",
    }  # fmt: skip


def test_a_table_of_a_database():
    common = {"connection": "warehouse", "insert_mode": "insert", "batch_size": "3000", "db_timezone": "UTC"}
    common |= {"without": "", "unavailable_value": ""}
    places = "__connect_topic,__connect_partition,__connect_offset"
    assert options(JDBC) == {**common, "table": "t", "place_fields": places}
    both = Jdbc.model_validate({"connection": "warehouse", "table": "t", "tables": [LINES], "schema": DDL})
    (further,) = both.further_tables
    of_further = {"table": "lines", "place_fields": "", "first_table": "t", "number": "1"}
    assert options(further.section) == {**common, **of_further}
    changes = Changes.model_validate({"format": "debezium"})
    assert options(JDBC, changes)["unavailable_value"] == "__debezium_unavailable_value"


def test_topics():
    assert options(TOPIC) == {
        "topic": "out", "staging": "file:///staging/out", "key_fields": '["id"]', "value_fields": "[]",
        "key_encoder": "json", "value_encoder": "json", "headers": '{"from": "v"}', "headers_from": "",
        "timestamp": "record", "partitioner": "murmur2", "compression": "zstd", "compression_level": "7",
        "without": "[]",
    }  # fmt: skip


@pytest.mark.parametrize(("kind", "section"), [(PinnedFiles, FILES), (PinnedJdbc, JDBC), (PinnedTopic, TOPIC)])
def test_what_is_read_is_what_was_written(kind, section):
    writer = section.writer("t", None, maintained=False)
    with_more = writer.model_copy(update={"options": {**writer.options, "snapshot": "true"}})
    assert kind.of(with_more).texts() == writer.options
    assert kind.of(with_more).pinned_in(with_more) == with_more  # what belongs to all sinks stays


def test_settings_that_were_set_later_travel_too():
    writer = TOPIC.writer("t", None, maintained=False)
    more = {"takes": "[[1000, false, []]]", "shortened": True, "value_schema": {"id": 7, "text": '"x"'}}
    found = PinnedTopic.of(PinnedTopic.of(writer).model_copy(update=more).pinned_in(writer))
    assert (found.takes, found.shortened, found.value_schema, found.key_schema) == (*more.values(), None)
    assert [group.takes.bytes for group in found.groups] == [1000]
    bare = found.model_copy(update={"shortened": False, "value_schema": None}).pinned_in(writer)
    assert {"shortened", "value_schema", "key_schema"}.isdisjoint(bare.options)


@pytest.mark.parametrize(
    ("kind", "section", "changed"),
    [
        (PinnedFiles, FILES, {"format": "orc"}),
        (PinnedFiles, FILES, {"duration": "long"}),
        (PinnedJdbc, JDBC, {"batch_size": ""}),
        (PinnedTopic, TOPIC, {"headers": "{"}),
        (PinnedTopic, TOPIC, {"key_fields": '{"a": 1}'}),
    ],
)
def test_what_cannot_be_read_names_the_setting(kind, section, changed):
    writer = section.writer("t", None, maintained=False)
    wrong = writer.model_copy(update={"options": writer.options | changed})
    with pytest.raises(ActionRequiredError, match=rf"can't be read: .*setting={next(iter(changed))}\]"):
        kind.of(wrong)


def test_a_level_of_compression_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match=r"compression.level is a whole number, and 'high' is none"):
        KafkaTopic.model_validate({**TOPIC.model_dump(by_alias=True), "producer": {"compression.level": "high"}})


@pytest.mark.parametrize("is_there", [True, False])
def test_a_flag_is_written_only_where_it_is_set(is_there):
    class Flags(PinnedSettings):
        here: Flag = False

    assert Flags(here=is_there).texts() == ({"here": "true"} if is_there else {})
    assert Flags.model_validate(Flags(here=is_there).texts()).here is is_there
