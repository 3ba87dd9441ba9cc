"""A real worker of Kafka Connect's, to compare with and to go on from."""
