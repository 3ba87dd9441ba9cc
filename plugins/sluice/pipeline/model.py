"""The pipeline file's model. Its docstrings and field descriptions become the JSON Schema that editors show."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ByteSize, ConfigDict, Field, model_validator

from sluice.protocol.messages import TableWriter
from sluice.protocol.plan import Limits, OnOffsetLoss

_UNITS = {"s": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
_DURATION = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(s|seconds?|m|min|minutes?|h|hours?|d|days?)\s*$")
_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def parse_duration(value: Any) -> Any:
    """`30 seconds`, `5 minutes`, `1 hour` or `2 days` as a timedelta; anything else is left for pydantic."""
    match = _DURATION.match(value) if isinstance(value, str) else None
    if match is None:
        return value
    unit = match.group(2)
    return timedelta(seconds=float(match.group(1)) * _UNITS.get(unit, _UNITS.get(unit.rstrip("s"), 1)))


def _expand(value: str) -> str:
    def replace(match: re.Match[str]) -> str:
        found = os.environ.get(match.group(1), match.group(2))
        if found is None:
            raise ValueError(
                f"the environment variable {match.group(1)} is not set; set it, or write ${{{match.group(1)}:-default}}"
            )
        return found

    return _VARIABLE.sub(replace, value)


def _absolute(value: str) -> str:
    if "://" in value:
        return value.rstrip("/")
    if not value.startswith("/"):
        raise ValueError("must be an absolute path or a URI such as s3a://bucket/table or hdfs:///table")
    return f"file://{value.rstrip('/')}"


Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
Expanded = Annotated[str, AfterValidator(_expand)]
TablePath = Annotated[str, AfterValidator(_expand), AfterValidator(_absolute)]
OneOrMore = Annotated[tuple[str, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)]


def _as_text(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}


Options = Annotated[dict[str, str], BeforeValidator(_as_text)]
SERVICES_SUFFIX = ".table_services"
"""What the id of a pipeline's second DAG, that of its table services, ends with."""
_NOT_INLINE = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}  # the table services do it


class _Section(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_by_name=True, validate_by_alias=True
    )


class Kafka(_Section):
    """What is read: topics of one cluster."""

    connection: str = "kafka_default"
    """Id of the Airflow connection of type kafka."""
    topics: Annotated[OneOrMore, Field(min_length=1)]
    """The topics, all loaded into the one table."""
    starting_offsets: Literal["earliest", "latest"] | dict[str, dict[int, int]] = "earliest"
    """Where the first interval starts: earliest, latest, or offsets as {topic: {partition: offset}}."""
    until: Literal["latest", "data_interval_end"] = "latest"
    """Where an interval ends: at the log's end when it starts, or at the records of the data interval's end."""
    max_records: Annotated[int, Field(gt=0)] = 5_000_000
    """The most records of one interval, shared out over the partitions by their backlog."""
    max_bytes: ByteSize | None = None
    """About the most bytes of one interval, such as `2 GiB`, by the last interval's average record."""
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    """Whether records of open and aborted Kafka transactions are left out."""
    on_offset_loss: OnOffsetLoss = "fail"
    """What to do when committed offsets can't be read any more: fail, or go on at earliest or latest."""
    consumer_group: str | None = None
    """The group to which committed offsets are copied for lag monitors; `sluice.<pipeline>` by default."""


class Source(_Section):
    """Where records come from."""

    kafka: Kafka


