"""Files as a sink: Avro, Parquet, JSON or CSV in folders of a Hadoop file system, with a log of commits beside them."""
