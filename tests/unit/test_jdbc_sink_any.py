"""What a driver says of columns, which values fit them, and what a database needs for rows to be appended once."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

from sluice.connectors.connections import ConnectionSettings
from sluice.databases.connection import address_of, asked
from sluice.databases.dialect import DatabaseColumn
from sluice.databases.fits import within_decimal
from sluice.databases.jdbc.dialect import HABITS, AnyDatabase, Habits
from sluice.databases.jdbc.types import ColumnThere, TypeThere, long_text
from sluice.databases.kinds import KINDS
from sluice.databases.settings import require_known
from sluice.errors import ActionRequiredError
from sluice.pipeline import Jdbc, Kafka, Pipeline, Sink, Source
from sluice.sinks.jdbc import statements
from sluice.sinks.jdbc.appends.database import DriverDatabase
from sluice.sinks.jdbc.appends.table import require_appends
from sluice.sinks.jdbc.options.names import LONGEST_OWN, staging_table
from sluice.sinks.jdbc.statements import Target

ZONED = "TIMESTAMP WITH TIME ZONE"
H2 = (
    TypeThere(ZONED, 2014, 35, "SCALE"),
    TypeThere("CHARACTER VARYING", 12, 10**9, "LENGTH"), TypeThere("NUMERIC", 2, 10**5, "PRECISION,SCALE"),
    TypeThere("TIMESTAMP", 93, 29, "SCALE"), TypeThere("CHARACTER LARGE OBJECT", 2005, 2**31 - 1, "LENGTH"),
    TypeThere("DOUBLE PRECISION", 8, 53), TypeThere("BIGINT", -5, 64), TypeThere("BINARY", -2, 10**9, "LENGTH"),
)  # fmt: skip
DERBY = (
    TypeThere("VARCHAR () FOR BIT DATA", -3, 32672, "length", unsigned=True), TypeThere("TIMESTAMP", 93, 29),
    TypeThere("LONG VARCHAR", -1, 32700), TypeThere("CLOB", 2005, 2**31 - 1, "length"),
)  # fmt: skip
MYSQL = (
    TypeThere("LONG VARCHAR", -1, 2**24 - 1, "[CHARACTER SET charset_name]"), TypeThere("TEXT", -1, 65535),
    TypeThere("LONGTEXT", -1, 2**31 - 1, "[CHARACTER SET charset_name]"), TypeThere("DATETIME", 93, 27, "[(M)]"),
    TypeThere("INT UNSIGNED", 4, 10, "[(M)] [ZEROFILL]", unsigned=True), TypeThere("INT", 4, 10, "[(M)] [UNSIGNED]"),
)  # fmt: skip
SQL_SERVER = (TypeThere("tinyint", -6, 3, unsigned=True), TypeThere("varchar", 12, 8000, "max length"))
# Of a database: a column as its driver tells it, its type in words, and as another column's.
THERE = [
    ("h2", H2, ("CHARACTER VARYING", 12, 20, 0), "varchar(20)", "CHARACTER VARYING(20)"),
    ("h2", H2, ("NUMERIC", 2, 9, 2), "numeric(9,2)", "NUMERIC(9,2)"),
    ("h2", H2, ("DECFLOAT", 2, 10, 0), "numeric", "DECFLOAT(10,0)"),
    ("h2", H2, ("TIMESTAMP", 93, 23, 3), "timestamp(3)", "TIMESTAMP(3)"),
    ("h2", H2, (ZONED, 2014, 32, 6), "timestamp(6) with time zone", "TIMESTAMP(6) WITH TIME ZONE"),
    ("h2", H2, ("UUID", -2, 16, 0), "of the type uuid", None),
    ("h2", H2, ("JSON", 1111, 10**9, 0), "of the type json", "JSON"),
    ("h2", H2, ("BINARY", -2, 4, 0), "binary(4)", "BINARY(4)"),
    ("h2", H2, ("DOUBLE PRECISION", 6, 53, 0), "float(53)", "DOUBLE PRECISION"),
    ("derby", DERBY, ("VARCHAR () FOR BIT DATA", -3, 10, None), "varbinary(10)", "VARCHAR (10) FOR BIT DATA"),
    ("derby", DERBY, ("TIMESTAMP", 93, 29, 9), "timestamp(9)", "TIMESTAMP"),
    ("mysql", MYSQL, ("DATETIME", 93, 26, None), "timestamp(6)", "DATETIME(6)"),
    ("mysql", MYSQL, ("DATETIME", 93, 19, None), "timestamp(0)", "DATETIME(0)"),
    ("mysql", MYSQL, ("TIMESTAMP", 93, 26, None), "of the type timestamp", None),
    ("mysql", MYSQL, ("YEAR", 91, 0, None), "of the type year", None),
    ("mysql", MYSQL, ("ENUM", 12, 1, None), "of the type enum", None),
    ("mysql", MYSQL, ("INT UNSIGNED", 4, 10, 0), "integer unsigned", "INT UNSIGNED"),
    ("mysql", MYSQL, ("DECIMAL UNSIGNED", 3, 9, 2), "of the type decimal unsigned", None),
    ("mysql", MYSQL, ("BIT", -7, 8, None), "of the type bit", "BIT"),
    ("mysql", MYSQL, ("TEXT", -1, 65535, None), "longvarchar(65535)", "TEXT"),
    ("sqlserver", SQL_SERVER, ("tinyint", -6, 3, 0), "tinyint unsigned", "tinyint"),
    ("sqlserver", SQL_SERVER, ("datetime", 93, 23, 3), "of the type datetime", None),
    ("sqlserver", SQL_SERVER, ("datetime2", 93, 27, 7), "timestamp(7)", None),
    ("sqlserver", SQL_SERVER, ("varchar", 12, 2**31 - 1, None), "varchar(2147483647)", "varchar(MAX)"),
    ("sqlserver", SQL_SERVER, ("numeric() identity", 2, 9, 0), "numeric(9,0)", "numeric(9,0)"),
    ("oracle", (), ("TIMESTAMP(6)", 93, 11, 6), "timestamp(6)", "TIMESTAMP(6)"),
    ("oracle", (), ("DATE", 93, 7, 0), "of the type date", None),
    ("oracle", (), ("VARCHAR2", 12, 20, None), "varchar(20)", "VARCHAR2(20)"),
]


@pytest.mark.parametrize(("database", "types", "there", "words", "declared"), THERE)
def test_a_column_is_told_in_words_and_can_be_made_again(database, types, there, words, declared):
    name, code, size, digits = there
    column = ColumnThere("c", code, name, size, digits)
    habits = HABITS.get(database, Habits())
    assert column.in_words(types, habits.times) == words
    if declared is not None:
        assert column.declared(types, habits.largest) == declared


@pytest.mark.parametrize(
    ("types", "name"),
    [(H2, "CHARACTER LARGE OBJECT"), (DERBY, "CLOB"), (MYSQL, "LONGTEXT"), (SQL_SERVER, "varchar(8000)"), ((), None)],
)
def test_long_texts_have_the_largest_type_that_there_is(types, name):
    assert long_text(types) == name


# Values

STRUCT = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
HELD = [
    ("long", "bigint", None), ("long", "integer", "-2147483648 AND 2147483647"), ("byte", "tinyint", None),
    ("integer", "tinyint unsigned", "BETWEEN 0 AND 255"), ("long", "numeric(9,0)", "more than 9 digits"),
    ("string", "varchar(20)", "longer than 20 units"), ("string", "char(3)", "<> 3"), ("long", "clob(99)", "longer"),
    ("string", "decimal(9,2)", "no decimal number"), ("decimal(12,3)", "decimal(9,2)", "more than 9 digits"),
    ("decimal(12,3)", "numeric(50,2)", "round("), ("binary", "varbinary(4)", "longer than 4 bytes"),
    ("binary", "binary(4)", "<> 4"), ("boolean", "boolean", None), ("boolean", "bit", None),
    ("float", "real", "NaN"), ("float", "double", "NaN"), ("double", "double", "NaN"), ("double", "float(53)", "NaN"),
    ("date", "date", "year"), ("timestamp", "timestamp(3)", "more than 3 digits"),
    ("timestamp_ntz", "timestamp(9)", "year"), ("timestamp", "timestamp(6) with time zone", "year"),
    (STRUCT, "clob(2147483647)", "code 0"),
]  # fmt: skip
REFUSED = [
    ("string", "bigint"), ("string", "timestamp(6)"), ("string", "of the type uuid"), ("string", "varbinary(20)"),
    ("long", "double"), ("long", "numeric"), ("double", "real"), ("double", "float(24)"), ("double", "decimal(9,2)"),
    ("decimal(9,2)", "double"), ("decimal(9,2)", "numeric(5,-2)"), ("binary", "clob(99)"), ("boolean", "integer"),
    ("date", "timestamp(6)"), ("timestamp", "date"), ("timestamp", "time"), ("timestamp", "bigint"),
    ("timestamp_ntz", "timestamp(6) with time zone"), (STRUCT, "varbinary(99)"), (STRUCT, "decimal(9,2)"),
]  # fmt: skip


def fit(kind, declared, database="h2"):
    return AnyDatabase(database).fit("`c`", kind, DatabaseColumn("c", declared), "UTC")


@pytest.mark.parametrize(("kind", "declared", "says"), HELD)
def test_a_column_holds_a_type(kind, declared, says):
    found = fit(kind, declared)
    assert not isinstance(found, str), found
    assert found.problem is None if says is None else says in str(found.problem)


@pytest.mark.parametrize(("kind", "declared"), REFUSED)
def test_a_column_that_could_lose_something_is_refused_by_name(kind, declared):
    found = fit(kind, declared)
    assert isinstance(found, str)
    assert f"`c` is {declared} in the database, which doesn't hold" in found


def test_what_a_database_is_known_to_do_to_values_is_refused_of_them():
    assert "takes for null" in fit("string", "varchar(9)", "oracle").problem
    assert "only NVARCHAR" in fit("string", "varchar(9)", "sqlserver").problem
    assert "only NVARCHAR" not in fit("string", "nvarchar(9)", "sqlserver").problem
    assert "for a BLOB alone" in fit("binary", "varbinary(9)", "derby").problem
    assert "for a BLOB alone" not in fit("binary", "blob(9)", "derby").problem


def test_a_decimal_is_not_rounded_in_a_column_of_more_digits_than_spark_has():
    assert "round(`c`, 2) <> `c`" in within_decimal("`c`", "decimal(38,18)", [65, 2]).problem
    assert within_decimal("`c`", "decimal(38,2)", [65, 2]).problem is None
    assert within_decimal("`c`", "long", [65, 2]).problem is None


def test_what_each_driver_writes_alike_is_read_back():
    for kind, declared in (("long", "bigint"), ("long", "decimal(19,0)"), ("decimal(9,2)", "numeric(9,2)")):
        assert AnyDatabase("x", mark="`").stored(kind, DatabaseColumn("c", declared), "UTC").text == "`c`"
    for kind, declared in (
        ("double", "double"),
        ("timestamp", "timestamp(6)"),
        ("long", "varchar(9)"),
        ("date", "date"),
    ):
        assert AnyDatabase("x").stored(kind, DatabaseColumn("c", declared), "UTC") is None


# Statements


def test_statements_have_nothing_that_the_standard_lacks():
    target = Target(AnyDatabase("x", mark="`"), "lake", "a`b", ("id", "v"))
    made = [statement for _, statement in statements.bookkeeping(target, "CLOB")]
    assert made[0].startswith("CREATE TABLE `lake`.`_sluice_positions` (sink_table VARCHAR(200) NOT NULL PRIMARY KEY,")
    assert "metadata CLOB" in made[0]
    for statement in made:
        assert not {"IF NOT EXISTS", "BIGINT", "TEXT", '"'} & {
            w for w in ("IF NOT EXISTS", "BIGINT", "TEXT", '"') if w in statement
        }
    assert statements.append_as(target, "s", ["`id`", "CAST(`v` AS DATE)"]) == (
        "INSERT INTO `lake`.`a``b` (`id`, `v`) SELECT `id`, CAST(`v` AS DATE) FROM `lake`.`s`"
    )
    known = Target(KINDS["sqlite"].dialect, "", "t", ("id",))
    assert "IF NOT EXISTS" in next(statements.bookkeeping(known))[1]
    assert statements.append(known, "s") == 'INSERT INTO "t" ("id") SELECT "id" FROM "s"'


def test_names_of_staging_tables_are_no_longer_than_is_asked_for():
    assert len(staging_table("t", "0" * 17, "z" * 40, 9_999_999)) == LONGEST_OWN


# Refusals


class Metadata:
    """What a driver says."""

    def __init__(self, *, transactions=True, levels=(2, 8), longest=128, quote='"'):
        self.supportsTransactions = lambda: transactions
        self.supportsTransactionIsolationLevel = lambda level: level in levels
        self.getMaxTableNameLength = lambda: longest
        self.getIdentifierQuoteString = lambda: quote
        self.getDatabaseProductName = lambda: "X"


class Connection:
    """A connection, and what was asked of it."""

    def __init__(self, level=2, rolls_back=True, **metadata):
        self.calls = []
        self._metadata, self._level, self._rolls_back = Metadata(**metadata), level, rolls_back

    def getMetaData(self):  # noqa: N802 - Java's
        return self._metadata

    def getTransactionIsolation(self):  # noqa: N802
        return self._level

    def rollback(self):
        self.calls.append("rollback")
        if not self._rolls_back:
            raise Py4JError("no")

    def __getattr__(self, name):
        return lambda *arguments: self.calls.append((name, *arguments)[: 2 if name != "abort" else 1])


class Java:
    """Any of a JVM's packages, classes and methods."""

    def __getattr__(self, name):
        return self

    def __call__(self, *arguments):
        return None


