"""Pipeline files with `changes` and with placed keys: those of the documentation load, and mistakes are refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sluice.coordinator.planning import later_offsets
from sluice.errors import PipelineFileError
from sluice.pipeline import load_pipeline
from sluice.protocol.offsets import Checkpoint, OffsetRange, TopicPartition
from sluice.protocol.plan import IntervalPlan
from sluice.records.changes import DELETED, POSITION, columns_with_changes, envelope_around, envelope_of
from sluice.records.pinning import (
    fields_of_key,
    fields_of_table,
    of_other_types,
    rows_in_values,
    rows_of,
    taken,
    twice,
    value_schemas,
)
from sluice.records.plan import Format, RecordPlan, WriterSchema
from sluice.records.settings import Changes
from sluice.records.structs import field, names, struct

PAGE = Path(__file__).parents[2] / "docs" / "change-data.md"
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
COLUMNS = struct([field("id", "long", nullable=False), field("p", "string"), field("v", "string")])
DEBEZIUM, TOMBSTONES = Changes(format="debezium"), Changes(format="tombstones", delete="soft")


@pytest.mark.parametrize("text", BLOCKS, ids=[block.splitlines()[0] for block in BLOCKS])
def test_the_files_of_the_page_load(tmp_path, text):
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    pipeline = load_pipeline(file)
    assert pipeline.sink.hudi.operation == "upsert"
    if pipeline.changes is not None:
        assert pipeline.writer().ordering_fields == (POSITION,)


def test_the_page_has_a_file_for_each_way():
    formats = [yaml.safe_load(text).get("changes", {}).get("format") for text in BLOCKS]
    assert formats == ["debezium", "tombstones", "tombstones", None]


KEYED = {"source": {"kafka": {"topics": "t", "key": {"converter": "json"}}}}


@pytest.mark.parametrize(
    ("changes", "hudi", "more", "says"),
    [
        ({"format": "debezium"}, {"operation": "append"}, {}, "need sink.hudi.operation upsert"),
        ({"format": "debezium"}, {"ordering_field": "v"}, {}, POSITION),
        ({"format": "debezium", "truncate": "apply"}, {}, {"write": {"ranges": 2}}, "needs write.ranges 1"),
        ({"format": "tombstones"}, {}, {}, "source.kafka.key"),
        ({"format": "tombstones", "truncate": "ignore"}, {}, KEYED, "`truncate` is for format debezium"),
        ({"format": "tombstones"}, {"key_placement": "hashed", "buckets": 2}, KEYED, "not hashed"),
        (None, {"key_placement": "hashed"}, {}, "go together"),
        (None, {"buckets": 2}, {}, "go together"),
        (None, {"key_placement": "hashed", "buckets": 2}, {}, "needs `ordering_field`"),
        (
            None,
            {"key_placement": "hashed", "buckets": 2, "ordering_field": "v"},
            {"write": {"ranges": 2}},
            "needs write.ranges 1",
        ),
        (None, {"operation": "append", "key_placement": "hashed", "buckets": 2}, {}, "for operation upsert"),
    ],
)
def test_a_file_that_could_double_or_lose_rows_is_refused(tmp_path, changes, hudi, more, says):
    sink = {"path": "/lake/t", "operation": "upsert", "record_key": "id", "schema": "id BIGINT, v STRING", **hudi}
    given: dict[str, Any] = {"name": "t", "source": {"kafka": {"topics": "t"}}, "sink": {"hudi": sink}, **more}
    if changes is not None:
        given["changes"] = changes
    file = tmp_path / "t.yaml"
    file.write_text(yaml.safe_dump(given))
    with pytest.raises(PipelineFileError, match=re.escape(says)):
        load_pipeline(file)


def test_rows_of_a_table_are_what_envelopes_hold():
    plan = RecordPlan(changes=DEBEZIUM)
    value = fields_of_table(struct([*COLUMNS["fields"], field(POSITION, "decimal(30,15)")]), plan, ())
    assert names(envelope_of(value).row) == ["id", "p", "v"]
    assert rows_in_values(COLUMNS, DEBEZIUM) == envelope_around(COLUMNS)
    assert rows_in_values(COLUMNS, None) == COLUMNS
    plan = plan.model_copy(update={"value": Format(struct=value)})
    assert names(rows_of(None, None, plan).columns) == ["id", "p", "v", POSITION]
    assert names(rows_of(None, COLUMNS, RecordPlan(changes=TOMBSTONES)).columns) == ["id", "p", "v", POSITION, DELETED]


def test_a_person_may_write_the_rows_fields_alone_but_a_registry_says_all():
    written, registered = WriterSchema(struct=COLUMNS), WriterSchema(id=7, text="{}", struct=COLUMNS)
    found = value_schemas([written, registered], DEBEZIUM)
    assert [f.struct for f in found] == [envelope_around(COLUMNS), COLUMNS]
    assert value_schemas([written], None) == (written,)


def test_a_key_has_what_a_tombstone_needs():
    assert names(fields_of_key(COLUMNS, TOMBSTONES, ["id"], ["p"])) == ["id", "p"]
    assert names(fields_of_key(COLUMNS, DEBEZIUM, ["id"], ["p"])) == ["id"]


def test_a_column_of_two_parts_is_found_inside_an_envelope():
    plan = RecordPlan(value=Format(struct=envelope_around(COLUMNS)), changes=DEBEZIUM, columns={"v": "topic"})
    assert twice(plan) == ["v"]
    assert twice(plan.model_copy(update={"columns": {"source": "topic"}})) == []
    key = Format(struct="string", as_="id")
    plan = RecordPlan(value=Format(struct=COLUMNS), key=key, changes=TOMBSTONES)
    assert twice(plan) == []
    assert twice(plan.model_copy(update={"changes": None})) == ["id"]


def test_what_a_replay_reads_again_of_deletes_is_what_the_table_has_after_its_offsets():
    here, other = TopicPartition("c", "t", 0), TopicPartition("c", "t", 1)
    committed = [OffsetRange(here, 0, 100), OffsetRange(here, 150, 160), OffsetRange(other, 0, 50)]
    checkpoint = Checkpoint().advance({here: 100, other: 50}, {"c": None}, {("c", "t"): None}, committed=committed)
    plan = IntervalPlan(ranges=((OffsetRange(here, 20, 40), OffsetRange(here, 60, 70)),))
    assert [(r.partition, r.start, r.end) for r in later_offsets(plan, checkpoint)] == [
        (0, 40, 60),
        (0, 70, 100),
        (0, 150, 160),
    ]
    assert later_offsets(IntervalPlan(ranges=((OffsetRange(here, 170, 180),),)), checkpoint) == ()


@pytest.mark.parametrize(("delete", "own"), [("hard", [POSITION]), ("soft", [POSITION, DELETED])])
def test_the_columns_that_changes_adds_are_found_where_records_or_steps_have_them(delete, own):
    changes = Changes(format="debezium", delete=delete)
    made = struct([field("id", "long"), field(POSITION, "string"), field(DELETED, "string")])
    assert taken(made, changes) == own
    assert taken(made, None) == []
    assert [one.field for one in of_other_types(made, changes)] == own
    added = columns_with_changes(struct([]), changes.format, soft=delete == "soft")
    assert of_other_types(added, changes) == []