class Hudi(_Section):
    """What is written: one Hudi table."""

    path: TablePath
    """The table's base path; `${VARIABLE}` and `${VARIABLE:-default}` are replaced."""
    table: str | None = None
    """The table's name; the pipeline's by default."""
    operation: Literal["append", "upsert"] = "append"
    """append: copy on write, every record is a row. upsert: merge on read, the last version of a key is the row."""
    record_key: OneOrMore = ()
    """The record key's columns; needed for upsert."""
    partition_fields: OneOrMore = ()
    """The columns by whose values the table is partitioned."""
    ordering_field: OneOrMore = ()
    """The columns by which the larger version of a key wins; without it the one that came last."""
    schema_: Annotated[str | None, Field(alias="schema")] = None
    """The columns as Spark DDL: `id BIGINT NOT NULL, name STRING`."""
    schema_file: Path | None = None
    """Or a file with an Avro schema (.avsc), relative to the pipeline file."""
    options: dict[str, str] = Field(default_factory=dict)
    """Any `hoodie.*` option."""

    @model_validator(mode="before")
    @classmethod
    def _options_are_text(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("options"), dict):
            options = {
                k: str(v).lower() if isinstance(v, bool) else v if isinstance(v, dict | list) else str(v)
                for k, v in data["options"].items()
            }
            return {**data, "options": options}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Hudi:
        if (self.schema_ is None) == (self.schema_file is None):
            raise ValueError("give the columns either as `schema` (Spark DDL) or as `schema_file` (.avsc)")
        if self.operation == "upsert" and not self.record_key:
            raise ValueError("operation upsert needs `record_key`: the columns that tell one row from another")
        strange = [name for name in self.options if not name.startswith("hoodie.")]
        if strange:
            raise ValueError(f"options take hoodie.* names only, not {', '.join(strange)}")
        return self


class Sink(_Section):
    """Where records go."""

    hudi: Hudi


class Write(_Section):
    """How the Spark jobs run."""

    connection: str = "spark_default"
    """Id of the Airflow connection of type spark: local, standalone, YARN or Kubernetes."""
    ranges: Annotated[int, Field(gt=0, le=1000)] = 1
    """How many Spark jobs at most share the partitions of an interval."""
    conf: dict[str, str] = Field(default_factory=dict)
    """Spark settings, such as spark.executor.memory."""
    kafka_options: dict[str, str] = Field(default_factory=dict)
    """Further settings of Spark's Kafka client, under the Java client's names."""
    driver_memory: str = "1g"
    """Memory of each Spark driver."""

    @model_validator(mode="before")
    @classmethod
    def _conf_is_text(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("conf"), dict):
            return {
                **data,
                "conf": {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in data["conf"].items()},
            }
        return data


class Control(_Section):
    """The control topic."""

    topic: str = "hudi-control-topic"
    """Its name; several tables can share one."""
    connection: str | None = None
    """The cluster that it is on; the source's by default."""
    commit_timeout: Duration = timedelta(minutes=10)
    """After this, a commit that was decided but never finished is finished by the next coordinator."""


Occasion = Literal["on_failure", "on_recovery", "on_escalation", "on_deadline", "on_warning"]
OCCASIONS: tuple[Occasion, ...] = get_args(Occasion)


class Notifier(_Section):
    """An Airflow notifier, named by its class."""

    notifier: str
    """The class, such as airflow.providers.smtp.notifications.smtp.SmtpNotifier."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Its arguments; Airflow's templates work in them."""


class Alerts(_Section):
    """Who is told what."""

    on_failure: tuple[Notifier, ...] = ()
    """Told once for each DAG run that failed, an audit that failed included."""
    on_recovery: tuple[Notifier, ...] | None = None
    """Told by the first good run after failed or late ones; those of `on_failure` by default."""
    escalate_after: Annotated[int, Field(gt=1)] = 3
    """After how many failed runs in a row `on_escalation` is told."""
    on_escalation: tuple[Notifier, ...] = ()
    """Told once, beside `on_failure`, when `escalate_after` runs in a row have failed."""
    deadline: Duration | None = None
    """The longest time without a commit or a confirmed empty interval, such as `15 minutes`."""
    on_deadline: tuple[Notifier, ...] | None = None
    """Told once when the deadline has passed; those of `on_failure` by default."""
    max_lag_records: Annotated[int, Field(gt=0)] | None = None
    """The most offsets that an interval may leave unread in the log."""
    max_lag: Duration | None = None
    """How far the time up to which the table is complete may lie behind the commit."""
    max_quarantine_rate: Annotated[float, Field(ge=0, lt=1)] | None = None
    """The largest part of an interval's records that may be quarantined, such as 0.01."""
    on_warning: tuple[Notifier, ...] | None = None
    """Told when a committed interval has passed a limit, or has given up offsets under `on_offset_loss`; those of
    `on_failure` by default."""

    def notifiers(self, occasion: Occasion) -> tuple[Notifier, ...]:
        """Who is told on an occasion."""
        named: tuple[Notifier, ...] | None = getattr(self, occasion)
        return self.on_failure if named is None else named

    @property
    def tells_anybody(self) -> bool:
        """Whether any notifier is named."""
        return any(self.notifiers(occasion) for occasion in OCCASIONS)

    @model_validator(mode="after")
    def _somebody_listens(self) -> Alerts:
        limits = ("max_lag_records", "max_lag", "max_quarantine_rate")
        listeners: tuple[tuple[Occasion, tuple[str, ...]], ...] = (
            ("on_deadline", ("deadline",)),
            ("on_warning", limits),
        )
        for occasion, keys in listeners:
            for key in keys:
                if getattr(self, key) is not None and not self.notifiers(occasion):
                    raise ValueError(f"`{key}` tells nobody: name a notifier in `on_failure` or `{occasion}`")
        return self


