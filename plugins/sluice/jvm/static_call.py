"""A static Java method as a column: Catalyst calls it inside of generated code, for no more than the method costs."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from pyspark.sql import Column, SparkSession


def static_call(spark: SparkSession, name: str, method: str, result: str, *arguments: Column) -> Column:
    """A call of a method that takes these arguments; null where one of them is.

    Args:
        spark: the session.
        name: the class.
        method: its static method.
        result: the name of what it returns, in `org.apache.spark.sql.types.DataTypes`: `IntegerType`.
        arguments: what it is given.

    Raises:
        Py4JError: there is no such class on Spark's class path.
    """
    found, kind = _known(spark._jvm, name, result)
    invoke, column, sequence = _parts(spark._jvm)
    given = sequence([argument._jc.expr() for argument in arguments])
    return Column(column(invoke(found, kind, method, given, sequence([]), True, False, True)))


# A name of the JVM costs a call for each of its dots.


@lru_cache(maxsize=1)
def _parts(jvm: Any) -> tuple[Any, Any, Any]:
    """The constructors of a static call and of a column, and what makes a Scala sequence."""
    spark = jvm.org.apache.spark
    invoke = spark.sql.catalyst.expressions.objects.StaticInvoke
    return invoke, spark.sql.Column, spark.api.python.PythonUtils.toSeq


@lru_cache(maxsize=8)
def _known(jvm: Any, name: str, result: str) -> tuple[Any, Any]:
    """A class and a type of Spark's."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.lang.Class.forName(name, True, loader), getattr(jvm.org.apache.spark.sql.types.DataTypes, result)
