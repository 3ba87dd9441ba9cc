"""Whatever a record holds, it comes to a defined end: a row that says what the record said, or the quarantine."""

from __future__ import annotations

import pytest

from .harness import Flow, Sent
from .quarantined import TOLERANT, places, quarantine, send

DDL = (
    "id BIGINT, v STRING, p STRING, i INT, d DECIMAL(5,2), x DOUBLE, f FLOAT, day DATE, t TIMESTAMP, b BINARY, "
    "ok BOOLEAN, n STRUCT<a: INT, s: STRING, xs: ARRAY<INT>, m: MAP<STRING, DOUBLE>, deep: ARRAY<STRUCT<x: DOUBLE>>>, "
    "needed STRING NOT NULL"
)
LIMIT = 100_000
NOT_JSON = "is not JSON, or a field is not of its column's type"
RANGE = "a number is beyond the range of its column's type"
TIME = "not between the years 1 and 9999"
MORE = "has more after its JSON object"
NO_OBJECT = "is not one JSON object"


def _with(field: bytes) -> bytes:
    return b'{"id": 1, "v": "x", "p": "p0", "needed": "", ' + field + b"}"


BAD = {
    # What is no JSON, or more than JSON
    "empty": (b"", "the value is empty"),
    "tombstone": (None, "the value is null (a tombstone)"),
    "blank": (b" \n", NO_OBJECT),
    "null": (b"null", NO_OBJECT),
    "array": (b"[" + _with(b'"i": 1') + b"]", NO_OBJECT),
    "truncated": (_with(b'"i": 1')[:-1], NO_OBJECT),
    "nothing": (b'{"id": 1, "n": {"a": 1}', NOT_JSON),
    "byte_order_mark": (b"\xef\xbb\xbf" + _with(b'"i": 1'), NO_OBJECT),
    "two_records": (_with(b'"i": 1') * 2, MORE),
    "two_records_with_a_comma": (_with(b'"i": 1') + b"," + _with(b'"i": 1'), MORE),
    "trailing_brace": (_with(b'"i": 1') + b"}", MORE),
    "trailing_garbage": (_with(b'"i": 1') + b" garbage", NO_OBJECT),
    "trailing_garbage_with_a_brace": (_with(b'"i": 1') + b" garbage}", MORE),
    "trailing_nul": (_with(b'"i": 1') + b"\x00}", MORE),
    "comment": (_with(b'"i": 1 /* one */'), NOT_JSON),
    "control_character": (_with(b'"n": {"s": "a\x01"}'), NOT_JSON),
    # What is no text
    "utf16": ('{"id": 1}'.encode("utf-16"), "the value is not UTF-8"),
    "broken_utf8": (_with(b'"n": {"s": "\xff\xfe"}'), "the value is not UTF-8"),
    "overlong_utf8": (_with(b'"n": {"s": "\xc0\xaf"}'), "the value is not UTF-8"),
    "half_a_surrogate_pair": (_with(rb'"n": {"s": "\ud83d"}'), "half of a surrogate pair"),
    "the_other_half": (_with(rb'"n": {"s": "\uDE00"}'), "half of a surrogate pair"),
    # What is too deep or too large
    "deep_arrays": (_with(b'"unknown": ' + b"[" * 20_000 + b"]" * 20_000), NOT_JSON),
    "deep_objects": (_with(b'"v": ' + b'{"a":' * 15_000 + b"1" + b"}" * 15_000), NOT_JSON),
    "long_number": (_with(b'"x": ' + b"1" * 5_000), NOT_JSON),
    "oversized": (_with(b'"n": {"s": "' + b"s" * LIMIT + b'"}'), f"bytes, and errors.max_record_bytes is {LIMIT}"),
    # Numbers
    "nan": (_with(b'"x": NaN'), NOT_JSON),
    "quoted_nan": (_with(b'"x": "NaN"'), NOT_JSON),
    "infinity": (_with(b'"x": -Infinity'), NOT_JSON),
    "quoted_infinity": (_with(b'"n": {"m": {"k": "Infinity"}}'), NOT_JSON),
    "int_overflow": (_with(b'"i": 3000000000'), NOT_JSON),
    "bigint_overflow": (b'{"id": 9223372036854775808, "v": "x", "p": "p0", "needed": ""}', NOT_JSON),
    "fraction_in_an_int": (_with(b'"i": 1.5'), NOT_JSON),
    "decimal_overflow": (_with(b'"d": 1000.00'), NOT_JSON),
    "double_overflow": (_with(b'"x": 1e309'), RANGE),
    "float_overflow": (_with(b'"f": -1e39'), RANGE),
    "nested_overflow": (_with(b'"n": {"m": {"k": 1e309}}'), RANGE),
    "deeply_nested_overflow": (_with(b'"n": {"deep": [{"x": 1}, {"x": 1e309}]}'), RANGE),
    # Types
    "wrong_type": (_with(b'"i": "seven"'), NOT_JSON),
    "number_in_quotes": (_with(b'"i": "7"'), NOT_JSON),
    "boolean_in_quotes": (_with(b'"ok": "true"'), NOT_JSON),
    "no_base64": (_with(b'"b": "!!!"'), NOT_JSON),
    "wrong_type_in_a_struct": (_with(b'"n": {"a": "x"}'), NOT_JSON),
    "wrong_type_in_an_array": (_with(b'"n": {"xs": [1, "x"]}'), NOT_JSON),
    "wrong_type_in_a_map": (_with(b'"n": {"m": {"k": "x"}}'), NOT_JSON),
    "array_for_a_struct": (_with(b'"n": [1]'), NOT_JSON),
    "text_for_a_struct": (_with(b'"n": "x"'), NOT_JSON),
    # Times
    "no_such_date": (_with(b'"day": "2023-02-30"'), NOT_JSON),
    "no_such_time": (_with(b'"t": "2023-02-28 25:00:00"'), NOT_JSON),
    "milliseconds": (_with(b'"t": 1700000000000'), TIME),
    "date_beyond": (_with(b'"day": "+12345-01-01"'), TIME),
    # Keys
    "a_maps_key_twice": (_with(b'"n": {"m": {"k": 1, "k": 2}}'), "a map has a key twice"),
    "required_field_missing": (b'{"id": 1, "v": "x", "p": "p0"}', "the field needed is missing or null"),
    "required_field_null": (b'{"id": 1, "v": "x", "p": "p0", "needed": null}', "the field needed is missing or null"),
    "key_field_missing": (b'{"v": "x", "p": "p0", "needed": ""}', "the field id is missing or null"),
    "table_partition_missing": (b'{"id": 1, "v": "x", "needed": ""}', "the field p is missing or null"),
}