class Compaction(_Section):
    """Log files merged into base files; of upsert tables only."""

    after_delta_commits: Annotated[int, Field(gt=0)] = 10
    """How many intervals are committed before their log files are merged."""


class Clustering(_Section):
    """Small files rewritten as larger ones; of append tables only, and only where this section is there.

    A rewritten file holds rows of many intervals, so a single one of these can't be replaced by itself any more.
    """

    after_commits: Annotated[int, Field(gt=0)] = 20
    """How many intervals are committed before small files are rewritten."""
    small_file: ByteSize = ByteSize(128 * 1024 * 1024)
    """Files below this size are rewritten."""
    target_file: ByteSize = ByteSize(512 * 1024 * 1024)
    """About the size of the files that are written."""
    sort_by: OneOrMore = ()
    """Columns by which the rows of a file are sorted."""


class TableServices(_Section):
    """What keeps the table small and quick to read and to write: a DAG of its own, `<pipeline>.table_services`."""

    schedule: Annotated[timedelta | str | None, BeforeValidator(parse_duration)] = timedelta(hours=1)
    """A cron expression, or a time between runs such as `1 hour`; null means by hand."""
    compaction: Compaction = Compaction()
    clustering: Clustering | None = None
    keep_commits: Annotated[int, Field(gt=0)] = 20
    """How many of the last commits can still be read as the table was then; older file versions are deleted."""
    keep_timeline: Annotated[int, Field(gt=1)] = 30
    """How many of the last commits stay on the active timeline; older ones are archived."""
    metadata_after_delta_commits: Annotated[int, Field(gt=0)] = 10
    """How many changes of the metadata table are made before its log files are merged."""
    wait: Duration = timedelta(minutes=30)
    """How long a service waits for an interval that holds the table; then it is tried again."""
    conf: Options = Field(default_factory=dict)
    """Spark settings of compaction and clustering, on top of `write.conf`."""
    driver_memory: str | None = None
    """Memory of their Spark driver; that of `write` by default."""
    options: Options = Field(default_factory=dict)
    """Further `hoodie.*` options of the services."""

    @model_validator(mode="after")
    def _timeline_holds_what_is_kept(self) -> TableServices:
        if self.keep_timeline <= self.keep_commits:
            raise ValueError("keep_timeline must be larger than keep_commits: cleaning reads the timeline")
        strange = [name for name in self.options if not name.startswith("hoodie.")]
        if strange:
            raise ValueError(f"options take hoodie.* names only, not {', '.join(strange)}")
        return self


class Catalog(_Section):
    """A catalog in which the table is registered, with its columns and partitions."""

    database: str = "default"
    """The catalog's database; made where it isn't there."""
    table: str | None = None
    """The table's name in the catalog; the Hudi table's by default."""
    options: Options = Field(default_factory=dict)
    """Further options: `hoodie.datasource.hive_sync.*`, `hoodie.datasource.meta.sync.*` and `hive.*`."""


class HiveMetastore(Catalog):
    """Hive's metastore, by its Thrift service."""

    uris: Expanded
    """`thrift://host:9083`, several with commas between; `${VARIABLE}` is replaced."""