def database_of(connection):
    address = address_of(ConnectionSettings("warehouse", "jdbc", host="jdbc:x://db", password="hunter2"))
    return DriverDatabase(Java(), address, connection)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"transactions": False}, "it has no transactions, by its driver"),
        ({"levels": (1,), "level": 1}, "read rows that aren't committed"),
        ({"levels": (), "level": 0}, "read rows that aren't committed"),
        ({"longest": 30}, "at most 30 characters"),
        ({"quote": " "}, "no quotes for names"),
    ],
)
def test_a_database_whose_driver_lacks_something_is_refused(said, reason):
    with pytest.raises(ActionRequiredError, match=reason) as caught:
        database_of(Connection(**said)).require_fit()
    assert "nothing was written" in str(caught.value)


@pytest.mark.parametrize(("said", "sets"), [({}, True), ({"levels": (8,), "level": 8}, False), ({"longest": 0}, True)])
def test_a_transaction_reads_committed_rows_or_less(said, sets):
    connection = Connection(**said)
    database_of(connection).require_fit()
    assert (("setTransactionIsolation", 2) in connection.calls) == sets
    assert ("setAutoCommit", True) in connection.calls


@pytest.mark.parametrize("rolls_back", [True, False])
def test_what_cannot_be_rolled_back_is_not_committed_by_the_end_of_its_transaction(rolls_back):
    connection = Connection(rolls_back=rolls_back)
    database = database_of(connection)
    with pytest.raises(KeyError), database.transaction("trying"):
        raise KeyError
    database.close()
    after = connection.calls[connection.calls.index("rollback") + 1 :]
    assert after == ([("setAutoCommit", True), ("close",)] if rolls_back else [("abort",)])


