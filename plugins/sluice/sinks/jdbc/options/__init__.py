"""The section `sink.jdbc`: one table of a relational database, or several that are committed together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import available_timezones

from pydantic import AfterValidator, Field, PrivateAttr, ValidationError, model_validator

from sluice.connectors.capabilities import SinkCapabilities
from sluice.connectors.options import FurtherTableOptions, SinkOptions
from sluice.protocol.messages import TableSpec
from sluice.records.changes import POSITION
from sluice.records.settings import Changes, Transform
from sluice.sections import OneOrMore, Section, words_of
from sluice.sinks.jdbc.options.names import schema_and_name, table_name
from sluice.sinks.jdbc.options.pinned import PinnedJdbc

PLACE_FIELDS = ("__connect_topic", "__connect_partition", "__connect_offset")
"""With pk_mode kafka: the columns of a record's topic, partition and offset, with the names of Confluent's sink."""
_INHERITED = ("insert_mode", "pk_mode", "delete_enabled", "auto_create", "auto_evolve")
_BY_COLUMNS = ("record_key", "record_value")
_INSERT = SinkCapabilities(atomic_with_checkpoint=True, quarantine=True)
_UPSERT = SinkCapabilities(atomic_with_checkpoint=True, upsert=True, quarantine=True)
_UPSERT_AND_DELETE = SinkCapabilities(atomic_with_checkpoint=True, upsert=True, delete=True, quarantine=True)
_Table = Annotated[str, AfterValidator(table_name)]
_MOST_TABLES = 100


class TableBeside(Section):
    """A further table of the same schema, with separate topics, committed together with the first table."""

    table: _Table
    """The table, written like the section's `table`."""
    topics: Annotated[OneOrMore, Field(min_length=1)]
    """The topics whose records become rows of this table. Records of all other topics go to the section's table."""
    insert_mode: Literal["insert", "upsert", "update"] | None = None
    """As in the section, whose value is the default."""
    pk_mode: Literal["none", "kafka", "record_key", "record_value"] | None = None
    """As in the section, whose value is the default."""
    pk_fields: OneOrMore = ()
    """The columns of this table's primary key."""
    delete_enabled: bool | None = None
    """As in the section, whose value is the default."""
    ordering_field: OneOrMore = ()
    """The columns that order a key's versions in this table."""
    auto_create: bool | None = None
    """As in the section, whose value is the default."""
    auto_evolve: bool | None = None
    """As in the section, whose value is the default."""
    schema_: Annotated[str | None, Field(alias="schema")] = None
    """The columns of this table as Spark DDL."""
    schema_file: Path | None = None
    """Instead of `schema`: a file with an Avro schema (.avsc), relative to the pipeline file."""
    transforms: tuple[Transform, ...] | None = None
    """Steps for this table's records, instead of the pipeline's `transforms`."""


