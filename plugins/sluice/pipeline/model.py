"""The pipeline file's model. Its docstrings and field descriptions become the JSON Schema that editors show."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ByteSize, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from sluice.connectors.capabilities import RequiredCapabilities, SinkRef, SourceRef, misfits
from sluice.connectors.options import FurtherTableOptions, SourceOptions
from sluice.identifiers import catalog_name
from sluice.kafka_options import refuse_others
from sluice.locations import location
from sluice.pipeline.alerts import Alerts
from sluice.pipeline.catalog import CatalogSync
from sluice.pipeline.connector_sections import Sink, Source
from sluice.pipeline.routes import Routes
from sluice.pipeline.services import TableServices
from sluice.protocol.messages import TableSpec
from sluice.protocol.plan import Grouping, Limits
from sluice.protocol.services import IN_ONE_STEP
from sluice.records.settings import REST, Changes, Errors, Transform
from sluice.sections import (
    PRIVATE_KAFKA,
    PRIVATE_SPARK,
    AtLeastASecond,
    Duration,
    Options,
    Section,
    parse_duration,
    refuse_secrets,
    scalar_or_mapping,
    words_of,
)

_SECTION = re.compile(r"the (source|sink)'s `")
SERVICES_SUFFIX = ".table_services"
"""The suffix of the id of a pipeline's second DAG, of its table services."""
REDRIVEN_SUFFIX = ".redriven"
"""The suffix of the topic with notes of records that were sent again, after a control topic's name."""
SHARED_CONTROL_TOPIC = "hudi-control-topic"
"""The control topic of every pipeline that named none, before each had its own."""
CONTROL_TOPIC_PREFIX = "sluice-control-"
_KEEP_FIELDS = (
    "filter",
    "mask",
    "route",
    "set_",
)  # after these steps a record's fields are columns still, under their names


class RangesByWork(Section):
    """As many ranges as an interval has work for; the average size of the last interval's records counts."""

    at_most: Annotated[int, Field(gt=0, le=1000)] = 16
    """The maximum number of ranges."""
    records: Annotated[int, Field(gt=0)] = 1_000_000
    """About the most records of a range."""
    bytes: Annotated[ByteSize, Field(gt=0)] = ByteSize(1 << 30)
    """About the most bytes of a range, such as `512 MiB`."""


class ByArrival(Section):
    """Runs start by the records that have arrived, and by the clock. For Kafka topics only."""

    records: Annotated[int, Field(ge=1)]
    """A run starts when so many records have arrived since the last commit, counted by offsets."""
    at_most_every: AtLeastASecond = timedelta(minutes=1)
    """The minimum time between two runs that records start."""
    at_least_every: Duration = timedelta(hours=1)
    """The time between runs that start however few records there are."""

    @model_validator(mode="after")
    def _most_before_least(self) -> ByArrival:
        if self.at_most_every > self.at_least_every:
            raise ValueError("`at_most_every` is longer than `at_least_every`: it must be as long or shorter")
        return self


class Write(Section):
    """How the Spark jobs run."""

    connection: str = "spark_default"
    """Id of the Airflow connection of type spark: local, standalone, YARN or Kubernetes."""
    ranges: Annotated[
        Annotated[Annotated[int, Field(gt=0, le=1000)] | Literal["auto"], Tag("scalar")]
        | Annotated[RangesByWork, Tag("mapping")],
        Discriminator(scalar_or_mapping),
    ] = 1
    """The maximum number of Spark jobs that share an interval's partitions; `auto`, or bounds such as
    `{at_most: 8, records: 500000}`: as many as there is work for."""
    records_per_task: Annotated[int, Field(gt=0)] = 100_000
    """A partition with more records than this is read by several Spark tasks, where its order doesn't matter."""
    conf: Options = Field(default_factory=dict)
    """Spark settings, such as spark.executor.memory."""
    kafka_options: dict[str, str] = Field(default_factory=dict)
    """Additional settings of Spark's Kafka client, from the list in docs/kafka-java-client.md."""
    driver_memory: str = "1g"
    """Memory of each Spark driver."""
    timeout: Duration = timedelta(hours=12)
    """The maximum duration of one attempt at a range. It limits how long a hanging job can hold its table."""
    workers: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=100)] = None
    """The group of workers that write the ranges, such as `default`. Default: a Spark job for each range."""
    claim_within: Duration = timedelta(seconds=10)
    """How long a range waits for a worker to claim it; then it is written by a separate Spark job."""

    @property
    def most_ranges(self) -> int:
        """The most ranges that an interval may have."""
        return self.ranges if isinstance(self.ranges, int) else self._by_work.at_most

    def grouping(self, average_record_bytes: float | None) -> Grouping:
        """Into how many ranges an interval's partitions are grouped, given the last interval's average."""
        if isinstance(self.ranges, int):
            return Grouping(self.ranges)
        work = self._by_work
        return Grouping.by_work(work.at_most, work.records, work.bytes, average_record_bytes)

    @property
    def _by_work(self) -> RangesByWork:
        return self.ranges if isinstance(self.ranges, RangesByWork) else RangesByWork()

    @model_validator(mode="after")
    def _no_secrets(self) -> Write:
        refuse_secrets(self.conf, PRIVATE_SPARK)
        refuse_secrets(self.kafka_options, PRIVATE_KAFKA)
        refuse_others(self.kafka_options)
        return self


