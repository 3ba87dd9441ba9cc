"""Kafka: the clusters that are read, and the control topic. Everything here uses confluent-kafka."""
