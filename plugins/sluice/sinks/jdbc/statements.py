"""The statements of a commit, and those that make tables. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluice.sinks.jdbc.dialect import Dialect
from sluice.sinks.jdbc.names import (
    DELETED,
    FIRST_LOG,
    INSTANTS,
    LAST_LOG,
    LATEST,
    LOG,
    NUMBER,
    OFFSET,
    ORDERED,
    POSITIONS,
    RANK,
    quoted,
)

_UNIONED = 100  # SQLite takes 500 at most


@dataclass(frozen=True)
class Target:
    """The table as statements name it.

    Attributes:
        dialect: its database's.
        schema: its schema; empty where there is none.
        name: its name.
        columns: the columns that rows have, as the database writes them.
        key: those of the key; none of an append.
        ordering: those that order a key's versions.
        number: of several tables of a commit, which one, so that each has a temporary table of its own.
    """

    dialect: Dialect
    schema: str
    name: str
    columns: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    number: int = 0

    @property
    def sql(self) -> str:
        """The table."""
        return self.dialect.table(self.schema, self.name)

    @property
    def latest(self) -> str:
        """The temporary table of the last versions of keys."""
        return self.dialect.temporary_table(self.schema, f"{LATEST}_{self.number}" if self.number else LATEST)

    @property
    def ordered(self) -> str:
        """The temporary table of all versions in order."""
        return self.dialect.temporary_table(self.schema, ORDERED)

    def own(self, name: str) -> str:
        """One of the sink's own tables, in the table's schema."""
        return self.dialect.table(self.schema, name)


def listed(names: Sequence[str], prefix: str = "") -> str:
    """Column names as SQL."""
    return ", ".join(f"{prefix}{quoted(name)}" for name in names)


def bookkeeping(target: Target) -> Iterator[tuple[str, str]]:
    """Names and statements of the tables that say where tables stand."""
    long_text, options = target.dialect.long_text, target.dialect.table_options
    yield (
        POSITIONS,
        f"CREATE TABLE IF NOT EXISTS {target.own(POSITIONS)} "
        f"(sink_table VARCHAR(200) NOT NULL PRIMARY KEY, instant VARCHAR(17), metadata {long_text}){options}",
    )
    yield (
        INSTANTS,
        f"CREATE TABLE IF NOT EXISTS {target.own(INSTANTS)} "
        "(sink_table VARCHAR(200) NOT NULL, instant VARCHAR(17) NOT NULL, state VARCHAR(9) NOT NULL, "
        "rests_on VARCHAR(17), completed VARCHAR(17), rows_written BIGINT, rows_deleted BIGINT, "
        f"metadata {long_text}, PRIMARY KEY (sink_table, instant)){options}",
    )


def create(target: Target, columns: Sequence[tuple[str, str, bool]], key: Sequence[str]) -> str:
    """A statement that creates the table.

    Args:
        target: the table.
        columns: names, types and whether they may be null.
        key: the columns of its primary key.
    """
    parts = [f"{quoted(name)} {kind}{'' if nullable else ' NOT NULL'}" for name, kind, nullable in columns]
    if key:
        parts.append(f"PRIMARY KEY ({listed(key)})")
    return f"CREATE TABLE {target.sql} ({', '.join(parts)}){target.dialect.table_options}"


def add_column(target: Target, name: str, kind: str) -> str:
    """A statement that adds a column, which may be null."""
    return f"ALTER TABLE {target.sql} ADD COLUMN {quoted(name)} {kind}"


def staging(target: Target, name: str) -> str:
    """A statement that makes a staging table, whose columns have the table's own types."""
    places = {LOG: 300, OFFSET: None, DELETED: None}
    return target.dialect.staging(target.own(name), target.sql, listed(target.columns), places)


def append(target: Target, name: str) -> str:
    """A statement that puts a staging table's rows into the table."""
    columns = listed(target.columns)
    return f"INSERT INTO {target.sql} ({columns}) SELECT {columns} FROM {target.own(name)}"


def append_once(target: Target, name: str) -> str:
    """The same where Spark has run a task twice: of the rows of one record one is taken."""
    columns = listed(target.columns)
    ranked = f"row_number() OVER (PARTITION BY {quoted(LOG)}, {quoted(OFFSET)} ORDER BY {quoted(OFFSET)})"
    rows = f"SELECT {columns}, {ranked} AS {quoted(RANK)} FROM {target.own(name)}"
    return f"INSERT INTO {target.sql} ({columns}) SELECT {columns} FROM ({rows}) r WHERE {quoted(RANK)} = 1"


def latest(target: Target, names: Sequence[str]) -> str:
    """A statement that makes a table of the last version of each key, by its ordering columns, then by offset."""
    return _latest(target, _union(target, names))


def ordered(target: Target, names: Sequence[str]) -> str:
    """A statement that makes a table of all versions, with their numbers in the order in which they are the rows."""
    order = listed((*target.ordering, OFFSET, LOG), "u.")
    begin = target.dialect.temporary.format(target.ordered)
    numbered = f"row_number() OVER (ORDER BY {order}) AS {quoted(NUMBER)}"
    return f"{begin} SELECT u.*, {numbered} FROM ({_union(target, names)}) u"


