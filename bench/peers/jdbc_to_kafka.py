"""A table of a database to a topic in one batch with Spark's own: no key's order, no positions, not one transaction.

jdbc_to_kafka.py --bootstrap B --topic T --url U
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, struct, to_json

FETCHED = 10_000

parser = argparse.ArgumentParser()
for name in ("--bootstrap", "--topic", "--url"):
    parser.add_argument(name, required=True)
args = parser.parse_args()

spark = SparkSession.builder.appName("jdbc-to-kafka").getOrCreate()
rows = spark.read.jdbc(args.url, "events", properties={"driver": "org.postgresql.Driver", "fetchsize": str(FETCHED)})
(
    rows.select(col("id").cast("string").alias("key"), to_json(struct("*")).alias("value"))
    .write.format("kafka")
    .option("kafka.bootstrap.servers", args.bootstrap)
    .option("topic", args.topic)
    .save()
)
spark.stop()
