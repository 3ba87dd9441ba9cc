"""The pipelines that name a group of workers, if one Spark application can hold them all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from sluice.errors import ActionRequiredError, PipelineFileError
from sluice.pipeline.load import files_in, load_each
from sluice.pipeline.model import Pipeline

_DAG_PREFIX = "sluice_workers_"


def dag_of_workers(group: str) -> str:
    """The id of the DAG that keeps a group's workers."""
    return f"{_DAG_PREFIX}{group}"


def keeps_workers(dag_id: str) -> bool:
    """Whether a DAG's id is one of a DAG that keeps workers."""
    return dag_id.startswith(_DAG_PREFIX)


def pipelines_of(
    places: Iterable[Path], group: str, left_out: Callable[[PipelineFileError], None] = lambda _error: None
) -> tuple[Pipeline, ...]:
    """The pipelines whose ranges a group of workers writes.

    Args:
        places: pipeline files, and folders of them.
        group: the group.
        left_out: called with the error of each invalid file of a folder, which affects only its own pipelines.

    Raises:
        PipelineFileError: a file named individually is invalid.
        ActionRequiredError: no pipeline names the group, or they don't fit into one Spark application.
    """
    found: list[Pipeline] = []
    for place in places:
        pipelines, errors = load_each(files_in(place) if place.is_dir() else [place])
        if errors and not place.is_dir():
            raise errors[0]
        for error in errors:
            left_out(error)
        found += [pipeline for _, pipeline in pipelines if pipeline.write.workers == group]
    if not found:
        raise ActionRequiredError(
            "No pipeline is written by these workers.",
            next_step=f"set `write.workers: {group}` in a pipeline file that is given to them.",
            group=group,
        )
    first = found[0]
    for other in found[1:]:
        for key in ("connection", "conf"):
            if getattr(other.write, key) != getattr(first.write, key):
                raise ActionRequiredError(
                    f"Two pipelines of a group of workers differ in write.{key}, and share a Spark application.",
                    next_step=f"give both the same write.{key}, or name another group in one's `write.workers`.",
                    group=group,
                    pipelines=f"{first.name}, {other.name}",
                )
    return tuple(found)


class ServedFiles:
    """The files of a group's pipelines, as they were when a worker began.

    Args:
        places: pipeline files, and folders of them.
        group: the group.
    """

    def __init__(self, places: Sequence[Path], group: str) -> None:
        self._places = places
        self._group = group
        self._known: dict[Path, tuple[str, bool]] = {}
        self._began_with = self._now()

    def are_same(self) -> bool:
        """Whether they are unchanged; files of other groups, and invalid ones, don't count, but its new ones do."""
        return self._now() == self._began_with

    def _now(self) -> dict[Path, str]:
        files = [f for place in self._places for f in (files_in(place) if place.is_dir() else [place])]
        self._known = {file: self._look_at(file) for file in files}
        return {file: digest for file, (digest, serves) in self._known.items() if serves}

    def _look_at(self, file: Path) -> tuple[str, bool]:
        """The digest of its content, and whether it names the group; a file is parsed again when it has changed."""
        digest = hashlib.sha256(file.read_bytes() if file.exists() else b"\x00").hexdigest()
        known = self._known.get(file)
        if known is not None and known[0] == digest:
            return known
        pipelines, _ = load_each(
            [file]
        )  # a wrong one shows as an import error, and its pipelines have no DAG meanwhile
        return digest, any(pipeline.write.workers == self._group for _, pipeline in pipelines)
