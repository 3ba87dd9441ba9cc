"""What START-COMMIT says about records: readable while it is small, and within a message's limit when it isn't."""

from __future__ import annotations

import json

from sluice.records.plan import Format, RecordPlan, WriterSchema
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


def test_the_sections_of_the_pipeline_file_travel_whole():
    plan = RecordPlan(transforms=(Transform(filter="a > 1"), Transform.model_validate({"set": {"b": "a + 1"}})))
    found = RecordPlan.model_validate_json(plan.model_dump_json(exclude_none=True))
    assert [step.kind for step in found.transforms] == ["filter", "set_"]
    assert found.transforms[1].set_ == {"b": "a + 1"}
