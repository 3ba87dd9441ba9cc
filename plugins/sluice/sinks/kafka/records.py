"""Turns rows into records, with encoded keys and values, headers and times, and finds records that topics refuse."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.connectors.data import MADE, REFUSED
from sluice.identifiers import quoted
from sluice.jvm.sql import literal
from sluice.protocol.messages import TableSpec
from sluice.rows.changes import CHANGE, DELETES
from sluice.rows.records import PROBLEM, RECORD_TIME, parse_ddl
from sluice.sinks.kafka.encoders import as_text, encoded, unfit
from sluice.sinks.kafka.options.names import EACH, LEFT_OUT, STAGED
from sluice.sinks.kafka.options.pinned import Part, PinnedTopic
from sluice.sinks.kafka.options.takes import Group, Takes
from sluice.sinks.kafka.packing import packed_size
from sluice.sinks.kafka.shape import shape_of

HEADERS: Final = "array<struct<key:string,value:binary>>"
_NO_HEADERS: Final = f"cast(array() AS {HEADERS})"
_OVERHEAD: Final = 128  # bytes of a batch with one record besides key, value and headers, as Kafka's clients estimate
_TOPIC, _KEY, _VALUE, _HEADERS = (f"{MADE}{part}" for part in ("topic", "key", "value", "headers"))
_SIZE, _TAKEN = "_sluice_size", "_sluice_taken"


def written_records(spark: SparkSession, writer: TableSpec, rows: DataFrame, kept: Collection[str] = ()) -> DataFrame:
    """The columns `STAGED` of each row, by the settings in the interval's START-COMMIT.

    Args:
        spark: the session.
        writer: the settings for writing records.
        rows: the table's columns, with the additional columns of `SinkWriter.write`. If `checked_records` has encoded
            the rows, its results are used.
        kept: columns of the rows to keep in addition.
    """
    pinned = PinnedTopic.of(writer)
    frame = rows if _VALUE in rows.columns else _encoded_rows(spark, writer, rows)
    if pinned.shortened:
        frame = _shortened(spark, writer, frame)
    shape = shape_of(pinned, parse_ddl(spark, writer.schema_ddl).names)
    made = {
        "topic": F.col(_TOPIC),
        "key": F.col(_KEY),
        "value": F.col(_VALUE),
        "headers": F.col(_HEADERS),
        "partition": F.col("_kafka_partition") if pinned.partitioner == "same" else F.lit(None).cast("int"),
        "timestamp": _time(pinned, shape.timestamp),
    }
    return frame.select(*(made[name].alias(name) for name in STAGED), *map(quoted, kept))


def checked_records(spark: SparkSession, writer: TableSpec, rows: DataFrame) -> DataFrame:
    """Rows with their encoded records in additional columns, and `REFUSED`: the reason why the topic refuses a record.

    The compressed size is computed only if a record is too large uncompressed, and as if it were alone in its batch,
    since producers send large records that way.

    Args:
        spark: the session.
        writer: the settings for writing records.
        rows: the table's columns with `PLACE` and `PROBLEM`; rows that have a problem are not encoded.
    """
    kinds, pinned = parse_ddl(spark, writer.schema_ddl), PinnedTopic.of(writer)
    shape = shape_of(pinned, kinds.names)
    frame = _sized(spark, writer, _encoded_rows(spark, writer, rows, F.col(PROBLEM).isNull()))
    parts: dict[Part, tuple[str, ...]] = {"key": shape.key, "value": shape.value}
    wrong = [
        F.when(_is_made(part, names, rows), reason)
        for part, names in parts.items()
        if names
        and (reason := unfit(spark, pinned.encoder(part), names, kinds, pinned.schema_of(part), part)) is not None
    ]
    wrong += [_undated(_time(pinned, shape.timestamp))]
    wrong += [_without_key(pinned.groups), _too_large(pinned.compression)]
    refused = F.when(F.col(PROBLEM).isNull(), F.coalesce(*wrong))
    return frame.select(*map(quoted, (*rows.columns, _TOPIC, _KEY, _VALUE, _HEADERS)), refused.alias(REFUSED))


def _encoded_rows(spark: SparkSession, writer: TableSpec, rows: DataFrame, good: Column | None = None) -> DataFrame:
    """The rows with the topics, keys, values and headers of their records in additional columns."""
    kinds, pinned = parse_ddl(spark, writer.schema_ddl), PinnedTopic.of(writer)
    shape = shape_of(pinned, kinds.names)
    key: Column = F.lit(None).cast("binary")
    if shape.key:
        key = F.when(_is_made("key", shape.key, rows), _encoded(spark, pinned, "key", shape.key, kinds))
    value = F.when(_is_made("value", shape.value, rows), _encoded(spark, pinned, "value", shape.value, kinds))
    headers = [F.lit(name).alias("key") for name in shape.headers]
    own = [
        F.struct(name, as_text(column, kinds[column].dataType).alias("value"))
        for name, column in zip(headers, shape.headers.values(), strict=True)
    ]
    carried = F.col(quoted(shape.headers_from)) if shape.headers_from else None
    given: Column = F.array(*own) if own else F.lit(None).cast(HEADERS)
    if carried is not None:
        given = F.concat(F.coalesce(carried, F.array().cast(HEADERS)), given) if own else carried
    topic = pinned.topic
    named = F.expr(f"replace({literal(topic)}, {literal(EACH)}, _kafka_topic)") if EACH in topic else F.lit(topic)
    made = {_KEY: key, _VALUE: value, _HEADERS: given.cast(HEADERS)}
    if good is not None:  # a bad record has nulls in columns that aren't nullable, which encoders can't handle
        made = {name: F.when(good, column) for name, column in made.items()}
    return rows.select("*", named.alias(_TOPIC), *(column.alias(name) for name, column in made.items()))


def _encoded(spark: SparkSession, pinned: PinnedTopic, part: Part, names: tuple[str, ...], kinds: StructType) -> Column:
    return encoded(spark, pinned.encoder(part), names, kinds, pinned.schema_of(part), part)


def _is_made(part: Part, names: Sequence[str], rows: DataFrame) -> Column:
    """Whether a row's record has the part: a null in the key's one column is no key, and a delete has no value."""
    if part == "key":
        return F.col(quoted(names[0])).isNotNull() if len(names) == 1 else F.lit(True)
    return ~F.col(CHANGE).isin(*DELETES) if CHANGE in rows.columns else F.lit(True)


def _time(pinned: PinnedTopic, column: str) -> Column:
    if column:
        return F.unix_millis(F.col(quoted(column)).cast("timestamp"))
    return F.unix_millis(F.col(RECORD_TIME)) if pinned.needs_record_time else F.lit(None).cast("bigint")


# Limits of topics


def _sized(spark: SparkSession, writer: TableSpec, frame: DataFrame) -> DataFrame:
    """The frame with each record's size as sent, and the size that its topic allows."""
    pinned = PinnedTopic.of(writer)
    taken = _by_topic(pinned.groups, lambda takes: takes.bytes)
    frame = frame.select("*", F.expr(_OWN_SIZE).alias(_SIZE), taken.alias(_TAKEN))
    if pinned.compression == "none":
        return frame
    packed = packed_size(spark, F.expr(_WHOLE), pinned.compression, pinned.compression_level) + _OVERHEAD
    size = F.when(F.col(_SIZE) > F.col(_TAKEN), F.least(packed, F.col(_SIZE))).otherwise(F.col(_SIZE))
    return frame.withColumn(_SIZE, size)


