"""The sections `source` and `sink`: each has one section of a connector's, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticKnownError

from sluice.connectors import registry
from sluice.connectors.capabilities import SinkCapabilities, SourceCapabilities
from sluice.connectors.options import SinkOptions, SourceOptions
from sluice.connectors.registry import GROUPS, Kind
from sluice.sections import Section


class _OneConnector(Section):
    model_config = ConfigDict(extra="allow")
    kind: ClassVar[Kind]

    @property
    def name(self) -> str:
        """The connector's name."""
        return next(iter(self.model_extra or {}))

    @property
    def place(self) -> str:
        """Its section's path in a pipeline file: `source.` or `sink.`, and its name."""
        return f"{self.kind}.{self.name}"

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, data: Any) -> Any:
        if isinstance(data, cls):
            return data
        if not isinstance(data, Mapping):
            raise ValueError(f"name exactly one {cls.kind}, of these: {_known(cls.kind)}")
        strange = {str(name): value for name, value in data.items() if registry.section(cls.kind, str(name)) is None}
        errors: list[InitErrorDetails] = [
            _wrong(ValueError(unknown(cls.kind, name)), (name,), value) for name, value in strange.items()
        ]
        found = {}
        for name, section in data.items():
            options = registry.section(cls.kind, str(name))
            if options is None:
                continue
            try:
                found[str(name)] = options.model_validate(section)
            except ValidationError as error:
                errors += [_within(str(name), problem) for problem in error.errors(include_url=False)]
        if errors:
            raise ValidationError.from_exception_data(cls.__name__, errors)
        if len(found) != 1:
            raise ValueError(f"name exactly one {cls.kind}, of these: {_known(cls.kind)}")
        return found

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        made = handler(schema)
        inner = handler.resolve_ref_schema(made)
        sections = {name: registry.section(cls.kind, name) for name in registry.names(cls.kind)}
        inner["properties"] = {n: handler(s.__pydantic_core_schema__) for n, s in sections.items() if s is not None}
        inner["additionalProperties"] = False
        if len(sections) == 1:
            inner["required"] = list(sections)
        else:
            inner["minProperties"] = inner["maxProperties"] = 1
        return made


class Source(_OneConnector):
    """Where records come from."""

    kind = "source"

    if TYPE_CHECKING:

        def __init__(self, **section: SourceOptions) -> None: ...

    @property
    def options(self) -> SourceOptions:
        """The source's section."""
        found: SourceOptions = (self.model_extra or {})[self.name]
        return found

    @property
    def capabilities(self) -> SourceCapabilities:
        """The source's capabilities."""
        return self.options.capabilities


class Sink(_OneConnector):
    """Where records go."""

    kind = "sink"

    if TYPE_CHECKING:

        def __init__(self, **section: SinkOptions) -> None: ...

    @property
    def options(self) -> SinkOptions:
        """The sink's section."""
        found: SinkOptions = (self.model_extra or {})[self.name]
        return found

    @property
    def capabilities(self) -> SinkCapabilities:
        """The sink's capabilities for this pipeline."""
        return self.options.capabilities


def unknown(kind: Kind, name: str) -> str:
    """That there is no connector of a name, and which there are."""
    close = get_close_matches(name, registry.names(kind), n=1)
    nearest = f"did you mean `{close[0]}`? " if close else ""
    return (
        f"there is no {kind} `{name}`; {nearest}Installed: {_known(kind)}. Others come with packages that have an "
        f"entry point in the group {GROUPS[kind]}"
    )


def _known(kind: Kind) -> str:
    return ", ".join(registry.names(kind))


def _within(name: str, problem: Any) -> InitErrorDetails:
    """A section's error, as one of the section around it."""
    where = (name, *problem["loc"])
    if problem["type"] in ("value_error", "assertion_error"):
        return _wrong(problem["ctx"]["error"], where, problem["input"])
    kind, context = problem["type"], problem.get("ctx", {})
    try:
        PydanticKnownError(kind, context)
    except KeyError:  # an error made by a type itself, such as ByteSize
        kind = PydanticCustomError(kind, problem["msg"])
    return InitErrorDetails(type=kind, loc=where, input=problem["input"], ctx=context)


def _wrong(error: Exception, where: tuple[str | int, ...], found: Any) -> InitErrorDetails:
    return InitErrorDetails(type="value_error", loc=where, input=found, ctx={"error": error})
