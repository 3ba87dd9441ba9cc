"""The keys of every sink connector: https://kafka.apache.org/documentation/#sinkconnectconfigs."""

from __future__ import annotations

from typing import Final

from sluice.connect.rules import Harmless, Lost, Table, Takes, number_up_to

KEYS: Final[Table] = {
    "tasks.max": Takes(
        "write.ranges", number_up_to(1000, "set write.ranges"), "so many Spark jobs at most share an interval"
    ),
    "tasks.max.enforce": Harmless("the number of ranges is never passed"),
    "header.converter": Harmless("headers don't reach a row unless `columns` names them, as they are"),
    "header.converter.*": Harmless("headers don't reach a row unless `columns` names them, as they are"),
    "config.action.reload": Harmless("a pipeline file is read anew by each run"),
    "errors.retry.timeout": Harmless("a failed task is tried again, `retries` times"),
    "errors.retry.delay.max.ms": Harmless("a failed task is tried again after `retry_delay`"),
    "errors.log.enable": Harmless("a bad record that stops an interval is named in the task's log and note"),
    "errors.log.include.messages": Harmless("a record's contents never go to a log"),
    "errors.deadletterqueue.context.headers.enable": Harmless("dead letters always have these headers"),
    "errors.deadletterqueue.topic.replication.factor": Harmless(
        "where the topic isn't there it is created with the brokers' default.replication.factor: create it before"
    ),
    "producer.override.*": Harmless("dead letters are sent by the settings of their cluster's Airflow connection"),
    "admin.override.*": Harmless("the Airflow connection of the cluster has the settings of all clients"),
    "*.converter.plugin.version": Harmless("converters are those of this release"),
    "connector.plugin.version": Harmless("connectors are those of this release"),
    "confluent.license": Harmless("no license is needed"),
    "confluent.topic.*": Harmless("no license is needed"),
    "confluent.topic": Harmless("no license is needed"),
    "reporter.*": Lost("nothing is sent for each record; counts are on the page, in the metrics and in the notes"),
    "behavior.on.error": Lost("what a bad record does, `errors` says", "see docs/bad-records.md", ("fail",)),
}
