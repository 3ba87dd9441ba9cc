"""The control topic: the log whose order decides which messages count. Everything here uses confluent-kafka."""
