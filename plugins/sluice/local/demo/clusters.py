"""`make demo-clusters`: a stream is moved to another Kafka cluster while records arrive, and every row is compared.

Each demo makes a new topic on both clusters, and the table continues from the demo before.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import yaml
from confluent_kafka.admin import AdminClient
from rich.panel import Panel
from rich.table import Table

from sluice import runtime
from sluice.kafka.config import KafkaSettings
from sluice.local.airflow import LocalAirflow
from sluice.local.airflow_api import AirflowApi, DagRun
from sluice.local.broker import LocalBroker
from sluice.local.credentials import ADMIN
from sluice.local.demo.fingerprint import Fingerprint, columns_of, fingerprint
from sluice.local.demo.flights import Stream, flights
from sluice.local.demo.intervals import ControlTopicWatch, Interval
from sluice.local.demo.replay import Replay
from sluice.local.demo.stage import Stage, main
from sluice.local.demo.tables import append_table
from sluice.local.demo.topics import ensure_topic, records
from sluice.local.errors import LocalRuntimeError
from sluice.pipeline import load_pipeline
from sluice.protocol.offsets import in_words

NAME = "moving_flights"
_OLD_ID = "c2x1aWNlLWRlbW8tb2xkMQ"
_OF_EACH = 40_000  # records that each cluster gets
_SECONDS = 45.0  # in which nine tenths of them come
_PATIENCE = 400.0  # seconds for one DAG run
_PIPELINE = """\
# Made by `make demo-clusters`: it names a stream; streams.yaml, beside this folder, says on which cluster that is.
name: {name}
description: Departures from New York, which move from one Kafka cluster to another.
source:
  kafka:
    streams: flights
    metadata: {{service: file, path: {streams}}}
    columns: {{cluster: cluster}}
