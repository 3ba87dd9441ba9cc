"""Kafka to plain Parquet in one batch, partitioned by exchange: no table format, no keys, no transaction.

plain_parquet.py --bootstrap B --topic T --path P
"""

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

SCHEMA = "id long, symbol string, ts long, price double, volume long, exchange string, note string, flag boolean"

parser = argparse.ArgumentParser()
for name in ("--bootstrap", "--topic", "--path"):
    parser.add_argument(name, required=True)
args = parser.parse_args()

spark = SparkSession.builder.appName("plain-parquet").getOrCreate()
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
    .option("compression", "zstd")
    .partitionBy("exchange")
    .parquet(args.path)
)
spark.stop()
