"""The Airflow connections named in the sections of a source and a sink, as passed to their code. Pure.

They may hold secrets, and travel by environment alone: from the task, whose process asks Airflow for them, to the Spark
driver that it starts. The page gets them from Airflow itself, for as long as it reads (`given`). None of them is in a
pipeline file, a message, an XCom, a command line, a repr or a log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any

from sluice.errors import ActionRequiredError
from sluice.redact import remember, secret_values
from sluice.untrusted import json_of

VARIABLE = "SLUICE_SOURCE_CONNECTIONS"


@dataclass(frozen=True)
class ConnectionSettings:
    """One Airflow connection. Only its id and type show in a repr: any other field may hold a secret.

    Attributes:
        id: as the section names it.
        type: Airflow's type of it.
        host: its field host, as it is; likewise `port`, `schema`, `login` and `password`.
        extra: its extra field, which is a JSON object.
    """

    id: str
    type: str
    host: str | None = field(default=None, repr=False)
    port: int | None = field(default=None, repr=False)
    schema: str | None = field(default=None, repr=False)
    login: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        remember((self.password, *secret_values(dict(self.extra))))


def to_environment(connections: Iterable[ConnectionSettings]) -> dict[str, str]:
    """Connections as an environment variable; nothing where there are none."""
    found = [asdict(one) for one in connections]
    return {VARIABLE: json.dumps(found)} if found else {}


_given: ContextVar[Mapping[str, ConnectionSettings] | None] = ContextVar("sluice_connections", default=None)


@contextmanager
def given(connections: Iterable[ConnectionSettings]) -> Iterator[None]:
    """Give the code of this block these connections, instead of the environment's.

    For a process that serves many pipelines, such as Airflow's API server: their secrets stay out of its environment.
    """
    token = _given.set({one.id: one for one in connections})
    try:
        yield
    finally:
        _given.reset(token)


def connections() -> dict[str, ConnectionSettings]:
    """The connections that this process, or the code that calls, was given, by their ids.

    Raises:
        ActionRequiredError: the variable can't be read; its text shows nowhere.
    """
    here = _given.get()
    if here is not None:
        return dict(here)
    text = os.environ.get(VARIABLE)
    if not text:
        return {}
    try:
        found = [ConnectionSettings(**one) for one in json_of(text)]
    except (ValueError, TypeError):
        raise ActionRequiredError(
            f"The variable {VARIABLE} is not a JSON array of connections.",
            next_step='correct it in this process\'s environment: [{"id": "…", "type": "…", "password": "…"}].',
        ) from None
    return {one.id: one for one in found}


def connection(connection_id: str) -> ConnectionSettings:
    """One of the connections that this process was given.

    Args:
        connection_id: the Airflow connection's id, one of the section's `connections`.

    Raises:
        ActionRequiredError: it is not among them.
    """
    given = connections()
    if connection_id not in given:
        raise ActionRequiredError(
            f"This process was not given the connection {connection_id}.",
            next_step="have the connector's section name it in `connections`; in a process that is started by hand, "
            f"set {VARIABLE}.",
            connection=connection_id,
            given=", ".join(sorted(given)) or "none",
        )
    return given[connection_id]
