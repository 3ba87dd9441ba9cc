"""Outside the timed part: what a fresh Spark reader sees. `check_rows.py FORMAT OUT.json PATH…`."""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

table_format, out, *paths = sys.argv[1:]
spark = SparkSession.builder.appName("check-rows").getOrCreate()
found = []
for path in paths:
    began = time.monotonic()
    if table_format == "jdbc":
        table = spark.read.jdbc(path, "events", properties={"driver": "org.postgresql.Driver"})
    else:
        table = spark.read.format(table_format).load(path)
    volume_sum = "coalesce(sum(volume), 0)" if "volume" in table.columns else "0"
    [(rows, ids, volume)] = table.selectExpr("count(*)", "count(distinct id)", volume_sum).collect()
    found.append({"rows": rows, "ids": ids, "volume": volume, "read_seconds": time.monotonic() - began})
Path(out).write_text(json.dumps(found))
spark.stop()
