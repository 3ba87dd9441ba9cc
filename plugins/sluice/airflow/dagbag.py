"""All pipeline files as DAGs, each file by itself: mistakes in one are reported and don't stop the others."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from airflow.sdk import DAG

from sluice.airflow.dag import build_dag
from sluice.airflow.table_services_dag import build_table_services_dag
from sluice.errors import PipelineFileError
from sluice.pipeline.load import FOLDERS_VARIABLE, line_of, load_each, pipeline_files, read_file, unforeseen
from sluice.pipeline.model import SERVICES_SUFFIX, Pipeline


def build_dags(default: Path, *, only: str | None = None) -> list[DAG]:
    """The DAGs of all valid pipeline files; `raise_errors` reports the others.

    Args:
        default: a folder of pipeline files, in addition to those in SLUICE_PIPELINE_FOLDERS.
        only: the one DAG that is needed when a task is about to run: files without its name aren't even parsed.
    """
    name = only.removesuffix(SERVICES_SUFFIX) if only else None
    pipelines, _ = _load(default, name)
    dags = []
    for path, pipeline in pipelines:
        if name in (None, pipeline.name):
            try:
                dags += _build(path, pipeline, auto_register=True)
            except PipelineFileError:
                continue
    return dags


def raise_errors(default: Path) -> None:
    """Raise one error with all mistakes in the pipeline files, if there are any.

    Raises:
        PipelineFileError: with file, line, key and remedy of every mistake.
    """
    pipelines, errors = _load(default)
    for path, pipeline in pipelines:
        try:
            _build(path, pipeline, auto_register=False)
        except PipelineFileError as error:
            errors.append(error)
    errors += _missing_folders()
    if len(errors) == 1:
        raise errors[0].with_traceback(None) from None  # the mistake is in the file, not in Sluice's code
    if errors:
        raise PipelineFileError(
            f"{len(errors)} pipeline files are wrong:\n\n" + "\n\n".join(map(str, errors)) + "\n\n",
            next_step="correct them one by one; the DAGs of all other files keep running.",
        ) from None


def _load(default: Path, only: str | None = None) -> tuple[list[tuple[Path, Pipeline]], list[PipelineFileError]]:
    """The pipelines of unique name with their files, and the errors of the other files."""
    # The name of a pipeline made by `routes` begins with the file's.
    names = () if only is None else (only, only.rpartition(".")[0] or only)
    files = dict.fromkeys(p.resolve() for p in pipeline_files(default))
    pipelines, errors = load_each(path for path in files if only is None or any(name in _text(path) for name in names))
    by_name: dict[str, list[Path]] = defaultdict(list)
    for path, pipeline in pipelines:
        by_name[pipeline.name].append(path)
    for name, paths in by_name.items():
        if len(paths) > 1:  # load none: a copied file with the old name must not take over the DAG's history
            errors.append(_same_name(name, paths))
            pipelines = [(path, pipeline) for path, pipeline in pipelines if path not in paths]
    return pipelines, errors


def _build(path: Path, pipeline: Pipeline, *, auto_register: bool) -> list[DAG]:
    """The pipeline's DAG, and the one for its table services if it has them; both or neither."""
    try:
        services = build_table_services_dag(pipeline, auto_register=auto_register)
        dag = build_dag(pipeline, auto_register=auto_register)
        return [dag, services] if services else [dag]
    except PipelineFileError as error:
        key = str(error.where.get("key", ""))
        place = {"file": path, "line": _line(path, key), **error.where}
        raise PipelineFileError(error.what, next_step=error.next_step, **place) from None
    except Exception as error:
        raise unforeseen(path, error) from error


def _same_name(name: str, paths: list[Path]) -> PipelineFileError:
    return PipelineFileError(
        f"{len(paths)} pipeline files have the name {name}, so none of them is a DAG now.",
        next_step="give each its own name; a pipeline that keeps its name keeps its DAG and its runs.",
        files=", ".join(f"{path}:{_line(path, 'name')}" for path in paths),
        key="name",
    )


def _missing_folders() -> Iterator[PipelineFileError]:
    for folder in filter(None, os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)):
        if not Path(folder).is_dir():
            yield PipelineFileError(
                f"A folder that {FOLDERS_VARIABLE} names is not there.",
                next_step="make it, or take it out of the variable.",
                folder=folder,
            )


def _line(path: Path, key: str) -> int:
    try:
        _, node = read_file(path)
    except PipelineFileError:
        node = None  # load_pipeline reports the mistake
    return line_of(node, key.split("."))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # load_pipeline reports the mistake
