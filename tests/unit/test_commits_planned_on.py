"""An interval is committed on the commit that it was planned on, and on no other."""

from __future__ import annotations

import pytest
from protocol_messages import start

from sluice.coordinator.commit import _moved_since
from sluice.coordinator.session import Committed
from sluice.protocol.commit_note import CommitNote
from sluice.protocol.offsets import Checkpoint, TopicPartition

FIRST = TopicPartition("kafka", "t", 0)


@pytest.mark.parametrize(
    ("planned_on", "stands", "moved"),
    [
        ("0", "0", []),
        ("0", "00", ["planned on 0, and on 00 now"]),
        ("0", None, ["planned on 0, and on None now"]),
        (None, None, []),
        (None, "00", []),
    ],
    ids=["it stands", "another came", "it was taken off", "the first", "an earlier release"],
)
def test_the_commit_that_it_was_planned_on_has_to_stand(planned_on, stands, moved):
    """Where an aborted one stood for a moment and no other had been there, no offset is left that could differ."""
    begun = start("1").model_copy(update={"planned_on": planned_on})
    checkpoint = Checkpoint() if stands is None else Checkpoint().advance({FIRST: 0}, {}, {})
    assert _moved_since(begun, Committed(checkpoint, CommitNote(instant=stands))) == moved
