"""The pipeline file's model. Its docstrings and field descriptions become the JSON Schema that editors show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from sluice.pipeline.alerts import Alerts
from sluice.pipeline.catalog import CatalogSync
from sluice.pipeline.routes import Routes
from sluice.pipeline.services import TableServices
from sluice.protocol.messages import TableWriter
from sluice.protocol.plan import Limits
from sluice.records.changes import POSITION
from sluice.records.settings import Changes, Errors, Transform
from sluice.sections import PRIVATE_KAFKA, PRIVATE_SPARK, Duration, Options, Section, parse_duration, refuse_secrets
from sluice.sinks.hudi.options import Hudi
from sluice.sources.kafka.options import Kafka

SERVICES_SUFFIX = ".table_services"
"""What the id of a pipeline's second DAG, that of its table services, ends with."""
SHARED_CONTROL_TOPIC = "hudi-control-topic"
"""The control topic of every pipeline that named none, before each had one of its own."""
CONTROL_TOPIC_PREFIX = "sluice-control-"
_KEEP_FIELDS = (
    "filter",
    "mask",
    "route",
    "set_",
)  # after these steps a record's fields are columns still, under their names
_NOT_INLINE = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}  # the table services do it
_KEEPS_UNAVAILABLE = {"hoodie.table.partial.update.mode": "FILL_UNAVAILABLE"}
_UNAVAILABLE = "hoodie.record.merge.property.hoodie.write.partial.update.unavailable.value"


class Source(Section):
    """Where records come from."""

    kafka: Kafka


class Sink(Section):
    """Where records go."""

    hudi: Hudi


class Write(Section):
    """How the Spark jobs run."""

    connection: str = "spark_default"
    """Id of the Airflow connection of type spark: local, standalone, YARN or Kubernetes."""
    ranges: Annotated[int, Field(gt=0, le=1000)] = 1
    """How many Spark jobs at most share the partitions of an interval."""
    conf: Options = Field(default_factory=dict)
    """Spark settings, such as spark.executor.memory."""
    kafka_options: dict[str, str] = Field(default_factory=dict)
    """Further settings of Spark's Kafka client, under the Java client's names."""
    driver_memory: str = "1g"
    """Memory of each Spark driver."""
    timeout: Duration = timedelta(hours=12)
    """The longest that one attempt at a range may take: a job that hangs holds its table no longer than that."""

    @model_validator(mode="after")
    def _no_secrets(self) -> Write:
        refuse_secrets(self.conf, PRIVATE_SPARK)
        refuse_secrets(self.kafka_options, PRIVATE_KAFKA)
        return self


class Control(Section):
    """The control topic."""

    topic: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=249)] = None
    """Its name; `sluice-control-<pipeline>` by default. A table that has been on another one moves to it by itself."""
    connection: str | None = None
    """The cluster that it is on; the source's by default."""
    commit_timeout: Duration = timedelta(minutes=10)
    """After this, a commit that was decided but never finished is finished by the next coordinator."""
    clock_wait: Duration = timedelta(minutes=5)
    """How far machines' clocks may differ: as long, a step waits for its own to pass the table's last instant."""


def _with_routes(schema: dict[str, Any]) -> None:
    """A file may have `routes`, whose tables have a sink each."""
    schema["properties"]["routes"] = Routes.model_json_schema(by_alias=True)
    schema["required"] = [key for key in schema["required"] if key != "sink"]
    schema["anyOf"] = [{"required": ["sink"]}, {"required": ["routes"]}]


