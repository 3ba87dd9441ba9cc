"""Hudi through Py4J: Hudi's own classes, in a lean JVM for the coordinator and in Spark's for the participants."""
