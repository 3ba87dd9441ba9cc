"""The control topic: the log whose order decides what counts. Everything here uses confluent-kafka."""
