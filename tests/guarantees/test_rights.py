"""A right that a later step needs is missed at START, on a broker that asks for rights."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from sluice.errors import ActionRequiredError
from sluice.local.broker import LocalBroker

from .harness import Flow, wait_for
from .quarantined import TOLERANT

_ASKS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture
def strict(home, tmp_path) -> Iterator[LocalBroker]:
    with LocalBroker(home, tmp_path / "broker", settings=_ASKS) as running:
        yield running


@pytest.mark.kafka
def test_a_dead_letter_topic_that_may_not_be_written_is_said_before_the_first_record(
    strict, tmp_path, shared_jvm, drivers, topic_name
):
    flow = Flow(tmp_path, strict.bootstrap, shared_jvm, drivers, topic_name("t"), **TOLERANT)
    letters = f"{flow.topic}.dlq"
    flow.set(errors__dead_letter_topic=letters)
    flow.create_topic(2)
    flow.produce(5)
    denied = AclBinding(
        ResourceType.TOPIC, letters, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.WRITE,
        AclPermissionType.DENY,
    )  # fmt: skip
    allowed = AclBinding(
        ResourceType.TOPIC, letters, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation.ALL,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    for one in flow.admin.create_acls([allowed, denied]).values():
        one.result(30)

    flow.admin.create_topics([NewTopic(letters, 1, 1)])[letters].result(30)

    def known() -> bool:
        asked = flow.admin.describe_topics(TopicCollection([letters]), include_authorized_operations=True)
        return AclOperation.WRITE not in asked[letters].result(30).authorized_operations

    wait_for(known, "the broker to know the rights")
    with pytest.raises(ActionRequiredError, match="lacks a right on the topic: Write") as raised:
        flow.start()
    assert raised.value.where["topic"] == letters
    assert flow.messages() == []
