"""Finds sources and sinks by the names of their sections: Sluice's own, and those of installed packages.

A package names the class of its section as an entry point of the group `sluice.sources` or `sluice.sinks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import isabstract
from types import MappingProxyType
from typing import Any, Literal

from sluice.connectors.options import SinkOptions, SourceOptions
from sluice.errors import ActionRequiredError
from sluice.protocol.confine import Confinement

Kind = Literal["source", "sink"]
GROUPS: Mapping[Kind, str] = MappingProxyType({"source": "sluice.sources", "sink": "sluice.sinks"})
# The same as in pyproject.toml. They are here so that a checkout works without being installed, and so that loading a
# file that names them doesn't have to search all packages of the environment.
BUILT_IN: Mapping[Kind, Mapping[str, str]] = MappingProxyType(
    {
        "source": MappingProxyType(
            {
                "kafka": "sluice.sources.kafka.options:Kafka",
                "jdbc": "sluice.sources.jdbc.options:JdbcTables",
                "files": "sluice.sources.files.options:FilesOfFolder",
            }
        ),
        "sink": MappingProxyType(
            {
                "hudi": "sluice.sinks.hudi.options:Hudi",
                "files": "sluice.sinks.files.options:Files",
                "jdbc": "sluice.sinks.jdbc.options:Jdbc",
                "kafka": "sluice.sinks.kafka.options:KafkaTopic",
            }
        ),
    }
)
_CONFINEMENT = "sluice.sinks.hudi.write_stats:CONFINEMENT"
_BASES: Mapping[Kind, type[SourceOptions] | type[SinkOptions]] = {"source": SourceOptions, "sink": SinkOptions}


def load(reference: str) -> Any:
    """The object that `module:name` refers to.

    Raises:
        ImportError: there is no such module.
        AttributeError: the module has no such name.
    """
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


@cache
def confinement() -> Confinement:
    """What control messages may name, for every reader of every control topic.

    The sink that adds its rules is the one of version 1's wire, whose committables are the message's own objects. It is
    part of each release, so that readers never lack its rules. An installed package can't add any: a reader without the
    package would come to another verdict.
    """
    found: Confinement = load(_CONFINEMENT)
    return found


def forget() -> None:
    """Search the installed packages again, for a process that has installed another."""
    _installed.cache_clear()
    _section.cache_clear()


def names(kind: Kind) -> list[str]:
    """The names of all sources, or of all sinks, that are installed."""
    return sorted({*BUILT_IN[kind], *(point.name for point in entry_points(group=GROUPS[kind]))})


def section(kind: Kind, name: str) -> type[SourceOptions] | type[SinkOptions] | None:
    """The class of a source's or a sink's section; None if nothing of that name is installed.

    Raises:
        ActionRequiredError: it is installed, but can't be imported, or is no section.
    """
    reference = BUILT_IN[kind].get(name) or _installed(kind, name)
    return None if reference is None else _section(kind, name, reference)


@cache  # each search goes through all packages of the environment
def _installed(kind: Kind, name: str) -> str | None:
    return next((point.value for point in entry_points(group=GROUPS[kind], name=name)), None)


@cache
def _section(kind: Kind, name: str, reference: str) -> type[SourceOptions] | type[SinkOptions]:
    try:
        found = load(reference)
    except Exception as error:  # importing a third-party package may fail in any way
        raise ActionRequiredError(
            f"The {kind} `{name}` is installed, but can't be imported.",
            next_step="install its package again, with what it needs.",
            entry_point=f"{GROUPS[kind]}: {name} = {reference}",
            reason=f"{type(error).__name__}: {error}",
        ) from error
    base = _BASES[kind]
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ActionRequiredError(
            f"The class installed as the {kind} `{name}` is no section of a pipeline file.",
            next_step=f"have the entry point name a subclass of sluice.connectors.options.{base.__name__}.",
            entry_point=f"{GROUPS[kind]}: {name} = {reference}",
        )
    if isabstract(found):
        raise ActionRequiredError(
            f"The section of the {kind} `{name}` lacks required attributes.",
            next_step=f"have it say what sluice.connectors.options.{base.__name__} leaves open.",
            entry_point=f"{GROUPS[kind]}: {name} = {reference}",
            missing=", ".join(sorted(found.__abstractmethods__)),
        )
    return found
