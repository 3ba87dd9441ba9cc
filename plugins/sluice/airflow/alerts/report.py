"""The values that alerts are decided from, and the alert itself."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from sluice.errors import Recovery
from sluice.pipeline.alerts import Occasion
from sluice.protocol.interval_facts import IntervalFacts
from sluice.protocol.messages import PlannedRange
from sluice.protocol.transaction import State
from sluice.shown import without_markup

Outcome = Literal["committed", "empty", "failed"]
Kind = Literal[
    "failure", "audit", "recovery", "escalation", "deadline", "lag", "quarantine", "offset_loss", "partitions"
]
Severity = Literal["info", "warning", "error", "critical"]
AUDIT_FAILED = "The audit failed"


@dataclass(frozen=True)
class Failure:
    """A task that failed.

    Attributes:
        task: as the grid shows it, such as `write[0]`.
        what: what happened, and where.
        next_step: what to do now.
        recovery: the error's class; None where the task was killed or the error isn't Sluice's.
        log: address of the task's log.
    """

    task: str
    what: str
    next_step: str
    recovery: Recovery | None = None
    log: str | None = None

    @property
    def is_audit(self) -> bool:
        """Whether the audit refused the interval."""
        return self.what.startswith(AUDIT_FAILED)


@dataclass(frozen=True)
class Links:
    """Where to look: the DAG run, and the pipeline's page if there is one."""

    run: str
    page: str | None = None


@dataclass(frozen=True)
class Report:
    """The outcome of one DAG run.

    Attributes:
        outcome: `failed` means that the run didn't commit, or that it is red although its commit is in the table.
        began: when the run began; `ended` is now.
        facts: the run's transaction, None where none was opened.
        stands: the table's positions, if they are known although the run opened no transaction.
        reads_on: whether it reads on as the schedule does. A backfill, a range or a replay reports on itself only, and
            not on the pipeline's health.
        remarks: warnings about partitions where no transaction was opened.
        lag_records: offsets that were left unread where no transaction was opened; None if unknown.
        valid_through: the time up to which the table is complete where no transaction was opened; None if unknown.
        unknown: why the control topic could not be read, if it couldn't.
    """

    pipeline: str
    table: str
    run_id: str
    outcome: Outcome
    began: datetime
    ended: datetime
    links: Links
    failures: tuple[Failure, ...] = ()
    facts: IntervalFacts | None = None
    stands: tuple[PlannedRange, ...] = ()
    reads_on: bool = True
    remarks: tuple[str, ...] = ()
    lag_records: int | None = None
    valid_through: datetime | None = None
    unknown: str | None = None


def committed(report: Report) -> bool:
    """Whether the run's transaction is committed, whatever the state of its tasks."""
    return report.facts is not None and report.facts.state is State.COMMITTED


class History(BaseModel):
    """The state before a run, kept from one run to the next.

    Attributes:
        run_id: the run that this was written after.
        failures: failed runs in a row, up to now.
        good: when a run last ended with a commit or an empty interval; before the first, when runs began.
        late: the deadline has passed since, and an alert was sent.
        over: limits that the last interval had exceeded, so that each is alerted once and not with every interval.
        valid_through: the last known time up to which the table was complete.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str = ""
    failures: int = 0
    good: AwareDatetime | None = None
    late: bool = False
    over: tuple[str, ...] = ()
    valid_through: AwareDatetime | None = None


@dataclass(frozen=True)
class Alert:
    """One message.

    Attributes:
        occasion: the key of the pipeline's `alerts` that names the recipients.
        summary: the message in one sentence.
        act: whether a person must act before the pipeline can continue.
        fields: labels and their text, in the order in which they are read.
        data: the same for programs.
    """

    kind: Kind
    occasion: Occasion
    severity: Severity
    subject: str
    summary: str
    act: bool
    fields: tuple[tuple[str, str], ...] = ()
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """For mail as plain text, and for chats."""
        return "\n".join([self.summary, "", *(f"{label}: {value}" for label, value in self.fields)])

    @property
    def html(self) -> str:
        """For mail; everything is escaped."""
        rows = "".join(
            f"<tr><th align='left' valign='top'>{html.escape(label)}</th><td>{_linked(value)}</td></tr>"
            for label, value in self.fields
        )
        return f"<p><strong>{html.escape(self.summary)}</strong></p><table cellpadding='4'>{rows}</table>"

    @property
    def json(self) -> str:
        """For webhooks."""
        return json.dumps(self.document())

    def document(self) -> dict[str, Any]:
        """What `json` says, as a dictionary."""
        shown = {"subject": self.subject, "text": self.text, "summary": self.summary}
        told = {name: without_markup(text) for name, text in shown.items()}
        return {"kind": self.kind, "severity": self.severity, **told, "act": self.act, **self.data}

    def reworded(self, words: Callable[[str], str]) -> Alert:
        """The same alert in other words, for a sender that knows its readers' terms."""
        return replace(
            self,
            subject=words(self.subject),
            summary=words(self.summary),
            fields=tuple((label, words(text)) for label, text in self.fields),
            data={name: words(value) if isinstance(value, str) else value for name, value in self.data.items()},
        )

    def variables(self) -> dict[str, Any]:
        """The variable `sluice` of templates."""
        return {**self.document(), "html": self.html, "json": self.json}


def _linked(value: str) -> str:
    shown = html.escape(value).replace("\n", "<br>")
    is_address = value.startswith(("http://", "https://")) and not any(c.isspace() for c in value)
    return f'<a href="{html.escape(value)}">{shown}</a>' if is_address else shown
