"""How far an interval's dead letters were sent, by the note of whoever sent them."""

from __future__ import annotations

import pytest

from sluice.kafka.sent_letters import Sent


@pytest.mark.parametrize(
    ("instant", "clusters", "sent"),
    [
        ("7", ("west",), 2),
        ("8", ("west",), 0),
        ("6", ("west",), 9),
        ("7", ("east", "west"), 0),  # what was counted is another sequence: rather twice than never
        ("6", ("east", "west"), 9),
    ],
)
def test_an_interval_s_letters_were_sent(instant, clusters, sent):
    assert Sent("7", 2, ("west",)).of(instant, clusters, 9) == sent


def test_a_note_of_an_earlier_release_counts_for_the_one_cluster_that_there_was():
    assert Sent("7", 2).of("7", ("kafka_default",), 9) == 2
