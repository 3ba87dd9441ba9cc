"""Connect's transforms as steps of a pipeline file."""

from __future__ import annotations

import pytest

from .connectors_of_connect import FOLDER, KAFKAS, SMT, TABLE, one, said, transformed, verdicts


@pytest.mark.parametrize(
    ("settings_", "steps"),
    [
        (
            {"type": f"{SMT}.ReplaceField$Value", "exclude": "a,b", "renames": "c:d"},
            [{"drop": ["a", "b"]}, {"rename": {"c": "d"}}],
        ),
        ({"type": f"{SMT}.ReplaceField$Value", "whitelist": "a,b"}, [{"select": ["`a`", "`b`"]}]),
        ({"type": f"{SMT}.Cast$Value", "spec": "a:int8,b:string"}, [{"cast": {"a": "TINYINT", "b": "STRING"}}]),
        ({"type": f"{SMT}.Flatten$Value", "delimiter": "_"}, [{"flatten": {"separator": "_"}}]),
        (
            {"type": f"{SMT}.MaskField$Value", "fields": "a", "replacement": "x"},
            [{"mask": {"columns": ["a"], "with": "text", "text": "x"}}],
        ),
        (
            {"type": f"{SMT}.InsertField$Value", "static.field": "a", "static.value": "it's"},
            [{"set": {"a": "'it\\'s'"}}],
        ),
        (
            {"type": f"{SMT}.TimestampConverter$Value", "field": "a", "target.type": "Timestamp"},
            [{"set": {"a": "timestamp_millis(`a`)"}}],
        ),
        (
            {"type": f"{SMT}.TimestampConverter$Value", "field": "a", "target.type": "string", "format": "yyyy-MM-dd"},
            [{"set": {"a": "date_format(`a`, 'yyyy-MM-dd')"}}],
        ),
        ({"type": f"{SMT}.HoistField$Value", "field": "a"}, [{"select": ["struct(*) AS `a`"]}]),
    ],
)
def test_transforms_that_mean_the_same_are_steps(settings_, steps):
    made = transformed({"t": settings_})
    assert made.pipeline is not None
    assert made.pipeline["transforms"] == steps
    assert {verdicts(made)[f"transforms.t.{name}"] for name in settings_} == {"honoured"}
    assert made.missing == (("sink", "jdbc", "schema"),)


@pytest.mark.parametrize(
    "settings_",
    [
        {"type": "com.example.Own$Value", "a": "b"},
        {"type": f"{SMT}.TimestampRouter", "topic.format": "${topic}-${timestamp}"},
        {"type": f"{SMT}.Cast$Value", "spec": "int32"},
        {"type": f"{SMT}.TimestampConverter$Value", "field": "a", "target.type": "Timestamp", "format": "yyyy"},
        {"type": f"{SMT}.MaskField$Value", "fields": "a", "predicate": "p"},
        {"type": f"{SMT}.Filter", "predicate": "tombstone"},
    ],
)
def test_others_are_named_and_leave_no_step(settings_):
    made = transformed(
        {"t": settings_},
        **{"predicates": "tombstone", "predicates.tombstone.type": f"{SMT}.predicates.RecordIsTombstone"},
    )
    assert made.pipeline is not None
    assert "transforms" not in made.pipeline
    assert {verdicts(made)[f"transforms.t.{name}"] for name in settings_} == {"not honoured"}


def test_parts_of_a_record_are_columns_that_a_choice_of_fields_before_lets_through():
    made = transformed(
        {
            "some": {"type": f"{SMT}.ReplaceField$Value", "include": "a"},
            "at": {"type": f"{SMT}.InsertField$Value", "timestamp.field": "at!", "offset.field": "place"},
        }
    )
    assert made.pipeline is not None
    assert made.pipeline["source"]["kafka"]["columns"] == {"place": "offset", "at": "timestamp"}
    assert made.pipeline["transforms"] == [{"select": ["`a`", "`place`", "`at`"]}]


def test_parts_that_a_choice_of_fields_comes_after_are_taken_away_by_it():
    made = transformed(
        {
            "at": {"type": f"{SMT}.InsertField$Value", "timestamp.field": "at"},
            "some": {"type": f"{SMT}.ReplaceField$Value", "include": "a"},
        }
    )
    assert made.pipeline is not None
    assert made.pipeline["transforms"] == [{"select": ["`a`"]}]


