"""A bare Spark session: start, count one row, stop. The least that anything on Spark costs."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.appName("bare-session").getOrCreate()
assert spark.range(1).count() == 1
spark.stop()
