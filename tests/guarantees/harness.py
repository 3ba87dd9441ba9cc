"""What the tests of the guarantees share: one interval's steps, crashes, and readers of both kinds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
import structlog
import yaml
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from typer.testing import CliRunner, Result

from sluice import runtime
from sluice.cli import app
from sluice.control.reader import ControlReader
from sluice.control.topic import ControlTopic
from sluice.coordinator import Coordinator, Outcome, Run, Started
from sluice.coordinator.services import BY_SPARK, Planned, Service, Services
from sluice.failpoints import VARIABLE
from sluice.jvm.gateway import HudiJvm, lean_jvm
from sluice.kafka.config import KafkaSettings
from sluice.launch.settings import spark_conf
from sluice.launch.submit import (
    APPLICATION,
    application_arguments,
    driver_environment,
    service_arguments,
    submit_command,
)
from sluice.logs import log
from sluice.pipeline import Pipeline, load_pipeline
from sluice.protocol.messages import ControlMessage, StartCommit, encode
from sluice.protocol.offsets import TRANSACTION_KEY, Checkpoint, holds_checkpoint, read_checkpoint
from sluice.protocol.offsets import TopicPartition as KafkaPartition
from sluice.protocol.request import Request
from sluice.verification import verify

MASTER = "local[1]"
MEMORY = "512m"
CLUSTER = "kafka_default"
DDL = "id BIGINT, v STRING, p STRING"
_META_COLUMNS = ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
_PATIENCE = 600.0  # seconds for one step: against hangs alone, since nobody knows how busy the machine is


def wait_for(condition: Callable[[], Any], what: str, timeout: float = _PATIENCE, pause: float = 0.02) -> Any:
    """The condition's first true value."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(pause)
    raise TimeoutError(f"waited {timeout:.0f} s for {what}")


class SharedJvm:
    """One lean JVM of a test worker: the coordinator's steps run in it where no process has to die, and readers too."""

    def __init__(self) -> None:
        self._context: AbstractContextManager[HudiJvm] | None = None
        self._jvm: HudiJvm | None = None

    @contextmanager
    def __call__(self) -> Iterator[HudiJvm]:
        if self._jvm is None:
            self._context = lean_jvm()
            self._jvm = self._context.__enter__()
        yield self._jvm

    def close(self) -> None:
        if self._context is not None:
            self._context.__exit__(None, None, None)

    def files(self, path: str, *, metadata: bool) -> list[str]:
        """The base files that a reader of a copy-on-write table reads, by Hudi's own file system view."""
        with self() as jvm:
            hudi = jvm.jvm.org.apache.hudi
            builder = hudi.common.table.HoodieTableMetaClient.builder()
            meta = builder.setConf(jvm.storage).setBasePath(path).build()
            context = hudi.client.common.HoodieJavaEngineContext(jvm.storage)
            config = hudi.common.config.HoodieMetadataConfig.newBuilder().enable(metadata).build()
            views = hudi.common.table.view
            if metadata:
                assert meta.getTableConfig().isMetadataTableAvailable(), "the table has no metadata table"
                view = views.FileSystemViewManager.createInMemoryFileSystemView(context, meta, config)
            else:
                done = meta.getActiveTimeline().getCommitsTimeline().filterCompletedInstants()
                view = views.HoodieTableFileSystemView.fileListingBasedFileSystemView(context, meta, done)
            view.loadAllPartitions()  # one by one, each of them would read all of the metadata table's files
            found = []
            for partition in view.getPartitionNames():
                files = view.getLatestBaseFiles(partition).iterator()
                while files.hasNext():
                    found.append(str(files.next().getPath()).removeprefix("file:"))
            view.close()
            return found

    def commits(self, path: str) -> list[dict[str, str]]:
        """Extra metadata of the completed commits on the active timeline, oldest first, with `instant` beside it."""
        with self() as jvm:
            builder = jvm.jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
            timeline = builder.setConf(jvm.storage).setBasePath(path).build().getActiveTimeline()
            done = timeline.getCommitsTimeline().filterCompletedInstants()
            commits = []
            for instant in done.getInstants():
                extra = dict(timeline.readCommitMetadata(instant).getExtraMetadata())
                commits.append({**{str(k): str(v) for k, v in extra.items()}, "instant": str(instant.requestedTime())})
            return commits

    def pending(self, path: str) -> list[str]:
        """Instants on the timeline that are neither committed nor rolled back."""
        with self() as jvm:
            builder = jvm.jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
            timeline = builder.setConf(jvm.storage).setBasePath(path).build().getActiveTimeline()
            return [str(i.requestedTime()) for i in timeline.filterInflightsAndRequested().getInstants()]