class Control(Section):
    """The control topic."""

    topic: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9._-]+$", max_length=249)] = None
    """The topic's name. Default: `sluice-control-<pipeline>`. After a change, the table moves to it automatically."""
    connection: str | None = None
    """Id of the Airflow connection to its cluster. Default: the source's connection."""
    commit_timeout: Duration = timedelta(minutes=10)
    """The time after which the next coordinator finishes a commit that was decided but not finished."""
    clock_wait: Duration = timedelta(minutes=5)
    """The maximum clock difference between machines: a step waits this long for its clock to pass the last instant."""


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
    schedule: Annotated[
        Annotated[Annotated[timedelta | str | None, BeforeValidator(parse_duration)], Tag("scalar")]
        | Annotated[ByArrival, Tag("mapping")],
        Discriminator(scalar_or_mapping),
    ] = None
    """A cron expression, or a time between intervals such as `1 minute`; without it, manual runs only. Or by arrival:
    `{records: 100000, at_most_every: 1 minute, at_least_every: 1 hour}`."""
    timezone: str = "UTC"
    """The cron expression's time zone."""
    start_date: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    """Where the schedule starts; intervals before the DAG was enabled are skipped (catchup is off)."""
    catch_up: bool = False
    """Whether an interval that `max_records` or `max_bytes` cut short is followed by the next at once."""
    source: Source
    changes: Changes | None = None
    transforms: tuple[Transform, ...] = ()
    """Steps that transform rows, in this order."""
    errors: Errors = Errors()
    sink: Sink
    write: Write = Write()
    control: Control = Control()
    on_missing_range: Literal["abort", "commit"] = "abort"
    """If a range doesn't report: abort the interval, or commit the others and leave its offsets for the next."""
    retries: Annotated[int, Field(ge=0)] = 2
    """The number of retries after a transient error."""
    retry_delay: Duration = timedelta(seconds=15)
    """The wait before the first retry. It doubles with each retry."""
    alerts: Alerts = Alerts()
    table_services: TableServices | None = None
    catalog_sync: CatalogSync | None = None
    tags: tuple[str, ...] = ()
    """Tags in the Airflow UI, in addition to `sluice`."""
    paused: bool | None = None
    """Whether the DAG is paused when Airflow first sees it; Default: Airflow's setting."""

    @model_validator(mode="after")
    def _services_fit(self) -> Pipeline:
        if self.name.endswith(SERVICES_SUFFIX):
            raise ValueError(f"a pipeline's name must not end with {SERVICES_SUFFIX}: that is its second DAG's")
        return self

    @model_validator(mode="after")
    def _capabilities_fit(self) -> Pipeline:
        """Check that source and sink have the capabilities that the file requires, once for all later code."""
        source, sink = self.source, self.sink
        refs = SourceRef(source.place, source.capabilities), SinkRef(sink.place, sink.capabilities, sink.options.needs)
        for misfit in misfits(*refs, self._required_capabilities()):
            raise ValueError(misfit)
        return self

    def _required_capabilities(self) -> RequiredCapabilities:
        changes, services = self.changes, self.table_services
        wanted = set(IN_ONE_STEP if services is not None else ())
        if services is not None and services.clustering is not None:
            wanted.add("clustering")
        return RequiredCapabilities(
            changes=changes is not None,
            keys=self.source.options.key is not None,
            empties=changes is not None and changes.truncate == "apply",
            window=self.source.options.until == "data_interval_end",
            quarantine=self.errors.tolerance == "all",
            services=frozenset(wanted),
            catalogs=self.catalog_sync is not None,
            control_connection=self.control.connection is not None,
            sizes=self.errors.max_record_bytes is not None,
        )

    @model_validator(mode="after")
    def _window_needs_schedule(self) -> Pipeline:
        if self.source.options.until == "data_interval_end" and self.schedule is None:
            raise ValueError("`until: data_interval_end` needs a `schedule`: without one a run has no data interval")
        return self

    @model_validator(mode="after")
    def _arrivals_are_known(self) -> Pipeline:
        if not isinstance(self.schedule, ByArrival):
            return self
        source = self.source.options
        if not self.source.capabilities.holds_control_log:
            raise ValueError(
                f"`schedule.records` is for Kafka topics, and {self.source.place} isn't one: give a time between runs"
            )
        if source.streams_settings is not None:
            raise ValueError("`schedule.records` is for topics, and `streams` name none: give a time between runs")
        if source.until == "data_interval_end":
            raise ValueError(
                "`schedule.records` starts runs without a data interval, which `until: data_interval_end` needs"
            )
        if self.sink.options.further_tables:
            raise ValueError(f"`schedule.records` is for one table, and there are several in {self.sink.place}.tables")
        return self

    @model_validator(mode="after")
    def _can_catch_up(self) -> Pipeline:
        if self.catch_up and self.source.options.until == "data_interval_end":
            raise ValueError("`catch_up` reads on to the log's end, and `until: data_interval_end` stops before it")
        if self.catch_up and self.source.capabilities.sparse:
            raise ValueError(f"`catch_up` is for limits of offsets, and those of {self.source.place} aren't numbers")
        return self

    @model_validator(mode="after")
    def _work_is_known(self) -> Pipeline:
        if not isinstance(self.write.ranges, int) and self.source.capabilities.sparse:
            raise ValueError(
                f"`write.ranges` must be a number: offsets of {self.source.place} don't count records, so it isn't "
                "known how many an interval has"
            )
        return self

    @model_validator(mode="after")
    def _columns_are_known(self) -> Pipeline:
        value, given = self.source.options.value, self.sink.options.columns_are_given
        if self.source.capabilities.rows:
            return self
        if not given and not value.has_schema:
            raise ValueError(
                f"give the table's columns as {self.sink.place}.schema (Spark DDL) or `schema_file` (.avsc)"
            )
        if not given and self.transforms:
            raise ValueError(f"with `transforms`, give the table's columns: {self.sink.place}.schema or `schema_file`")
        shaping = [step.kind for step in self.transforms if step.kind not in _KEEP_FIELDS]
        if shaping and not value.has_schema:
            raise ValueError(
                f"`{shaping[0].rstrip('_')}` makes other columns of a record's fields: "
                f"name these in {self.source.place}.value.schema"
            )
        return self

    @model_validator(mode="after")
    def _sink_fits(self) -> Pipeline:
        self.sink.options.require(self.changes, self.write.most_ranges)
        return self

    @model_validator(mode="after")
    def _changes_fit(self) -> Pipeline:
        changes = self.changes
        if changes is None:
            return self
        if changes.truncate == "apply" and self.write.most_ranges > 1:
            raise ValueError("`truncate: apply` needs write.ranges 1: one job takes all rows off the table")
        if changes.format == "debezium" and REST in self.source.options.value.options:
            raise ValueError(f"the option `{REST}` keeps a row's further fields, and an event's fields are no row's")
        if changes.format == "tombstones" and self.source.options.key is None:
            raise ValueError(f"a tombstone has nothing but its key: say in {self.source.place}.key how keys are read")
        if changes.format == "tombstones" and changes.truncate != "fail":
            raise ValueError("`truncate` is for format debezium")
        return self

    @model_validator(mode="after")
    def _quarantine_is_apart(self) -> Pipeline:
        path, quarantine = location(self.sink.options.table_id), location(self.errors.quarantine or "")
        if quarantine and (f"{quarantine}/".startswith(f"{path}/") or f"{path}/".startswith(f"{quarantine}/")):
            raise ValueError(
                f"`errors.quarantine` is a separate table: give it a path that isn't in {self.sink.place}.path"
            )
        if self.errors.dead_letter_topic in self.source.options.topics:
            raise ValueError("`errors.dead_letter_topic` is one of the topics that are read: name another one")
        return self

    @model_validator(mode="after")
    def _catalog_takes_the_name(self) -> Pipeline:
        hive = self.catalog_sync.hive if self.catalog_sync is not None else None
        if hive is not None and hive.table is None:
            try:
                catalog_name(self.table_name)
            except ValueError as error:
                raise ValueError(f"`catalog_sync.hive.table` is missing, and the table's own name {error}") from None
        return self

    @model_validator(mode="after")
    def _parts_are_there(self) -> Pipeline:
        source = self.source.options
        if source.streams_settings is None and "cluster" in source.columns.values():
            raise ValueError("a column can be filled with `cluster` only where `streams` are read")
        if not source.capabilities.has_bytes and "value" in source.columns.values():
            raise ValueError(
                "a column can be filled with `value`, a record's bytes, only where values are bytes: "
                f"those of {self.source.place} are rows"
            )
        return self

    @model_validator(mode="after")
    def _further_tables_fit(self) -> Pipeline:
        """Check that each further table would be valid as a pipeline, and has its own topics."""
        further, source = self.sink.options.further_tables, self.source.options
        if further and source.streams_settings is not None:
            raise ValueError(f"{self.sink.place}.tables says which topics are whose, and `streams` name no topics")
        for number, table in enumerate(further):
            place = f"{self.sink.place}.tables.{number}"
            for topic in table.topics:
                if not _reads(source, topic):
                    raise ValueError(f"{place}.topics: the source doesn't read {topic}")
            try:
                self._alone(table)
            except ValidationError as error:
                raise ValueError(f"{place}: {words_of(error.errors()[0])}") from error
        taken = {topic for table in further for topic in table.topics}
        if source.topics and taken.issuperset(source.topics):
            raise ValueError(f"{self.sink.place}.tables takes all topics: {self.sink.place}.table is left with none")
        return self

    @property
    def further_tables(self) -> tuple[tuple[tuple[str, ...], Pipeline], ...]:
        """The tables that are loaded beside the sink's own: topics, and the pipeline that each would be by itself."""
        return tuple((table.topics, self._alone(table)) for table in self.sink.options.further_tables)

    def _alone(self, table: FurtherTableOptions) -> Pipeline:
        given = {name: getattr(self, name) for name in type(self).model_fields}
        given["sink"] = Sink(**{self.sink.name: table.section})
        if table.transforms is not None:
            given["transforms"] = table.transforms
        return Pipeline.model_validate(given)

    @property
    def control_topic(self) -> str:
        """The control topic's name."""
        return self.control.topic or default_control_topic(self.name)

    @property
    def notes_topic(self) -> str:
        """The topic with notes of records that were sent again; tables that share one send each record once."""
        return f"{self.control.topic or SHARED_CONTROL_TOPIC}{REDRIVEN_SUFFIX}"

    def on_control_topic(self, topic: str | None) -> Pipeline:
        """The same pipeline on the control topic of one of its transactions.

        Args:
            topic: its name; None for a transaction of an earlier release, which didn't record it.
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
    def table_id(self) -> str:
        """The table's unique id: the key of its control messages, such as a path."""
        return self.sink.options.table_id

    @property
    def table_name(self) -> str:
        """The table's name."""
        return self.sink.options.table or self.name

    def with_file_keys(self, text: str) -> str:
        """A message with the source's and the sink's keys as this file has them, with the names of their sections.

        What knows no file says "the source's `on_offset_loss`".
        """
        places = {"source": self.source.place, "sink": self.sink.place}
        return _SECTION.sub(lambda found: f"`{places[found[1]]}.", text)

    @property
    def kafka_connection(self) -> str:
        """The connection of the Kafka cluster that is read; of the control topic's where the source is no cluster."""
        if self.source.capabilities.holds_control_log or self.control.connection is None:
            return self.source.options.connection
        return self.control.connection

    @property
    def own_connections(self) -> tuple[str, ...]:
        """Ids of the Airflow connections that source and sink need beside Kafka's, each once."""
        return tuple(dict.fromkeys((*self.source.options.connections, *self.sink.options.connections)))

    @property
    def consumer_group(self) -> str:
        """The consumer group that shows the table's offsets."""
        return self.source.options.group(self.name)

    def limits(self, average_record_bytes: float | None) -> Limits:
        """The bounds of one interval."""
        source = self.source.options
        return Limits(source.max_records, int(source.max_bytes) if source.max_bytes else None, average_record_bytes)

    def writer(self, schema_ddl: str = "", schema_avro: str = "") -> TableSpec:
        """The table as in START-COMMIT; an interval pins its schema."""
        spec = self.sink.options.writer(
            self.table_name,
            self.changes,
            maintained=self.table_services is not None,
            schema_ddl=schema_ddl,
            schema_avro=schema_avro,
        )
        can = self.sink.options.capabilities
        spec = spec.model_copy(update={"keeps_unavailable": can.keeps_unavailable, "keyless": can.keyless})
        return spec.mirroring(self.source.capabilities.snapshots)


def _reads(source: SourceOptions, topic: str) -> bool:
    if source.topics_pattern is not None:
        return re.fullmatch(source.topics_pattern, topic) is not None
    return topic in source.topics


def default_control_topic(pipeline: str) -> str:
    """The control topic of a pipeline that names none: its own, so that a right to write to it is for one table."""
    return f"{CONTROL_TOPIC_PREFIX}{pipeline}"
