"""The participants: Spark jobs, one for each range of partitions, that write under an instant opened elsewhere."""
