"""Reads pipeline files, and reports mistakes with file, line, key and remedy."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import yaml
from pydantic import BaseModel, ValidationError

from sluice.connectors import registry
from sluice.errors import ActionRequiredError, PipelineFileError
from sluice.locations import location
from sluice.pipeline.connector_sections import Sink, Source
from sluice.pipeline.model import Pipeline
from sluice.pipeline.routes import Routes, pipeline_of, place_in_file
from sluice.sections import duration_in_words, words_of
from sluice.yaml_text import Bounds, YamlTextError, composed, constructed

_LONGEST_PATH = 255  # characters of a path in an error
_Model = TypeVar("_Model", bound=BaseModel)
_PATH = re.compile(r"\b(source|sink|write|control)(\.\w+)+")
FOLDERS_VARIABLE = "SLUICE_PIPELINE_FOLDERS"
BOUNDS = Bounds(characters=1024 * 1024, values=50_000)
"""The limits of a pipeline file; 1,000 tables of one file are some 20,000 values."""


def pipeline_folders(default: Path) -> list[Path]:
    """The folders of pipeline files: the default one, and those of the environment variable (`:` between)."""
    return [default, *(Path(p) for p in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if p)]


def files_in(folder: Path) -> list[Path]:
    """The pipeline files of a folder, by name."""
    return sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])


def pipeline_files(default: Path) -> Iterator[Path]:
    """All pipeline files: those of the default folder, and of the folders that the environment names."""
    for folder in pipeline_folders(default):
        yield from files_in(folder)


def load_pipeline(path: Path | str) -> Pipeline:
    """Read and validate the pipeline of a file; of a file with `routes`, one of them: `orders.yaml#payment`.

    Raises:
        PipelineFileError: it can't be read or is wrong; the message holds one line for each mistake.
    """
    file, _, route = str(path).partition("#")
    pipelines = load_pipelines(file)
    found = [p for p in pipelines if not route or p.name.endswith(f".{route}")]
    if len(found) == 1:
        return found[0]
    tables = ", ".join(f"{file}#{p.name.rpartition('.')[2]}" for p in pipelines) if len(pipelines) > 1 else file
    raise PipelineFileError(
        f"The file's `routes` have no table {route}." if route else "The file has `routes` to several tables.",
        next_step=f"name one pipeline: {tables}.",
        file=file,
    )


def load_pipelines(path: Path | str) -> tuple[Pipeline, ...]:
    """Read and validate all pipelines of a file: one, or with `routes` one for each of its tables.

    Raises:
        PipelineFileError: it can't be read or is wrong; the message holds one line for each mistake.
    """
    path = Path(path)
    try:
        return _pipelines(path)
    except PipelineFileError:
        raise
    except ActionRequiredError as error:  # a dependency of its source or sink is missing
        raise PipelineFileError(error.what, next_step=error.next_step, **{"file": path, **error.where}) from error


def load_each(paths: Iterable[Path]) -> tuple[list[tuple[Path, Pipeline]], list[PipelineFileError]]:
    """The pipelines of many files, each with its file, and the errors of invalid files.

    Args:
        paths: pipeline files.
    """
    pipelines: list[tuple[Path, Pipeline]] = []
    errors: list[PipelineFileError] = []
    for path in paths:
        try:
            pipelines += [(path, pipeline) for pipeline in load_pipelines(path)]
        except PipelineFileError as error:
            errors.append(error)
        except Exception as error:  # a third-party source or sink may raise anything
            errors.append(unforeseen(path, error))
    return pipelines, errors


def unforeseen(path: Path, error: Exception) -> PipelineFileError:
    """A foreign error raised by a pipeline file's connector, as one of Sluice's."""
    return PipelineFileError(
        f"The pipeline can't be used: {type(error).__name__}: {error}.",
        next_step="correct what it names, or take the file away until it is reported and mended.",
        file=path,
    )


def _pipelines(path: Path) -> tuple[Pipeline, ...]:
    data, node = read_file(path)
    _resolve_schema_files(data, path)
    if "routes" not in data:
        return (validated(Pipeline, data, path, node),)
    routes = validated(Routes, data["routes"], path, node, lambda keys: ["routes", *keys])
    pipelines = tuple(
        validated(Pipeline, pipeline_of(data, routes, table), path, node, partial(place_in_file, data, table))
        for table in routes.tables
    )
    _require_apart(path, node, pipelines)
    return pipelines


def read_file(path: Path) -> tuple[dict[str, Any], yaml.Node | None]:
    """A pipeline file as data, and as YAML's nodes, which know their lines.

    Raises:
        PipelineFileError: it can't be read, or is no mapping in YAML.
    """
    try:
        with path.open("rb") as file:
            text = file.read(BOUNDS.characters + 1).decode()
        node = composed(text, BOUNDS)
        data = constructed(node)
    except OSError as error:
        raise PipelineFileError(
            f"The pipeline file can't be read: {error.strerror}.", next_step="check the path.", file=path
        ) from error
    except UnicodeDecodeError as error:
        raise PipelineFileError(
            "The file is not in UTF-8.",
            next_step="save it in UTF-8.",
            file=path,
            line=error.object.count(b"\n", 0, error.start) + 1,
        ) from error
    except YamlTextError as error:
        raise PipelineFileError(
            f"The file is not YAML of a pipeline: {error}.",
            next_step="correct the line; strings with `: ` or `#` need quotes, and indents are spaces.",
            file=path,
            line=error.line,
        ) from error
    if not isinstance(data, dict):
        raise PipelineFileError(
            "The file holds no pipeline.", next_step="start from dags/pipelines/flights.yaml.", file=path, line=1
        )
    return data, node


def validated(
    model: type[_Model],
    data: Any,
    path: Path,
    node: yaml.Node | None = None,
    placed: Callable[[Sequence[str]], list[str]] = list,
) -> _Model:
    """Data of a file as a section.

    Args:
        model: the section.
        data: the section's content in the file.
        path: the file, for errors.
        node: the same as YAML's nodes, which know their lines.
        placed: maps a key of the section to its path in the file.

    Raises:
        PipelineFileError: it is wrong; the message holds one line for each mistake.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        mistakes = [_explain(node, problem, data, model, placed) for problem in error.errors()]
        lines = [f"{path.name}:{line}: {key or '(file)'}: {message}" for line, key, message in mistakes]
        wrong = PipelineFileError(
            "The pipeline file is wrong:\n  " + "\n  ".join(lines) + "\n",
            next_step=f"correct it; `sluice validate {path.name}` checks it again.",
            file=path,
        )
        wrong.mistakes = tuple((key, message) for _, key, message in mistakes)
        raise wrong from error


