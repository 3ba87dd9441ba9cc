"""The keys of every sink connector: https://kafka.apache.org/documentation/#sinkconnectconfigs."""

from __future__ import annotations

from typing import Final

from sluice.connect.rules import Ignored, Maps, Table, Unsupported, number_up_to

KEYS: Final[Table] = {
    "tasks.max": Maps(
        "write.ranges", number_up_to(1000, "set write.ranges"), "so many Spark jobs at most share an interval"
    ),
    "tasks.max.enforce": Ignored("the number of ranges is never passed"),
    "header.converter": Ignored("headers don't reach a row unless `columns` names them, as they are"),
    "header.converter.*": Ignored("headers don't reach a row unless `columns` names them, as they are"),
    "config.action.reload": Ignored("a pipeline file is read anew by each run"),
    "errors.retry.timeout": Ignored("a failed task is tried again, `retries` times"),
    "errors.retry.delay.max.ms": Ignored("a failed task is tried again after `retry_delay`"),
    "errors.log.enable": Ignored("a bad record that stops an interval is named in the task's log and note"),
    "errors.log.include.messages": Ignored("a record's contents never go to a log"),
    "errors.deadletterqueue.context.headers.enable": Ignored("dead letters always have these headers"),
    "errors.deadletterqueue.topic.replication.factor": Ignored(
        "where the topic isn't there it is created with the brokers' default.replication.factor: create it before"
    ),
    "producer.override.*": Ignored("dead letters are sent by the settings of their cluster's Airflow connection"),
    "admin.override.*": Ignored("the Airflow connection of the cluster has the settings of all clients"),
    "*.converter.plugin.version": Ignored("converters are those of this release"),
    "connector.plugin.version": Ignored("connectors are those of this release"),
    "confluent.license": Ignored("no license is needed"),
    "confluent.topic.*": Ignored("no license is needed"),
    "confluent.topic": Ignored("no license is needed"),
    "reporter.*": Unsupported(
        "nothing is sent for each record; counts are on the page, in the metrics and in the notes"
    ),
    "behavior.on.error": Unsupported("what a bad record does, `errors` says", "see docs/bad-records.md", ("fail",)),
}