sink:
  hudi:
    path: ${{SLUICE_LAKE:-file:///tmp/sluice-lake}}/{name}
    partition_fields: origin
    schema: >-
      year INT, month INT, day INT, dep_time INT, dep_delay DOUBLE, carrier STRING, flight INT, tailnum STRING,
      origin STRING, dest STRING, distance DOUBLE, time_hour STRING, cluster STRING
write: {{ranges: 2}}
"""


@dataclass
class _Clusters:
    """The two clusters, and the topic that is on both."""

    old: KafkaSettings
    new: KafkaSettings
    topic: str


class _Demo:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._out = stage.out
        self._folder = stage.home.root / "demo"
        self._broker = LocalBroker(stage.home, self._folder / "old-cluster", cluster_id=_OLD_ID)

    def run(self) -> bool:
        """Run the demo, and return whether both clusters' topics and the table hold the same."""
        began = time.monotonic()
        self._stage.heading("1. Java, jars and class archives")
        self._stage.install()
        self._stage.heading("2. Two Kafka clusters and Airflow")
        airflow = self._stage.start()
        try:
            with self._out.status("Starting the old cluster"):
                self._broker.start()
            return self._move(airflow, began)
        finally:
            self._broker.stop()

    def _move(self, airflow: LocalAirflow, began: float) -> bool:
        clusters = self._clusters()
        here = {"topics": clusters.topic, "bootstrap_servers": clusters.old.bootstrap_servers}
        self._map({"old": here})
        file = self._folder / "pipelines" / f"{NAME}.yaml"
        file.write_text(_PIPELINE.format(name=NAME, streams=self._folder / "streams.yaml"))
        api = AirflowApi(airflow.environment)
        with self._out.status("Waiting for Airflow to read the pipeline"):
            api.await_dag(NAME)
        api.unpause(NAME)
        before = self._table_rows()

        self._stage.heading("3. The stream is on the old cluster")
        all_flights = flights(clusters.topic)
        producer = self._publish(clusters.old, all_flights, 0)
        self._interval(api)
        self._wait_for(producer, "the old cluster")

        self._stage.heading("4. It is moved, while records arrive")
        self._out.print("Producers send to the new cluster from now on; what they sent before stays on the old one.")
        producer = self._publish(clusters.new, all_flights, _OF_EACH)
        self._map({"new": {"topics": clusters.topic, "moved_from": {"cluster": "old"}}})
        self._interval(api)

        self._stage.heading("5. The old cluster is switched off")
        sent_before = self._in(clusters.old, clusters.topic)
        self._broker.stop()
        self._out.print("It isn't contacted any more.")
        self._interval(api)
        self._wait_for(producer, "the new cluster")
        self._interval(api)

        self._stage.heading("6. Is every record in the table, once?")
        sent = _sum(sent_before, self._in(clusters.new, clusters.topic))
        same = self._compare(before, sent)
        self._finish(airflow, same, time.monotonic() - began)
        return same

    def _clusters(self) -> _Clusters:
        new = KafkaSettings("kafka_default", {"bootstrap.servers": self._stage.broker.bootstrap})
        old = KafkaSettings("old", {"bootstrap.servers": self._broker.bootstrap})
        known = AdminClient(new.client()).list_topics(timeout=30).topics
        topic = f"{NAME}_{sum(name.startswith(f'{NAME}_') for name in known) + 1}"
        for settings in (old, new):
            ensure_topic(settings, topic)
        self._out.print(f"Old      {old.bootstrap_servers}, topic {topic}")
        self._out.print(f"New      {new.bootstrap_servers}, topic {topic}")
        return _Clusters(old, new, topic)

    def _map(self, clusters: dict[str, Any]) -> None:
        """Replace the answer of the metadata service, a file."""
        said = yaml.safe_dump({"streams": {"flights": {"clusters": clusters}}}, sort_keys=False)
        (self._folder / "streams.yaml").write_text(said)
        self._out.print("streams.yaml says:", style="dim")
        self._out.print("\n".join(f"  {line}" for line in said.splitlines()), style="dim")

    def _publish(self, settings: KafkaSettings, stream: Stream, first: int) -> Replay:
        part = Stream(stream.topic, _OF_EACH, lambda a, b: stream.slice(first + a, first + b))
        producer = Replay(settings, part, _SECONDS)
        producer.start()
        return producer

    def _wait_for(self, producer: Replay, where: str) -> None:
        producer.publish_rest()
        with self._out.status(f"Publishing the rest to {where}"):
            producer.join()
        producer.check()
        self._out.print(f"All {producer.acknowledged:,} records are on {where}.")

    def _interval(self, api: AirflowApi) -> None:
        """One DAG run, and what its interval has read."""
        run_id = api.trigger(NAME, {})
        with self._out.status(f"Airflow runs the interval {run_id}"):
            run: DagRun = api.await_end(NAME, run_id, _PATIENCE)
        if run.state != "success":
            raise LocalRuntimeError(
                f"The DAG run {run_id} ended as {run.state}.",
                next_step="read its note, and its tasks' logs in Airflow, which keeps running.",
                detail=run.note,
            )
        self._out.print(f"[green]Committed[/]  {run.note.splitlines()[0]}")
        for interval in self._told(run_id):
            for remark in interval.start.remarks:
                self._out.print(f"           {remark}", style="cyan")
            legs = Table("Cluster", "Reads", box=None, padding=(0, 2))
            for cluster in dict.fromkeys(r.cluster for r in interval.start.offset_ranges):
                legs.add_row(cluster, in_words([r for r in interval.start.offset_ranges if r.cluster == cluster]))
            self._out.print(legs)

    def _told(self, run_id: str) -> list[Interval]:
        settings = KafkaSettings("kafka_default", {"bootstrap.servers": self._stage.broker.bootstrap})
        told = ControlTopicWatch(settings, self._pipeline.control_topic)
        try:
            return [i for i in told.intervals(NAME) if i.start.run_id == run_id]
        finally:
            told.close()

    @property
    def _pipeline(self) -> Any:
        os.environ.setdefault("SLUICE_LAKE", str(self._stage.home.lake))  # where Airflow's tasks have it, too
        return load_pipeline(self._folder / "pipelines" / f"{NAME}.yaml")

    @property
    def _columns(self) -> dict[str, type]:
        columns = columns_of(self._pipeline.sink.options.schema_)
        return {name: kind for name, kind in columns.items() if name != "cluster"}

    def _table_rows(self) -> Fingerprint:
        path = self._stage.home.lake / NAME
        return append_table(str(path), self._columns) if (path / ".hoodie").exists() else Fingerprint(0, 0)

    def _in(self, settings: KafkaSettings, topic: str) -> Fingerprint:
        return fingerprint(records(settings, topic), self._columns)

    def _compare(self, before: Fingerprint, sent: Fingerprint) -> bool:
        with self._out.status("Reading the table with hudi-rs, which shares no code with what wrote it"):
            now = self._table_rows()
        table = Table("What", "Rows and checksum", title="Kafka and the table", title_justify="left")
        table.add_row("In the table before", str(before))
        table.add_row("On both clusters, together", str(sent))
        table.add_row("In the table now", str(now))
        self._out.print(table)
        return now == _sum(before, sent)

    def _finish(self, airflow: LocalAirflow, same: bool, seconds: float) -> None:
        url = airflow.environment.url
        verdict = (
            "[bold green]EXACTLY ONCE[/]: the stream has moved, and the table holds each record of both clusters once."
            if same
            else "[bold red]NOT THE SAME[/]: the table differs from the clusters; see above. Please report this."
        )
        password = airflow.environment.credentials().password
        self._out.print()
        self._out.print(
            Panel(
                f"{verdict}  ({seconds / 60:.1f} minutes)\n\n"
                f"Airflow keeps running: {url}\n"
                # Shown, because a user who may run this may also read the file; not written to any log.
                f"Log in as [bold]{ADMIN}[/] with [bold]{password}[/]\n\n"
                f"Look at the page Sluice, where both legs are drawn:\n  {url}/plugin/sluice\n"
                f"The pipeline, and what says where its stream is:\n  {self._folder / 'pipelines' / f'{NAME}.yaml'}\n"
                f"  {self._folder / 'streams.yaml'}\n\n"
                f"[bold]{runtime.command('demo-clusters')}[/] moves another one. "
                f"[bold]{runtime.command('down')}[/] stops all; the data stays.",
                border_style="green" if same else "red",
            )
        )


def _sum(one: Fingerprint, other: Fingerprint) -> Fingerprint:
    return Fingerprint(one.rows + other.rows, (one.checksum + other.checksum) % 2**64)


def play() -> None:
    """Run it; the process ends with 1 unless both ends hold the same."""
    main(lambda stage: _Demo(stage).run(), "demo-clusters")


if __name__ == "__main__":
    play()
