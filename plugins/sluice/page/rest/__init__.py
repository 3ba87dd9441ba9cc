"""Kafka Connect's REST API over Airflow: reads in Connect's shapes, and four verbs that Airflow carries out."""