class Glue(Catalog):
    """The AWS Glue data catalog; needs Hudi's AWS bundle among the coordinator's jars."""

    region: str | None = None
    """The AWS region; that of the worker's AWS configuration by default."""


class CatalogSync(_Section):
    """Catalogs that are told of the table after each commit."""

    hive: HiveMetastore | None = None
    glue: Glue | None = None
    timeout: Duration = timedelta(minutes=5)
    """After this, one attempt to tell them is given up."""

    @model_validator(mode="after")
    def _names_one(self) -> CatalogSync:
        if self.hive is None and self.glue is None:
            raise ValueError("name a catalog: hive, glue, or both")
        return self


class Pipeline(_Section):
    """A Sluice pipeline: Kafka topics landed in a Hudi table, each DAG run one transaction interval."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$", max_length=200)]
    """The pipeline's name, which is the DAG's id."""
    description: str | None = None
    """One line for the Airflow UI."""
    schedule: Annotated[timedelta | str | None, BeforeValidator(parse_duration)] = None
    """A cron expression, or a time between intervals such as `1 minute`; nothing means by hand."""
    timezone: str = "UTC"
    """The cron expression's time zone."""
    start_date: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    """Where the schedule starts; intervals before the DAG was switched on are not made up (catchup is off)."""
    source: Source
    sink: Sink
    write: Write = Write()
    control: Control = Control()
    on_missing_range: Literal["abort", "commit"] = "abort"
    """When a range does not report: abort the interval, or commit the others and leave its offsets where they were."""
    retries: Annotated[int, Field(ge=0)] = 2
    """How often a task is tried again after an error that may pass."""
    retry_delay: Duration = timedelta(seconds=15)
    """The wait before the first retry; it doubles."""
    alerts: Alerts = Alerts()
    table_services: TableServices | None = None
    catalog_sync: CatalogSync | None = None
    tags: tuple[str, ...] = ()
    """Tags in the Airflow UI, beside `sluice`."""
    paused: bool | None = None
    """Whether the DAG is paused when Airflow first sees it; Airflow's own default if nothing stands here."""

    @model_validator(mode="after")
    def _services_fit(self) -> Pipeline:
        if self.name.endswith(SERVICES_SUFFIX):
            raise ValueError(f"a pipeline's name must not end with {SERVICES_SUFFIX}: that is its second DAG's")
        services = self.table_services
        if services is not None and services.clustering is not None and self.sink.hudi.operation == "upsert":
            raise ValueError("`table_services.clustering` is for operation append; an upsert table is compacted")
        return self

    @model_validator(mode="after")
    def _window_needs_schedule(self) -> Pipeline:
        if self.source.kafka.until == "data_interval_end" and self.schedule is None:
            raise ValueError("`until: data_interval_end` needs a `schedule`: without one a run has no data interval")
        return self

    @property
    def services_dag_id(self) -> str:
        """The id of the DAG of the table services."""
        return f"{self.name}{SERVICES_SUFFIX}"

    @property
    def table_name(self) -> str:
        """The Hudi table's name."""
        return self.sink.hudi.table or self.name

    @property
    def consumer_group(self) -> str:
        """The consumer group that shows our offsets."""
        return self.source.kafka.consumer_group or f"sluice.{self.name}"

    def limits(self, average_record_bytes: float | None) -> Limits:
        """The bounds of one interval."""
        kafka = self.source.kafka
        return Limits(kafka.max_records, int(kafka.max_bytes) if kafka.max_bytes else None, average_record_bytes)

    def writer(self, schema_ddl: str, schema_avro: str) -> TableWriter:
        """What START-COMMIT says of the table."""
        hudi = self.sink.hudi
        return TableWriter(
            path=hudi.path,
            name=self.table_name,
            table_type="COPY_ON_WRITE" if hudi.operation == "append" else "MERGE_ON_READ",
            operation=hudi.operation,
            record_key=hudi.record_key,
            partition_fields=hudi.partition_fields,
            ordering_fields=hudi.ordering_field,
            schema_ddl=schema_ddl,
            schema_avro=schema_avro,
            options={**_NOT_INLINE, **hudi.options} if self.table_services else hudi.options,
        )
