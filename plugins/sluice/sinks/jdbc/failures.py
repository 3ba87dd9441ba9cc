"""Turns exceptions of a database or its driver into errors that say what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from sluice.databases.address import JdbcAddress
from sluice.databases.thrown import kind_of, refusal_of, sql_exception
from sluice.errors import ActionRequiredError, RetryableError, SluiceError


class RowsRefusedError(ActionRequiredError):
    """The database refuses rows, by a constraint or since they don't fit a type."""


@contextmanager
def database_errors(doing: str, jvm: Any, address: JdbcAddress, **where: Any) -> Iterator[None]:
    """Classify the database's exceptions in this block.

    Args:
        doing: the block's purpose, in words.
        jvm: Py4J's view of the JVM.
        address: the database's address; its secrets show in no error.
        where: the place, for the error.

    Raises:
        RetryableError: the database doesn't answer, or fails for a reason that may pass.
        ActionRequiredError: the database refuses, and will refuse again.
    """
    try:
        yield
    except Py4JJavaError as error:
        found = sql_exception(jvm, error.java_exception)
        if found is None:
            # A missing driver, or a bug: there is no SQLException whose text would have to be hidden.
            reason = address.hidden(str(error.java_exception.toString()).splitlines()[0])
            raise ActionRequiredError(
                f"The JDBC driver failed while {doing}.",
                next_step="look whether the driver's jar is on the class path, as docs/jdbc-sink.md says.",
                connection=address.connection,
                **where,
                reason=reason[:1000],
            ) from None
        raise classified(found, doing, address, **where) from None  # the exception's text may quote rows and addresses
    except (Py4JError, OSError) as error:
        raise RetryableError(
            f"The JVM was lost while {doing}.",
            next_step="the step is retried; if it comes back, look for an out-of-memory kill on the worker.",
            connection=address.connection,
            **where,
        ) from error


def classified(exception: Any, doing: str, address: JdbcAddress, **where: Any) -> SluiceError:
    """The error for an SQLException; what it says quotes no value of a row that the database refuses."""
    place = {"connection": address.connection, "database": address.dialect.name, **where}
    said = address.hidden(str(exception.getMessage() or exception.toString()))
    kind = kind_of(exception, address.dialect)
    reason = (refusal_of(exception, address.dialect, said) if kind == "data" else " ".join(said.split()))[:1000]
    for words, cause in address.dialect.hidden_causes.items():
        if words in reason:
            kind, reason = "passing", f"{cause}: {reason}"
    if kind == "login":
        return ActionRequiredError(
            f"The database refuses the connection, while {doing}.",
            next_step="correct login, password, database or certificate of the Airflow connection, or give the login "
            "that right.",
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
