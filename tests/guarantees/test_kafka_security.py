"""Records of a secured cluster are loaded by both clients: librdkafka in the coordinator, Java's in Spark."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from sluice.coordinator import Coordinator, Outcome, Started
from sluice.errors import ActionRequiredError, SluiceError
from sluice.failpoints import VARIABLE
from sluice.kafka.config import KafkaSettings
from sluice.local.home import SluiceHome
from sluice.local.process import free_port
from sluice.participant.launch.submit import application_arguments, driver_environment, submit_command
from sluice.private import PrivateSettings
from sluice.protocol.messages import encode

from ..thorough import also
from .harness import CLUSTER, MASTER, Drivers, Flow, Job, Pause, SharedJvm
from .secured_broker import SECRET, SecuredBroker

WAYS = [
    "SCRAM-SHA-512",
    "mutual TLS, PEM files",
    "mutual TLS, PKCS#12",
    "OAUTHBEARER oidc",
    *also("PLAIN", "OAUTHBEARER unsigned", "mutual TLS, inline PEM", "OAUTHBEARER callable"),
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
    return Job(log, driver.group, driver.receive, driver.answered)


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


@pytest.mark.thorough  # a client asks again and again for half a minute
@pytest.mark.parametrize(
    ("way", "wrong"),
    [
        ("SCRAM-SHA-512", {"sasl.password": "another"}),
        ("mutual TLS, PEM files", {"ssl.ca.location": "client_pem"}),
    ],
)
def test_a_wrong_log_in_is_told_as_such(secured: SecuredBroker, flow: Flow, way: str, wrong: dict[str, Any]) -> None:
    wrong = {name: secured.files.get(value, value) for name, value in wrong.items()}
    settings = KafkaSettings(CLUSTER, {**secured.settings(way), **wrong})
    with pytest.raises(SluiceError) as caught:
        coordinator(flow, settings).start(flow.run())
    assert "another" not in str(caught.value)


def test_no_secret_shows_while_a_job_runs(secured: SecuredBroker, flow: Flow, tmp_path: Path) -> None:
    """On no command line, in no message, log or event log, and not on Spark's pages; and nobody else can reach them."""
    identity = secured.authority.identify("more")
    given = {
        **secured.settings("SCRAM-SHA-512"),
        "ssl.certificate.pem": identity.pem,
        "ssl.key.pem": identity.key_pem(),
    }
    kafka = KafkaSettings(CLUSTER, given, {"sasl.login.refresh.min.period.seconds": "60"})
    private = PrivateSettings(
        {"spark.hadoop.fs.s3a.secret.key": "s3cr3t-of-s3"}, {"hoodie.x.api.key": "s3cr3t-of-hudi"}
    )
    secrets = [SECRET, "s3cr3t-of-s3", "s3cr3t-of-hudi", identity.key_pem().splitlines()[1]]
    port = free_port()
    conf = {"spark.ui.enabled": True, "spark.ui.port": port}
    conf |= {"spark.eventLog.enabled": True, "spark.eventLog.dir": tmp_path.as_uri()}
    flow.set(write__conf=conf)
    flow.produce(3, partitions=(0,))
    started = coordinator(flow, kafka).start(flow.run())
    assert isinstance(started, Started)
    pause = Pause("participant.after_write", flow.folder)
    log = tmp_path.parent / f"{tmp_path.name}.log"
    environment = driver_environment(kafka, kafka, MASTER)
    environment |= {**private.to_environment(), VARIABLE: pause.failpoint}
    with log.open("wb") as out:
        driver = subprocess.Popen(
            submit_command(flow.pipeline, started, 0, MASTER), env=environment, cwd=flow.folder, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        pause.wait(Job(log, driver.pid, driver.wait, lambda: driver.poll() is not None))
        shown = {"command lines": "\n".join(" ".join(p.cmdline()) for p in processes())}
        shown["Spark's pages"] = "\n".join(spark_pages(port))
        assert "spark.hadoop.fs.s3a.secret.key" in shown["Spark's pages"], "the settings' page was not read"
        assert listening(driver.pid) == {"127.0.0.1"}
    finally:
        pause.release()
        assert driver.wait(120) == 0, log.read_text()[-4000:]
        flow.set(write__conf=None)
    coordinator(flow, kafka).commit(started.control_offset)
    shown["its log"] = log.read_text()
    shown["the event log"] = "\n".join(f.read_text() for f in tmp_path.iterdir())
    shown["messages"] = "\n".join(encode(message).decode() for message in flow.messages())
    assert shown["the event log"]
    assert [(place, secret) for place, text in shown.items() for secret in secrets if secret in text] == []


def processes() -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):  # it has ended, or is another's
            process.cmdline()
            yield process


def spark_pages(port: int) -> Iterator[str]:
    """What the driver's UI shows of its settings, and of what it runs."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(path: str) -> str:
        with opener.open(f"http://127.0.0.1:{port}/{path}", timeout=30) as response:
            return str(response.read().decode())

    application = json.loads(get("api/v1/applications"))[0]["id"]
    for page in ("environment", "jobs", "stages", "sql", "allexecutors"):
        yield get(f"api/v1/applications/{application}/{page}")
    yield get("environment/")


def listening(pid: int) -> set[str]:
    """The addresses on which a process and its children wait for others."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    found = [c for p in family for c in p.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return {c.laddr.ip.removeprefix("::ffff:") for c in found}


def test_what_spark_cannot_carry_is_refused_before_anything_is_opened(secured: SecuredBroker, flow: Flow) -> None:
    messages = len(flow.messages())
    settings = KafkaSettings(CLUSTER, {**secured.settings("PLAIN"), "ssl.curves.list": "P-256"})
    with pytest.raises(ActionRequiredError, match=r"ssl\.curves\.list"):
        coordinator(flow, settings).start(flow.run())
    assert len(flow.messages()) == messages
