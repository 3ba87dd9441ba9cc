"""Kafka clients: settings, security, errors, and transactions. Everything here uses confluent-kafka."""
