"""The schema registry: which schemas records were written with. A thin layer over confluent-kafka's client."""
