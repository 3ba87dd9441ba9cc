"""A static Java method as a column: Catalyst calls it inside of generated code, for no more than the method costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from pyspark.sql import Column, SparkSession


def static_call(spark: SparkSession, name: str, method: str, result: str, *arguments: Column) -> Column:
    """A call of a method that takes these arguments; null where one of them is.

    Args:
        spark: the session.
        name: the class.
        method: its static method.
        result: its result's type, by its name in `org.apache.spark.sql.types.DataTypes`: `IntegerType`.
        arguments: the columns to pass.

    Raises:
        Py4JError: there is no such class on Spark's class path.
    """
    jvm = spark._jvm
    given = [argument._jc.expr() for argument in arguments]
    return Column(_parts(jvm)[1](static_expression(jvm, name, method, _type(jvm, result), given)))


def static_expression(jvm: Any, name: str, method: str, kind: Any, given: Sequence[Any]) -> Any:
    """The same as a Catalyst expression, to be part of others.

    Args:
        jvm: the session's JVM.
        name: the class.
        method: its static method.
        kind: its result's type, one of Spark's.
        given: the expressions of its arguments.
    """
    invoke, _, sequence = _parts(jvm)
    return invoke(class_of(jvm, name), kind, method, sequence(list(given)), sequence([]), True, False, True)


# A name of the JVM costs a call for each of its dots.


@lru_cache(maxsize=1)
def _parts(jvm: Any) -> tuple[Any, Any, Any]:
    """The constructors of a static call and of a column, and what makes a Scala sequence."""
    spark = jvm.org.apache.spark
    invoke = spark.sql.catalyst.expressions.objects.StaticInvoke
    return invoke, spark.sql.Column, spark.api.python.PythonUtils.toSeq


@lru_cache(maxsize=16)
def class_of(jvm: Any, name: str) -> Any:
    """A class on Spark's class path."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.lang.Class.forName(name, True, loader)


@lru_cache(maxsize=8)
def _type(jvm: Any, name: str) -> Any:
    """A type of Spark's."""
    return getattr(jvm.org.apache.spark.sql.types.DataTypes, name)
