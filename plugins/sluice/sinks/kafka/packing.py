"""How many bytes a record has when it is packed, by the codecs that Kafka's clients have, as expressions of Spark's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

_BUFFER: Final = "java.nio.ByteBuffer"
_LZ4: Final = "net.jpountz.lz4.LZ4"
_GZIP_LEVEL, _ZSTD_LEVEL, _LZ4_HIGH = 6, 3, 3  # librdkafka's own where none is said; from which on LZ4 takes its time


def packed_size(spark: SparkSession, data: Column, compression: str, level: int | None) -> Column:
    """The bytes of some data when packed, within some of what a client of Kafka's makes of a record with them.

    Args:
        spark: the session.
        data: a binary column.
        compression: gzip, snappy, lz4 or zstd.
        level: `compression.level`; None for the client's own.
    """
    return _CODECS[compression](_Java(spark), data, level if level is not None and level >= 0 else None)


class _Java:
    """Calls of Java's methods as Catalyst's expressions, for no more than these cost."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._objects = jvm.org.apache.spark.sql.catalyst.expressions.objects
        self._types = jvm.org.apache.spark.sql.types
        self._sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        self._loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        self.binary, self.integer = self._types.DataTypes.BinaryType, self._types.DataTypes.IntegerType

    def static(self, name: str, method: str, kind: Any, *arguments: Any) -> Any:
        nothing, given = self._sequence([]), self._sequence(list(arguments))
        return self._objects.StaticInvoke(self._class(name), kind, method, given, nothing, True, False, True)

    def call(self, target: Any, method: str, kind: Any, *arguments: Any) -> Any:
        return self._objects.Invoke(
            target, method, kind, self._sequence(list(arguments)), self._sequence([]), True, False, True
        )

    def new(self, name: str, *arguments: Any) -> Any:
        given, nothing = self._sequence(list(arguments)), self._sequence([])
        no_outer = getattr(self._jvm.scala, "None$").__getattr__("MODULE$")
        return self._objects.NewInstance(self._class(name), given, nothing, False, self.object(name), no_outer)

    def object(self, name: str) -> Any:
        return self._types.ObjectType(self._class(name))

    def column(self, expression: Any) -> Column:
        return Column(self._jvm.org.apache.spark.sql.Column(expression))

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name, True, self._loader)


def _gzip(java: _Java, data: Column, level: int | None) -> Column:
    buffer = java.object(_BUFFER)
    given = java.static(_BUFFER, "wrap", buffer, _expression(data))
    codec = java.new("org.apache.avro.file.DeflateCodec", _number(_GZIP_LEVEL if level is None else min(level, 9)))
    return java.column(java.call(java.call(codec, "compress", buffer, given), "remaining", java.integer))


def _snappy(java: _Java, data: Column, _: int | None) -> Column:
    return F.length(java.column(java.static("org.xerial.snappy.Snappy", "compress", java.binary, _expression(data))))


def _lz4(java: _Java, data: Column, level: int | None) -> Column:
    factory = java.static(f"{_LZ4}Factory", "fastestInstance", java.object(f"{_LZ4}Factory"))
    method = "fastCompressor" if level is None or level < _LZ4_HIGH else "highCompressor"
    codec = java.call(factory, method, java.object(f"{_LZ4}Compressor"))
    return F.length(java.column(java.call(codec, "compress", java.binary, _expression(data))))


def _zstd(java: _Java, data: Column, level: int | None) -> Column:
    given = (_expression(data), _number(_ZSTD_LEVEL if level is None else level))
    return F.length(java.column(java.static("com.github.luben.zstd.Zstd", "compress", java.binary, *given)))


def _expression(column: Column) -> Any:
    return column._jc.expr()


def _number(value: int) -> Any:
    return _expression(F.lit(value))


_CODECS: Final[Mapping[str, Callable[[_Java, Column, int | None], Column]]] = {
    "gzip": _gzip,
    "snappy": _snappy,
    "lz4": _lz4,
    "zstd": _zstd,
}
