"""Faults at random on real processes: what the simulation plays in memory, with a real Kafka, Spark and Hudi.

`python -m tests.chaos` goes on for so many rounds, and compares all rows with all records after every few.
"""
