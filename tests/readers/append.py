"""A script: `append.py JAR TABLE DDL` commits lists of rows, read as JSON, by Spark's data source for Hudi."""

from __future__ import annotations

import json
import sys

from release import session_with


def main(jar: str, table: str, ddl: str) -> None:
    asked = json.load(sys.stdin)
    spark = session_with(jar)
    for rows in asked["commits"]:
        frame = spark.createDataFrame([tuple(row) for row in rows], ddl)
        frame.write.format("hudi").options(**asked["options"]).mode("append").save(table)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
