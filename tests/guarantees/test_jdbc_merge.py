"""Versions of keys end as the records one by one would have left them, or the interval is refused whole.

Random records, of few keys and few unique values, against a model that applies them one by one; real databases.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sluice.databases.connection import address_of
from sluice.errors import IntervalError
from sluice.identifiers import sql_quoted
from sluice.pipeline import Jdbc, Kafka, Pipeline, Sink, Source
from sluice.protocol.committable import Committable
from sluice.protocol.mapping import ClusterTopics
from sluice.protocol.offsets import OFFSETS_KEY
from sluice.sinks.jdbc.database import connected
from sluice.sinks.jdbc.failures import RowsRefusedError
from sluice.sinks.jdbc.options.names import DELETED, LOG, OFFSET, staging_table
from sluice.sinks.jdbc.sink import JdbcSink
from sluice.sinks.jdbc.statements import Target

from ..thorough import also
from .harness.databases import CONNECTION, Readable

Record = tuple[int, str | None]
"""A key, and its unique value; None deletes it."""
Rows = dict[int, str]

KEYS, VALUES = range(4), "abcde"


class Loader:
    """Loads records of one partition into a table that has a unique column beside its key."""

    def __init__(self, database: Readable, jvm: Any, name: str) -> None:
        self._database, self._jvm, self.name = database, jvm, name
        self.mirrors = False
        section = Jdbc(
            connection=CONNECTION, table=name, schema_="id BIGINT, v STRING", insert_mode="upsert",
            pk_mode="record_value", pk_fields="id", delete_enabled=True,
        )  # fmt: skip
        self._sink = JdbcSink(
            Pipeline(name="t", source=Source(kafka=Kafka(topics=("t",))), sink=Sink(jdbc=section)), jvm
        )
        self._offset = 0
        database.run(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, v VARCHAR(9) NOT NULL UNIQUE)")

    def load(self, records: Sequence[Record], parts: int = 2) -> None:
        """One interval, whose records several write jobs have staged in parts.

        Raises:
            RowsRefusedError: the database refuses them.
        """
        numbered = [(key, value, self._offset + i) for i, (key, value) in enumerate(records)]
        self._offset += len(records)
        with self._table() as table:
            instant = table.new_instant()
            table.open(instant)
            staged = [self._stage(instant, part, numbered[part::parts]) for part in range(parts)]
            try:
                table.commit(instant, staged, {OFFSETS_KEY: "{}"})
            except RowsRefusedError:
                table.rollback(instant)
                raise

    def load_twice(self, records: Sequence[Record]) -> None:
        """As where a task of Spark's has written its rows a second time: more are staged than were reported."""
        with self._table() as table:
            instant = table.new_instant()
            table.open(instant)
            staged = self._stage(instant, 0, [(key, value, 0) for key, value in records])
            try:
                table.commit(instant, [replace(staged, rows=staged.rows - 1)], {OFFSETS_KEY: "{}"})
            finally:
                table.rollback(instant)

    def rows(self) -> Rows:
        return dict(self._database.query(f"SELECT id, v FROM {self.name}"))

    @contextmanager
    def _table(self) -> Iterator[Any]:
        with self._sink.open() as table:
            writer = self._sink.pin(table, None, [ClusterTopics("kafka", ("t",))]).writer
            yield table.written_as(writer.mirroring(self.mirrors))

    def _stage(self, instant: str, part: int, records: Sequence[tuple[int, str | None, int]]) -> Committable:
        with self._jvm() as jvm, connected(jvm.jvm, address_of(self._database.connection)) as database:
            dialect, schema = database.dialect, database.schema_of("")
            target = Target(dialect, schema, self.name, ("id", "v"), ("id",))
            name = staging_table(dialect.canonical(schema, self.name), instant, "a", part)
            database.create_staging(target, name)
            columns = ", ".join(map(sql_quoted, ("id", "v", LOG, OFFSET, DELETED)))
            values = ", ".join(
                f"({key}, {'NULL' if value is None else repr(value)}, 't[0]', {offset}, {int(value is None)})"
                for key, value, offset in records
            )
            if values:
                database.run(f"INSERT INTO {target.own(name)} ({columns}) VALUES {values}")
        deletes = sum(value is None for _, value, _ in records)
        return Committable(rows=len(records) - deletes, deletes=deletes, path=name)


