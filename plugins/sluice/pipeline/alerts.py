"""The section `alerts`: notifiers and the events that call them."""

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
    """Arguments of the class. They may use Airflow templates."""


class Alerts(Section):
    """Notifiers and the events that call them."""

    on_failure: tuple[Notifier, ...] = ()
    """Called once for each failed DAG run, including a failed audit."""
    on_recovery: tuple[Notifier, ...] | None = None
    """Called by the first successful run after failed or late runs. Default: `on_failure`."""
    escalate_after: Annotated[int, Field(gt=1)] = 3
    """The number of consecutive failed runs before `on_escalation` is called."""
    on_escalation: tuple[Notifier, ...] = ()
    """Called once, in addition to `on_failure`, after `escalate_after` consecutive failed runs."""
    deadline: Duration | None = None
    """The maximum time without a commit or a confirmed empty interval, such as `15 minutes`."""
    on_deadline: tuple[Notifier, ...] | None = None
    """Called once when the deadline has passed. Default: `on_failure`."""
    max_lag_records: Annotated[int, Field(gt=0)] | None = None
    """The maximum number of offsets that an interval may leave unread."""
    max_lag: Duration | None = None
    """The maximum time between a commit and the time up to which the table is complete."""
    max_quarantine_rate: Annotated[float, Field(ge=0, lt=1)] | None = None
    """The maximum fraction of an interval's records that may be quarantined, such as 0.01."""
    on_warning: tuple[Notifier, ...] | None = None
    """Called when a committed interval exceeds a limit or skips lost offsets under `on_offset_loss`. Default:
    `on_failure`."""

    def notifiers(self, occasion: Occasion) -> tuple[Notifier, ...]:
        """The notifiers for an event."""
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
                    raise ValueError(f"`{key}` has no notifier: name one in `on_failure` or `{occasion}`")
        return self
