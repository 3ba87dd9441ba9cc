"""Sluice's own commands, in the one place where they are written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.participants import Job


class NotYetError(RuntimeError):
    """Sluice's commands are not known to the benchmark yet; its runs are void, loudly."""


def sluice_commands(job: Job) -> list[list[str]]:
    """The argv of each process of one interval, in order: start first, commit last, the writes between them.

    They run one after the other, each a cold process with the environment of `participants.environment()`.
    This is called outside the timed part, so it may write the pipeline's YAML below `job.home`, which exists.
    The table is `job.table`; it is put back to its seeded state before every run, always at the same path, so
    the control topic has to be a new one for each `job.run`. In the `empty` scenario the list may hold the
    start alone. In `coordinator` only the first and the last are counted.

    Raises:
        NotYetError: always, until the commands are filled in.
    """
    raise NotYetError(f"sluice_commands: nothing to run for {job.scenario} yet")
