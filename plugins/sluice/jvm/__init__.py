"""Java from Python: the lean JVM of the coordinator, and what Spark's own analyzer says without a Spark session."""
