"""Whether bytes are text."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F

# Guava's, in the copy that every Hadoop client since 3.3 brings along. Spark 3.5 has no function of its own for it.
_GUAVA = "org.apache.hadoop.thirdparty.com.google.common.base.Utf8"


def is_utf8(data: Column) -> Column:
    """Whether BINARY data is UTF-8."""
    checked = _by_guava(data)
    # What isn't comes back from being decoded as other bytes; it takes four times as long to find out.
    return F.encode(F.decode(data, "UTF-8"), "UTF-8") == data if checked is None else checked


def _by_guava(data: Column) -> Column | None:
    """Guava's check inside of generated code; None where this Spark's Hadoop has no such class."""
    context = SparkContext._active_spark_context
    assert context is not None
    jvm: Any = context._jvm
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        guava = jvm.java.lang.Class.forName(_GUAVA, True, loader)
    except Py4JError:
        return None
    argument = jvm.PythonUtils.toSeq([data._jc.expr()])
    boolean = jvm.org.apache.spark.sql.types.DataTypes.BooleanType
    nothing = jvm.PythonUtils.toSeq([])
    invoke = jvm.org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke
    expression = invoke(guava, boolean, "isWellFormed", argument, nothing, True, False, True)
    return Column(jvm.org.apache.spark.sql.Column(expression))