class Jdbc(SinkOptions):
    """The sink: one table of a relational database, of a kind that docs/jdbc-sink.md names."""

    connector: ClassVar[str] = "sluice.sinks.jdbc.sink:JdbcSink"
    row_writer: ClassVar[str] = "sluice.sinks.jdbc.writer:JdbcWriter"
    commit_log: ClassVar[str] = "sluice.sinks.jdbc.commits:DatabaseCommits"
    table_rows: ClassVar[str] = "sluice.sinks.jdbc.rows:table_rows"
    quarantine_reader: ClassVar[str] = "sluice.sinks.jdbc.quarantine:QuarantineRows"
    needs: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "upsert": "insert_mode upsert with delete_enabled true",
            "delete": "delete_enabled true",
            "mirrors": "insert_mode upsert",
        }
    )

    connection: Annotated[str, Field(pattern=r"^[\w.\-]{1,200}$")]
    """Id of the Airflow connection to the database: of type postgres, mysql (for MariaDB) or sqlite, or of type jdbc
    with a whole JDBC URL as its host. Login and password are in the connection, not in this file."""
    table: _Table
    """The table: `flights`, or with its schema `public.flights`, in the database's upper and lower case. A name with a
    dot or a double quote must be in double quotes, as in `public."orders.eu"`."""
    insert_mode: Literal["insert", "upsert", "update"] = "insert"
    """insert: every record becomes a row. upsert: one row per key, its last version. update: as upsert, but only
    existing rows are changed."""
    pk_mode: Literal["none", "kafka", "record_key", "record_value"] = "none"
    """The source of the primary key. none: no key. kafka: topic, partition and offset. record_key: fields of the
    record's key, as read by `key` of the source. record_value: columns of the row."""
    pk_fields: OneOrMore = ()
    """The columns of the primary key; with pk_mode kafka the names of its three columns."""
    record_key: OneOrMore = ()
    """Leave it out: `pk_fields` names the columns of the key."""
    delete_enabled: bool = False
    """Whether `changes` may delete rows. Requires insert_mode upsert."""
    auto_create: bool = False
    """Create the table if it doesn't exist."""
    auto_evolve: bool = False
    """Add missing columns to the table as nullable ones. Existing columns are never changed."""
    batch_size: Annotated[int, Field(gt=0, le=100_000)] = 3000
    """The number of rows that a write job sends to the database at a time."""
    db_timezone: str = "UTC"
    """The time zone of times in columns that have none: an IANA name, such as Europe/Berlin."""

    tables: Annotated[tuple[TableBeside, ...], Field(max_length=_MOST_TABLES)] = ()
    """Further tables of the same schema, each with separate topics, committed in the same transaction."""

    _further: tuple[FurtherTableOptions, ...] = PrivateAttr(())
    _first_table: str | None = PrivateAttr(default=None)
    _number: int | None = PrivateAttr(default=None)

    @property
    def capabilities(self) -> SinkCapabilities:
        """A single database transaction has rows and checkpoint. Committed rows are never taken back."""
        tables = [self, *(table.section for table in self._further)]
        if all(isinstance(table, Jdbc) and table.insert_mode == "insert" for table in tables):
            return _INSERT
        deletes = all(isinstance(table, Jdbc) and table.delete_enabled for table in tables)
        found = _UPSERT_AND_DELETE if deletes else _UPSERT
        return replace(found, mirrors=self.insert_mode == "upsert" and not self._further)

    @property
    def further_tables(self) -> tuple[FurtherTableOptions, ...]:
        """The entries of `tables`, each as the section of a sink with that table alone."""
        return self._further

    @property
    def table_id(self) -> str:
        """The connection and the table; the database's address is in the connection only."""
        return f"jdbc://{self.connection}/{self.table}"

    @property
    def connections(self) -> tuple[str, ...]:
        """The database's connection."""
        return (self.connection,)

    @property
    def rows_are_told_apart(self) -> bool:
        """Whether rows can be distinguished: with pk_mode kafka each has its record's topic, partition and offset."""
        return self.insert_mode == "insert" and self.pk_mode == "kafka"

    @property
    def not_comparable(self) -> str:
        """Why rows can't be compared: an update leaves no trace of a record whose key has no row."""
        tables = (self, *(table.section for table in self._further))
        if not any(isinstance(table, Jdbc) and table.insert_mode == "update" for table in tables):
            return ""
        return "insert_mode update changes rows that others have added, and which these were the records don't say"

    def require(self, changes: Changes | None, ranges: int) -> None:  # noqa: ARG002 - any number of jobs may write
        """Check that versions have only one order.

        Raises:
            ValueError: the section has an `ordering_field`, although `changes` have an order by themselves.
        """
        if changes is not None and self.ordering_field:
            raise ValueError("`changes` are ordered by their position in the source: leave ordering_field out")

    def writer(
        self,
        name: str,
        changes: Changes | None,
        *,
        maintained: bool,  # noqa: ARG002 - the capabilities refuse table services
        schema_ddl: str = "",
        schema_avro: str = "",
    ) -> TableSpec:
        """The settings for writing an interval's rows; see `SinkOptions`."""
        debezium = changes is not None and changes.format == "debezium"
        return TableSpec(
            path=self.table_id,
            name=name,
            table_type="jdbc",
            operation="append" if self.insert_mode == "insert" else "upsert",
            record_key=self.record_key,
            partition_fields=(),
            # A tombstone's position is its offset, which can't be compared with a record's in another partition.
            ordering_fields=(POSITION,) if debezium else self.ordering_field,
            schema_ddl=schema_ddl,
            schema_avro=schema_avro,
            options=PinnedJdbc(
                connection=self.connection,
                table=self.table,
                insert_mode=self.insert_mode,
                place_fields=(self.pk_fields or PLACE_FIELDS) if self.pk_mode == "kafka" else (),
                without=POSITION if changes is not None and not debezium else "",
                unavailable_value=changes.unavailable_value if changes is not None and debezium else "",
                batch_size=self.batch_size,
                db_timezone=self.db_timezone,
                first_table=self._first_table,
                number=self._number,
            ).texts(),
        )

    @classmethod
    def for_route(cls, section: dict[str, Any], pipeline: str, table: str) -> None:  # noqa: ARG003 - the table's own name
        """Tables of `routes` keep their names."""
        section.setdefault("table", table)

    @model_validator(mode="before")
    @classmethod
    def _key_columns(cls, data: Any) -> Any:
        """Set `record_key`, which all sinks have, to `pk_fields`, unless these name topic, partition and offset."""
        if not isinstance(data, Mapping):
            return data
        if data.get("record_key"):
            raise ValueError("name the columns of the key in `pk_fields`, and in `pk_mode` where they come from")
        fields = data.get("pk_fields", ())
        return {**data, "record_key": fields} if data.get("pk_mode") in _BY_COLUMNS else data

    @model_validator(mode="after")
    def _consistent(self) -> Jdbc:
        if self.schema_ is not None and self.schema_file is not None:
            raise ValueError("give the columns either as `schema` (Spark DDL) or as `schema_file` (.avsc)")
        if self.partition_fields:
            raise ValueError("`partition_fields` are folders of files; how a table is partitioned, its database knows")
        self._require_key()
        if self.delete_enabled and self.insert_mode != "upsert":
            raise ValueError("delete_enabled needs insert_mode upsert")
        if self.ordering_field and self.insert_mode == "insert":
            raise ValueError("`ordering_field` is for insert_mode upsert and update; an insert compares no versions")
        if self.db_timezone not in available_timezones():
            raise ValueError(f"db_timezone {self.db_timezone!r} is no IANA name, such as Europe/Berlin")
        self._require_apart()
        self._further = tuple(self._further_table(number, table) for number, table in enumerate(self.tables))
        return self

    def _require_apart(self) -> None:
        """Check that all tables are different and in one schema, and that no topic goes to two tables."""
        schema, name = schema_and_name(self.table)
        tables, topics = {self.table}, set[str]()
        for number, one in enumerate(self.tables):
            place = f"sink.jdbc.tables.{number}"
            if one.table in tables:
                raise ValueError(f"{place}.table: {one.table} is named twice; one table may have several `topics`")
            if schema_and_name(one.table)[0] != schema:
                raise ValueError(
                    f"{place}.table: {one.table} is not in the schema of {self.table}. All tables of a transaction are "
                    "in one, and named alike"
                )
            if schema_and_name(one.table)[1] == f"{name}_quarantine":
                raise ValueError(f"{place}.table: {one.table} is where bad records are set aside")
            for topic in one.topics:
                if topic in topics:
                    raise ValueError(f"{place}.topics: another table takes {topic}")
            tables.add(one.table)
            topics.update(one.topics)

    def _further_table(self, number: int, one: TableBeside) -> FurtherTableOptions:
        own = {name: value for name in _INHERITED if (value := getattr(one, name)) is not None}
        common = {name: getattr(self, name) for name in (*_INHERITED, "connection", "batch_size", "db_timezone")}
        given = {"schema": one.schema_, "schema_file": one.schema_file, "ordering_field": one.ordering_field}
        try:
            section = Jdbc.model_validate({**common, **own, **given, "table": one.table, "pk_fields": one.pk_fields})
        except ValidationError as error:
            raise ValueError(f"sink.jdbc.tables.{number}: {words_of(error.errors()[0])}") from error
        section._first_table, section._number = self.table, number + 1
        return FurtherTableOptions(one.topics, section, one.transforms)

    def _require_key(self) -> None:
        if self.insert_mode != "insert" and self.pk_mode not in _BY_COLUMNS:
            raise ValueError(
                f"insert_mode {self.insert_mode} needs pk_mode record_key or record_value, and `pk_fields`: the "
                "columns that tell one row from another"
            )
        if self.pk_mode == "none" and self.pk_fields:
            raise ValueError("`pk_fields` need a pk_mode, which says where they come from")
        if self.pk_mode in _BY_COLUMNS and not self.pk_fields:
            raise ValueError(f"pk_mode {self.pk_mode} needs `pk_fields`: the columns of the key")
        if self.pk_mode == "kafka" and len(self.pk_fields) not in (0, len(PLACE_FIELDS)):
            raise ValueError("pk_mode kafka has three `pk_fields`: for the topic, the partition and the offset")
