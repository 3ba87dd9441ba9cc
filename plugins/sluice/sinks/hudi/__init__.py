"""Hudi as a sink, through Py4J: Hudi's own classes, in the coordinator's lean JVM and in Spark's."""