def one_by_one(before: Rows, records: Sequence[Record]) -> Rows | None:
    """The rows after each record alone; None if one of them breaks the constraint."""
    rows = dict(before)
    for key, value in records:
        if value is None:
            rows.pop(key, None)
        elif any(other != key and theirs == value for other, theirs in rows.items()):
            return None
        else:
            rows[key] = value
    return rows


def at_the_end(before: Rows, records: Sequence[Record]) -> Rows:
    """The rows that the last versions are, whatever was between."""
    rows = before | {key: value for key, value in dict(records).items() if value is not None}
    return {key: value for key, value in rows.items() if dict(records).get(key, "") is not None}


@pytest.fixture
def loader(database: Readable, shared_jvm, monkeypatch, request) -> Loader:
    for variable, value in database.environment().items():
        monkeypatch.setenv(variable, value)
    return Loader(database, shared_jvm, f"merge_{abs(hash(request.node.name)) % 10**9}")


def test_values_that_rows_swap_by_a_third_one_are_swapped(loader):
    loader.load([(1, "a"), (2, "b")])
    loader.load([(1, "c"), (2, "a"), (1, "b")])
    assert loader.rows() == {1: "b", 2: "a"}
    loader.load([(1, None), (2, "b"), (1, "a"), (3, "c"), (3, None), (3, "d"), (4, "c")])
    assert loader.rows() == {1: "a", 2: "b", 3: "d", 4: "c"}


def test_what_one_record_alone_breaks_is_refused_and_nothing_of_the_interval_is_there(loader):
    loader.load([(1, "a"), (2, "b")])
    with pytest.raises(RowsRefusedError, match="The database refuses the rows"):
        loader.load([(3, "c"), (1, "d"), (2, "a"), (4, "c"), (5, "e")])
    assert loader.rows() == {1: "a", 2: "b"}
    loader.load([(3, "c")])
    assert loader.rows() == {1: "a", 2: "b", 3: "c"}


@pytest.mark.parametrize("seed", [1, *also(*range(2, 6))])
def test_random_records_end_as_one_by_one_or_are_refused(loader, seed):
    chance = random.Random(seed)
    rows: Rows = {}
    ended = {"as one by one": 0, "as the last versions": 0, "refused": 0}
    for _ in range(25):
        records: list[Record] = []
        for _ in range(chance.randint(1, 9)):
            # Mostly records that the source's database could have had.
            for _ in range(chance.choice((1, 8))):
                record = chance.choice(KEYS), chance.choice([*VALUES, None])
                if one_by_one(rows, [*records, record]) is not None:
                    break
            records.append(record)
        wanted = one_by_one(rows, records)
        try:
            loader.load(records, parts=chance.randint(1, 3))
        except RowsRefusedError:
            assert wanted is None, records
            ended["refused"] += 1
        else:
            ended["as one by one" if wanted is not None else "as the last versions"] += 1
            rows = wanted if wanted is not None else at_the_end(rows, records)
        assert loader.rows() == rows, records
    assert ended["as one by one"], ended
    assert ended["refused"], ended


def test_a_snapshot_leaves_its_own_rows_and_no_others(loader):
    """Also where a row that is new has the unique value of one that is gone, and where the snapshot has no rows."""
    loader.mirrors = True
    loader.load([(1, "a"), (2, "b"), (3, "c")], parts=1)
    loader.load([(1, "A"), (4, "c")], parts=1)
    assert loader.rows() == {1: "A", 4: "c"}
    with pytest.raises(IntervalError, match="A snapshot was staged twice"):
        loader.load_twice([(1, "A"), (5, "e")])
    assert loader.rows() == {1: "A", 4: "c"}
    loader.load([], parts=1)
    assert loader.rows() == {}
