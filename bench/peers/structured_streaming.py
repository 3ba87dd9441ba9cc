"""Kafka or files to Hudi with Structured Streaming, once over what there is or for as long as it stays.

structured_streaming.py --bootstrap B --topic T --path P --checkpoint C --operation bulk_insert|upsert
                        [--foreach-batch] [--trigger SECONDS] [--folder F]

Into the Hudi sink by default; --foreach-batch writes each micro-batch with the DataSource instead, as is
often recommended. With --trigger it stays, and looks for records every so many seconds.
With --folder it reads the JSON lines of that folder's files, not Kafka.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

SCHEMA = "id long, symbol string, ts long, price double, volume long, exchange string, note string, flag boolean"

parser = argparse.ArgumentParser()
for name in ("--bootstrap", "--topic", "--path", "--checkpoint"):
    parser.add_argument(name, required=True)
parser.add_argument("--operation", choices=("bulk_insert", "upsert"), required=True)
parser.add_argument("--foreach-batch", action="store_true")
parser.add_argument("--trigger", type=int)
parser.add_argument("--folder")
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


def write_batch(batch: DataFrame, _batch_id: int) -> None:
    batch.write.format("hudi").options(**HUDI).mode("append").save(args.path)


spark = SparkSession.builder.appName("structured-streaming").getOrCreate()
if args.folder:
    records = spark.readStream.schema(SCHEMA).json(args.folder)
else:
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args.bootstrap)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(from_json(col("value").cast("string"), SCHEMA).alias("r"))
        .select("r.*")
    )
writer = records.writeStream.outputMode("append").option("checkpointLocation", args.checkpoint)
writer = writer.trigger(processingTime=f"{args.trigger} seconds") if args.trigger else writer.trigger(availableNow=True)
if args.foreach_batch:
    query = writer.foreachBatch(write_batch).start()
else:
    query = writer.format("hudi").options(**HUDI).option("path", args.path).start()
query.awaitTermination()
spark.stop()
