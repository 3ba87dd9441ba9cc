"""What does the Kafka sink's writing cost, beside Spark's own Kafka sink, which has no transactions?

    python -m bench.encode                             # 500,000 rows, five rounds
    python -m bench.encode --rows 20000 --rounds 2     # does it work at all?

Rows are cached. Of each encoder three are timed, by turns: `sluice` encodes and stages as a write job does, `encode` is
the encoders alone into Spark's sink that keeps nothing, and `spark` is Spark's function of the same format into that
sink. Then a whole commit: what was staged is sent in one Kafka transaction, beside `df.write.format("kafka")`.
Medians of wall seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from bench.broker import embedded_broker
from bench.decode import ROW, _avro_text, session
from sluice.kafka.config import KafkaSettings
from sluice.protocol.messages import StartCommit
from sluice.sinks.files.storage import LocalStorage
from sluice.sinks.kafka.cluster import Target
from sluice.sinks.kafka.encoders import encoded
from sluice.sinks.kafka.options import KafkaTopic
from sluice.sinks.kafka.options.takes import LARGEST, Takes, as_option
from sluice.sinks.kafka.staged import Staged
from sluice.sinks.kafka.writer import KafkaWriter

ID = 7


def plain(encoder: str, names: list[str], text: str) -> Any:
    """Spark's own function."""
    whole = F.struct(*names)
    return to_avro(whole, text) if encoder == "avro" else F.to_json(whole).cast("binary")


def drained(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def timed(work: Callable[[], Any]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def staging(spark: SparkSession, rows: DataFrame, folder: Path, encoder: str, text: str, instant: str) -> Any:
    """What a write job does."""
    section = {"connection": "c", "topic": f"bench-{encoder}", "staging": str(folder), "timestamp": "wallclock",
               "value": {"encoder": encoder, **({"registry": "r"} if encoder == "avro" else {})}}  # fmt: skip
    spec = KafkaTopic.model_validate(section).writer("bench", None, maintained=False, schema_ddl=_ddl(spark, rows))
    schema = {"value_schema": json.dumps({"id": ID, "text": text})} if encoder == "avro" else {}
    writer = spec.model_copy(update={"options": {**spec.options, "takes": as_option({"t": Takes(LARGEST)}), **schema}})
    start = StartCommit(
        table=spec.path, transaction=instant, epoch=1, dag_id="b", run_id="r", sender="coordinator",
        time=datetime.now(UTC), read_position=0, ranges=(), writer=writer,
    )  # fmt: skip
    placed = rows.selectExpr("*", "'t' AS _kafka_topic", "0 AS _kafka_partition", "id AS _kafka_offset")
    return KafkaWriter(spark, start, "a").write(placed).committables


def _ddl(spark: SparkSession, rows: DataFrame) -> str:
    jvm: Any = spark._jvm
    return str(jvm.org.apache.spark.sql.types.DataType.fromJson(rows.schema.json()).toDDL())


def sent(bootstrap: str, folder: Path, encoder: str, instant: str, committables: Any) -> None:
    """What a commit sends."""
    section = {"connection": "c", "topic": f"bench-{encoder}", "staging": str(folder)}
    target = Target(KafkaSettings("c", {"bootstrap.servers": bootstrap}), KafkaTopic.model_validate(section))
    with target.sender() as sender:
        sender.send(Staged(LocalStorage(folder), instant, committables, "log").records())


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(f"{who}-{encoder}", 2, 1) for who in ("bench", "spark") for encoder in ("json", "avro")]
    for made in admin.create_topics(topics).values():
        made.result(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with embedded_broker(folder) as bootstrap:
            spark = session()
            spark.sparkContext.setLogLevel("ERROR")
            rows = spark.sql(f"SELECT {ROW} FROM range({arguments.rows})").cache()
            rows.count()
            text = _avro_text(spark, json.loads(rows.schema.json()))
            pinned = {"id": ID, "text": text}
            create_topics(bootstrap)
            for number in range(arguments.rounds + 1):
                for encoder in ("json", "avro"):
                    instant = f"{encoder}{number}"
                    ours = rows.select(encoded(spark, encoder, rows.columns, rows.schema, pinned).alias("value"))
                    theirs = rows.select(plain(encoder, rows.columns, text).alias("value"))
                    kept: list[Any] = []

                    def stage(encoder: str = encoder, instant: str = instant, kept: list[Any] = kept) -> None:
                        kept.append(staging(spark, rows, folder / "staging", encoder, text, instant))

                    def send(encoder: str = encoder, instant: str = instant, kept: list[Any] = kept) -> None:
                        sent(bootstrap, folder / "staging", encoder, instant, kept[0])

                    def write(theirs: DataFrame = theirs, encoder: str = encoder) -> None:
                        options = {"kafka.bootstrap.servers": bootstrap, "topic": f"spark-{encoder}"}
                        theirs.write.format("kafka").options(**options).save()

                    works = {
                        "encode": lambda ours=ours: drained(ours), "spark": lambda theirs=theirs: drained(theirs),
                        "stage": stage, "send": send, "spark to kafka": write,
                    }  # fmt: skip
                    for name, work in works.items():
                        seconds = timed(work)
                        if number:  # the first round is for the JIT
                            found.setdefault(f"{encoder}: {name}", []).append(seconds)
            spark.stop()
    for name, times in found.items():
        print(f"{name:24}{statistics.median(times):9.2f} s")
    for encoder in ("json", "avro"):
        of = {name: statistics.median(found[f"{encoder}: {name}"]) for name in
              ("encode", "spark", "stage", "send", "spark to kafka")}  # fmt: skip
        print(f"{encoder}: encode / spark {of['encode'] / of['spark']:.2f}, "
              f"(stage + send) / spark to kafka {(of['stage'] + of['send']) / of['spark to kafka']:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
