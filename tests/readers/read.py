"""A script: `read.py JAR COLUMNS TABLE...` prints what Spark reads, by table, as one line of JSON."""

from __future__ import annotations

import json
import sys

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from release import session_with


def main(jar: str, columns: str, *tables: str) -> None:
    spark = session_with(jar)
    found: dict[str, object] = {}
    for table in tables:
        try:
            rows = spark.read.format("hudi").load(table).selectExpr(columns.split(",")).collect()
            found[table] = sorted([list(row) for row in rows], key=str)
        except (Py4JJavaError, PySparkException) as error:
            cause = str(getattr(error, "java_exception", error))
            found[table] = cause.splitlines()[0]
    spark.stop()
    sys.stdout.write(json.dumps(found, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
