"""Topics of a Kafka cluster as a sink: each record once for whoever reads committed ones."""
