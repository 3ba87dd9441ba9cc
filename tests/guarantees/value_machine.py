"""The product on one machine: records become rows, and each sink writes them. In a process with a zone and clock.

`python -m tests.guarantees.value_machine <folder>` takes the file `task` of the folder, and leaves the file `done`.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest import mock

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.connectors.data import MADE, REFUSED, writer_of
from sluice.connectors.registry import load
from sluice.errors import SluiceError
from sluice.jvm.gateway import HudiJvm, lean_jvm
from sluice.pipeline import Pipeline
from sluice.protocol.committable import Committable
from sluice.protocol.mapping import ClusterTopics
from sluice.protocol.messages import PlannedRange, StartCommit
from sluice.protocol.offsets import OFFSETS_KEY, TRANSACTION_KEY, Checkpoint
from sluice.rows.records import PROBLEM, RecordChain, bad_record, parse_ddl
from sluice.schemas.pinner import RecordPinner
from sluice.sinks.files.options.names import files_of
from sluice.sinks.kafka import pinning
from sluice.sinks.kafka.encoders import encoded
from sluice.sinks.kafka.options import Encoder
from sluice.sinks.kafka.pinning import pinned_schema
from sluice.sinks.kafka.records import checked_records

from ..spark import session

INSTANT = "20261123101112131"
REGISTRY = "http://registry"
TOPICS = ClusterTopics("kafka", ("t",))


class Machine:
    """Does a task: `records` by converter, and what each sink gets of their rows."""

    def __init__(self, spark: SparkSession, folder: Path, task: Mapping[str, Any]) -> None:
        self._spark, self._folder, self._task = spark, folder, task
        self._ddl = f"id BIGINT NOT NULL, {task['ddl']}"
        self._hudi = HudiJvm(SparkContext._gateway, {}, 0)
        self._texts: dict[str, str] = {}
        self._chains = {name: self._chain(name, converter) for name, converter in task["converters"].items()}
        self._all = self._rows({})
        self._made = self._pinned  # the columns of all of them, as START has pinned them

    def _rows(self, bad: Mapping[int, str]) -> DataFrame:
        """The rows of all converters, decoded once."""
        of_each = (chain.rows(self._given(name, bad)) for name, chain in self._chains.items())
        return reduce(DataFrame.union, of_each).cache()

    def bad(self) -> dict[int, str]:
        """Why a record isn't a row, though it should be one; the others are rows then."""
        try:
            self._all.count()
        except Exception as error:
            if bad_record(str(error), "table", INSTANT) is None:
                raise
        else:
            return {}
        nothing = F.expr("cast(NULL AS ARRAY<STRING>)")
        of_each = (chain.bad(self._given(n).withColumn("headers", nothing)) for n, chain in self._chains.items())
        found = {row["_kafka_offset"]: row[PROBLEM] for one in of_each for row in one.collect()}
        self._all = self._rows(found)
        return found

    def _given(self, name: str, bad: Mapping[int, str] = MappingProxyType({})) -> DataFrame:
        return self._records(name, [one for one in self._task["converters"][name]["records"] if one[0] not in bad])

    # Converters

    def _pipeline(self, value: Mapping[str, Any] | None = None, **sink: Any) -> Pipeline:
        kafka = {"topics": "t", "columns": {"id": "offset"}, **({"value": value} if value else {})}
        one = sink or {"files": {"path": str(self._folder / "lake"), "schema": self._ddl}}
        return Pipeline.model_validate({"name": "wild", "source": {"kafka": kafka}, "sink": one})

    def _chain(self, name: str, converter: Mapping[str, Any], *, ddl: str | None = None) -> RecordChain:
        """How START pins a pipeline's records, and how a write job reads them."""
        value = dict(converter["value"])
        if converter["schema"] is not None:
            file = self._folder / f"{name}.schema"
            file.write_bytes(converter["schema"])
            value["schema_file"] = str(file)
        pipeline = self._pipeline(value, files={"path": str(self._folder / "lake"), "schema": ddl or self._ddl})
        table = SimpleNamespace(writer=pipeline.writer(), columns=None, jvm=self._hudi)
        pinned = RecordPinner(pipeline, [TOPICS], lambda _: None).pin(table, None)
        plan, writer = pinned.records, pinned.writer
        if converter["id"] is not None:  # as if the registry had said it
            schemas = tuple(one.model_copy(update={"id": converter["id"]}) for one in plan.value.schemas)
            form = plan.value.model_copy(update={"schemas": schemas, "registry": REGISTRY})
            plan = plan.model_copy(update={"value": form})
        self._pinned = writer.schema_ddl
        return RecordChain(self._spark, plan, writer)

    def _records(self, name: str, records: Sequence[tuple[int, bytes]]) -> DataFrame:
        made = self._spark.createDataFrame([(n, bytearray(v)) for n, v in records], "offset bigint, value binary")
        named = f"'{name}' AS topic, 0 AS partition, offset, timestamp_seconds(0) AS timestamp, 0 AS timestampType"
        return made.coalesce(1).selectExpr(*named.split(", "), "cast(NULL AS BINARY) AS key", "value")

    def refusals(self) -> dict[str, str]:
        """How START refuses what a converter or a sink can't carry, and the write job a record that no row can be."""
        return {
            name: _refusal(self._refused, name, converter, ddl)
            for name, (converter, ddl) in self._task["refused"].items()
        }

    def _refused(self, name: str, converter: Mapping[str, Any], ddl: str | None) -> None:
        rows = self._chain(name, converter, ddl=ddl).rows(self._records(name, converter["records"]))
        rows.collect()

    # Sinks

    def _some(self, sink: str) -> DataFrame:
        """The rows that the sink takes."""
        refused = [one for ids in self._task["unheld"].get(sink, {}).values() for one in ids]
        return self._all.where(~F.col("id").isin(*refused)) if refused else self._all

    def _start(self, writer: Any, instant: str) -> StartCommit:
        ranges = tuple(
            PlannedRange(cluster="c", topic=name, partition=0, start=of["records"][0][0], end=of["records"][-1][0] + 1)
            for name, of in self._task["converters"].items()
        )
        return StartCommit(
            table=writer.path, transaction=instant, epoch=1, dag_id="t", run_id="r", sender="coordinator",
            time=datetime.now(UTC), read_position=0, ranges=(ranges,), writer=writer,
        )  # fmt: skip

    def files(self, kind: str, columns: Sequence[str]) -> list[str]:
        """The files that the sink has written in a format."""
        rows = self._some(kind).select("id", *columns, *(n for n in self._all.columns if n.startswith("_kafka_")))
        ddl = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in rows.schema if not f.name.startswith("_"))
        path = str(self._folder / kind)
        section = {"path": path, "format": kind, "layout": "connect", "schema": ddl}
        if kind == "avro":
            section["codec"] = "deflate"  # which needs no other package to be read
        pipeline = self._pipeline(files=section)
        writer = pipeline.sink.options.writer("wild", None, maintained=False, schema_ddl=ddl)
        written = writer_of("files")(self._spark, self._start(writer, INSTANT), "attempt").write(rows)
        return [f"{path}/{one.staged}" for one in files_of(written.committables, INSTANT, "topics", "connect")]

    def table(self, name: str, kind: str, sink: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, str]:
        """A table, written and committed by its sink; and how it refuses the values that it doesn't hold."""
        os.environ.update(environment)
        pipeline = self._pipeline(**{kind: {**sink, "schema": self._ddl}})
        jvm = lean_jvm if kind == "hudi" else lambda: nullcontext(self._hudi)
        made = load(pipeline.sink.options.connector)(pipeline, jvm)
        with made.open() as opened:
            table = opened.written_as(made.pin(opened, None, [TOPICS]).writer)
            self._load(table, kind, self._some(name), 1)
            return {
                words: _refusal(self._load, table, kind, self._all.where(F.col("id") == ids[0]), 2)
                for words, ids in self._task["unheld"].get(name, {}).items()
            }

    def _opened(self, sink: Mapping[str, Any]) -> None:
        """How START opens a sink that can't hold all columns."""
        ((kind, section),) = sink.items()
        pipeline = self._pipeline(**{kind: {**section, "schema": self._ddl}})
        made = load(pipeline.sink.options.connector)(pipeline, lambda: nullcontext(self._hudi))
        with made.open() as opened:
            made.pin(opened, None, [TOPICS])

    def _load(self, table: Any, kind: str, rows: DataFrame, number: int) -> None:
        instant = table.new_instant()
        table.open(instant)
        try:
            start = self._start(table.writer, instant)
            committables: Sequence[Committable] = writer_of(kind)(self._spark, start, "a").write(rows).committables
        except BaseException:
            table.rollback(instant)
            raise
        said = {OFFSETS_KEY: Checkpoint().model_dump_json(), TRANSACTION_KEY: json.dumps({"number": number})}
        table.commit(instant, committables, said)

    def encoded(self, encoder: str, columns: Sequence[str]) -> dict[str, Any]:
        """The values of records by row, with the schema that START has pinned, and why others can't be records."""
        kafka = {
            "connection": "target", "topic": "t", "staging": str(self._folder / "staging"), "schema": self._ddl,
            "value": {"encoder": encoder, **({"registry": "r"} if encoder in _REGISTERED else {})},
            "value_fields": [*columns], "timestamp": "wallclock",
        }  # fmt: skip
        writer = self._pipeline(kafka=kafka).sink.options.writer("wild", None, maintained=False, schema_ddl=self._made)
        pinned = self.pinned(encoder, columns)
        writer = writer.model_copy(update={"options": {**writer.options, "value_schema": json.dumps(pinned)}})
        rows = self._all.withColumn(PROBLEM, F.lit(None).cast("string"))
        made = checked_records(self._spark, writer, rows).select("id", f"{MADE}value", REFUSED)
        found = made.collect()
        return {
            "schema": self._texts.get(encoder),
            "pinned": pinned,
            "values": {number: None if value is None else bytes(value) for number, value, _ in found},
            "refused": {number: why for number, _, why in found if why is not None},
        }

    def pinned(self, encoder: str, columns: Sequence[str]) -> dict[str, Any]:
        """As START pins it, with a registry that takes any schema."""
        kinds = parse_ddl(self._spark, self._made)
        fields = [one for one in kinds.jsonValue()["fields"] if one["name"] in columns]
        given = Encoder.model_validate({"encoder": encoder, **({"registry": "r"} if encoder in _REGISTERED else {})})
        texts = self._texts

        class Taking:
            def __init__(self, _: Any) -> None: ...

            def __enter__(self) -> Taking:
                return self

            def __exit__(self, *_: object) -> None: ...

            def written_as(self, _: str, __: str, text: str, *, register: bool) -> Any:
                if not text or not register:
                    return None
                texts[encoder] = text
                return SimpleNamespace(id=258, text=text, references=())

        with mock.patch.object(pinning, "Registry", Taking):
            return pinned_schema(
                "value", given, {"type": "struct", "fields": fields}, place="sink.kafka.value", name="wild",
                targets=["t"], jvm=self._hudi, registries=lambda _: None, write=True,
            )  # fmt: skip

    def single(self, columns: Sequence[str]) -> dict[str, dict[int, bytes | None]]:
        """Each column by itself as a record's value, of the encoder `string`, or `bytes` for bytes."""
        kinds = parse_ddl(self._spark, self._made)
        encoders = {name: "bytes" if kinds[name].dataType.typeName() == "binary" else "string" for name in columns}
        made = [encoded(self._spark, encoder, [name], kinds, {}).alias(name) for name, encoder in encoders.items()]
        found = self._all.select("id", *made).collect()
        return {name: {row["id"]: None if row[name] is None else bytes(row[name]) for row in found} for name in columns}

    def done(self) -> dict[str, Any]:
        """All of it."""
        task = self._task
        found: dict[str, Any] = {"bad": self.bad(), "refused": self.refusals(), "unheld": {}}
        found["files"] = {kind: self.files(kind, columns) for kind, columns in task["files"].items()}
        for name, (kind, sink, environment) in task["tables"].items():
            found["unheld"][name] = self.table(name, kind, sink, environment)
        found["topics"] = {encoder: self.encoded(encoder, columns) for encoder, columns in task["topics"].items()}
        found["single"] = self.single(task["single"])
        for encoder, columns in task["pinning"].items():
            found["refused"][encoder] = _refusal(self.pinned, encoder, columns)
        for name, sink in task["opening"].items():
            found["refused"][name] = _refusal(self._opened, sink)
        return found


_REGISTERED = ("avro", "protobuf", "json_schema")


def _refusal(call: Callable[..., object], *arguments: Any, **named: Any) -> str:
    """The words of the error in which a call ends; none where it doesn't."""
    try:
        call(*arguments, **named)
    except SluiceError as error:
        return str(error)
    except Exception as error:
        found = bad_record(str(error), "table", INSTANT)
        return str(found) if found is not None else f"not in plain words: {str(error)[:3000]}"
    return ""


def main(folder: Path) -> None:
    task = pickle.loads((folder / "task").read_bytes())
    with session() as spark:
        found = Machine(spark, folder, task).done()
        zone = spark._jvm.java.time.ZoneId.systemDefault().getId()
        now = spark._jvm.java.time.Instant.now().toString()
    (folder / "done").write_bytes(pickle.dumps({**found, "zone": str(zone), "now": str(now)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