def test_columns_of_the_key_are_no_fields_of_the_value():
    key = {"pk.mode": "record_key", "pk.fields": "id", "key.converter": f"{KAFKAS}.storage.StringConverter"}
    made = transformed(
        {
            "some": {"type": f"{SMT}.ReplaceField$Value", "include": "a,b", "exclude": "id,b"},
            "in": {"type": f"{SMT}.ExtractField$Value", "field": "a"},
        },
        **key,
    )
    assert made.pipeline is not None
    assert made.pipeline["transforms"] == [{"drop": ["b"]}, {"select": ["`id`", "`a`"]}, {"select": ["`id`", "`a`.*"]}]
    listed = one({**TABLE, **key, "fields.whitelist": "a"})
    assert listed.pipeline is not None
    assert listed.pipeline["transforms"] == [{"select": ["`id`", "`a`"]}]


def test_a_filter_by_topic_or_header():
    topics = transformed(
        {"t": {"type": f"{SMT}.Filter", "predicate": "p", "negate": "true"}},
        **{"predicates": "p", "predicates.p.type": f"{SMT}.predicates.TopicNameMatches", "predicates.p.pattern": "a|b"},
    )
    assert topics.pipeline is not None
    assert topics.pipeline["transforms"] == [{"filter": "coalesce(connect_topic RLIKE '^(?:a|b)$', false)"}]
    assert topics.pipeline["source"]["kafka"]["columns"] == {"connect_topic": "topic"}
    assert verdicts(topics)["predicates.p.pattern"] == "honoured"


def test_a_filter_behind_a_choice_of_fields_has_its_column_still():
    made = transformed(
        {
            "some": {"type": f"{SMT}.ReplaceField$Value", "include": "a"},
            "f": {"type": f"{SMT}.Filter", "predicate": "p"},
        },
        **{"predicates": "p", "predicates.p.type": f"{SMT}.predicates.HasHeaderKey", "predicates.p.name": "it's"},
    )
    assert made.pipeline is not None
    assert made.pipeline["transforms"] == [
        {"select": ["`a`", "`connect_headers`"]},
        {"filter": "NOT coalesce(exists(connect_headers, h -> h.key = 'it\\'s'), false)"},
    ]


def test_a_topic_that_is_renamed_names_the_table():
    made = transformed(
        {"t": {"type": f"{SMT}.RegexRouter", "regex": "(\\w+)\\.(.*)", "replacement": "$2"}}, topics="shop.orders"
    )
    assert made.pipeline is not None
    assert made.pipeline["sink"]["jdbc"]["table"] == "orders"
    files = transformed({"t": {"type": f"{SMT}.RegexRouter", "regex": "f(.*)", "replacement": "$1"}}, FOLDER)
    assert said(files, "transforms.t.regex").verdict == "not honoured"


def test_a_key_that_is_made_of_the_value_is_the_values():
    made = transformed(
        {
            "k": {"type": f"{SMT}.ValueToKey", "fields": "id"},
            "x": {"type": f"{SMT}.ExtractField$Key", "field": "id"},
        },
        **{"pk.mode": "record_key", "pk.fields": "id", "insert.mode": "upsert"},
    )
    assert made.pipeline is not None
    assert (made.pipeline["sink"]["jdbc"]["pk_mode"], made.status) == ("record_value", 0)
    assert "key" not in made.pipeline["source"]["kafka"]


def test_debeziums_events_unwrapped_are_changes_where_rows_can_be_deleted():
    unwrap = {"u": {"type": "io.debezium.transforms.ExtractNewRecordState", "drop.tombstones": "false"}}
    key = {"key.converter": f"{KAFKAS}.json.JsonConverter", "pk.mode": "record_key", "pk.fields": "id"}
    made = transformed(unwrap, **{**key, "insert.mode": "upsert", "delete.enabled": "true"})
    assert made.pipeline is not None
    assert made.pipeline["changes"] == {"format": "debezium"}
    assert transformed(unwrap, FOLDER).status == 1
