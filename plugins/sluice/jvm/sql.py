"""SQL text as columns, for fewer calls of the JVM than PySpark's functions make; and how shuffles are planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, SparkSession

_PLAIN = frozenset(" !#%&()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~")

_ADAPTIVE = "spark.sql.adaptive.enabled"


@contextmanager
def adaptive(spark: SparkSession) -> Iterator[None]:
    """Plans made in this block have as many tasks after a shuffle as its rows need, not 200 for a handful.

    An interval that joins nothing has no shuffle of Spark SQL's, so adaptive execution is off for the rest.
    """
    before = spark.conf.get(_ADAPTIVE) or "false"
    spark.conf.set(_ADAPTIVE, "true")
    try:
        yield
    finally:
        spark.conf.set(_ADAPTIVE, before)


def columns(texts: Iterable[str | Column]) -> list[Column]:
    """The columns of Spark SQL expressions, and columns as they are: one call of the JVM for each text, not three.

    Raises:
        ParseException: a text is no expression.
    """
    context: Any = SparkContext._active_spark_context
    expr = context._jvm.functions.expr
    return [one if isinstance(one, Column) else Column(expr(one)) for one in texts]


def literal(value: str) -> str:
    """A string as SQL, whatever is in it, and whatever Spark's settings make of a backslash or of `${name}`."""
    return f"'{value}'" if _PLAIN.issuperset(value) else f"decode(X'{value.encode().hex()}', 'UTF-8')"
