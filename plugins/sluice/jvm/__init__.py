"""Java from Python: the lean JVM of the coordinator, and Spark's own analyzer without a Spark session."""
