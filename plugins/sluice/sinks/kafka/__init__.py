"""Topics of a Kafka cluster as a sink: each record exactly once for consumers that read committed records."""