_OWN_SIZE: Final = (
    f"{_OVERHEAD} + coalesce(octet_length(`{_KEY}`), 0) + coalesce(octet_length(`{_VALUE}`), 0) + coalesce(aggregate("
    f"`{_HEADERS}`, 0, (sum, one) -> sum + octet_length(one.key) + coalesce(octet_length(one.value), 0) + 10), 0)"
)
_WHOLE: Final = (
    f"concat(coalesce(`{_KEY}`, X''), coalesce(`{_VALUE}`, X''), aggregate(coalesce(`{_HEADERS}`, {_NO_HEADERS}), X'', "
    "(sum, one) -> concat(sum, cast(one.key AS BINARY), coalesce(one.value, X''))))"
)


def _by_topic(groups: Sequence[Group], what: Callable[[Takes], int | bool]) -> Column:
    """A limit of a record's topic, as a column."""
    *named, others = groups
    found = F.lit(what(others.takes))
    for group in named:
        found = F.when(F.col(_TOPIC).isin(*group.topics), what(group.takes)).otherwise(found)
    return found


def _without_key(groups: Sequence[Group]) -> Column:
    """The reason why a record without a key is refused; null if it isn't."""
    words = F.concat(
        F.lit("it has no key, and the topic "),
        F.col(_TOPIC),
        F.lit(" is compacted (cleanup.policy), which takes none without one: see that every record has a key"),
    )
    return F.when(_by_topic(groups, lambda takes: takes.keyed) & F.col(_KEY).isNull(), words)


