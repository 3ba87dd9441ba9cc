"""Names between quotes, dotted names, and names of catalogs."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sluice.identifiers import catalog_name, dotted, parts, percent_marks, quoted, sql_quoted, suffixed
from sluice.pipeline.catalog import CatalogSync, HiveMetastore

from .test_jdbc import jdbc, pipeline

NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc")), min_size=1, max_size=20)


@given(st.lists(NAMES, min_size=1, max_size=3))
def test_a_dotted_name_is_taken_apart_into_the_names_that_it_was_made_of(names):
    assert parts(dotted(*names)) == tuple(names)
    assert parts(suffixed(dotted(*names), "_quarantine")) == (*names[:-1], f"{names[-1]}_quarantine")


@given(NAMES)
def test_a_database_finds_a_name_between_quotes_as_it_is(name):
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(f"CREATE TABLE {sql_quoted(name)} ({sql_quoted(f'c{name}')} INT)")
        ((found,),) = connection.execute("SELECT name FROM sqlite_master").fetchall()
        assert found == name
        assert connection.execute(f"SELECT * FROM {sql_quoted(name)}").description[0][0] == f"c{name}"


def test_a_name_in_spark_sql_is_between_backticks():
    assert quoted("a`b.c") == "`a``b.c`"


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", '"', 'a"', '"a', '""', '"a""'])
def test_what_is_no_dotted_name_is_refused(text):
    with pytest.raises(ValueError, match=r"isn't closed|is empty"):
        parts(text)


def test_values_have_their_marks_outside_of_quotes_alone():
    sql = """SELECT "a?%""?", '?''%', 10 % 3 FROM t WHERE x = ? AND y = ?"""
    assert percent_marks(sql) == """SELECT "a?%%""?", '?''%%', 10 %% 3 FROM t WHERE x = %s AND y = %s"""
    assert percent_marks(sql) % ("1", "2") == sql.replace("= ?", "= {}").format(1, 2)


@pytest.mark.parametrize("name", ["orders-eu", "order lines", "a.b", 'a"b', "", "ü", "a" * 129])
def test_a_catalog_s_names_are_letters_digits_and_underscores(name):
    with pytest.raises(ValueError, match="none that the metastore takes"):
        catalog_name(name)
    for key in ("database", "table"):
        with pytest.raises(ValidationError, match="none that the metastore takes"):
            HiveMetastore(uris="thrift://m:9083", **{key: name})


def test_a_table_that_a_metastore_does_not_take_by_its_own_name_has_another_one_there():
    from sluice.pipeline import Hudi, Kafka, Pipeline, Sink, Source

    def made(called, **hive):
        return Pipeline(
            name="orders-eu",
            source=Source(kafka=Kafka(topics=("t",))),
            sink=Sink(hudi=Hudi(path="/lake/orders", schema_="id BIGINT", table=called)),
            catalog_sync=CatalogSync(hive=HiveMetastore(uris="thrift://m:9083", **hive)),
        )

    with pytest.raises(ValidationError, match=r"`catalog_sync.hive.table` is missing.*'orders-eu' is none"):
        made(None)
    assert made(None, table="orders_eu").catalog_sync.hive.table == "orders_eu"
    assert made("Orders").table_name == "Orders"
    assert pipeline(jdbc(table="orders-eu")).table_name == "orders-eu"
