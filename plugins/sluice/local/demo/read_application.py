"""Spark's application to read an upsert table: it writes the rows' fingerprint to a file."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from pyspark.sql import SparkSession

from sluice.local.demo.fingerprint import columns_of, fingerprint


def main() -> None:
    """Read the table that the command line names."""
    path, ddl, answer = sys.argv[1:]
    columns = columns_of(ddl)
    spark = SparkSession.builder.getOrCreate()
    rows = spark.read.format("hudi").load(path).select(*columns).toLocalIterator()
    Path(answer).write_text(json.dumps(asdict(fingerprint((row.asDict() for row in rows), columns))))
    spark.stop()


if __name__ == "__main__":
    main()
