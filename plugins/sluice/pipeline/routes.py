"""The section `routes`: one file, several pipelines that read the same topics, each into its own table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from sluice.connectors import registry
from sluice.connectors.options import SinkOptions, SourceOptions
from sluice.sections import Section

_OWN = [
    "is",
    "description",
    "schedule",
    "timezone",
    "start_date",
    "catch_up",
    "changes",
    "transforms",
    "errors",
    "sink",
    "write",
    "on_missing_range",
    "retries",
    "retry_delay",
    "alerts",
    "table_services",
    "catalog_sync",
    "tags",
    "paused",
]
_NO_TABLE = ("fail", "ignore")


class Routes(Section):
    """Distribute the source's records among several tables. Each table is a pipeline, `<name>.<table>`."""

    by: Annotated[str, Field(min_length=1)]
    """A column of the records, or a Spark SQL expression, whose value determines a record's table."""
    tables: Annotated[dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], dict[str, Any]], Field(min_length=1)]
    """The tables by that value. Each may override any top-level key except `name`, `source` and `control`; its
    `transforms` follow the file's. `is` gives the value if it differs from the name."""
    otherwise: str = "fail"
    """Where a record of no table goes. fail: a bad record of the first table's pipeline. ignore: skipped. A table's
    name: to that table."""

    @model_validator(mode="after")
    def _tables_fit(self) -> Self:
        for name, own in self.tables.items():
            strange = [str(key) for key in own if key not in _OWN]
            if strange:
                raise ValueError(f"the table {name} can't set {', '.join(strange)} itself; it may set {_OWN}")
        if self.otherwise not in (*_NO_TABLE, *self.tables):
            raise ValueError(f"`otherwise` is fail, ignore, or one of the tables: {', '.join(self.tables)}")
        values = [self.value(name) for name in self.tables]
        if len(set(values)) < len(values):
            raise ValueError(f"two tables have the same value: {', '.join(values)}")
        return self

    def value(self, table: str) -> str:
        """The value of `by` for a table."""
        return str(self.tables[table].get("is", table))

    def step(self, table: str) -> dict[str, Any]:
        """The transform that takes a table's records."""
        first = next(iter(self.tables))
        otherwise = "fail" if self.otherwise == "fail" and table == first else "ignore"
        return {
            "by": self.by,
            "is": self.value(table),
            "others": [self.value(name) for name in self.tables if name != table],
            "otherwise": "take" if self.otherwise == table else otherwise,
        }


def pipeline_of(data: Mapping[str, Any], routes: Routes, table: str) -> dict[str, Any]:
    """The content of an equivalent pipeline file for one of the tables."""
    own = {key: value for key, value in routes.tables[table].items() if key != "is"}
    common = {key: value for key, value in data.items() if key != "routes"}
    found: dict[str, Any] = overlay(common, own)
    steps = (*_steps(data), *_steps(own))
    found["transforms"] = [{"route": routes.step(table)}, *steps]
    name = str(data.get("name", ""))
    found["name"] = f"{name}.{table}"
    for name_of, section in _sections(found, "sink"):
        sink = registry.section("sink", str(name_of))
        if isinstance(section, dict) and sink is not None and issubclass(sink, SinkOptions):
            sink.for_route(section, name, table)
    for name_of, section in _sections(found, "source"):
        source = registry.section("source", str(name_of))
        if isinstance(section, dict) and source is not None and issubclass(source, SourceOptions):
            source.for_route(section, table)
    return found


def _steps(data: Mapping[str, Any]) -> list[Any]:
    """The transforms of a file or of a table; anything else than a list is refused by the pipeline's own check."""
    found = data.get("transforms") or []
    return found if isinstance(found, list) else [found]


def _sections(found: Mapping[str, Any], kind: str) -> list[tuple[Any, Any]]:
    """The named sections of a sink or source; none where a file has something else there, which is refused later."""
    sections = found.get(kind)
    return list(sections.items()) if isinstance(sections, Mapping) else []


def overlay(common: Any, own: Any) -> Any:
    """Mappings key by key, anything else as a whole; copies throughout."""
    if not isinstance(common, Mapping) or not isinstance(own, Mapping):
        return {k: overlay(v, v) for k, v in own.items()} if isinstance(own, Mapping) else own
    keys = dict.fromkeys((*common, *own))
    return {k: overlay(common.get(k, own.get(k)), own.get(k, common.get(k))) for k in keys}


def place_in_file(data: Mapping[str, Any], table: str, keys: Sequence[str]) -> list[str]:
    """The path of a key of a table's pipeline in the file: among the table's own keys, or the common ones."""
    if keys and keys[0] == "transforms" and len(keys) > 1 and keys[1].isdigit():
        number, common = int(keys[1]) - 1, len(_steps(data))
        if number < 0:
            return ["routes", "by"]
        if number < common:
            return ["transforms", str(number), *keys[2:]]
        return ["routes", "tables", table, "transforms", str(number - common), *keys[2:]]
    own = data["routes"]["tables"][table]
    return ["routes", "tables", table, *keys] if _depth(own, keys) > _depth(data, keys) or not keys else list(keys)


def _depth(data: Any, keys: Sequence[str]) -> int:
    for depth, key in enumerate(keys):
        if not isinstance(data, Mapping) or key not in data:
            return depth
        data = data[key]
    return len(keys)
