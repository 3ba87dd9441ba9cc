"""Which pipelines a group of workers writes: those that name it, if one Spark application can hold them all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sluice.errors import ActionRequiredError
from sluice.logs import log
from sluice.pipeline.load import load_each
from sluice.pipeline.model import Pipeline


def pipelines_of(files: Iterable[Path], group: str) -> tuple[Pipeline, ...]:
    """The pipelines whose ranges a group of workers writes.

    A file that is wrong is left out, with a word in the log: the tables of all others are written.

    Args:
        files: pipeline files.
        group: the group.

    Raises:
        PipelineFileError: a file is wrong, and no other names the group.
        ActionRequiredError: none names the group, or they don't fit into one Spark application.
    """
    pipelines, errors = load_each(files)
    found = tuple(pipeline for _, pipeline in pipelines if pipeline.write.workers == group)
    if not found and errors:
        raise errors[0]
    for error in errors:
        log.error("a pipeline file is left out", group=group, reason=str(error))
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
    return found
