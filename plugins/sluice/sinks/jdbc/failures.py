"""Turns what a database or its driver throws into errors that say what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.sinks.jdbc.address import JdbcAddress
from sluice.sinks.jdbc.dialect import Dialect, Kind

_SQL_EXCEPTION = "java.sql.SQLException"
# SQLSTATE's classes, and some states of PostgreSQL's, which may go by themselves: a connection lost or refused, a lock
# that another holds, a server that starts or has no room.
_PASSING = ("08", "40", "53", "57", "58", "55P03", "25P03", "XX000")
_LOGIN = ("28", "3D")
_REFUSED = ("42501",)
_DATA = ("22", "23")
_WHOLE_ROW = "Detail: Failing row contains"  # PostgreSQL's words for a row that a CHECK refuses, all of its values


class RowsRefusedError(ActionRequiredError):
    """The database refuses rows: a constraint, or a type that they don't fit."""


@contextmanager
def database_errors(doing: str, jvm: Any, address: JdbcAddress, **where: Any) -> Iterator[None]:
    """Classify what the database throws in this block.

    Args:
        doing: what the block does, in words.
        jvm: Py4J's view of the JVM.
        address: the database's; its secrets show in no error.
        where: the place, for the error.

    Raises:
        RetryableError: the database doesn't answer, or something that may pass by itself is in the way.
        ActionRequiredError: it refuses, and will again.
    """
    try:
        yield
    except Py4JJavaError as error:
        found = sql_exception(jvm, error.java_exception)
        if found is None:
            # A driver that isn't there, or a bug: no cause of its own is to be hidden.
            reason = address.hidden(str(error.java_exception.toString()).splitlines()[0])
            raise ActionRequiredError(
                f"The JDBC driver failed while {doing}.",
                next_step="look whether the driver's jar is on the class path, as docs/jdbc-sink.md says.",
                connection=address.connection,
                **where,
                reason=reason[:1000],
            ) from None
        raise classified(found, doing, address, **where) from None  # its text may quote rows and addresses
    except (Py4JError, OSError) as error:
        raise RetryableError(
            f"The JVM was lost while {doing}.",
            next_step="the step is retried; if it comes back, look for an out-of-memory kill on the worker.",
            connection=address.connection,
            **where,
        ) from error


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


def classified(exception: Any, doing: str, address: JdbcAddress, **where: Any) -> SluiceError:
    """The error for an SQLException."""
    place = {"connection": address.connection, "database": address.dialect.name, **where}
    said = address.hidden(str(exception.getMessage() or exception.toString()))
    lines = (line.strip() for line in said.splitlines())
    reason = " ".join(line for line in lines if line and not line.startswith(_WHOLE_ROW))[:1000]
    kind = _kind(exception, address.dialect)
    for words, cause in address.dialect.hidden_causes.items():
        if words in reason:
            kind, reason = "passing", f"{cause}: {reason}"
    if kind == "login":
        return ActionRequiredError(
            f"The database refuses the connection, while {doing}.",
            next_step="correct login, password or database of the Airflow connection, or give the login that right.",
            **place,
            reason=reason,
        )
    if kind == "refused":
        return ActionRequiredError(
            f"The database doesn't permit {doing}.",
            next_step="grant the connection's login what docs/jdbc-sink.md names under `Rights`.",
            **place,
            reason=reason,
        )
    if kind == "data":
        return RowsRefusedError(
            f"The database refuses the rows: {reason}.",
            next_step="nothing of this interval was committed. Correct the records or the table; a transform can "
            "leave records out.",
            **place,
        )
    if kind == "passing":
        return RetryableError(
            f"The database failed while {doing}.",
            next_step="the step is retried; if it comes back, look whether the database can be reached, has room, and "
            "what holds its locks.",
            **place,
            reason=reason,
        )
    return ActionRequiredError(
        f"The database failed while {doing}.",
        next_step="nothing was committed. Correct what the database names, and run the interval again.",
        **place,
        reason=reason,
    )


def _kind(exception: Any, dialect: Dialect) -> Kind:
    found = dialect.kind_of(int(exception.getErrorCode()))
    if found is not None:
        return found
    state = str(exception.getSQLState() or "")
    starts: dict[Kind, tuple[str, ...]] = {
        "refused": _REFUSED,
        "login": _LOGIN,
        "data": _DATA,
        "passing": _PASSING,
    }
    return next((kind for kind, beginnings in starts.items() if state.startswith(beginnings)), "other")
