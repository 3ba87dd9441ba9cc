"""What a run is asked to do, as the form, the command line and a backfill say it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from sluice.protocol.offsets import TopicPartition
from sluice.protocol.request import Request

EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"kind": "range"}, "either by offsets or by times"),
        ({"kind": "range", "offsets": {"t": {0: (0, 1)}}, "from_time": EARLY}, "either by offsets or by times"),
        ({"kind": "range", "from_time": LATE, "to_time": EARLY}, "start must lie before its end"),
        ({"kind": "range", "from_time": EARLY, "to_time": EARLY}, "start must lie before its end"),
        ({"kind": "range", "offsets": {"t": {0: (5, 1)}}}, "0 <= start <= end"),
        ({"kind": "replay"}, "needs the instant"),
        ({"kind": "correction", "offsets": {"t": {0: (5, 6)}}}, "and a reason"),
        ({"kind": "correction", "offsets": {"t": {0: (5, 6)}}, "reason": "  "}, "and a reason"),
        ({"kind": "sideways"}, "Input should be"),
        ({"whatever": 1}, "Extra inputs"),
    ],
)
def test_what_does_not_add_up_is_refused(wrong, says):
    with pytest.raises(ValidationError, match=says):
        Request.model_validate(wrong)


def test_offsets_come_from_json_with_text_keys():
    assert Request(kind="range", offsets={"t": {"0": [1, 2]}}).offsets == {"t": {0: (1, 2)}}


@pytest.mark.parametrize(
    ("partitions", "wanted"),
    [((), {("a", 0), ("a", 1), ("b", 0)}), ("a", {("a", 0), ("a", 1)}), ("a[1], b", {("a", 1), ("b", 0)})],
)
def test_partitions_are_named_by_topic_or_one_by_one(partitions, wanted):
    request = Request(partitions=partitions)
    assert {tp for tp in (("a", 0), ("a", 1), ("b", 0)) if request.wants(TopicPartition("kafka", *tp))} == wanted
