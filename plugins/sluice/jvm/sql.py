"""SQL text as columns, for fewer calls of the JVM than PySpark's functions make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column

_PLAIN = frozenset(" !#%&()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[]^_`abcdefghijklmnopqrstuvwxyz{|}~")


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