def _require_apart(path: Path, node: yaml.Node | None, pipelines: Sequence[Pipeline]) -> None:
    """Check that the pipelines of one file write to separate places, and read records in the same way."""
    quarantines = [location(p.errors.quarantine) for p in pipelines if p.errors.quarantine]
    wrong, source = None, pipelines[0].source
    if len({location(p.table_id) for p in pipelines}) < len(pipelines):
        wrong = (f"two tables of `routes` have the same {pipelines[0].sink.place}.path", ["routes", "tables"])
    elif len(set(quarantines)) < len(quarantines):
        wrong = ("two tables of `routes` have the same errors.quarantine", ["routes", "tables"])
    elif not source.options.value.has_schema:
        wrong = (f"`routes` needs the records' own fields in {source.place}.value.schema: no table has all of them",
                 ["source", source.name, "value"])  # fmt: skip
    if wrong is not None:
        raise PipelineFileError(
            f"The pipeline file is wrong: {wrong[0]}.",
            next_step="give each table its own, or the records their schema; "
            f"`sluice validate {path.name}` checks it again.",
            file=path,
            line=line_of(node, wrong[1]),
            key=".".join(wrong[1]),
        )


def _resolve_schema_files(data: Any, path: Path, *keys: str) -> None:
    """Make every `schema_file` relative to the pipeline file's folder; it must be there."""
    if isinstance(data, list):
        for number, one in enumerate(data):
            _resolve_schema_files(one, path, *keys, str(number))
    if not isinstance(data, dict):
        return
    for name, value in data.items():
        if name == "schema_file" and isinstance(value, str):
            try:
                data[name] = (path.parent / value).resolve()
                there = data[name].exists()
            except (OSError, ValueError):  # too long, or with a character that no path has
                there = False
            if not there:
                raise PipelineFileError(
                    "The schema file does not exist.",
                    next_step=f"correct {'.'.join([*keys, name])}.",
                    file=path,
                    schema_file=str(data[name])[:_LONGEST_PATH],
                )
        _resolve_schema_files(value, path, *keys, str(name))