def _undated(time: Column) -> Column:
    """The reason why a record's timestamp is refused; null if it isn't, or if there is none.

    Brokers refuse timestamps before 1970, and for librdkafka 0 means the current time.
    """
    words = F.concat(
        F.lit("its time, "),
        time.cast("string"),
        F.lit(
            " ms after 1970, isn't later than 1970-01-01T00:00:00Z, and no record of Kafka's is as old: name another "
            "column in the sink's `timestamp`, or wallclock"
        ),
    )
    return F.when(time <= 0, words)


def _too_large(compression: str) -> Column:
    """The reason why a record's size is refused; null if it isn't."""
    packed = "" if compression == "none" else f" packed by {compression}"
    words = F.concat(
        F.lit("its record for the topic "),
        F.col(_TOPIC),
        F.lit(" has "),
        F.col(_SIZE).cast("string"),
        F.lit(f" bytes{packed}, and the topic takes "),
        F.col(_TAKEN).cast("string"),
        F.lit(" (max.message.bytes): raise that, or leave out what makes records large"),
    )
    return F.when(F.col(_SIZE) > F.col(_TAKEN), words)


def _shortened(spark: SparkSession, writer: TableSpec, frame: DataFrame) -> DataFrame:
    """Records that fit into their topic: without the value if need be, and without key and headers if still too large.

    A last header says what was left out, so that no reader mistakes such a record for one without a value.
    """
    own = len(PinnedTopic.of(writer).headers)
    everything = (_KEY, _VALUE, _HEADERS)
    whole = _sized(spark, writer, frame)
    small = whole.select(
        "*",
        F.when(F.col(_SIZE) <= F.col(_TAKEN), 0)
        .when(F.expr(f"{_OWN_SIZE} - coalesce(octet_length(`{_VALUE}`), 0)") + _OVERHEAD <= F.col(_TAKEN), 1)
        .otherwise(2)
        .alias("_sluice_short"),
    )
    words = F.concat(
        F.expr("CASE _sluice_short WHEN 1 THEN 'the value, of ' ELSE 'key, value and headers, of ' END"),
        F.expr(f"CASE _sluice_short WHEN 1 THEN octet_length(`{_VALUE}`) ELSE {_OWN_SIZE} - {_OVERHEAD} END"),
        F.lit(" bytes"),
    )
    said = F.array(F.struct(F.lit(LEFT_OUT).alias("key"), words.cast("binary").alias("value")))
    ours = F.expr(f"slice(`{_HEADERS}`, -{own}, {own})")
    short = F.col("_sluice_short")
    made = {
        _KEY: F.when(short < 2, F.col(_KEY)),
        _VALUE: F.when(short < 1, F.col(_VALUE)),
        _HEADERS: F.when(short == 0, F.col(_HEADERS))
        .when(short == 1, F.concat(_HEADERS, said))
        .otherwise(F.concat(ours, said)),
    }
    others = [quoted(name) for name in frame.columns if name not in everything]
    return small.select(*others, *(column.alias(name) for name, column in made.items()))
