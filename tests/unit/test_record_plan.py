"""What START-COMMIT says about records: readable while it is small, and within a message's limit when it isn't."""

from __future__ import annotations

import json

from sluice.records.plan import ClusterSchemas, Format, RecordPlan, WriterSchema
from sluice.records.settings import Transform


def _versions(number: int, fields: int) -> tuple[WriterSchema, ...]:
    def fields_of(version: int) -> list[dict[str, str]]:
        return [{"name": f"field_{i}", "type": "string", "doc": f"Number {i * 7919}"} for i in range(fields + version)]

    texts = [json.dumps({"type": "record", "name": "R", "fields": fields_of(v)}) for v in range(number)]
    return tuple(WriterSchema(id=i, text=t, struct={"type": "struct", "fields": []}) for i, t in enumerate(texts))


def test_a_few_schemas_can_be_read_with_a_console_consumer():
    plan = RecordPlan(value=Format(converter="avro", schemas=_versions(2, 3)))
    text = plan.model_dump_json(exclude_none=True)
    assert json.loads(text)["value"]["schemas"][1]["id"] == 1
    assert RecordPlan.model_validate_json(text) == plan


def test_hundreds_of_large_schemas_stay_far_below_a_message_limit():
    plan = RecordPlan(value=Format(converter="avro", schemas=_versions(300, 400)))
    assert sum(len(s.text) for s in plan.value.schemas) > 8_000_000
    text = plan.model_dump_json(exclude_none=True)
    assert len(text) < 200_000
    assert RecordPlan.model_validate_json(text) == plan


def _by_cluster(number: int, fields: int) -> Format:
    own = (
        ClusterSchemas(clusters=names, connection=names[0], registry="http://r", schemas=_versions(number, fields))
        for names in (("east",), ("west", "north"))
    )
    return Format(converter="avro", by_cluster=tuple(own))


def test_several_registries_are_written_beside_what_there_was_and_pack_their_schemas():
    for schemas in ((2, 3), (150, 400)):
        plan = RecordPlan(value=_by_cluster(*schemas))
        text = plan.model_dump_json(exclude_none=True)
        assert len(text) < 200_000
        assert RecordPlan.model_validate_json(text) == plan
        value = json.loads(text)["value"]
        assert value["schemas"] == []
        assert "registry" not in value


def test_one_registry_is_written_as_before_there_were_several():
    plan = RecordPlan(value=Format(converter="avro", registry="http://r", schemas=_versions(1, 1)))
    for said in (plan.model_dump(mode="json"), json.loads(plan.model_dump_json(exclude_none=True))):
        assert "by_cluster" not in said["value"]
    assert RecordPlan.model_validate(plan.model_dump(mode="json")).value.by_cluster == ()


def test_a_plan_for_records_under_the_names_that_clusters_had():
    """A name may have been another cluster's."""
    plan = RecordPlan(value=_by_cluster(1, 1), key=_by_cluster(1, 1))
    then = plan.under_names({"east": "west", "old": "east", "gone": "nowhere"})
    for found in (then.value, then.key):
        assert found is not None
        assert [of.clusters for of in found.by_cluster] == [("old",), ("east",)]
        assert [of.connection for of in found.by_cluster] == ["east", "west"]


def test_the_sections_of_the_pipeline_file_travel_whole():
    plan = RecordPlan(transforms=(Transform(filter="a > 1"), Transform.model_validate({"set": {"b": "a + 1"}})))
    found = RecordPlan.model_validate_json(plan.model_dump_json(exclude_none=True))
    assert [step.kind for step in found.transforms] == ["filter", "set_"]
    assert found.transforms[1].set_ == {"b": "a + 1"}
