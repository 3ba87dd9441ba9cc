"""Connectors' configurations as people keep them: `.properties`, and JSON in the shapes of the REST API. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice.connect.properties import properties
from sluice.errors import ActionRequiredError
from sluice.untrusted import json_of

CLASS = "connector.class"


@dataclass(frozen=True)
class ConnectorConfig:
    """One connector's configuration. It may hold secrets, so no value shows in a repr.

    Attributes:
        name: the connector's.
        config: its keys and values, all as text.
        file: where it is from.
    """

    name: str
    config: Mapping[str, str] = field(repr=False)
    file: str = ""


def configs_of(text: str, file: str) -> tuple[ConnectorConfig, ...]:
    """The connectors of a file.

    JSON may be a bare configuration, `{"name", "config"}`, an answer of `GET /connectors/<name>`, of `/config` or of
    `GET /connectors?expand=info`, or an array of any of these.

    Args:
        text: the file's content.
        file: its name, for errors, and for connectors that have none.

    Raises:
        ActionRequiredError: it is neither, or holds no connector.
    """
    stem = file.rpartition("/")[2].partition(".")[0]
    if file.endswith(".json") or text.lstrip()[:1] in ("{", "["):
        found = tuple(_connectors(_json(text, file), stem, file))
    else:
        given = properties_of(text, file)
        found = (ConnectorConfig(given.get("name") or stem, given, file),)
    if not found:
        raise _wrong("The file holds no connector.", file)
    return found


def properties_of(text: str, file: str) -> dict[str, str]:
    """The keys and values of a `.properties` file.

    Raises:
        ActionRequiredError: it can't be read; no value shows.
    """
    try:
        return properties(text)
    except ValueError as error:
        raise ActionRequiredError(
            f"The file is no .properties file: {error}.", next_step="correct it.", file=file
        ) from None


def _json(text: str, file: str) -> Any:
    try:
        return json_of(text)
    except json.JSONDecodeError as error:  # its own message has the line, but the exception the whole text
        raise ActionRequiredError(
            f"The file is not JSON: {error.msg}.", next_step="correct the line.", file=file, line=error.lineno
        ) from None
    except ValueError as error:
        raise ActionRequiredError(
            f"The file is not JSON of a connector: {error}.", next_step="correct it.", file=file
        ) from None


def _connectors(data: Any, name: str, file: str) -> Iterator[ConnectorConfig]:
    if isinstance(data, list):
        for number, one in enumerate(data, 1):
            yield from _connectors(one, name if len(data) == 1 else f"{name}-{number}", file)
        return
    if not isinstance(data, dict):
        raise _wrong("The JSON is no configuration of a connector.", file)
    inner = data.get("info", data)
    config = inner.get("config") if isinstance(inner, dict) else None
    if isinstance(config, dict):
        yield _one(config, str(inner.get("name") or config.get("name") or name), file)
    elif CLASS in data or not all(isinstance(one, dict) for one in data.values()):
        yield _one(data, str(data.get("name") or name), file)
    else:
        for key, one in data.items():
            yield from _connectors(one, key, file)


def _one(config: Mapping[str, Any], name: str, file: str) -> ConnectorConfig:
    wrong = [key for key, value in config.items() if isinstance(value, dict | list)]
    if wrong:
        raise _wrong(f"The value of {wrong[0]} is no text.", file)
    texts = {key: _text(value) for key, value in config.items() if value is not None}
    return ConnectorConfig(name, texts, file)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wrong(what: str, file: str) -> ActionRequiredError:
    return ActionRequiredError(
        what,
        next_step='give the connector\'s configuration: a .properties file, or JSON as {"name": …, "config": {…}}.',
        file=file,
    )
