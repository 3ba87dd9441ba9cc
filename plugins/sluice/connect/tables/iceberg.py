"""Iceberg's sink for Connect, Apache's and its predecessor, Tabular's: a Hudi table for each of its tables.

https://iceberg.apache.org/docs/latest/kafka-connect/ and https://github.com/tabular-io/iceberg-kafka-connect.
"""

from __future__ import annotations

import re
from typing import Final

from sluice.connect.draft import Draft, RefusedError, without_login
from sluice.connect.rules import Ignored, Maps, Table, Unsupported, duration
from sluice.identifiers import quoted
from sluice.records.transforms import text

TABLES: Final = ("iceberg.tables",)
"""The key that names tables."""
_WAREHOUSE = "iceberg.catalog.warehouse"
_ROUTE, _DYNAMIC = "iceberg.tables.route-field", "iceberg.tables.dynamic-enabled"
_KEY, _PARTS = "id-columns", "partition-by"
_UPSERT, _CHANGES = "iceberg.tables.upsert-mode-enabled", "iceberg.tables.cdc-field"
_OF_TABLE = "iceberg.table."
_PLAIN = re.compile(r"\w+")
_NAMED = re.compile(r"[\w.-]+")
_CATALOG = Unsupported(
    "a Hudi table needs no catalog; `catalog_sync` registers it where it is wanted",
    "add it if readers look tables up by name (docs/catalog-sync.md)",
)
_LOGIN = Unsupported(
    "credentials are Hadoop's settings",
    'put them into the Spark connection\'s extra field, as {"conf": {"spark.hadoop.fs.s3a.…": "…"}}',
)
_STORAGE = Ignored("storage is reached by Hadoop's settings, and by the sink's `connection`")

KEYS: Final[Table] = {
    "iceberg.catalog": Ignored("the name that the connector has for its catalog"),
    "iceberg.catalog.io-impl": _STORAGE,
    "iceberg.catalog.s3.access-key-id": _LOGIN,
    "iceberg.catalog.s3.secret-access-key": _LOGIN,
    "iceberg.catalog.s3.session-token": _LOGIN,
    "iceberg.catalog.s3.*": _STORAGE,
    "iceberg.catalog.client.*": _STORAGE,
    "iceberg.catalog.*": _CATALOG,
    "iceberg.hadoop-conf-dir": Unsupported(
        "Hadoop's settings are those of HADOOP_CONF_DIR", "set it where Airflow's workers and Spark run"
    ),
    "iceberg.hadoop.*": Unsupported(
        "Hadoop's settings are those of HADOOP_CONF_DIR", "put it there, or into `spark.hadoop.…` of `write.conf`"
    ),
    "iceberg.control.topic": Ignored("the control topic is the pipeline's own"),
    "iceberg.control.group-id-prefix": Ignored("the control topic is read without a consumer group"),
    "iceberg.control.commit.interval-ms": Maps("schedule", duration),
    "iceberg.control.commit.timeout-ms": Unsupported(
        "an interval is committed with all of its ranges, or not at all: there is no partial commit",
        "give `write.timeout` if a range may take no longer",
    ),
    "iceberg.control.commit.threads": Ignored("a pipeline has one table, and one commit"),
    "iceberg.coordinator.transactional.*": Ignored(
        "the control topic's first message counts, whichever process sent it"
    ),
    "iceberg.coordinator-executor-*": Ignored("a coordinator is a task of Airflow's"),
    "iceberg.kafka.*": Ignored("the Airflow connection of the cluster has the settings of all clients"),
    "iceberg.tables.default-commit-branch": Unsupported(
        "a Hudi table has one timeline and no branches", "load a separate table", ("main",)
    ),
    f"{_OF_TABLE}*.commit-branch": Unsupported(
        "a Hudi table has one timeline and no branches", "load a separate table", ("main",)
    ),
    "iceberg.tables.auto-create-enabled": Ignored("the first interval creates the table"),
    "iceberg.tables.auto-create-props.*": Unsupported(
        "properties are Iceberg's", "see the sink's `options` for Hudi's"
    ),
    "iceberg.tables.write-props.*": Unsupported("properties are Iceberg's", "see the sink's `options` for Hudi's"),
    "iceberg.tables.evolve-schema-enabled": Unsupported(
        "new columns are added when the file, or the registry's schema, has them", "see docs/schemas.md", ("false",)
    ),
    "iceberg.tables.schema-force-optional": Unsupported(
        "columns are what the schema says", "leave NOT NULL out of the sink's `schema`", ("false",)
    ),
    "iceberg.tables.schema-case-insensitive": Unsupported(
        "fields are found by their names as they are written", "name them so", ("false",)
    ),
}


def sink(draft: Draft) -> None:
    """The table, which is loaded anew: the connector's own stays as it is."""
    table = _table(draft)
    draft.put("sink.path", _path(draft, table))
    draft.put("sink.table", table.replace(".", "_"))
    draft.loads_anew = True
    _rows(draft, table)
    _partitions(draft, table)
    _routed(draft, table)
    for key in draft.given.config:
        if key.startswith(_OF_TABLE) and not key.startswith(f"{_OF_TABLE}{table}."):
            draft.harmless(key, "it is of another table, which has its own pipeline")


