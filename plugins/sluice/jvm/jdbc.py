"""JDBC in a JVM, for any driver on its class path: drivers by class or URL, and what they throw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError

from sluice.jvm.gateway import java_properties


class JavaThrewError(Exception):
    """A Java exception.

    Attributes:
        exception: the exception, as its JVM holds it; None if the JVM was lost.
    """

    def __init__(self, exception: Any | None) -> None:
        super().__init__("a Java exception")
        self.exception = exception


@contextmanager
def java_errors() -> Iterator[None]:
    """Raise what Java throws in this block as `JavaThrewError`."""
    try:
        yield
    except Py4JJavaError as error:
        raise JavaThrewError(error.java_exception) from None  # its text may quote rows and addresses
    except (Py4JError, OSError):
        raise JavaThrewError(None) from None


def driver_of(jvm: Any, url: str, named: str = "") -> Any | None:
    """The JDBC driver of a class, or the first that has registered itself and takes a URL; None if there is none.

    Args:
        jvm: Py4J's view of a JVM.
        url: the URL.
        named: the driver's class; empty for any.
    """
    try:
        # Not by way of DriverManager, which hides drivers of other class loaders from its caller.
        found = jvm.java.lang.Class.forName(named).newInstance() if named else jvm.java.sql.DriverManager.getDriver(url)
    except Py4JJavaError:
        return None
    return found if jvm.py4j.reflection.TypeUtil.isInstanceOf("java.sql.Driver", found) else None


@contextmanager
def connection_of(jvm: Any, driver: Any, url: str, properties: dict[str, str], wait: int) -> Iterator[Any | None]:
    """A driver's connection, for as long as the block; None if the driver doesn't take the URL.

    Args:
        jvm: Py4J's view of the driver's JVM.
        driver: the driver.
        url: the URL.
        properties: the driver's properties.
        wait: how many seconds it may take, as far as the driver knows of that.
    """
    jvm.java.sql.DriverManager.setLoginTimeout(wait)
    connection = driver.connect(url, java_properties(jvm, properties))
    try:
        yield connection
    finally:
        if connection is not None:
            with suppress(Py4JError, OSError):
                connection.close()