@dataclass
class Job:
    """A write job that was started: in a warm driver, or as a process of its own."""

    log: Path
    group: int
    answer: Callable[[], int | None]  # exit status; None where it was killed
    _done: list[int | None] = field(default_factory=list)

    def wait(self) -> int | None:
        if not self._done:
            self._done.append(self.answer())
        return self._done[0]

    def succeed(self) -> None:
        status = self.wait()
        assert status == 0, f"the write job ended with {status}:\n{self.text()[-4000:]}"

    def text(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the driver's JVM and Python at once."""
        os.killpg(self.group, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()


class Driver:
    """One warm Spark driver in a process group of its own."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        folder.mkdir(parents=True)
        address = str(folder / "socket")
        command = spark_submit_of(Path(__file__).with_name("spark_server.py"), [address])
        with Listener(address, "AF_UNIX") as listener, (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            accepted: list[Connection] = []
            thread = Thread(target=lambda: accepted.append(listener.accept()), daemon=True)
            thread.start()
            wait_for(lambda: accepted or self._process.poll() is not None, "a Spark driver")
            assert accepted, (folder / "log").read_text()[-4000:]
        self._connection = accepted[0]
        self.log = folder / "log"
        self.group = self._process.pid
        self.busy = False
        self._results = 0

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, *task: Any) -> Any:
        """Do a task and wait for it; None where the driver died over it."""
        self.send(*task)
        return self.receive()

    def send(self, *task: Any) -> None:
        self.busy = True
        self._connection.send(task)

    def receive(self) -> Any:
        try:
            if not self._connection.poll(_PATIENCE):
                raise TimeoutError(f"the Spark driver did not answer; its log: {self.log.read_text()[-4000:]}")
            fine, value = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self.kill()
            return None
        self.busy = False
        if not fine:
            raise RuntimeError(value)
        return value

    def kill(self) -> None:
        """End Python and JVM: a driver of which one half has died is dead."""
        with suppress(ProcessLookupError):
            os.killpg(self.group, signal.SIGKILL)
        self._process.wait(30)
        self._connection.close()


# For a driver that runs hundreds of small jobs: the quick compiler alone, and one thread that collects garbage, take a
# third of the CPU off; and nobody looks at what Spark keeps of the jobs that have ended.
_WARM = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:-UseParallelGC -XX:+UseSerialGC",
    **{f"spark.ui.retained{what}": "10" for what in ("Jobs", "Stages", "Tasks")},
    "spark.sql.ui.retainedExecutions": "10",
}


def spark_submit_of(application: Path, arguments: Sequence[str]) -> list[str]:
    """The product's own command, but for the application, and for what makes a long-lived driver cheap."""
    conf = spark_conf(MASTER, _WARM)
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    bin_folder = Path(sys.executable).parent
    submit = [str(bin_folder / "spark-submit"), "--master", MASTER, "--driver-memory", MEMORY]
    return [*submit, *options, str(application), *arguments]


class Drivers:
    """The warm Spark drivers of a test worker: one, and more while some are paused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = environment("not.used:1")  # each write job brings its own
        self._drivers: list[Driver] = []
        self._started = 0

    def idle(self) -> Driver:
        self._drivers = [d for d in self._drivers if d.alive]
        for driver in self._drivers:
            if not driver.busy:
                return driver
        self._started += 1
        self._drivers.append(Driver(self._folder / str(self._started), self._environment))
        return self._drivers[-1]

    def close(self) -> None:
        for driver in self._drivers:
            driver.kill()


def kafka_settings(bootstrap: str) -> KafkaSettings:
    return KafkaSettings(CLUSTER, {"bootstrap.servers": bootstrap, "log_level": 0})


def environment(bootstrap: str, **more: str) -> dict[str, str]:
    """The environment of the product's processes."""
    settings = kafka_settings(bootstrap)
    product = driver_environment(settings, settings, MASTER)
    python_path = os.pathsep.join([product["PYTHONPATH"], str(APPLICATION.parent)])
    return {**product, "PYTHONPATH": python_path, VARIABLE: "", **more}


def other_clock(offset: str, folder: Path) -> dict[str, str]:
    """The environment of a process whose JVM has a clock that differs, as another machine's: `+300s`, `-2d`.

    Python keeps its own: it waits for ever with a clock of libfaketime's.
    """
    library = next(iter(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
    if library is None:
        pytest.skip("libfaketime is not installed")
    java = folder / f"java{offset}" / "bin" / "java"
    if not java.exists():
        java.parent.mkdir(parents=True)
        java.write_text(
            f'#!/bin/sh\nLD_PRELOAD={library} FAKETIME={offset} exec {runtime.java_home() / "bin" / "java"} "$@"\n'
        )
        java.chmod(0o755)
    return {"SLUICE_JAVA_HOME": str(java.parents[1])}


@dataclass
class Sent:
    """A record that Kafka has taken."""

    partition: int
    offset: int
    id: int
    value: str
    table_partition: str


@dataclass(frozen=True)
class Step:
    """How a coordinator step in a process of its own ended."""

    status: int
    out: str
    err: str

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL

    def started(self) -> Started:
        assert self.status == 0, self.err
        found = json.loads(self.out)
        return Started(found["instant"], found["control_offset"], ((),) * found["ranges"], digest=found["digest"])


class Flow:
    """One pipeline with topic, control topic and table of its own."""

    def __init__(
        self, folder: Path, bootstrap: str, jvm: SharedJvm, drivers: Drivers, topic: str, **settings: Any
    ) -> None:
        self.folder = folder
        self.bootstrap = bootstrap
        self.topic = topic
        self.jvm = jvm
        self.drivers = drivers
        self.admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self.sent: list[Sent] = []
        self.path = folder / "lake" / topic
        self.file = folder / f"{topic}.yaml"
        self.control_topic = f"control-{topic}"
        self._settings: dict[str, Any] = {
            "name": topic,
            "source": {"kafka": {"topics": topic}},
            "sink": {"hudi": {"path": str(self.path), "schema": DDL, "partition_fields": "p"}},
            "write": {"driver_memory": MEMORY},
            "control": {"topic": self.control_topic},
        }
        if settings.get("sink__hudi__operation") == "upsert":
            # `produce` sends each key to a partition of the test's choosing, always the same one.
            self._settings["sink"]["hudi"]["key_placement"] = "trusted"
        self.secrets: dict[str, str] = {}  # what the write jobs' Kafka connection has beside its address
        self._runs = 0
        self._jobs = 0
        self._next_id = 0
        self.others: Counter[tuple[int, str]] = Counter()  # rows that other writers have put into the table
        self.set(**settings)

    # The pipeline ------------------------------------------------------------------------------------------------

    def set(self, **settings: Any) -> Flow:
        """Settings by their path in the file, with `__` between the keys: `control__commit_timeout="1 second"`."""
        for name, value in settings.items():
            *parents, key = name.split("__")
            section = self._settings
            for parent in parents:
                section = section.setdefault(parent, {})
            if value is None:
                section.pop(key, None)
            else:
                section[key] = value
        self.file.write_text(yaml.safe_dump(self._settings))
        return self

    @property
    def pipeline(self) -> Pipeline:
        return load_pipeline(self.file)

    @property
    def table(self) -> str:
        """The table as the messages name it."""
        return self.pipeline.sink.hudi.path

    def coordinator(self, is_running: Callable[[str, str], bool] = lambda _dag_id, _run_id: False) -> Coordinator:
        return Coordinator(self.pipeline, kafka_settings(self.bootstrap), None, self.jvm, is_running)

    # Kafka -------------------------------------------------------------------------------------------------------

    def create_topic(self, partitions: int = 2, **config: str) -> None:
        new = NewTopic(self.topic, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
        self.admin.create_topics([new])[self.topic].result(30)
        wait_for(lambda: self.topic in self.admin.list_topics(timeout=10).topics, "the topic", pause=0.1)

    def create_again(self, partitions: int = 1) -> None:
        """Delete the topic, and make another one of its name."""
        self.admin.delete_topics([self.topic])[self.topic].result(30)
        wait_for(lambda: self.topic not in self.admin.list_topics(timeout=10).topics, "the topic to go", pause=0.1)
        self.create_topic(partitions)

    def produce(
        self, count: int, *, partitions: Sequence[int] = (0, 1), ids: Iterable[int] | None = None,
        values: str = "a", table_partitions: int = 2, fields: Mapping[str, Any] | None = None, dated: int = 0,
        **config: Any,
    ) -> None:  # fmt: skip
        """Send `count` records round robin; with `ids` given, new versions of those keys. `dated` in ms, 0 for now."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0, **config})
        known = list(ids) if ids is not None else range(self._next_id, self._next_id + count)
        self._next_id = max(self._next_id, *(i + 1 for i in known)) if known else self._next_id
        for number in known:
            row = {"id": number, "v": f"{values}{number}", "p": f"p{number % table_partitions}", **(fields or {})}
            self._send(producer, partitions[number % len(partitions)], row, dated=dated)
        assert producer.flush(30) == 0

    def _send(
        self, producer: Producer, partition: int, row: Mapping[str, Any], keep: list[Sent] | None = None, dated: int = 0
    ) -> None:
        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            where = (message.partition(), message.offset())
            (self.sent if keep is None else keep).append(Sent(*where, row["id"], row["v"], row["p"]))

        key, value = str(row["id"]).encode(), json.dumps(row).encode()
        producer.produce(self.topic, value, key, partition=partition, on_delivery=delivered, timestamp=dated)

    def produce_in_transactions(
        self, transactions: Sequence[tuple[int, bool]], partitions: Sequence[int] = (0, 1)
    ) -> None:
        """Transactions of so many records, each committed or aborted. What was aborted is not in `sent`."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "transactional.id": self.topic, "log_level": 0})
        producer.init_transactions(30)
        for count, commit in transactions:
            producer.begin_transaction()
            records: list[Sent] = []
            for number in range(self._next_id, self._next_id + count):
                row = {"id": number, "v": f"t{number}", "p": f"p{number % 2}"}
                self._send(producer, partitions[number % len(partitions)], row, records)
            self._next_id += count
            assert producer.flush(30) == 0
            if commit:
                producer.commit_transaction(30)
                self.sent += records
            else:
                producer.abort_transaction(30)

    def produce_raw(self, value: bytes | None, partition: int = 0, key: bytes | None = None) -> int:
        """One record as it is; returns its offset."""
        offsets: list[int] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        producer.produce(
            self.topic, value, key, partition=partition, on_delivery=lambda _, message: offsets.append(message.offset())
        )
        assert producer.flush(30) == 0
        return offsets[0]

    def produce_to(self, topic: str, key: bytes, value: bytes) -> int:
        """One record of any topic's only partition; returns its offset."""
        offsets: list[int] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        producer.produce(
            topic, value, key, partition=0, on_delivery=lambda _, message: offsets.append(message.offset())
        )
        assert producer.flush(30) == 0
        return offsets[0]

    def produce_keyed(
        self, records: Iterable[tuple[bytes | None, bytes | None]], *, partition: int | None = None, **config: Any
    ) -> list[tuple[int, int]]:
        """Records of key and value, where the producer's own partitioner puts them; returns where each of them is."""
        places: dict[int, tuple[int, int]] = {}
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0, **config})
        chosen = {} if partition is None else {"partition": partition}
        for i, (key, value) in enumerate(records):

            def delivered(error: Any, message: Any, i: int = i) -> None:
                assert error is None, error
                places[i] = (message.partition(), message.offset())

            producer.produce(self.topic, value, key, on_delivery=delivered, **chosen)
        assert producer.flush(30) == 0
        return [places[i] for i in sorted(places)]

    def grow(self, partitions: int) -> None:
        """Add partitions to the topic."""
        self.admin.create_partitions([NewPartitions(self.topic, partitions)])[self.topic].result(30)

        def all_led() -> bool:
            with suppress(KafkaException):  # a new partition has no leader at first
                return len(self.log_ends()) == partitions
            return False

        wait_for(all_led, "the new partitions", pause=0.1)

    def produce_values(self, values: Iterable[bytes], partition: int = 0) -> None:
        """Records as they are, all to one partition."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        for value in values:
            producer.produce(self.topic, value, partition=partition)
        assert producer.flush(30) == 0

    def delete_records(self, before: Mapping[int, int]) -> None:
        """Move the log start, as retention does."""
        bounds = [TopicPartition(self.topic, p, offset) for p, offset in before.items()]
        for future in self.admin.delete_records(bounds).values():
            future.result(30)

    def log_ends(self) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "ends", "log_level": 0})
        try:
            partitions = self.admin.list_topics(self.topic, timeout=10).topics[self.topic].partitions
            return {p: consumer.get_watermark_offsets(TopicPartition(self.topic, p), 10)[1] for p in partitions}
        finally:
            consumer.close()

    def messages(self) -> list[ControlMessage]:
        """All messages of the control topic."""
        control = ControlReader(kafka_settings(self.bootstrap), self.control_topic)
        bounds = control.bounds()
        return [message for batch in control.read(bounds.first, bounds.end) for _, message in batch]

    def forget_control_messages(self) -> None:
        """Delete what stands in the control topic, as retention does."""
        end = ControlTopic(kafka_settings(self.bootstrap), self.control_topic).end()
        for future in self.admin.delete_records([TopicPartition(self.control_topic, 0, end)]).values():
            future.result(30)

    def send_as_it_is(self, message: ControlMessage) -> None:
        """Without what `send` does with a large one."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        producer.produce(self.control_topic, encode(message), self.table.encode(), partition=0)
        assert producer.flush(30) == 0

    def send(self, message: ControlMessage) -> int:
        return ControlTopic(kafka_settings(self.bootstrap), self.control_topic).send(message)

    # The steps of an interval --------------------------------------------------------------------------------------

    def run(self, **request: Any) -> Run:
        """A DAG run that no other interval has: `run(kind="replay", instant="…")`, or one that reads on."""
        self._runs += 1
        return Run("tests", f"run-{self._runs}", Request(**request))

    def start(self, run: Run | None = None) -> Started:
        started = self.coordinator().start(run or self.run())
        assert isinstance(started, Started), started
        return started

    def write(self, started: Started, number: int = 0, failpoint: str = "") -> Job:
        """Start the write job of one range in a warm driver."""
        return self._job("write", application_arguments(self.pipeline, started, number), failpoint)

    def _job(self, kind: str, arguments: list[str], failpoint: str) -> Job:
        driver = self.drivers.idle()
        self._jobs += 1
        log = self.folder / f"{kind}-{self._jobs}.log"
        known = kafka_settings(self.bootstrap)
        with_secrets = {**known.librdkafka, **self.secrets}
        kafka = replace(known, librdkafka=with_secrets, java_options=self.pipeline.write.kafka_options)
        settings = {**kafka.to_environment("source"), **kafka.to_environment("control")}
        driver.send(kind, arguments, {**settings, VARIABLE: failpoint}, str(log))
        return Job(log, driver.group, driver.receive)

    def write_alone(self, started: Started, number: int = 0, failpoint: str = "") -> Job:
        """Start it by the product's own command line, in a process of its own."""
        self._jobs += 1
        log = self.folder / f"write-{self._jobs}.log"
        command = submit_command(self.pipeline, started, number, MASTER)
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, env=environment(self.bootstrap, **{VARIABLE: failpoint}), cwd=self.folder, stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        return Job(log, process.pid, lambda: process.wait(_PATIENCE))

    def write_all(self, started: Started) -> None:
        for number in range(len(started.ranges)):
            self.write(started, number).succeed()

    def commit(self, started: Started) -> Outcome:
        return self.coordinator().commit(started.control_offset)

    def abort(self, run: Run) -> Outcome:
        return self.coordinator().abort(run)

    def interval(self, **request: Any) -> Outcome:
        """One whole interval that nothing disturbs."""
        started = self.start(self.run(**request))
        self.write_all(started)
        return self.commit(started)

    def interval_is_empty(self) -> None:
        """The schedule finds nothing more to read."""
        outcome = self.coordinator().start(self.run())
        assert isinstance(outcome, Outcome), outcome
        assert outcome.state == "empty"

    # Table services -------------------------------------------------------------------------------------------------

    def services(self) -> Services:
        return Services(self.pipeline, kafka_settings(self.bootstrap), None, self.jvm)

    def plan(self, service: Service) -> Planned:
        """Plan a compaction or clustering, which now holds the table."""
        planned = self.services().plan(self.run(), service)
        assert isinstance(planned, Planned), planned
        return planned

    def carry_out(self, planned: Planned, failpoint: str = "") -> Job:
        """Start its Spark job in a warm driver."""
        return self._job("service", service_arguments(self.pipeline, planned.control_offset), failpoint)

    def serve(self, service: Service) -> None:
        """One whole table service that nothing disturbs."""
        if service in BY_SPARK:
            self.carry_out(self.plan(service)).succeed()
        else:
            self.services().run(self.run(), service)

    def spawn_service(self, service: Service, failpoint: str = "", clock: str = "") -> subprocess.Popen[str]:
        """A table service in a process of its own."""
        return self._spawn("service", service, str(self.file), failpoint=failpoint, clock=clock)

    def spawn(self, *arguments: str, failpoint: str = "", clock: str = "") -> subprocess.Popen[str]:
        """A coordinator step in a process of its own: `spawn("start", "--run-id", "r1")`."""
        return self._spawn("interval", arguments[0], str(self.file), *arguments[1:], failpoint=failpoint, clock=clock)

    def _spawn(self, *arguments: str, failpoint: str, clock: str = "") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "sluice.cli", *arguments]
        more = {VARIABLE: failpoint, **(other_clock(clock, self.folder) if clock else {})}
        return subprocess.Popen(
            command, env=environment(self.bootstrap, **more), cwd=self.folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def step(self, *arguments: str, failpoint: str = "", clock: str = "") -> Step:
        """A coordinator step in a process of its own, to its end."""
        return finish(self.spawn(*arguments, failpoint=failpoint, clock=clock))

    def verify(self, *arguments: str) -> Result:
        """`sluice verify` in the test's own process, with its Spark job in a warm driver."""

        def submitted(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
            job = self._job("verify", command[-2:], "")  # the application's own arguments, without how it is submitted
            status = job.wait()
            return subprocess.CompletedProcess(command, -signal.SIGKILL if status is None else status, job.text(), "")

        with pytest.MonkeyPatch.context() as patch:
            for variable, value in kafka_settings(self.bootstrap).to_environment("source").items():
                patch.setenv(variable, value)
            patch.setattr(verify, "subprocess", SimpleNamespace(run=submitted))
            result = CliRunner().invoke(app, ["verify", str(self.file), *arguments])
        structlog.reset_defaults()  # the command logs to what was its own output
        vars(log).pop("bind", None)
        return result

    # What readers see ----------------------------------------------------------------------------------------------

    def rows(self, *, metadata: bool) -> Counter[tuple[int, str]]:
        """All rows (id, v), for a reader that asks the metadata table or for one that lists files."""
        if self.pipeline.sink.hudi.operation == "upsert":
            found = self.drivers.idle().ask("read", str(self.path), metadata)
            return Counter((row[0], row[1]) for row in found)
        counter: Counter[tuple[int, str]] = Counter()
        for file in self.jvm.files(str(self.path), metadata=metadata):
            table = pq.read_table(file, columns=["id", "v"], partitioning=None)
            counter.update(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
        return counter

    def read(self, *columns: str, metadata: bool = True) -> list[tuple[Any, ...]]:
        """The table's rows as Spark reads them, by these columns."""
        found: list[tuple[Any, ...]] = self.drivers.idle().ask("read", str(self.path), metadata, columns)
        return found

    def columns(self) -> set[str]:
        """The table's columns as Spark reads them, without Hudi's own five."""
        found: list[str] = self.drivers.idle().ask("columns", str(self.path))
        return set(found) - {f"_hoodie_{name}" for name in _META_COLUMNS}

    def note(self) -> dict[str, Any]:
        """Our note of the last interval, in its commit's metadata."""
        notes = [commit[TRANSACTION_KEY] for commit in self.commits() if TRANSACTION_KEY in commit]
        found: dict[str, Any] = json.loads(notes[-1])
        return found

    def all_columns(self, *, metadata: bool = True) -> list[dict[str, Any]]:
        """All rows with all of their columns, as Spark reads them."""
        found: list[dict[str, Any]] = self.drivers.idle().ask("read_all", str(self.path), metadata)
        return found

    def decoded(self) -> tuple[dict[int, dict[str, Any]], dict[int, str]]:
        """What an interval's write job would make of its records, by offset: rows, and why the others can't be rows."""
        run = self.run()
        started = self.start(run)
        message = next(m for m in reversed(self.messages()) if isinstance(m, StartCommit))
        settings = kafka_settings(self.bootstrap).java()
        rows, bad = self.drivers.idle().ask("decode", encode(message).decode(), settings)
        assert started.instant == message.transaction
        self.abort(run)
        own = [{k: v for k, v in row.items() if not k.startswith("_kafka_")} for row in rows]
        return {row["_kafka_offset"]: mine for row, mine in zip(rows, own, strict=True)}, bad

    def data_files(self, instant: str | None = None) -> list[Path]:
        """The data files that lie in the table's folders, registered or not."""
        files = [f for f in self.path.rglob("*") if f.is_file() and ".hoodie" not in f.parts and ".crc" not in f.name]
        data = [f for f in files if f.name.endswith(".parquet") or ".log." in f.name]
        return [f for f in data if instant is None or f"_{instant}." in f.name]

    def markers(self, instant: str) -> list[Path]:
        return list((self.path / ".hoodie" / ".temp" / instant).rglob("*.marker.*"))

    def rows_by_rust(self) -> Counter[tuple[int, str]]:
        """The same through hudi-rs, which shares no code with what wrote the table."""
        from hudi import HudiTableBuilder

        batches = HudiTableBuilder.from_base_uri(str(self.path)).build().read()
        counter: Counter[tuple[int, str]] = Counter()
        for batch in batches:
            names = batch.schema.names
            id_column, v_column = batch.column(names.index("id")), batch.column(names.index("v"))
            counter.update(zip(id_column.to_pylist(), v_column.to_pylist(), strict=True))
        return counter

    def commits(self) -> list[dict[str, str]]:
        return self.jvm.commits(str(self.path))

    def checkpoint(self) -> Checkpoint:
        """The offsets of the table's last commit that has any: table services commit none."""
        commits = [commit for commit in self.commits() if holds_checkpoint(commit)]
        return read_checkpoint(commits[-1], CLUSTER, [self.topic]) if commits else Checkpoint()

    def offsets(self) -> dict[int, int]:
        return self._offsets(self.checkpoint())

    def _offsets(self, checkpoint: Checkpoint) -> dict[int, int]:
        topic = checkpoint.topic(CLUSTER, self.topic)
        return dict(topic.partitions) if topic else {}

    def append_by_spark(self, ids: range, **more: str) -> Counter[tuple[int, str]]:
        """A commit by Hudi's data source for Spark, which knows nothing of ours."""
        rows = [(i, f"spark{i}", f"p{i % 2}") for i in ids]
        options = {
            "hoodie.table.name": self.topic,
            "hoodie.datasource.write.operation": "bulk_insert",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "p",
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.SimpleKeyGenerator",
            "hoodie.bulkinsert.shuffle.parallelism": "1",
            "hoodie.metadata.index.column.stats.enable": "true",
            "hoodie.embed.timeline.server": "false",
            **{name.replace("__", "."): value for name, value in more.items()},
        }
        self.drivers.idle().ask("append", str(self.path), DDL, rows, options)
        added = Counter((row[0], row[1]) for row in rows)
        self.others += added
        return added

    def covered(self, checkpoint: Checkpoint | None = None) -> list[Sent]:
        """The records whose offsets the table has committed."""
        stands = self.checkpoint() if checkpoint is None else checkpoint
        committed = {
            p: stands.covered(KafkaPartition(CLUSTER, self.topic, p)) for p in {s.partition for s in self.sent}
        }
        return [s for s in self.sent if any(start <= s.offset < end for start, end in committed[s.partition])]

    def expected(self, offsets: Mapping[int, int] | None = None) -> Counter[tuple[int, str]]:
        """The rows that belong to the committed offsets: each record, or for upsert the last version of each key."""
        if offsets is None:
            return self._rows_of(self.covered())
        return self._rows_of([s for s in self.sent if s.offset < offsets.get(s.partition, 0)])

    def _rows_of(self, covered: Sequence[Sent]) -> Counter[tuple[int, str]]:
        if self.pipeline.sink.hudi.operation == "upsert":
            last = {s.id: s.value for s in sorted(covered, key=lambda s: s.offset)}
            return Counter(last.items())
        return self.others + Counter((s.id, s.value) for s in covered)

    def check(self, *, listing: bool = True, complete: bool = True) -> None:
        """Rows and offsets agree for readers of both kinds; `complete`: and Kafka holds no record beyond them."""
        checkpoint = self.checkpoint()
        expected = self._rows_of(self.covered(checkpoint))
        seen = self.rows(metadata=True)
        assert seen == expected, _difference("a reader by the metadata table", seen, expected)
        if listing:
            listed = self.rows(metadata=False)
            assert listed == expected, _difference("a reader that lists files", listed, expected)
        if complete:
            ends = self.log_ends()
            assert self._offsets(checkpoint) == ends
            assert sum(expected.values()) == len(expected), "the test itself sent a record twice"
            everything = self.expected(ends)
            assert expected == everything, _difference("the table", expected, everything)


def finish(process: subprocess.Popen[str]) -> Step:
    """Wait for its end; where Python was killed, its JVM is killed too, as it would be with the machine."""
    status = process.wait(_PATIENCE)
    if status < 0:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    out, err = process.communicate(timeout=_PATIENCE)
    return Step(status, out, err)


def _difference(who: str, seen: Counter[Any], expected: Counter[Any]) -> str:
    more, fewer = seen - expected, expected - seen
    return f"{who} sees {more.total()} rows too many {list(more)[:5]} and misses {fewer.total()} {list(fewer)[:5]}"


class Pause:
    """A failpoint at which a process waits until it is released."""

    def __init__(self, point: str, folder: Path) -> None:
        self._file = folder / f"{point}.{time.monotonic_ns()}"
        self.failpoint = f"{point}=pause:{self._file}"

    def reached(self) -> bool:
        return self._file.with_name(self._file.name + ".reached").exists()

    def wait(self) -> None:
        wait_for(self.reached, f"{self.failpoint} to be reached")

    def release(self) -> None:
        self._file.touch()