def _table(draft: Draft) -> str:
    key = TABLES[0]
    if draft.flag(_DYNAMIC):
        raise RefusedError(
            "Each record names its table, and a pipeline's tables are known before.",
            f"name the tables in {key}, with {_OF_TABLE}<table>.route-regex for each, and leave {_DYNAMIC} out.",
            _DYNAMIC,
        )
    draft.harmless(_DYNAMIC, "the tables are named")
    tables = draft.list(key)
    if not tables:
        raise RefusedError("It names no tables.", f"add {key}.", key)
    table = tables[0]
    if not _NAMED.fullmatch(table) or ".." in table:
        raise RefusedError("The table's name is no part of a path.", "give it one of letters, digits, _ and -.", key)
    draft.differs(
        key,
        f"a Hudi table in place of {table}, which is loaded anew: Sluice doesn't write Iceberg's tables",
        "load the topic anew; delete the old table when the new one is right",
    )
    return table


def _path(draft: Draft, table: str) -> str:
    """Beside the connector's own table, which stays readable, or in the folder that was named."""
    place = "/".join(table.split("."))
    warehouse = draft.get(_WAREHOUSE).rstrip("/")
    if draft.folder:
        draft.harmless(_WAREHOUSE, "the folder was named by --path")
        return f"{draft.folder.rstrip('/')}/{place}"
    if "/" not in warehouse:
        raise RefusedError(
            "It doesn't say in which folder its tables are.", "name a folder for Hudi's tables by --path.", _WAREHOUSE
        )
    path = f"{without_login(warehouse, _WAREHOUSE)}/{place}_sluice"
    draft.honoured(_WAREHOUSE, f"{'.'.join(draft.place('sink.path'))}: {path}, beside the connector's own table")
    return path


def _of(draft: Draft, table: str, name: str) -> tuple[str, tuple[str, ...]]:
    """A key that a table may have its own of, and its list."""
    own, default = f"{_OF_TABLE}{table}.{name}", f"iceberg.tables.default-{name}"
    key = own if draft.has(own) else default
    if key == own:
        draft.harmless(default, "the table has its own")
    return key, _columns(draft.get(key))


def _columns(listed: str) -> tuple[str, ...]:
    """Columns, and transforms of columns whose arguments have commas, too."""
    return tuple(one.strip() for one in re.split(r",(?![^()]*\))", listed) if one.strip())


def _rows(draft: Draft, table: str) -> None:
    """Whether rows are added or replaced: Apache's sink adds them, whatever columns are the key."""
    key, columns = _of(draft, table, _KEY)
    if draft.has(_CHANGES):
        raise RefusedError(
            "A field says of each record whether it is inserted, updated or deleted.",
            "write a pipeline file with `changes` (docs/change-data.md) if the records are Debezium's or tombstones.",
            _CHANGES,
        )
    if draft.flag(_UPSERT):
        if not columns:
            raise RefusedError("An upsert needs the columns of the key.", f"name them in {key}.", _UPSERT)
        draft.honoured(_UPSERT, draft.put("sink.operation", "upsert"))
        draft.honoured(key, draft.put("sink.record_key", list(columns)))
        return
    draft.put("sink.operation", "append")
    draft.harmless(_UPSERT, "rows are added")
    draft.harmless(key, "rows are added, as the connector does; name them as `record_key` of an `upsert` for one row")


def _partitions(draft: Draft, table: str) -> None:
    key, columns = _of(draft, table, _PARTS)
    plain = [name for name in columns if _PLAIN.fullmatch(name)]
    if not columns:
        return
    if len(plain) == len(columns):
        draft.honoured(key, draft.put("sink.partition_fields", plain))
        return
    if plain:
        draft.put("sink.partition_fields", plain)
    draft.lost(
        key,
        "tables are partitioned by columns, not by transforms of columns",
        "make a column of it by a `set` step, and name that in `partition_fields`",
    )


def _routed(draft: Draft, table: str) -> None:
    """The records of this table among those of several; without a field each record goes to all of them."""
    key, pattern = draft.get(_ROUTE), f"{_OF_TABLE}{table}.route-regex"
    if not key:
        draft.harmless(pattern, "no field is named by which records are routed: each goes to every table")
        return
    if not draft.has(pattern):
        raise RefusedError(f"No record belongs to {table}: it has no pattern for {_ROUTE}.", f"add {pattern}.", _ROUTE)
    field = ".".join(map(quoted, key.split(".")))
    condition = f"coalesce(CAST({field} AS STRING) RLIKE {text(f'^(?:{draft.get(pattern)})$')}, false)"
    draft.steps_of_rows.append({"filter": condition})
    draft.honoured(_ROUTE, f"filter: {condition}; a record of no table is in none, as there")
    draft.honoured(pattern, "the filter's pattern, which Java reads in both")
