"""Reads pipeline files, and says of a wrong one: file, line, key and remedy."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from sluice.errors import PipelineFileError
from sluice.pipeline.model import Pipeline

_PATH = re.compile(r"\b(source|sink|write|control)(\.\w+)+")
FOLDERS_VARIABLE = "SLUICE_PIPELINE_FOLDERS"


def pipeline_files(default: Path) -> Iterator[Path]:
    """All pipeline files: those of the default folder, and of the folders that the environment names (`:` between)."""
    folders = [default, *(Path(p) for p in os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep) if p)]
    for folder in folders:
        yield from sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")])


def load_pipeline(path: Path | str) -> Pipeline:
    """Read and validate one pipeline file.

    Raises:
        PipelineFileError: it can't be read or is wrong; the message holds one line for each mistake.
    """
    path = Path(path)
    try:
        text = path.read_text()
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except OSError as error:
        raise PipelineFileError(
            f"The pipeline file can't be read: {error.strerror}.", next_step="check the path.", file=path
        ) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise PipelineFileError(
            f"The file is not YAML: {getattr(error, 'problem', None) or error}.",
            next_step="correct the line; strings with `: ` or `#` need quotes, and indents are spaces.",
            file=path,
            line=mark.line + 1 if mark else None,
        ) from error
    if not isinstance(data, dict):
        raise PipelineFileError(
            "The file holds no pipeline.", next_step="start from dags/pipelines/flights.yaml.", file=path, line=1
        )
    _resolve_schema_files(data, path)
    try:
        return Pipeline.model_validate(data)
    except ValidationError as error:
        lines = [_explain(path, node, problem) for problem in error.errors()]
        raise PipelineFileError(
            "The pipeline file is wrong:\n  " + "\n  ".join(lines) + "\n",
            next_step=f"correct it; `sluice validate {path.name}` checks it again.",
            file=path,
        ) from error


def _resolve_schema_files(data: Any, path: Path, *keys: str) -> None:
    """Make every `schema_file` relative to the pipeline file's folder; it must be there."""
    if not isinstance(data, dict):
        return
    for name, value in data.items():
        if name == "schema_file" and isinstance(value, str):
            data[name] = resolved = (path.parent / value).resolve()
            if not resolved.exists():
                raise PipelineFileError(
                    "The schema file does not exist.",
                    next_step=f"correct {'.'.join([*keys, name])}.",
                    file=path,
                    schema_file=resolved,
                )
        _resolve_schema_files(value, path, *keys, str(name))


def _explain(path: Path, root: yaml.Node | None, problem: Any) -> str:
    keys = [str(k) for k in problem["loc"] if not _is_branch(k)]
    message = str(problem["msg"]).removeprefix("Value error, ")
    named = _PATH.search(message)
    if not keys and named:  # what concerns several sections names the key that is to be corrected
        keys = named.group(0).split(".")
    line = line_of(root, keys)
    if problem["type"] == "extra_forbidden":
        message = f"there is no such key{_suggest(keys)}"
    elif problem["type"] == "missing":
        message = "this key is missing; add it"
    elif "input" in problem and not isinstance(problem["input"], dict | list):
        message = f"{message} (found: {problem['input']!r})"
    return f"{path.name}:{line}: {'.'.join(keys) or '(file)'}: {message}"


def _is_branch(key: Any) -> bool:
    """Pydantic puts the branch of a union it tried into the location; it is no key of the file."""
    return isinstance(key, str) and (
        key.startswith(("literal[", "dict[", "function-", "nullable[")) or key in ("timedelta", "str")
    )


def _suggest(keys: Sequence[str]) -> str:
    """The key of the same section that was probably meant."""
    section: Any = Pipeline
    for key in keys[:-1]:
        field = next((f for name, f in section.model_fields.items() if key in (name, f.alias)), None)
        if field is None or not hasattr(field.annotation, "model_fields"):
            break
        section = field.annotation
    known = sorted(field.alias or name for name, field in section.model_fields.items())
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
