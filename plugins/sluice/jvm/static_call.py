"""A static Java method as a column: Catalyst calls it inside of generated code, for no more than the method costs."""

from __future__ import annotations

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
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = jvm.java.lang.Class.forName(name, True, loader)
    sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    given = sequence([argument._jc.expr() for argument in arguments])
    kind = getattr(jvm.org.apache.spark.sql.types.DataTypes, result)
    invoke = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke
    return Column(jvm.org.apache.spark.sql.Column(invoke(found, kind, method, given, sequence([]), True, False, True)))
