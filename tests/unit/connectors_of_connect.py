"""Configurations of Kafka Connect's connectors, and what was made of one."""

from __future__ import annotations

from sluice.connect import ConnectorConfig, ImportOptions, checked, imported

JDBC = "io.confluent.connect.jdbc.JdbcSinkConnector"
HDFS = "io.confluent.connect.hdfs3.Hdfs3SinkConnector"
S3 = "io.confluent.connect.s3.S3SinkConnector"
HUDI = "org.apache.hudi.connect.HoodieSinkConnector"
DEBEZIUM = "io.debezium.connector.jdbc.JdbcSinkConnector"
KAFKAS = "org.apache.kafka.connect"
SMT = f"{KAFKAS}.transforms"
JSON = {"value.converter": f"{KAFKAS}.json.JsonConverter", "value.converter.schemas.enable": "false"}
AVRO = {
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.schema.registry.url": "http://registry:8081",
}
TABLE = {
    "connector.class": JDBC,
    "topics": "orders",
    "connection.url": "jdbc:postgresql://db:5432/lake",
    "connection.user": "loader",
    "connection.password": "s3cr3t-0",
    **AVRO,
}
FOLDER = {
    "connector.class": HDFS,
    "topics": "flights",
    "hdfs.url": "hdfs://namenode:8020",
    "flush.size": "1000",
    **JSON,
}


def one(config, name="p", **more):
    (made,) = (checked(found) for found in imported(ConnectorConfig(name, config), ImportOptions(**more)))
    return made


def verdicts(made):
    return {found.key: found.verdict for found in made.findings if found.of == "connector"}


def said(made, key):
    return next(found for found in made.findings if found.key == key)


def transformed(steps, base=TABLE, **more):
    """A connector with these transforms, as lists of settings by alias."""
    config = {f"transforms.{alias}.{name}": value for alias, of in steps.items() for name, value in of.items()}
    return one({**base, "transforms": ",".join(steps), **config, **more})
