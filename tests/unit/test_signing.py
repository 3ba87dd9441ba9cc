"""Whose control messages count."""

from __future__ import annotations

import hmac

import pytest

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka import topic_id
from sluice.kafka.config import KafkaSettings
from sluice.protocol.signing import HEADER, Signatures, Signed

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


class Topic:
    """A topic whose id may become another one."""

    def __init__(self, topic_id: str | None) -> None:
        self.id = self.known = topic_id
        self.asked = 0

    def __call__(self, anew: bool) -> str | None:
        self.asked += anew
        self.known = self.id if anew else self.known
        return self.known


def by_id(known: str | None, *secrets: str) -> tuple[Signatures, list[int], Topic]:
    told: list[int] = []
    topic = Topic(known)
    return Signatures("t", secrets or ("s",), lambda offset, _: told.append(offset), topic), told, topic


def test_a_signature_names_the_topic_s_id_where_there_is_one():
    one, other, none = (by_id(known)[0] for known in ("one", "other", None))
    assert (one.signs, none.signs, signatures()[0].signs) == (Signed.BY_LOG, Signed.BY_NAME, Signed.NOT)
    headers = one.headers(KEY, VALUE)
    assert one.judge(0, KEY, VALUE, headers) is Signed.BY_LOG
    assert not other.counts(0, KEY, VALUE, headers)
    assert not none.counts(0, KEY, VALUE, headers)
    assert none.headers(KEY, VALUE) == signatures("s")[0].headers(KEY, VALUE), "as releases before have signed"


def test_the_digest_is_the_one_that_the_protocol_s_page_names():
    def digest(content: bytes) -> list[tuple[str, bytes]]:
        return [(HEADER, hmac.new(b"s", content, "sha256").hexdigest().encode())]

    def length(part: bytes) -> bytes:
        return len(part).to_bytes(8, "big")

    by_name = b"sluice-control\x00" + length(b"t") + length(KEY) + b"t" + KEY + VALUE
    by_log = b"sluice-control-log\x00" + length(b"t") + length(b"one") + length(KEY) + b"tone" + KEY + VALUE
    assert by_id(None)[0].headers(KEY, VALUE) == digest(by_name)
    assert by_id("one")[0].headers(KEY, VALUE) == digest(by_log)


def test_without_a_secret_no_id_is_asked_for():
    def asked(_: bool) -> str:
        raise AssertionError

    plain = Signatures("t", (), lambda *_: None, asked)
    assert plain.counts(1, KEY, VALUE, [])
    assert (plain.headers(KEY, VALUE), plain.signs, plain.topic_id) == ([], Signed.NOT, None)


def test_what_is_required_only_rises():
    reader, told, _ = by_id("one")
    by_name, by_log = by_id(None)[0].headers(KEY, VALUE), reader.headers(KEY, VALUE)
    assert reader.counts(0, KEY, VALUE, [])
    assert reader.counts(1, KEY, VALUE, by_name)
    assert not reader.counts(2, KEY, VALUE, [])
    assert reader.counts(3, KEY, VALUE, by_name)
    assert reader.counts(4, KEY, VALUE, by_log)
    assert not reader.counts(5, KEY, VALUE, by_name)
    assert not reader.counts(6, KEY, VALUE, [])
    assert reader.counts(7, KEY, VALUE, by_log)
    assert told == [2, 5, 6]
    assert reader.counts(3, KEY, VALUE, by_name), "another reading, from further back"
    assert reader.counts(8, b"another table", VALUE, [])


def test_the_last_commit_s_note_asks_for_ids_in_signatures_too():
    reader, told, _ = by_id("one")
    by_name = by_id(None)[0].headers(KEY, VALUE)
    reader.require(KEY.decode(), 10, Signed.BY_LOG)
    assert reader.are_required(KEY.decode(), 10)
    assert reader.counts(10, KEY, VALUE, by_name)
    assert not reader.counts(11, KEY, VALUE, by_name)
    assert not reader.counts(12, KEY, VALUE, [])
    assert told == [11, 12]


def test_who_begins_in_the_middle_takes_what_is_signed_as_it_would_sign():
    by_name = by_id(None)[0].headers(KEY, VALUE)
    for known, counts in (("one", False), (None, True)):
        reader = by_id(known)[0]
        reader.require_all()
        assert reader.counts(5, KEY, VALUE, by_name) is counts


def test_a_reader_learns_that_the_topic_was_made_again():
    """What was required in the old topic is required of all records of the new one: they are younger."""
    reader, told, topic = by_id("one")
    assert reader.counts(7, KEY, VALUE, reader.headers(KEY, VALUE))
    topic.id = "two"
    assert not reader.counts(0, KEY, VALUE, by_id("three")[0].headers(KEY, VALUE))
    assert topic.asked == 1
    assert not reader.counts(1, KEY, VALUE, [])
    assert not reader.counts(2, KEY, VALUE, by_id(None)[0].headers(KEY, VALUE))
    assert not reader.counts(3, KEY, VALUE, by_id("one")[0].headers(KEY, VALUE))
    assert reader.counts(4, KEY, VALUE, by_id("two")[0].headers(KEY, VALUE))
    assert told == [0, 1, 2, 3]


def test_the_first_record_by_the_new_id_counts():
    reader, told, topic = by_id("one")
    assert reader.counts(7, KEY, VALUE, reader.headers(KEY, VALUE))
    topic.id = "two"
    assert reader.counts(0, KEY, VALUE, by_id("two")[0].headers(KEY, VALUE))
    assert told == []


def test_a_broker_that_gets_ids_lets_what_was_signed_before_count():
    reader, _, topic = by_id(None)
    assert reader.counts(0, KEY, VALUE, reader.headers(KEY, VALUE))
    topic.id = "one"
    assert reader.counts(1, KEY, VALUE, by_id("one")[0].headers(KEY, VALUE))
    assert not reader.counts(2, KEY, VALUE, by_id(None)[0].headers(KEY, VALUE))


def test_an_id_is_asked_for_when_needed_and_anew_only_now_and_then(monkeypatch):
    ids = iter(["one", "two", None, "three"])
    clock = [0.0]
    monkeypatch.setattr(topic_id.time, "monotonic", lambda: clock[0])
    present = topic_id.PresentTopicId(lambda: next(ids))
    assert [present(False), present(False), present(True)] == ["one", "one", "one"]
    clock[0] = 6
    assert present(False) == "one"
    assert [present(True), present(True)] == ["two", "two"]
    clock[0] = 12
    assert present(True) == "two", "a broker that isn't upgraded yet has no say"
    clock[0] = 71
    assert present(False) == "two"
    clock[0] = 72
    assert present(False) == "three", "a topic may be made again"


def test_while_kafka_does_not_answer_an_id_stays_what_it_was(monkeypatch):
    clock, answers = [0.0], ["one"]

    def ask() -> str:
        if not answers:
            raise RetryableError("Kafka doesn't answer.", next_step="wait.")
        return answers.pop()

    monkeypatch.setattr(topic_id.time, "monotonic", lambda: clock[0])
    present = topic_id.PresentTopicId(ask)
    assert present(False) == "one"
    clock[0] = 100
    assert present(False) == "one"
    answers.append("two")
    assert present(False) == "one", "it isn't asked with each record"
    clock[0] = 160
    assert present(False) == "two"
    with pytest.raises(RetryableError):
        topic_id.PresentTopicId(ask)(False)