KEYED = {"insert_mode": "upsert", "pk_mode": "record_value", "pk_fields": "id"}


@pytest.mark.parametrize(
    ("section", "errors", "says"),
    [
        (KEYED, {}, "sink.jdbc.insert_mode upsert"),
        ({"auto_create": True, "auto_evolve": True}, {}, "sink.jdbc.auto_create, sink.jdbc.auto_evolve"),
        ({"tables": [{"table": "u", "topics": "u", "schema": "id BIGINT"}]}, {}, "sink.jdbc.tables"),
        ({}, {"tolerance": "all"}, "errors.tolerance all"),
    ],
)
def test_what_is_more_than_appending_is_refused(section, errors, says):
    options = Jdbc(**{"connection": "warehouse", "table": "t", "schema_": "id BIGINT", **section})
    pipeline = Pipeline(name="p", source=Source(kafka=Kafka(topics=("t", "u"))), sink=Sink(jdbc=options), errors=errors)
    with pytest.raises(ActionRequiredError, match=rf"knows oracle by its JDBC driver alone.*more: {says}\.") as caught:
        require_appends(pipeline, options, "oracle")
    assert "create the table" in caught.value.next_step


def test_rows_are_appended_with_the_place_of_their_record():
    options = Jdbc(connection="warehouse", table="t", schema_="id BIGINT", pk_mode="kafka")
    pipeline = Pipeline(name="p", source=Source(kafka=Kafka(topics=("t",))), sink=Sink(jdbc=options))
    require_appends(pipeline, options, "oracle")


def test_settings_of_an_unknown_driver_are_the_users_to_know():
    require_known(address_of(ConnectionSettings("warehouse", "jdbc", host="jdbc:x://db?anything=1")))


def test_the_page_does_not_look_where_it_would_need_java():
    address = address_of(ConnectionSettings("warehouse", "jdbc", host="jdbc:x://db"))
    with pytest.raises(ActionRequiredError, match="The page can't look into x"), asked(address):
        raise AssertionError("it has looked")
