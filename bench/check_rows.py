"""Outside the timed part: what a fresh Spark reader sees. `check_rows.py FORMAT PATH OUT.json`."""

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

table_format, path, out = sys.argv[1:]
spark = SparkSession.builder.appName("check-rows").getOrCreate()
began = time.monotonic()
if table_format == "jdbc":
    table = spark.read.jdbc(path, "events", properties={"driver": "org.postgresql.Driver"})
else:
    table = spark.read.format(table_format).load(path)
[(rows, ids, volume)] = table.selectExpr("count(*)", "count(distinct id)", "coalesce(sum(volume), 0)").collect()
Path(out).write_text(json.dumps({"rows": rows, "ids": ids, "volume": volume, "read_seconds": time.monotonic() - began}))
spark.stop()
