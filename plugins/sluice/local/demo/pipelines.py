"""The two pipelines of the demo: the files that come with the project, as they are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sluice import runtime
from sluice.kafka.config import KafkaSettings
from sluice.local.demo.fingerprint import Columns, Fingerprint, columns_of, fingerprint, last_versions
from sluice.local.demo.flights import Stream, flight_status, flights
from sluice.local.demo.tables import append_table, upsert_table
from sluice.local.demo.topics import records
from sluice.local.home import SluiceHome
from sluice.pipeline import Pipeline, load_pipeline


@dataclass(frozen=True)
class DemoPipeline:
    """A pipeline and the stream that is published for it."""

    pipeline: Pipeline
    stream: Stream

    @property
    def name(self) -> str:
        """The pipeline's name, which is its DAG's id."""
        return self.pipeline.name

    @property
    def topic(self) -> str:
        """The topic that it reads."""
        return self.stream.topic

    @property
    def upserts(self) -> bool:
        """Whether a key's last version is the row, rather than every record."""
        return self.pipeline.sink.capabilities.upsert

    def compare(self, settings: KafkaSettings, path: str) -> Verdict:
        """Read the whole topic and the whole table, and put them side by side.

        Args:
            settings: the cluster.
            path: the table that the intervals wrote, as START-COMMIT names it.
        """
        sink = self.pipeline.sink.options
        ddl = sink.schema_ or ""
        columns: Columns = columns_of(ddl)
        in_kafka: Iterable[Mapping[str, Any]] = records(settings, self.topic)
        if self.upserts:
            in_kafka = last_versions(in_kafka, sink.record_key[0], sink.ordering_field[0])
        in_table = upsert_table(path, ddl) if self.upserts else append_table(path, columns)
        return Verdict(fingerprint(in_kafka, columns), in_table)


@dataclass(frozen=True)
class Verdict:
    """The content of Kafka and of the table."""

    kafka: Fingerprint
    table: Fingerprint

    @property
    def same(self) -> bool:
        """Whether the table holds exactly what Kafka does: no row lost, doubled or changed."""
        return self.kafka == self.table


def demo_pipelines(home: SluiceHome) -> list[DemoPipeline]:
    """Both of them, with the topics that their files name."""
    os.environ.setdefault("SLUICE_LAKE", str(home.lake))  # where Airflow's tasks have it, too
    folder = runtime.project() / "dags" / "pipelines"
    made = []
    for file, stream in (("flights.yaml", flights), ("flight_status.yaml", flight_status)):
        pipeline = load_pipeline(folder / file)
        made.append(DemoPipeline(pipeline, stream(pipeline.source.options.topics[0])))
    return made