def _explain(
    root: yaml.Node | None,
    problem: Any,
    data: Any,
    model: type[BaseModel],
    placed: Callable[[Sequence[str]], list[str]],
) -> tuple[int, str, str]:
    """The line, the key and its fault."""
    keys = _keys_of(problem, data)
    message = words_of(problem)
    named = _PATH.search(message)
    if not keys and named:  # what concerns several sections names the key that is to be corrected
        keys = named.group(0).split(".")
    within, keys = keys, placed(keys)
    line = line_of(root, keys)
    if problem["type"] == "extra_forbidden":
        message = f"there is no such key{_suggest(model, within)}"
    elif problem["type"] == "missing":
        message = "this key is missing; add it"
    elif "input" in problem and not isinstance(problem["input"], dict | list):
        message = f"{message} (found: {_as_written(problem['input'])})"
    return line, ".".join(keys), message


def _as_written(value: Any) -> str:
    """A value as the file has it; durations are checked after they are parsed."""
    return duration_in_words(value) if isinstance(value, timedelta) else repr(value)


def _keys_of(problem: Any, data: Any) -> list[str]:
    """A problem's location by the file's keys, without the branches of unions, which pydantic puts in between.

    The file may have keys of the branches' names.
    """
    keys: list[str] = []
    for place, key in enumerate(problem["loc"], start=1):
        there = isinstance(data, dict) and key in data
        is_its_own = place == len(problem["loc"]) and problem["type"] in ("extra_forbidden", "missing")
        if there or is_its_own or not _is_branch(key):
            keys.append(str(key))
            there = there or (isinstance(data, list) and isinstance(key, int) and key < len(data))
            data = data[key] if there else None
    return keys


def _is_branch(key: Any) -> bool:
    return isinstance(key, str) and (
        key.startswith(("literal[", "dict[", "function-", "nullable["))
        or key in ("timedelta", "str", "constrained-int", "scalar", "mapping")
    )


def _section_in(annotation: Any) -> type[BaseModel] | None:
    """The section that a key holds, perhaps one of several kinds of values."""
    if hasattr(annotation, "model_fields"):
        return cast(type[BaseModel], annotation)
    return next((found for kind in get_args(annotation) if (found := _section_in(kind)) is not None), None)


def _suggest(section: Any, keys: Sequence[str]) -> str:
    """The key of the same section that was probably meant."""
    for key in keys[:-1]:
        if issubclass(section, Source | Sink):
            section = registry.section(section.kind, key)
            continue
        field = next((f for name, f in section.model_fields.items() if key in (name, f.alias)), None)
        found = _section_in(field.annotation) if field is not None else None
        if found is None:
            break
        section = found
    known = sorted(field.alias or name for name, field in section.model_fields.items())
    known += ["routes"] if section is Pipeline else []
    close = get_close_matches(keys[-1], known, n=1)
    return f"; did you mean `{close[0]}`?" if close else f"; there are {', '.join(known)}"


def line_of(node: yaml.Node | None, keys: Sequence[str]) -> int:
    """The line (from 1) of a key; of its nearest parent where the key itself isn't there."""
    line = node.start_mark.line + 1 if node is not None else 1
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == key), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and key.isdigit() and int(key) < len(node.value):
            node = node.value[int(key)]
            line = node.start_mark.line + 1
    return line
