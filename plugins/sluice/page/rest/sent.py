"""Configurations of connectors that are sent to be kept: pipeline files are made of them, without secrets. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sluice.connect import OWN, Imported
from sluice.connect.configs import CLASS
from sluice.connect.draft import is_placeholder
from sluice.errors import ActionRequiredError
from sluice.page.rest.validate import connector_of, made_of, verdicts
from sluice.redact import is_secret_name, is_secret_option, redact_text

# Ends of names that sound secret, where the value says where a secret is, or of which kind.
_NAMES_A_PLACE = ("source", "url", "path", "location", "type", "class", "file", "id")
_OF_COLUMNS = ("transforms.", OWN)


class Sent(NamedTuple):
    """A configuration of which a pipeline file can be made.

    Attributes:
        config: its keys and values, without secrets.
        imported: the pipeline.
    """

    config: Mapping[str, str]
    imported: Imported


def sent(name: str, given: Mapping[str, Any]) -> Sent:
    """A configuration of which a pipeline file can be made.

    Raises:
        ActionRequiredError: none can; all that is wrong is in the message, and no secret.
    """
    if str(given.get("name") or name) != name:
        raise ActionRequiredError(
            "The configuration has another name than the connector.", next_step="leave `name` out of it."
        )
    connector = connector_of(str(given.get(CLASS) or ""), {**given, "name": name})
    made = made_of(connector)
    wrong = [
        f"[{one['value']['name']}] {error}"
        for one in verdicts(connector, made)["configs"]
        for error in one["value"]["errors"]
    ]
    wrong += [
        f"[{key}] A secret is kept in no file. Next step: put it into the Airflow connection, and take the key out."
        for key, value in connector.config.items()
        if _is_secret(key, value)
    ]
    if len(made) > 1:
        wrong.append(f"[{CLASS}] It writes several tables. Next step: make a connector for each topic or table.")
    elif made[0].name != name:
        wrong.append("[name] Next step: name it by letters, digits, _ . and -, not by a . at its ends.")
    for path in made[0].missing:
        key = f"{OWN}{'.'.join(path)}"
        wrong.append(f"[{key}] The pipeline needs it, and Connect's keys don't say it. Next step: add this key.")
    if wrong:
        said = "\n".join(wrong)
        raise ActionRequiredError(
            f"The configuration is invalid, and contains {len(wrong)} errors:\n{said}\n",
            next_step="correct them; `config/validate` has the verdict on each key.",
        )
    return Sent(connector.config, made[0])


def shown(config: Mapping[str, str]) -> dict[str, str]:
    """A configuration that was written, to be shown. It had no secrets; what is known as one now is hidden."""
    return {key: value if _is_no_secret(key, value) else redact_text(value) for key, value in config.items()}


def _is_secret(key: str, value: str) -> bool:
    """Whether a value must not be in a file: by its name, or by what it looks like."""
    if _is_no_secret(key, value):
        return False
    named = is_secret_option(key) or (is_secret_name(key) and key.rpartition(".")[2] not in _NAMES_A_PLACE)
    return (named and bool(value.strip())) or redact_text(value) != value


def _is_no_secret(key: str, value: str) -> bool:
    """Whether a value is none, though it may look like one: names of columns, or for Connect's providers."""
    return key.startswith(_OF_COLUMNS) or is_placeholder(value)
