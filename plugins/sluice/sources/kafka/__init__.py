"""Kafka as a source: its section of the pipeline file, the state of a cluster's topics, and the reader."""
