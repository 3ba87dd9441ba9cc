"""Sluice: exactly-once ingestion of Kafka topics into Apache Hudi tables, one Airflow DAG run at a time."""

__version__ = "0.1.0"
