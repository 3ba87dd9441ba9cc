"""Kafka to Hudi in one batch with Hudi's DataSource: bulk_insert into COW, upsert into MOR.

hudi_datasource.py --bootstrap B --topic T --path P --operation bulk_insert|upsert
                   [--starting-offsets JSON] [--skip-empty]

The batch source keeps no offsets: whoever runs this has to, and gives them with --starting-offsets.
"""

import argparse
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

SCHEMA = "id long, symbol string, ts long, price double, volume long, exchange string, note string, flag boolean"

parser = argparse.ArgumentParser()
for name in ("--bootstrap", "--topic", "--path"):
    parser.add_argument(name, required=True)
parser.add_argument("--operation", choices=("bulk_insert", "upsert"), required=True)
parser.add_argument("--starting-offsets", default="earliest")
parser.add_argument("--skip-empty", action="store_true", help="look first whether there is anything to write")
args = parser.parse_args()

HUDI = {
    "hoodie.table.name": "events",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ" if args.operation == "upsert" else "COPY_ON_WRITE",
    "hoodie.datasource.write.operation": args.operation,
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "exchange",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.parquet.compression.codec": "zstd",
}

spark = SparkSession.builder.appName("hudi-datasource").getOrCreate()
records = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", args.bootstrap)
    .option("subscribe", args.topic)
    .option("startingOffsets", args.starting_offsets)
    .option("endingOffsets", "latest")
    .load()
    .select(from_json(col("value").cast("string"), SCHEMA).alias("r"))
    .select("r.*")
)
if args.skip_empty and records.isEmpty():
    spark.stop()
    sys.exit(0)
records.write.format("hudi").options(**HUDI).mode("append").save(args.path)
spark.stop()
