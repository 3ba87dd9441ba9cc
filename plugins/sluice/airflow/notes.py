"""The DAG run's note: one sentence with the interval's outcome, shown in the grid.

Tasks of Airflow 3 can't write a note. They leave their part of the sentence in an XCom, and the listener joins the
parts in the scheduler, once the run's state is settled and every task's state is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sluice.shown import without_markup

NOTE_KEY = "sluice_note"
ERROR_KEY = "sluice_error"  # the same error for programs: what, next_step and recovery
START_COMMIT, WRITE, COMMIT, ABORT, ALERT = "start_commit", "write", "commit", "abort", "alert"
CATALOG_SYNC, CATCH_UP = "catalog_sync", "catch_up"
_ORDER = {START_COMMIT: 0, WRITE: 1, COMMIT: 2, CATALOG_SYNC: 3, CATCH_UP: 4, ABORT: 5, ALERT: 6}
LONGEST = 1000  # characters in Airflow's table of notes


@dataclass(frozen=True)
class TaskNote:
    """How one task instance ended, and its part of the sentence, if any. `map_index` is -1 unless mapped."""

    task_id: str
    map_index: int
    state: str | None
    text: str | None = None

    @property
    def name(self) -> str:
        """The task's name in the grid."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}[{self.map_index}]"


def compose(tasks: Iterable[TaskNote], *, succeeded: bool) -> str:
    """The note of a run that has ended."""
    ordered = sorted(tasks, key=lambda t: (_ORDER.get(t.task_id, len(_ORDER)), t.map_index))
    failed = [t for t in ordered if t.state == "failed"]
    untold = next((f" {t.text}" for t in failed if t.task_id == ALERT and t.text), "")
    failed = [t for t in failed if t.task_id != ALERT]
    if not any(t.task_id in _ORDER for t in ordered):
        text = _of_services(ordered)
    else:
        text = _of_success(ordered, failed) if succeeded else _of_failure(ordered, failed)
    text = without_markup(f"{text}{untold}")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _of_services(ordered: Sequence[TaskNote]) -> str:
    """Table services are independent: failures come first, then what each of the others has done."""
    by_failure = sorted(ordered, key=lambda t: t.state != "failed")
    told = [f"Failed in {t.name}: {t.text or 'read its log.'}" if t.state == "failed" else t.text for t in by_failure]
    return " ".join(filter(None, told)) or "No table service had anything to do."


def _of_success(ordered: Sequence[TaskNote], failed: Sequence[TaskNote]) -> str:
    text = next((t.text for t in ordered if t.task_id == COMMIT and t.text), "The interval ended without a commit.")
    missing = [t.name for t in failed if t.task_id == WRITE]
    if not missing:
        return text
    return f"{text} {', '.join(missing)} failed, so their offsets stay where they were, for the next interval."


def _of_failure(ordered: Sequence[TaskNote], failed: Sequence[TaskNote]) -> str:
    first = next((t for t in failed if t.text), next(iter(failed), None))
    if first is not None and first.task_id == CATALOG_SYNC:
        done = _of_success(ordered, failed)
        return f"{done} Its data is in. Failed in {first.name}: {first.text or 'no reason was recorded; read its log.'}"
    ended = next((t.text for t in ordered if t.task_id == ABORT and t.text and t is not first), None)
    if ended is not None and first is not None and ended == first.text:
        ended = None  # the same cause stopped both
    if first is None:
        return ended or "Failed before any task did; read the scheduler's log."
    others = len(failed) - 1
    more = f" ({others} more failed)" if others else ""
    text = f"Failed in {first.name}{more}: {first.text or 'no reason was recorded; read its log.'}"
    return f"{text} {ended}" if ended else text