# What stands in the row's column v is what the record said.
GOOD = {
    "plain": (b'"v": "a"', "a"),
    "the_last_of_two_equal_keys": (b'"v": "a", "v": "b"', "b"),
    "number_for_text": (b'"v": 1.50', "1.50"),
    "long_number_for_text": (b'"v": -12345678901234567890123.450', "-12345678901234567890123.450"),
    "large_number_for_text": (b'"v": 1E400, "n": {"s": 2.50}', "1E400"),
    "text_like_a_number": (b'"v": "1.50", "x": 1.50', "1.50"),
    "text_with_a_number": (rb'"v": "\"Infinity\": 1.50, 1E400"', '"Infinity": 1.50, 1E400'),
    "numbers_in_an_object": (
        rb'"v": {"a": [1.10, "\"2.50", 1e400, {"b.0": -0}]}',
        r'{"a":[1.10,"\"2.50",1e400,{"b.0":-0}]}',
    ),
    "object_for_text": (b'"v": {"a": [1, null]}', '{"a":[1,null]}'),
    "deep_for_text": (b'"v": ' + b"[" * 900 + b"]" * 900, "[" * 900 + "]" * 900),
    "surrogate_pair": (rb'"v": "\ud83d\ude00"', "\N{GRINNING FACE}"),
    "no_escape": (rb'"v": "\\ud83d"', r"\ud83d"),
    "utf8": ('"v": "\N{GRINNING FACE}ä"'.encode(), "\N{GRINNING FACE}ä"),
    "braces": (b'"v": "}{"', "}{"),
    "unknown_field": (b'"v": "a", "unknown": {"v": "b"}', "a"),
    "largest": (b'"v": "a", "i": -2147483648, "x": 1.7976931348623157E308, "d": 999.99', "a"),
    "leap_day": (b'"v": "a", "day": "2024-02-29", "t": "9999-12-31T23:59:59.999999Z"', "a"),
}


def _good(flow: Flow, fields: bytes, value: str, end: bytes = b"") -> None:
    flow._next_id += 1
    record = b'{"id": %d, "p": "p0", "needed": "", %s}%s' % (flow._next_id, fields, end)
    flow.sent.append(Sent(0, flow.produce_raw(record), flow._next_id, value, "p0"))


@pytest.fixture(scope="module")
def loaded(make_flow_of_module):
    """All of them in one interval, each bad record between good ones; and the bad ones' names by offset."""
    flow = make_flow_of_module(partitions=1, **TOLERANT, sink__hudi__schema=DDL, errors__max_record_bytes=LIMIT)
    names = {}
    for name, (value, _) in BAD.items():
        names[flow.produce_raw(value)] = name
    names[send(flow, _with(b'"i": 1'), key=b"k" * (LIMIT + 1))] = "oversized_key"
    for fields, value in GOOD.values():
        _good(flow, fields, value)
    _good(flow, b'"v": "a"', "a", b" \r\n")
    outcome = flow.interval()
    return flow, names, {row["kafka_offset"]: row for row in quarantine(flow)}, outcome


def test_every_good_record_is_a_row(loaded):
    flow, _, _, outcome = loaded
    assert outcome.records == len(GOOD) + 1
    flow.check()


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_is_set_aside_as_it_came(loaded, name):
    _, names, rows, _ = loaded
    value, reason = BAD[name]
    row = rows[next(offset for offset, of in names.items() if of == name)]
    assert reason in row["reason"]
    assert row["kafka_value"] == value


def test_a_large_key_is_not_looked_at(loaded):
    _, names, rows, _ = loaded
    row = rows[next(offset for offset, of in names.items() if of == "oversized_key")]
    assert row["reason"] == f"key: the key has {LIMIT + 1} bytes, and errors.max_record_bytes is {LIMIT}"
    assert row["stage"] == "key"


def test_nothing_else_is_set_aside(loaded):
    flow, names, _, _ = loaded
    assert places(quarantine(flow, metadata=False)) == [(0, offset) for offset in sorted(names)]
