"""The JDBC sink's settings as START-COMMIT pins them. Pure."""

from __future__ import annotations

from typing import Literal

from sluice.protocol.pinned import Commas, Number, PinnedSettings

InsertMode = Literal["insert", "upsert", "update"]


class PinnedJdbc(PinnedSettings):
    """How an interval's rows are written to a table.

    Attributes:
        connection: the id of the Airflow connection.
        table: the table, as the pipeline file names it.
        place_fields: the columns of a record's topic, partition and offset; empty if the table has none.
        without: the column of the rows that the table doesn't have; empty if it has them all.
        unavailable_value: Debezium's placeholder for values that the database didn't log; empty without changes.
        batch_size: rows of one statement.
        db_timezone: the IANA name of the zone of times without one.
        first_table: of a further table: the interval's first one, which determines the names of staging tables.
        number: of a further table: its number in the list.
    """

    connection: str
    table: str
    insert_mode: InsertMode
    place_fields: Commas
    without: str
    unavailable_value: str
    batch_size: Number
    db_timezone: str
    first_table: str | None = None
    number: Number | None = None
