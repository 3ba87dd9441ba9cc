"""Kafka to a table of PostgreSQL in one batch with Spark's own JDBC writer: no key, no offsets, not one transaction.

plain_jdbc.py --bootstrap B --topic T --url U [--rewrite]

By default with the writer's and the driver's defaults; --rewrite has the driver make one statement of a batch's rows.
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

SCHEMA = "id long, symbol string, ts long, price double, volume long, exchange string, note string, flag boolean"

parser = argparse.ArgumentParser()
for name in ("--bootstrap", "--topic", "--url"):
    parser.add_argument(name, required=True)
parser.add_argument("--rewrite", action="store_true", help="reWriteBatchedInserts, 3,000 rows at a time")
args = parser.parse_args()

FASTER = {"reWriteBatchedInserts": "true", "batchsize": "3000"}

spark = SparkSession.builder.appName("plain-jdbc").getOrCreate()
(
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", args.bootstrap)
    .option("subscribe", args.topic)
    .option("startingOffsets", "earliest")
    .option("endingOffsets", "latest")
    .load()
    .select(from_json(col("value").cast("string"), SCHEMA).alias("r"))
    .select("r.*")
    .write.mode("append")
    .jdbc(args.url, "events", properties={"driver": "org.postgresql.Driver", **(FASTER if args.rewrite else {})})
)
spark.stop()
