"""The compressed size of a record, by the codecs of Kafka's clients, as Spark expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from sluice.jvm.static_call import class_of, static_call, static_expression

_BUFFER: Final = "java.nio.ByteBuffer"
_LZ4: Final = "net.jpountz.lz4.LZ4"
_GZIP_LEVEL, _ZSTD_LEVEL, _LZ4_HIGH = 6, 3, 3  # librdkafka's defaults; the level from which on LZ4 compresses slowly


def packed_size(spark: SparkSession, data: Column, compression: str, level: int | None) -> Column:
    """The size of data after compression, in bytes, which differs only slightly from the result of a Kafka client.

    Args:
        spark: the session.
        data: a binary column.
        compression: gzip, snappy, lz4 or zstd.
        level: `compression.level`; None for the client's default.
    """
    return _CODECS[compression](spark, data, level if level is not None and level >= 0 else None)


def _snappy(spark: SparkSession, data: Column, _: int | None) -> Column:
    return F.length(static_call(spark, "org.xerial.snappy.Snappy", "compress", "BinaryType", data))


def _zstd(spark: SparkSession, data: Column, level: int | None) -> Column:
    given = (data, F.lit(_ZSTD_LEVEL if level is None else level))
    return F.length(static_call(spark, "com.github.luben.zstd.Zstd", "compress", "BinaryType", *given))


# The other codecs have no static method, and need an object.


def _gzip(spark: SparkSession, data: Column, level: int | None) -> Column:
    java = _Java(spark)
    buffer = java.object(_BUFFER)
    given = static_expression(spark._jvm, _BUFFER, "wrap", buffer, [_expression(data)])
    number = _expression(F.lit(_GZIP_LEVEL if level is None else min(level, 9)))
    codec = java.new("org.apache.avro.file.DeflateCodec", number)
    return java.column(java.call(java.call(codec, "compress", buffer, given), "remaining", java.types.IntegerType))


def _lz4(spark: SparkSession, data: Column, level: int | None) -> Column:
    java = _Java(spark)
    factory = static_expression(spark._jvm, f"{_LZ4}Factory", "fastestInstance", java.object(f"{_LZ4}Factory"), [])
    method = "fastCompressor" if level is None or level < _LZ4_HIGH else "highCompressor"
    codec = java.call(factory, method, java.object(f"{_LZ4}Compressor"))
    return F.length(java.column(java.call(codec, "compress", java.types.BinaryType, _expression(data))))


class _Java:
    """Builds calls of Java objects' methods as Catalyst expressions, which cost no more than the calls themselves."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self.types = jvm.org.apache.spark.sql.types.DataTypes
        self._objects = jvm.org.apache.spark.sql.catalyst.expressions.objects
        self._sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq

    def call(self, target: Any, method: str, kind: Any, *arguments: Any) -> Any:
        return self._objects.Invoke(
            target, method, kind, self._sequence(list(arguments)), self._sequence([]), True, False, True
        )

    def new(self, name: str, *arguments: Any) -> Any:
        given, nothing = self._sequence(list(arguments)), self._sequence([])
        no_outer = getattr(self._jvm.scala, "None$").__getattr__("MODULE$")
        made = class_of(self._jvm, name)
        return self._objects.NewInstance(made, given, nothing, False, self.object(name), no_outer)

    def object(self, name: str) -> Any:
        return self._jvm.org.apache.spark.sql.types.ObjectType(class_of(self._jvm, name))

    def column(self, expression: Any) -> Column:
        return Column(self._jvm.org.apache.spark.sql.Column(expression))


def _expression(column: Column) -> Any:
    return column._jc.expr()


_CODECS: Final[Mapping[str, Callable[[SparkSession, Column, int | None], Column]]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
