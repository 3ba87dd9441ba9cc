"""Which pipelines a group of workers writes: those that name it, if one Spark application can hold them all."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sluice.errors import ActionRequiredError
from sluice.pipeline.load import load_pipelines
from sluice.pipeline.model import Pipeline


def pipelines_of(files: Iterable[Path], group: str) -> tuple[Pipeline, ...]:
    """The pipelines whose ranges a group of workers writes.

    Args:
        files: pipeline files.
        group: the group.

    Raises:
        PipelineFileError: a file is wrong.
        ActionRequiredError: none names the group, or they don't fit into one Spark application.
    """
    found = tuple(p for file in files for p in load_pipelines(file) if p.write.workers == group)
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
