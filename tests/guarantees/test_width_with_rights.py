"""Thin partitions are read together by a principal that has the rights of docs/production.md and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType
from confluent_kafka.admin import ResourceType as Resource

from sluice.coordinator import Coordinator, Started
from sluice.kafka.config import KafkaSettings
from sluice.local.broker import LocalBroker
from sluice.local.process import free_port
from sluice.participant.parts import FEW

from .harness import Flow
from .harness.processes import CLUSTER
from .test_width import status_of, tasks_of_jobs

pytestmark = pytest.mark.thorough

USER, PASSWORD = "sluice", "a password of the tests"
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": USER, "sasl.password": PASSWORD,
}  # fmt: skip
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.fixture(scope="module")
def guarded(home, tmp_path_factory):
    """A broker on which only those without a log-in may do everything; its address, and that for users."""
    folder: Path = tmp_path_factory.mktemp("guarded")
    plain, controller, users = (free_port() for _ in range(3))
    (folder / "ports.json").write_text(json.dumps([plain, controller]))
    listeners = {"PLAINTEXT": plain, "CONTROLLER": controller, "SASL_PLAINTEXT": users}
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "SASL_PLAINTEXT": "SASL_PLAINTEXT"}
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{_MODULE} required user_{USER}="{PASSWORD}";',
    }
    with LocalBroker(home, folder, settings=settings) as broker:
        yield broker.bootstrap, f"127.0.0.1:{users}"


def _allow(bootstrap: str, *rights: tuple[Resource, str, AclOperation]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    wanted = [AclBinding(kind, name, literal, f"User:{USER}", "*", of, allow) for kind, name, of in rights]
    for made in admin.create_acls(wanted).values():
        made.result(30)


@pytest.mark.parametrize("operation", ["append", "upsert"])
def test_the_rights_of_the_page_are_enough(tmp_path, guarded, shared_jvm, drivers, topic_name, operation):
    plain, users = guarded
    settings: dict[str, Any] = {"sink__hudi__operation": operation, "sink__hudi__record_key": "id"}
    flow = Flow(tmp_path, plain, shared_jvm, drivers, topic_name("t"), **settings)
    flow.create_topic(FEW + 1)
    flow.produce(3 * FEW, partitions=range(FEW + 1))
    topic, control = ((Resource.TOPIC, name) for name in (flow.topic, flow.control_topic))
    of_control = ("DESCRIBE", "DESCRIBE_CONFIGS", "READ", "WRITE", "CREATE")
    _allow(
        plain,
        *((*topic, AclOperation[name]) for name in ("DESCRIBE", "READ")),
        *((*control, AclOperation[name]) for name in of_control),
        (Resource.GROUP, f"sluice.{flow.topic}", AclOperation.READ),
        (Resource.BROKER, "kafka-cluster", AclOperation.DESCRIBE),
    )
    as_user = {"bootstrap.servers": users, **LOGIN}
    flow.secrets = as_user
    coordinator = Coordinator(flow.pipeline, KafkaSettings(CLUSTER, {**as_user, "log_level": 0}), None, flow.jvm)
    started = coordinator.start(flow.run())
    assert isinstance(started, Started)
    job = flow.write(started)
    job.succeed()
    assert "one by one" not in job.text()
    assert coordinator.commit(started.control_offset).records == 3 * FEW
    flow.check()
    assert tasks_of_jobs(status_of(flow)) == [1]
