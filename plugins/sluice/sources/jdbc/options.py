"""The section `source.jdbc`: tables of a relational database, and the column by which their rows are found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal
from zoneinfo import available_timezones

from pydantic import AfterValidator, Field, model_validator

from sluice.connectors.capabilities import SourceCapabilities
from sluice.connectors.options import Positions, SourceOptions
from sluice.records.settings import Converter
from sluice.sections import Duration, OneOrMore, is_pattern

_ROWS = Converter(converter="sluice.rows.converters.row:Converter")
_HIDDEN = ("topics", "topics_pattern", "value", "key", "max_bytes", "max_future")
QUERY = "query"
"""The name of a query's rows among topics, unless the section gives it one."""


class JdbcTables(SourceOptions):
    """The source: tables, views or a query of a relational database, of a kind that docs/jdbc-source.md names."""

    connector: ClassVar[str] = "sluice.sources.jdbc.source:source_of"
    reader: ClassVar[str] = "sluice.sources.jdbc.reader:JdbcReader"
    row_schema: ClassVar[str] = "sluice.sources.jdbc.rows:row_schema"

    connection: Annotated[str, Field(pattern=r"^[\w.\-]{1,200}$")]
    """Id of the Airflow connection to the database: of type postgres, mysql (for MariaDB) or sqlite, or of type jdbc
    with a whole JDBC URL as its host, of any database whose driver is on the class paths."""
    tables: OneOrMore = ()
    """The tables or views, such as `public.orders`. All are loaded into one table."""
    table_include: Annotated[str, AfterValidator(is_pattern)] | None = None
    """Instead of `tables`: a regular expression that matches whole names, `schema.table` (SQLite: `table`). New ones
    join at the next interval."""
    table_exclude: Annotated[str, AfterValidator(is_pattern)] | None = None
    """With `table_include`: names that are left out."""
    query: str | None = None
    """Instead of `tables`: a SELECT, which may have a WHERE. Its result has the columns of `mode`."""
    query_name: Annotated[str, Field(pattern=r"^[\w.\-]{1,200}$")] = QUERY
    """The name of a query's rows, in the place of a table's."""
    mode: Literal["timestamp", "incrementing", "timestamp+incrementing", "bulk"]
    """How new rows are found. timestamp: by the time of their last change. incrementing: by a number that grows;
    changes aren't seen. timestamp+incrementing: as timestamp. bulk: each interval reads everything."""
    deletes: bool = False
    """With mode bulk and one table, or a query: a row that is gone from it is deleted from the table that is loaded, in
    the commit of the first interval that doesn't have it. For a table of a database that is upserted."""
    timestamp_column: OneOrMore = ()
    """The column with the time of the last change; of several the first that isn't null."""
    incrementing_column: str = ""
    """The column with the growing number. Default: the one that the database numbers."""
    starting_ids: dict[str, int] = Field(default_factory=dict)
    """With mode timestamp+incrementing and positions in `starting_offsets`, as {table: number}: of the rows with that
    very time, those up to this number in `incrementing_column` are never read, since another loader has read them."""
    consistency: Literal["exact", "delay", "overlap"] = "exact"
    """exact: up to where no open transaction can still write, or the pipeline is refused. delay: up to
    `timestamp_delay` ago: rows of transactions that take longer are lost. overlap: each interval also reads again what
    is newer than `overlap` before its start; for sinks that upsert."""
    timestamp_delay: Duration = timedelta(0)
    """Rows younger than this wait for a later interval."""
    overlap: Duration = timedelta(0)
    """With consistency overlap: how far back an interval reads again."""
    clock_margin: Duration = timedelta(seconds=1)
    """With consistency exact: how long a session of the database may be suspended between taking its time and showing
    that it is open; also how far its clock may be set back unseen."""
    horizon_wait: Duration = timedelta(seconds=10)
    """With consistency exact: how long START waits for transactions to end, where it has to."""
    validate_non_null: bool = True
    """Refuse a column of `mode` that may be null: rows in which it is null would never be read."""
    numeric_mapping: Literal["none", "precision_only", "best_fit", "best_fit_eager_double"] = "none"
    """How NUMERIC columns are read. none: as DECIMAL. precision_only: whole numbers as integers. best_fit: others, too,
    of up to 18 digits, as DOUBLE. best_fit_eager_double: others always."""
    db_timezone: str = "UTC"
    """The time zone of columns whose times have none, an IANA name."""
    splits: Annotated[int, Field(gt=0, le=256)] = 1
    """How many queries read a table's window at the same time, by the remainder of `split_column`. It can't change
    later."""
    split_column: str = ""
    """With `splits`: a column of whole numbers that doesn't change. Default: the only column of the primary key."""
    fetch_size: Annotated[int, Field(gt=0, le=1_000_000)] = 10_000
    """Rows that a write job fetches at a time: its memory doesn't grow with the table."""
    value: Converter = _ROWS

    @property
    def capabilities(self) -> SourceCapabilities:
        """Each row version that an interval sees is in that interval alone, unless it overlaps."""
        return SourceCapabilities(
            replayable=True,
            windows_by_time=self.by_time,
            rows=True,
            sparse=True,
            repeats=self.consistency == "overlap",
            snapshots=self.deletes,
        )

    @property
    def connections(self) -> tuple[str, ...]:
        """The database's."""
        return (self.connection,)

    @property
    def by_time(self) -> bool:
        """Whether offsets are microseconds since 1970."""
        return self.mode.startswith("timestamp")

    @property
    def has_horizon(self) -> bool:
        """Whether a window ends where no open transaction can still write."""
        return self.consistency == "exact" and self.mode != "bulk"

    @property
    def positions(self) -> Positions:
        """What its offsets are, by `mode`."""
        if self.by_time:
            return "times"
        return "snapshots" if self.mode == "bulk" else "numbers"

    @property
    def topics_in_words(self) -> str:
        """The tables' names, or their pattern."""
        if self.query is not None:
            return f"the query {self.query_name}"
        return ", ".join(self.tables) or f"tables like {self.table_include}"

    @model_validator(mode="before")
    @classmethod
    def _tables_are_topics(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        for name in _HIDDEN:
            if name in data:
                raise ValueError(f"`{name}` is for records of Kafka's: leave it out, or name `tables`")
        if sum(bool(data.get(name)) for name in ("tables", "table_include", "query")) != 1:
            raise ValueError("name the `tables`, give a `table_include` for their names, or a `query`")
        found = dict(data)
        if data.get("query"):
            found["topics"] = (data.get("query_name", QUERY),)
        elif data.get("tables"):
            found["topics"] = data["tables"]
        else:
            found["topics_pattern"] = data["table_include"]
        return found

    @model_validator(mode="after")
    def _consistent(self) -> JdbcTables:
        if self.query is not None and self.mode == "incrementing":  # first: a window of numbers is exact, or is none
            raise ValueError(
                "a query can't be read by a growing number: which of its numbers may still be committed can be asked "
                "of a table alone. Load the tables by mode incrementing; or the query by mode bulk, or by mode "
                "timestamp and consistency delay or overlap"
            )
        if self.by_time != bool(self.timestamp_column):
            raise ValueError("`timestamp_column` and a mode with timestamp go together")
        if self.incrementing_column and "incrementing" not in self.mode:
            raise ValueError("`incrementing_column` is for a mode with incrementing")
        if self.consistency != "exact" and not self.by_time:
            raise ValueError(f"consistency {self.consistency} is for a mode with timestamp")
        if (self.consistency == "overlap") != bool(self.overlap):
            raise ValueError("consistency overlap and `overlap`, how far back, go together")
        if self.splits > 1 and self.mode == "bulk":
            raise ValueError("`splits` divide windows, and mode bulk has none")
        if self.split_column and self.splits == 1:
            raise ValueError("`split_column` goes with `splits`: into how many it divides a window")
        if self.table_exclude is not None and self.table_include is None:
            raise ValueError("`table_exclude` goes with `table_include`")
        if self.db_timezone not in available_timezones():
            raise ValueError(f"db_timezone {self.db_timezone!r} is no IANA name, such as Europe/Berlin")
        return self

    @model_validator(mode="after")
    def _deletes_need_a_snapshot(self) -> JdbcTables:
        if self.deletes and self.mode != "bulk":
            raise ValueError(
                "`deletes` are seen by mode bulk alone, which reads everything: a window hasn't what is gone. Have "
                "Debezium read the database's log instead"
            )
        if self.deletes and (self.table_include is not None or len(self.tables) > 1):
            raise ValueError(
                "`deletes` need one snapshot of all rows: name one table, or a `query` that has the rows of all of them"
            )
        return self

    def positions_of(self, table: str) -> set[int]:
        """The positions of a table in `starting_offsets`."""
        starting = self.starting_offsets
        return set() if isinstance(starting, str) else set(starting.get(table, {}).values())

    @model_validator(mode="after")
    def _starting_ids_have_times(self) -> JdbcTables:
        if self.starting_ids and self.mode != "timestamp+incrementing":
            raise ValueError("`starting_ids` are for mode timestamp+incrementing")
        for table in self.starting_ids:
            if len(self.positions_of(table)) != 1:
                raise ValueError(f"`starting_ids` names {table}, without exactly one position in `starting_offsets`")
        return self

    @model_validator(mode="after")
    def _query_fits(self) -> JdbcTables:
        if self.query is None:
            return self
        if self.consistency == "exact" and self.mode != "bulk":
            raise ValueError(
                "consistency exact needs tables: which of them a query reads, and what writes to them, can't be known. "
                "Choose delay, or overlap and a sink that upserts, or mode bulk; or load the tables"
            )
        if ";" in re.sub(r"'(''|[^'])*'", "", self.query):
            raise ValueError("`query` is one SELECT, without a semicolon")
        return self
