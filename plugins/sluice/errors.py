"""Errors classed by what to do next, because that is the only thing a scheduler and a person on call can act on.

Each error says what happened, where (topic, partition, offset, table, instant) and the next step. The Airflow adapter
maps the class to the task's fate: `RetryableError` is retried with back-off, the two others fail the run at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

Recovery = Literal["retry", "fail_run", "act"]


class SluiceError(Exception):
    """Base of all errors that Sluice raises on purpose.

    Args:
        what: one sentence on what happened.
        where: the place, as field=value pairs of the domain (topic, partition, offset, table, instant, file, key).
        next_step: one sentence on what to do now.
    """

    recovery: ClassVar[Recovery] = "fail_run"

    def __init__(self, what: str, *, next_step: str, **where: Any) -> None:
        self.what = what
        self.next_step = next_step
        self.where = {name: value for name, value in where.items() if value is not None}
        super().__init__(str(self))

    def __str__(self) -> str:
        place = ", ".join(f"{name}={value}" for name, value in self.where.items())
        return f"{self.what}{f' [{place}]' if place else ''} Next step: {self.next_step}"

    def reword(self, words: Callable[[str], str]) -> None:
        """Replace the wording in place, for a caller that knows the user's terms."""
        self.what, self.next_step = words(self.what), words(self.next_step)
        self.args = (str(self),)

    def locate(self, **where: Any) -> None:
        """Add context to `where` in place, for a caller that knows the error's occasion."""
        self.where = {**where, **self.where}
        self.args = (str(self),)

    def __reduce__(self) -> tuple[Any, ...]:
        """Keep the fields over a pickle: Airflow hands exceptions from one process to another."""
        return _rebuild, (type(self), self.what, self.next_step, self.where)


def _rebuild(cls: type[SluiceError], what: str, next_step: str, where: dict[str, Any]) -> SluiceError:
    return cls(what, next_step=next_step, **where)


class RetryableError(SluiceError):
    """The same step may succeed when it is run again: a broker that is down, a plan that another run overtook."""

    recovery = "retry"


class IntervalError(SluiceError):
    """This interval can't be committed; the next one starts from the same offsets and may succeed."""

    recovery = "fail_run"


class ActionRequiredError(SluiceError):
    """Every further interval will fail in the same way until a person acts: bad records, lost offsets, permissions."""

    recovery = "act"


class PipelineFileError(ActionRequiredError):
    """A pipeline file that can't be used; `where` names file, line and key.

    Attributes:
        mistakes: each mistake as the file's key and its value's fault, where several can be named.
    """

    mistakes: tuple[tuple[str, str], ...] = ()


def from_report(recovery: str, message: str) -> SluiceError:
    """Rebuild an error that another process reported as text (a participant's failed WRITE-STATUS).

    The message already names place and next step, so it is carried whole.
    """
    cls: type[SluiceError] = {"retry": RetryableError, "act": ActionRequiredError}.get(recovery, IntervalError)
    what, separator, next_step = message.partition(" Next step: ")
    return cls(what, next_step=next_step if separator else "read the log of the task that failed.")
