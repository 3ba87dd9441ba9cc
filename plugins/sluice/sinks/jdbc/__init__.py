"""Writes Kafka topics into one table of a relational database, rows and offsets in one of its transactions."""
