"""Hudi's own sink for Connect: https://github.com/apache/hudi/blob/master/rfc/rfc-32/rfc-32.md."""

from __future__ import annotations

from typing import Final

from sluice.connect.draft import Draft, RefusedError, without_login
from sluice.connect.rules import Ignored, Maps, Table, Unsupported, duration, names

_PATH = "hoodie.base.path"
_TYPE = "hoodie.table.type"
_KEY = "hoodie.datasource.write.recordkey.field"


def _seconds(text: str) -> str:
    return duration(f"{text}000")


KEYS: Final[Table] = {
    "bootstrap.servers": Ignored("the brokers are those of the Kafka connection"),
    "hoodie.table.name": Maps("sink.table"),
    "hoodie.datasource.write.partitionpath.field": Maps("sink.partition_fields", names),
    "hoodie.kafka.commit.interval.secs": Maps("schedule", _seconds),
    "hoodie.kafka.control.topic": Maps("control.topic", str, "the messages of both don't meet"),
    "hoodie.kafka.coordinator.write.timeout.secs": Ignored("there is no time-out on writes but Airflow's"),
    "hoodie.kafka.allow.commit.on.errors": Unsupported(
        "an interval with an error isn't committed", "errors.tolerance: all sets bad records aside", ("false",)
    ),
    "hoodie.kafka.compaction.async.enable": Unsupported(
        "compaction is a table service", "add `table_services: {}` (docs/table-services.md)", ("false",)
    ),
    "hoodie.meta.sync.enable": Unsupported(
        "`catalog_sync` registers tables", "add it (docs/catalog-sync.md)", ("false",)
    ),
    "hoodie.meta.sync.*": Unsupported("`catalog_sync` registers tables", "add it (docs/catalog-sync.md)"),
    "hoodie.datasource.hive_sync.*": Unsupported("`catalog_sync` registers tables", "add it (docs/catalog-sync.md)"),
    "hoodie.schemaprovider.class": Ignored("the converter, or the file, says the columns"),
    "hoodie.deltastreamer.schemaprovider.*": Unsupported(
        "the converter, or the file, says the columns", "put the columns of that schema into sink's `schema`"
    ),
    "hoodie.streamer.schemaprovider.*": Unsupported(
        "the converter, or the file, says the columns", "put the columns of that schema into sink's `schema`"
    ),
    "hoodie.datasource.write.keygenerator.*": Unsupported(
        "the key generator is Sluice's", "compare it with .hoodie/hoodie.properties (docs/coming-from.md)"
    ),
    "hadoop.conf.dir": Unsupported(
        "Hadoop's settings are those of HADOOP_CONF_DIR", "set it where Airflow's workers and Spark run"
    ),
    "hadoop.home": Ignored("Hadoop's client is among Sluice's jars"),
    "hoodie.*": Unsupported(
        "options of Hudi's are taken over by hand",
        "put it into the sink's `options` if the table needs it and docs/hudi-options.md lists it",
    ),
}


def sink(draft: Draft) -> None:
    """The table: an append-only one is taken over where it is, any other is loaded anew."""
    base = draft.get(_PATH).rstrip("/")
    if not base:
        raise RefusedError("It doesn't say where the table is.", f"add {_PATH}.", _PATH)
    base = without_login(base, _PATH)
    upsert = draft.get(_TYPE).upper().startswith("MERGE")
    record_key = names(draft.get(_KEY))
    draft.put("sink.path", f"{base}_sluice" if upsert else base)
    draft.loads_anew = upsert
    draft.put("sink.operation", "upsert" if upsert else "append")
    draft.honoured(_TYPE, f"{'.'.join(draft.place('sink.operation'))}: {draft.value_of('sink.operation')}")
    if upsert:
        draft.differs(
            _PATH,
            f"another path, {base}_sluice: rows of another writer aren't found by an upsert",
            "load the topic anew; delete the old table when the new one is right",
        )
        if not record_key:
            raise RefusedError("An upsert needs the columns of the key.", f"name them in {_KEY}.", _KEY)
        draft.honoured(_KEY, draft.put("sink.record_key", record_key))
    else:
        draft.honoured(
            _PATH, f"{'.'.join(draft.place('sink.path'))}: {base}; the table's own checkpoint says where to resume"
        )
        draft.harmless(_KEY, "rows are added, and Hudi makes keys up")
    if draft.value_of("source.value.converter") == "string":
        draft.data["source"]["kafka"]["value"] = {"converter": "json"}
        draft.findings.pop(("connector", "value.converter"), None)
        draft.honoured("value.converter", "json: the sink reads the text as JSON of its schema")
