"""Whose control messages count."""

from __future__ import annotations

import pytest

from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.protocol.signing import HEADER, Signatures

KEY, VALUE = b"s3a://lake/t", b'{"type": "START-COMMIT"}'


def signatures(*secrets: str, topic: str = "t") -> tuple[Signatures, list[int]]:
    told: list[int] = []
    return Signatures(topic, secrets, lambda offset, _: told.append(offset)), told


def test_without_a_secret_everything_counts_and_nothing_is_signed():
    plain, told = signatures()
    assert (plain.headers(KEY, VALUE), plain.counts(1, KEY, VALUE, [(HEADER, b"x")]), told) == ([], True, [])


@pytest.mark.parametrize(
    ("secret", "topic", "key", "value"),
    [("other", "t", KEY, VALUE), ("s", "u", KEY, VALUE), ("s", "t", KEY[:-1], b"t" + VALUE), ("s", "t", KEY, b"{}")],
)  # fmt: skip
def test_a_signature_is_of_secret_topic_key_and_value(secret, topic, key, value):
    headers = signatures("s")[0].headers(KEY, VALUE)
    reader, told = signatures(secret, topic=topic)
    assert not reader.counts(3, key, value, headers)
    assert not reader.counts(3, key, value, headers)
    assert told == [3]


def test_what_was_sent_before_the_first_signature_counts_unsigned():
    reader, told = signatures("s")
    signed = reader.headers(KEY, VALUE)
    assert reader.counts(1, KEY, VALUE, [])
    assert reader.counts(2, KEY, VALUE, signed)
    assert not reader.counts(3, KEY, VALUE, [])
    assert not reader.counts(3, KEY, VALUE, [("other", b"x")])
    assert reader.counts(1, KEY, VALUE, []), "another reading, from further back"
    assert reader.counts(4, b"another table", VALUE, [])
    assert told == [3]


def test_the_last_commits_note_asks_for_signatures_too():
    reader, told = signatures("s")
    reader.require(KEY.decode(), 10)
    assert reader.counts(10, KEY, VALUE, [])
    assert not reader.counts(11, KEY, VALUE, [])
    assert told == [11]


def test_a_secret_is_replaced_in_two_steps():
    old, _ = signatures("old")
    both, _ = signatures("new", "old")
    new, _ = signatures("new")
    assert both.counts(1, KEY, VALUE, old.headers(KEY, VALUE))
    assert new.counts(2, KEY, VALUE, both.headers(KEY, VALUE))
    assert not old.counts(2, KEY, VALUE, both.headers(KEY, VALUE))


def test_the_secret_reaches_no_kafka_client_and_no_text():
    secrets = {"sluice.control.secret": "hunter2-and-longer", "sluice.control.secret.previous": "hunter1"}
    settings = KafkaSettings("k", {"bootstrap.servers": "h:1", **secrets})
    assert settings.control_secrets == ("hunter2-and-longer", "hunter1")
    assert "hunter" not in str((settings.client(), settings.java(), settings))


@pytest.mark.parametrize("secret", ["s", "hunter2", "fifteen bytes.."])
def test_a_secret_that_can_be_guessed_is_refused(secret):
    settings = KafkaSettings("k", {"bootstrap.servers": "h:1", "sluice.control.secret": secret})
    with pytest.raises(ActionRequiredError, match="less than 16 bytes") as caught:
        _ = settings.control_secrets
    assert secret not in str(caught.value).split()


def test_who_begins_in_the_middle_takes_nothing_unsigned():
    reader, told = signatures("s")
    reader.require_all()
    assert reader.are_required(KEY.decode(), 0)
    assert not reader.counts(5, KEY, VALUE, [])
    assert reader.counts(6, KEY, VALUE, reader.headers(KEY, VALUE))
    assert not reader.counts(4, b"another table", VALUE, [])
    assert told == [5, 4]
    plain, _ = signatures()
    plain.require_all()
    assert plain.counts(1, KEY, VALUE, [])
    assert not plain.are_required(KEY.decode(), 0)
