"""`config/validate`: what becomes of each key of a Connect configuration here, in Connect's own shape. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from sluice.connect import ConnectorConfig, Finding, Imported, ImportOptions, checked, imported
from sluice.connect.configs import CLASS
from sluice.errors import ActionRequiredError
from sluice.page.gate import Gate
from sluice.page.rest.answers import Json
from sluice.page.rest.plugins import definition, keys_of
from sluice.redact import redact

LARGEST = 64 * 1024
"""Bytes of a configuration."""
# All of it is Python's own work, beside which every other request is slow.
VALIDATING = Gate(1, "Another configuration is being checked.", "try again in a moment.")
_PIPELINES = 5  # of a connector with a table for each topic; what is said of keys is the same for all
_GROUP = "import-connect"


def validated(plugin: str, config: Mapping[str, Any]) -> Json:
    """Connect's answer: an error at each key that has no effect here, and what becomes of each of the others.

    Args:
        plugin: the class in the address, or the end of its name.
        config: the configuration.

    Raises:
        ActionRequiredError: it isn't the configuration of such a connector.
    """
    connector = connector_of(plugin, config)
    return verdicts(connector, made_of(connector))


def connector_of(plugin: str, config: Mapping[str, Any]) -> ConnectorConfig:
    """A configuration that was sent, all of it as text.

    Args:
        plugin: the class that it has to name, or the end of that name.
        config: the configuration.

    Raises:
        ActionRequiredError: it isn't the configuration of such a connector.
    """
    given = str(config.get(CLASS) or "")
    short = given.rpartition(".")[2]
    if not given or plugin not in (given, short, short.removesuffix("Connector")):
        raise ActionRequiredError(
            f"The configuration is not one of {plugin or 'any connector'}.",
            next_step=f"have {CLASS} and the address name one connector.",
        )
    if keys_of(given) is not None:
        raise ActionRequiredError(
            f"{given} is a class of Sluice's, whose configuration is a pipeline file.",
            next_step="check the file by `sluice validate FILE`.",
        )
    wrong = [key for key, value in config.items() if isinstance(value, dict | list)]
    if wrong:
        raise ActionRequiredError(f"The value of {wrong[0]} is no text.", next_step="send a flat configuration.")
    texts = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in config.items() if v is not None}
    return ConnectorConfig(texts.get("name") or short, texts)


def made_of(connector: ConnectorConfig) -> list[Imported]:
    """The connector's pipelines, each checked as a file; the first few, where there is one for each topic or table."""
    return [checked(one) for one in islice(imported(connector, ImportOptions(runs_patterns=False)), _PIPELINES)]


def verdicts(connector: ConnectorConfig, made: Sequence[Imported]) -> Json:
    """The verdict on each key of a configuration, as Connect answers."""
    texts = connector.config
    findings = {one.key: one for pipeline in reversed(made) for one in pipeline.findings if one.of == "connector"}
    shown = redact(dict(texts))
    configs = [_key(order, key, shown[key], findings.get(key)) for order, key in enumerate(texts, 1)]
    of_class = next(one for one in configs if one["definition"]["name"] == CLASS)
    refused = next((one.refused for one in made if one.refused), "")
    if refused:
        of_class["value"]["errors"].insert(0, redact(refused))
    steps = [step for one in made[:1] for step in one.steps if step]
    if steps:
        of_class["definition"]["documentation"] += f" Left to do: {'; '.join(steps)}."
    errors = sum(len(one["value"]["errors"]) for one in configs)
    return {"name": texts[CLASS], "error_count": errors, "groups": [_GROUP], "configs": configs}


def _key(order: int, key: str, value: str, finding: Finding | None) -> Json:
    verdict = finding.verdict if finding is not None else "not honoured"
    what = redact(finding.what) if finding is not None else "Sluice doesn't know this key"
    step = f" Next step: {redact(finding.next_step)}." if finding is not None and finding.next_step else ""
    importance = {"honoured": "HIGH", "differs": "HIGH", "not honoured": "HIGH"}.get(verdict, "LOW")
    return {
        "definition": definition(
            key, order, group=_GROUP, importance=importance, documentation=f"{verdict}: {what}.{step}"
        ),
        "value": {
            "name": key,
            "value": value,
            "recommended_values": [],
            "errors": [f"{what[0].upper()}{what[1:]}.{step}"] if verdict == "not honoured" else [],
            "visible": True,
        },
    }