class Pipeline(Section):
    """A Sluice pipeline: Kafka topics landed in a Hudi table, each DAG run one transaction interval."""

    model_config = ConfigDict(json_schema_extra=_with_routes)

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
    changes: Changes | None = None
    transforms: tuple[Transform, ...] = ()
    """Steps that shape rows, in this order."""
    errors: Errors = Errors()
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

    @model_validator(mode="after")
    def _columns_are_known(self) -> Pipeline:
        value, hudi = self.source.kafka.value, self.sink.hudi
        given = hudi.schema_ is not None or hudi.schema_file is not None
        if not given and not value.has_schema:
            raise ValueError("give the table's columns as sink.hudi.schema (Spark DDL) or `schema_file` (.avsc)")
        if not given and self.transforms:
            raise ValueError("with `transforms`, give the table's columns: sink.hudi.schema or `schema_file`")
        shaping = [step.kind for step in self.transforms if step.kind not in _KEEP_FIELDS]
        if shaping and not value.has_schema:
            raise ValueError(
                f"`{shaping[0].rstrip('_')}` makes other columns of a record's fields: "
                "name these in source.kafka.value.schema"
            )
        return self

    @model_validator(mode="after")
    def _keys_are_found(self) -> Pipeline:
        hudi = self.sink.hudi
        if hudi.key_placement == "hashed" and self.write.ranges > 1:
            raise ValueError("key_placement hashed needs write.ranges 1: two Spark jobs must not write one file group")
        if hudi.key_placement == "hashed" and not hudi.ordering_field and self.changes is None:
            raise ValueError("key_placement hashed needs `ordering_field`: partitions have no order between them")
        return self

    @model_validator(mode="after")
    def _changes_fit(self) -> Pipeline:
        changes, hudi = self.changes, self.sink.hudi
        if changes is None:
            return self
        if hudi.operation != "upsert":
            raise ValueError("`changes` update and delete rows: they need sink.hudi.operation upsert")
        if hudi.ordering_field:
            raise ValueError(
                f"`changes` are ordered by their position in the source, in the column {POSITION}: "
                "leave sink.hudi.ordering_field out"
            )
        if changes.truncate == "apply" and self.write.ranges > 1:
            raise ValueError("`truncate: apply` needs write.ranges 1: one job takes all rows off the table")
        if changes.format == "tombstones" and self.source.kafka.key is None:
            raise ValueError("a tombstone has nothing but its key: say in source.kafka.key how keys are read")
        if changes.format == "tombstones" and hudi.key_placement == "hashed":
            raise ValueError("tombstones are ordered by offset, so a key must stay in its partition: not hashed")
        if changes.format == "tombstones" and changes.truncate != "fail":
            raise ValueError("`truncate` is for format debezium")
        return self

    @model_validator(mode="after")
    def _quarantine_is_apart(self) -> Pipeline:
        path, quarantine = self.sink.hudi.path, self.errors.quarantine
        if quarantine is not None and (
            f"{quarantine}/".startswith(f"{path}/") or f"{path}/".startswith(f"{quarantine}/")
        ):
            raise ValueError("`errors.quarantine` is a table of its own: give it a path that isn't in sink.hudi.path")
        if self.errors.dead_letter_topic in self.source.kafka.topics:
            raise ValueError("`errors.dead_letter_topic` is one of the topics that are read: name another one")
        return self

    @property
    def control_topic(self) -> str:
        """The control topic's name."""
        return self.control.topic or default_control_topic(self.name)

    def on_control_topic(self, topic: str | None) -> Pipeline:
        """The same pipeline on the control topic where a transaction of it stands.

        Args:
            topic: its name; None of a transaction that an earlier release began, which didn't say.
        """
        topic = topic or self.control.topic or SHARED_CONTROL_TOPIC
        if topic == self.control_topic:
            return self
        return self.model_copy(update={"control": self.control.model_copy(update={"topic": topic})})

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

    def _merging(self) -> dict[str, str]:
        """How Hudi merges a change with the row before it: for a placeholder in the change, the row's value stays."""
        if self.changes is None or self.changes.format != "debezium":
            return {}
        return {**_KEEPS_UNAVAILABLE, _UNAVAILABLE: self.changes.unavailable_value}

    def writer(self, schema_ddl: str = "", schema_avro: str = "") -> TableWriter:
        """What START-COMMIT says of the table, whose schema an interval pins."""
        hudi = self.sink.hudi
        return TableWriter(
            path=hudi.path,
            name=self.table_name,
            table_type="COPY_ON_WRITE" if hudi.operation == "append" else "MERGE_ON_READ",
            operation=hudi.operation,
            record_key=hudi.record_key,
            partition_fields=hudi.partition_fields,
            ordering_fields=hudi.ordering_field if self.changes is None else (POSITION,),
            schema_ddl=schema_ddl,
            schema_avro=schema_avro,
            options={
                **self._merging(),
                **(_NOT_INLINE if self.table_services else {}),
                **hudi.options,
            },
        )


def default_control_topic(pipeline: str) -> str:
    """The control topic of a pipeline that names none: its own, so that a right to write to it is for one table."""
    return f"{CONTROL_TOPIC_PREFIX}{pipeline}"
