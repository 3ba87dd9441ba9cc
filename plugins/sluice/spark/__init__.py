"""The participants: Spark jobs, one for each range of Kafka partitions, that write under an instant opened elsewhere."""
