"""The section `alerts`: who is told what."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from sluice.sections import Duration, Section

Occasion = Literal["on_failure", "on_recovery", "on_escalation", "on_deadline", "on_warning"]
OCCASIONS: tuple[Occasion, ...] = get_args(Occasion)


class Notifier(Section):
    """An Airflow notifier, named by its class."""

    notifier: str
    """The class, such as airflow.providers.smtp.notifications.smtp.SmtpNotifier."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Its arguments; Airflow's templates work in them."""


class Alerts(Section):
    """Who is told what."""

    on_failure: tuple[Notifier, ...] = ()
    """Told once for each DAG run that failed, an audit that failed included."""
    on_recovery: tuple[Notifier, ...] | None = None
    """Told by the first good run after failed or late ones; those of `on_failure` by default."""
    escalate_after: Annotated[int, Field(gt=1)] = 3
    """After how many failed runs in a row `on_escalation` is told."""
    on_escalation: tuple[Notifier, ...] = ()
    """Told once, beside `on_failure`, when `escalate_after` runs in a row have failed."""
    deadline: Duration | None = None
    """The longest time without a commit or a confirmed empty interval, such as `15 minutes`."""
    on_deadline: tuple[Notifier, ...] | None = None
    """Told once when the deadline has passed; those of `on_failure` by default."""
    max_lag_records: Annotated[int, Field(gt=0)] | None = None
    """The most offsets that an interval may leave unread in the log."""
    max_lag: Duration | None = None
    """How far the time up to which the table is complete may lie behind the commit."""
    max_quarantine_rate: Annotated[float, Field(ge=0, lt=1)] | None = None
    """The largest part of an interval's records that may be quarantined, such as 0.01."""
    on_warning: tuple[Notifier, ...] | None = None
    """Told when a committed interval has passed a limit, or has given up offsets under `on_offset_loss`; those of
    `on_failure` by default."""

    def notifiers(self, occasion: Occasion) -> tuple[Notifier, ...]:
        """Who is told on an occasion."""
        named: tuple[Notifier, ...] | None = getattr(self, occasion)
        return self.on_failure if named is None else named

    @property
    def tells_anybody(self) -> bool:
        """Whether any notifier is named."""
        return any(self.notifiers(occasion) for occasion in OCCASIONS)

    @model_validator(mode="after")
    def _somebody_listens(self) -> Alerts:
        limits = ("max_lag_records", "max_lag", "max_quarantine_rate")
        listeners: tuple[tuple[Occasion, tuple[str, ...]], ...] = (
            ("on_deadline", ("deadline",)),
            ("on_warning", limits),
        )
        for occasion, keys in listeners:
            for key in keys:
                if getattr(self, key) is not None and not self.notifiers(occasion):
                    raise ValueError(f"`{key}` tells nobody: name a notifier in `on_failure` or `{occasion}`")
        return self
