"""The parts of `make demo`: real flights, a replay that publishes them, and the comparison of Kafka with the tables.

`python -m sluice.local.demo` puts them together. Nothing here is imported by anything else.
"""
