"""Numbers and patterns of texts that others write: those that Python itself can't take are refused like any other."""

from __future__ import annotations

import pytest

from sluice.cli.set_aside import place_from
from sluice.connect.draft import UnfitError
from sluice.connect.rules import retries, whole_number
from sluice.errors import ActionRequiredError
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.request import Request
from sluice.records.changes import position_of
from sluice.sections import is_pattern
from sluice.untrusted import compiled, whole

MANY = "9" * 5000


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("007", 7), ("9" * 19, int("9" * 19)), ("", None), ("-1", None), (MANY, None)]
)
def test_a_whole_number_has_at_most_nineteen_digits(text, number):
    assert whole(text) == number


def test_a_place_with_too_many_digits_is_no_place():
    for text in (f"orders[{MANY}]@5", f"orders[0]@{MANY}"):
        with pytest.raises(ActionRequiredError, match="is no record's place"):
            place_from(text)
    assert place_from("orders[0]@5") == ("orders", 0, 5)


def test_a_partition_with_too_many_digits_is_another_topic():
    request = Request(kind="backfill", partitions=[f"orders[{MANY}]"])
    assert not request.wants(TopicPartition("kafka", "orders", 0))


@pytest.mark.parametrize("form", [whole_number, retries])
def test_a_setting_of_connect_with_too_many_digits_is_no_number(form):
    with pytest.raises(UnfitError, match="it is no"):
        form(MANY)


def test_a_log_file_of_mysql_with_too_many_digits_has_no_position():
    assert position_of({"file": f"binlog.{MANY}", "pos": 4}) is None
    assert position_of({"file": "binlog.000003", "pos": 4}) is not None


@pytest.mark.parametrize("pattern", ["(" * 5000 + ")" * 5000, "a{99999999999999999999}", "("])
def test_a_pattern_that_python_does_not_take_is_no_pattern(pattern):
    for check in (compiled, is_pattern):
        with pytest.raises(ValueError, match="is no regular expression"):
            check(pattern)
