"""Kafka as a source: its section of the pipeline file, what a cluster says of its topics, and the reader."""
