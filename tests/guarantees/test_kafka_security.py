"""Records of a secured cluster are loaded by both clients: librdkafka in the coordinator, Java's in Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.coordinator import Coordinator, Outcome, Started
from sluice.errors import ActionRequiredError, SluiceError
from sluice.kafka.config import KafkaSettings
from sluice.local.home import SluiceHome
from sluice.spark.submit import application_arguments

from .harness import CLUSTER, Drivers, Flow, Job, SharedJvm
from .secured_broker import SecuredBroker

WAYS = [
    "SCRAM-SHA-512",
    "PLAIN",
    "OAUTHBEARER unsigned",
    "mutual TLS, PEM files",
    "mutual TLS, inline PEM",
    "mutual TLS, PKCS#12",
    "OAUTHBEARER oidc",
    "OAUTHBEARER callable",
]


@pytest.fixture(scope="module")
def secured(home: SluiceHome, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(home, tmp_path_factory.mktemp("secured")).running() as broker:
        yield broker


@pytest.fixture(autouse=True)
def functions_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own process finds `kafka_tokens` where Spark's driver does: beside the driver's script."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture(scope="module")
def flow(
    secured: SecuredBroker,
    shared_jvm: SharedJvm,
    drivers: Drivers,
    tmp_path_factory: pytest.TempPathFactory,
    topic_name: Callable[[str], str],
) -> Flow:
    """One table, to which each way to log in adds an interval."""
    found = Flow(tmp_path_factory.mktemp("flow"), secured.plain_text, shared_jvm, drivers, topic_name("t"))
    found.create_topic(1)
    return found


def coordinator(flow: Flow, settings: KafkaSettings) -> Coordinator:
    return Coordinator(flow.pipeline, settings, None, flow.jvm)


def write(flow: Flow, settings: KafkaSettings, started: Started) -> Job:
    driver = flow.drivers.idle()
    log = flow.folder / f"write-{started.instant}.log"
    environment = {**settings.to_environment("source"), **settings.to_environment("control")}
    driver.send("write", application_arguments(flow.pipeline, started, 0), environment, str(log))
    return Job(log, driver.group, driver.receive)


def interval(flow: Flow, settings: KafkaSettings) -> Outcome:
    """One interval of three records, with these settings in every process."""
    flow.produce(3, partitions=(0,))
    started = coordinator(flow, settings).start(flow.run())
    assert isinstance(started, Started), started
    write(flow, settings, started).succeed()
    return coordinator(flow, settings).commit(started.control_offset)


@pytest.mark.parametrize("way", WAYS)
def test_both_clients_log_in(secured: SecuredBroker, flow: Flow, way: str) -> None:
    assert interval(flow, KafkaSettings(CLUSTER, secured.settings(way))).records == 3
    flow.check(listing=False)


@pytest.mark.parametrize(
    ("way", "wrong"),
    [("SCRAM-SHA-512", {"sasl.password": "another"}), ("mutual TLS, PEM files", {"ssl.ca.location": "client_pem"})],
)
def test_a_wrong_log_in_is_told_as_such(secured: SecuredBroker, flow: Flow, way: str, wrong: dict[str, Any]) -> None:
    wrong = {name: secured.files.get(value, value) for name, value in wrong.items()}
    settings = KafkaSettings(CLUSTER, {**secured.settings(way), **wrong})
    with pytest.raises(SluiceError) as caught:
        coordinator(flow, settings).start(flow.run())
    assert "another" not in str(caught.value)


def test_what_spark_cannot_carry_is_refused_before_anything_is_opened(secured: SecuredBroker, flow: Flow) -> None:
    messages = len(flow.messages())
    settings = KafkaSettings(CLUSTER, {**secured.settings("PLAIN"), "ssl.curves.list": "P-256"})
    with pytest.raises(ActionRequiredError, match=r"ssl\.curves\.list"):
        coordinator(flow, settings).start(flow.run())
    assert len(flow.messages()) == messages
