"""The Kafka sink keeps what `sluice.testing` asks of every sink, killed at each call to the broker and to the disk."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from sluice.kafka import transactional
from sluice.kafka.transactional import TransactionalSender
from sluice.pipeline import Kafka, Pipeline, Sink, Source
from sluice.protocol.committable import Committable
from sluice.sinks.kafka.options import KafkaTopic
from sluice.sinks.kafka.sink import KafkaSink
from sluice.sinks.kafka.staged import committable
from sluice.testing import SinkConformance
from sluice.testing.deaths import FILE_CALLS

from .harness.topics import TARGET, consume, environment

_STAGED = pa.schema(
    [
        ("topic", pa.string()), ("key", pa.binary()), ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("partition", pa.int32()), ("timestamp", pa.int64()),
    ]
)  # fmt: skip


class Sending(Producer):
    """The client's producer with a method in Python, at which a process can die: that of C can't be replaced."""

    def produce(self, *record: Any) -> None:
        super().produce(*record)


class TestTopic(SinkConformance):
    """Records are staged as a Spark job would stage them, without Spark, and read by a consumer of committed ones."""

    calls = (
        (TransactionalSender, "begin"),
        (Sending, "produce"),
        (TransactionalSender, "commit"),
        *FILE_CALLS,
    )

    @pytest.fixture(autouse=True)
    def _places(self, bootstrap, shared_jvm, monkeypatch) -> None:
        self._bootstrap, self._jvm = bootstrap, shared_jvm
        monkeypatch.setattr(transactional, "Producer", Sending)
        for variable, value in environment(bootstrap).items():
            monkeypatch.setenv(variable, value)

    # Every call of every interval is a minute of the processor's.

    @pytest.mark.thorough
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_process_may_die_at_each_call_of_an_interval(self, tmp_path, when):
        super().test_a_process_may_die_at_each_call_of_an_interval(tmp_path, when)

    @pytest.mark.thorough
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_process_may_die_at_each_call_of_a_roll_back(self, tmp_path, when):
        super().test_a_process_may_die_at_each_call_of_a_roll_back(tmp_path, when)

    def topic(self, folder: Path) -> str:
        return f"t-{hashlib.sha256(str(folder).encode()).hexdigest()[:16]}"

    def pipeline(self, folder: Path) -> Pipeline:
        kafka = KafkaTopic(
            connection=TARGET, topic=self.topic(folder), staging=str(folder / "staging"), schema_="id BIGINT",
            value={"encoder": "string"}, topic_settings={"create": True, "partitions": 2},
        )  # fmt: skip
        return Pipeline(name="t", source=Source(kafka=Kafka(topics=("t",))), sink=Sink(kafka=kafka))

    def sink(self, folder):
        return KafkaSink(self.pipeline(folder), self._jvm)

    def capabilities(self):
        return self.pipeline(Path("/any")).sink.capabilities

    def write(self, folder: Path, table, instant: str, attempt: str, rows: Sequence[int]) -> list[Committable]:
        own = folder / "staging" / instant / attempt
        own.mkdir(parents=True, exist_ok=True)
        topic = self.topic(folder)
        records = [(topic, None, str(row).encode(), None, row % 2, None) for row in rows]
        by_column = zip(zip(*records, strict=True), _STAGED, strict=True)
        columns = [pa.array(list(one), kind.type) for one, kind in by_column]
        pq.write_table(pa.table(columns, schema=_STAGED), own / "part-0.parquet")
        content = (own / "part-0.parquet").read_bytes()
        found = (len(content), f"sha256:{hashlib.sha256(content).hexdigest()}")
        return [committable(f"{instant}/{attempt}", {"part-0.parquet": found}, len(rows), 0)]

    def rows(self, folder):
        return [int(one.value or b"") for one in consume(self._bootstrap, self.topic(folder))]
