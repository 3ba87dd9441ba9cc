"""What a JDBC driver has thrown: the server's own exception among its causes, and what kind it is of."""

from __future__ import annotations

from typing import Any

from sluice.answers import CERTIFICATE, has_sign
from sluice.databases.dialect import Dialect, Kind, kind_of_state
from sluice.jvm.causes import causes

_SQL_EXCEPTION = "java.sql.SQLException"
# Frames of Spark's reader of tables, which reads while its writer writes: what it throws is the source's.
_READING = ("JDBCRDD", "JdbcUtils$$anon$1.getNext")


def sql_exception(jvm: Any, exception: Any) -> Any | None:
    """The SQLException among an exception and its causes that the server itself has sent; None if there is none.

    A batch's own quotes the rows of the batch, and what it failed of comes after it.
    """
    is_instance = jvm.py4j.reflection.TypeUtil.isInstanceOf
    found, depth = None, 0
    while exception is not None and depth < 12:
        if is_instance(_SQL_EXCEPTION, exception):
            found = exception
            exception = exception.getNextException() or exception.getCause()
        else:
            exception = exception.getCause()
        depth += 1
    return found


def is_of_reading(text: str) -> bool:
    """Whether a Java error's text, with its stack trace, is of Spark's reading of a table."""
    return any(frame in text for frame in _READING)


def kind_of(exception: Any, dialect: Dialect) -> Kind:
    """What an SQLException is, by the database's number or its SQLSTATE, or without either by the driver's words.

    Drivers have neither for certificates.
    """
    code, state = int(exception.getErrorCode()), str(exception.getSQLState() or "")
    of_driver = None if code or state else dialect.kind_of_words(str(exception.getMessage() or ""))
    found = of_driver or dialect.kind_of(code) or kind_of_state(state)
    return "login" if found == "passing" and has_sign(" <- ".join(causes(exception)), CERTIFICATE) else found


def refusal_of(exception: Any, dialect: Dialect, said: str) -> str:
    """What a database says of rows that it refuses, without their values.

    Args:
        exception: its SQLException.
        dialect: the database's.
        said: the exception's message, without the connection's secrets.
    """
    return dialect.refused(said, int(exception.getErrorCode()), str(exception.getSQLState() or ""))