def latest_of(target: Target, first: int, last: int) -> str:
    """As `latest`, of the versions of these numbers, both included."""
    return _latest(target, f"SELECT * FROM {target.ordered} WHERE {quoted(NUMBER)} BETWEEN {first} AND {last}")


def _latest(target: Target, rows: str) -> str:
    versions = ", ".join(f"s.{quoted(name)} DESC" for name in (*target.ordering, OFFSET))
    key = f"PARTITION BY {listed(target.key, 's.')}"
    ranked = (
        f"SELECT s.*, row_number() OVER ({key} ORDER BY {versions}, s.{quoted(LOG)}) AS {quoted(RANK)}, "
        f"min(s.{quoted(LOG)}) OVER ({key}) AS {quoted(FIRST_LOG)}, "
        f"max(s.{quoted(LOG)}) OVER ({key}) AS {quoted(LAST_LOG)} FROM ({rows}) s"
    )
    begin = target.dialect.temporary.format(target.latest)
    return f"{begin} SELECT * FROM ({ranked}) r WHERE {quoted(RANK)} = 1"


def _union(target: Target, names: Sequence[str]) -> str:
    columns = listed((*target.columns, LOG, OFFSET, DELETED))
    parts = [f"SELECT {columns} FROM {target.own(name)}" for name in names]
    while len(parts) > 1:
        groups = [parts[i : i + _UNIONED] for i in range(0, len(parts), _UNIONED)]
        unions = [" UNION ALL ".join(group) for group in groups]
        if len(unions) == 1:
            return unions[0]
        parts = [f"SELECT {columns} FROM ({union}) u{i}" for i, union in enumerate(unions)]
    return parts[0]


def scattered(target: Target) -> str:
    """A query for a key whose versions are in several partitions, and for two of these."""
    return (
        f"SELECT {listed((FIRST_LOG, LAST_LOG, *target.key))} FROM {target.latest} "
        f"WHERE {quoted(FIRST_LOG)} <> {quoted(LAST_LOG)} LIMIT 1"
    )


def delete(target: Target) -> str:
    """A statement that deletes the rows of keys whose last version is a delete."""
    deleted = f"s.{quoted(DELETED)} = 1"
    if target.dialect.joins:  # by its name: MariaDB resolves an alias there in the connection's schema only
        table = target.sql
        condition = f"{_same(target, table)} AND {deleted}{_not_older(target, table)}"
        return f"DELETE {table} FROM {table} JOIN {target.latest} s ON {condition}"
    return (
        f"DELETE FROM {target.sql} AS t WHERE EXISTS (SELECT 1 FROM {target.latest} s "
        f"WHERE {_same(target)} AND {deleted}{_not_older(target)})"
    )


def delete_absent(target: Target, snapshot: str) -> str:
    """A statement that deletes the rows whose keys a temporary table of all there are hasn't."""
    if target.dialect.joins:
        table, first = target.sql, quoted(target.key[0])
        joined = f"{table} LEFT JOIN {snapshot} s ON {_same(target, table)}"
        return f"DELETE {table} FROM {joined} WHERE s.{first} IS NULL"
    return f"DELETE FROM {target.sql} AS t WHERE NOT EXISTS (SELECT 1 FROM {snapshot} s WHERE {_same(target)})"


def update(target: Target) -> str | None:
    """A statement that changes the rows of keys that are there; None if there is nothing but the key."""
    others = [name for name in target.columns if name not in target.key]
    if not others:
        return None
    condition = f"{_same(target)} AND s.{quoted(DELETED)} = 0{_not_older(target)}"
    if target.dialect.joins:
        values = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in others)
        return f"UPDATE {target.sql} AS t JOIN {target.latest} s ON {condition} SET {values}"
    values = ", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in others)
    return f"UPDATE {target.sql} AS t SET {values} FROM {target.latest} s WHERE {condition}"


def insert_new(target: Target) -> str:
    """A statement that adds the rows of keys that aren't there."""
    columns = listed(target.columns)
    return (
        f"INSERT INTO {target.sql} ({columns}) SELECT {listed(target.columns, 's.')} FROM {target.latest} s "
        f"WHERE s.{quoted(DELETED)} = 0 AND NOT EXISTS (SELECT 1 FROM {target.sql} t WHERE {_same(target)})"
    )


def drop_temporary(target: Target, table: str) -> str:
    """A statement that drops a temporary table; it is no DDL that commits."""
    return f"{target.dialect.drop_temporary} {table}"


def _same(target: Target, table: str = "t") -> str:
    return " AND ".join(f"{table}.{quoted(name)} = s.{quoted(name)}" for name in target.key)


def _not_older(target: Target, table: str = "t") -> str:
    """That a version isn't older than the row; a row that doesn't say how old it is counts as older."""
    if not target.ordering:
        return ""
    unknown = " OR ".join(f"{table}.{quoted(name)} IS NULL" for name in target.ordering)
    theirs, ours = (listed(target.ordering, prefix) for prefix in (f"{table}.", "s."))
    return f" AND ({unknown} OR ({theirs}) <= ({ours}))"
