"""Whether a worker is alive and can claim, and what it holds: for probes of Kubernetes, and for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from prometheus_client.metrics_core import GaugeMetricFamily, InfoMetricFamily, Metric

from sluice import __version__
from sluice.participant.claiming import End, HeldClaim, ServedTable, Terms
from sluice.participant.figures import Figures
from sluice.protocol.claims import Steady

_TICKS_WITHIN = 120.0  # seconds: its slowest step sends a claim, for which Kafka has half a minute
_JVM_ANSWERS_WITHIN = 20.0  # seconds: longer than a usual collection, shorter than until it gives itself up
_JVM_IS_PROMPT = 5.0  # seconds: with a later answer it claims nothing new in time
_ILL = (End.UNHEALTHY, End.RANGE_HUNG, End.JVM_UNRESPONSIVE, End.CONTROL_TOPICS_LOST)


class Deciding(Protocol):
    """The worker's loop."""

    @property
    def tables(self) -> Mapping[tuple[str, str], ServedTable]:
        """The tables that it writes, by control topic and table."""
        ...

    @property
    def ticked(self) -> float:
        """When its loop last ran, on the worker's clock."""
        ...

    @property
    def held(self) -> Sequence[HeldClaim]:
        """Its claims that count."""
        ...

    @property
    def why(self) -> End | None:
        """Why it ends; None while it keeps working."""
        ...


class Silent(Protocol):
    """A part that another thread or process runs."""

    def silent_for(self) -> float:
        """Seconds since it should have answered."""
        ...


class Follower(Silent, Protocol):
    """A consumer of control topics."""

    @property
    def is_current(self) -> bool:
        """Whether it has read all topics that exist to their ends once."""
        ...


class Vitals:
    """What is known of a worker from outside of its threads.

    Args:
        terms: how it works.
        group: the group of workers.
        steady: the worker's clock, in seconds.

    Attributes:
        figures: what it has written.
    """

    def __init__(self, terms: Terms, group: str, steady: Steady) -> None:
        self._terms = terms
        self._group = group
        self._steady = steady
        self._parts: tuple[Deciding, Silent, Sequence[Follower], Callable[[], bool]] | None = None
        self.figures = Figures()
        self.figures.registry.register(self)

    def runs(
        self, worker: Deciding, application: Silent, followers: Sequence[Follower], is_member: Callable[[], bool]
    ) -> None:
        """Watch these parts from now on.

        Args:
            worker: the loop that decides.
            application: its Spark application.
            followers: its consumers of control topics.
            is_member: whether it is in its group on all clusters.
        """
        self._parts = worker, application, followers, is_member

    def health_problem(self) -> str | None:
        """Why it has to be replaced; None while all of its loops run and its JVM answers, whether it has work or not.

        None, too, while it begins.
        """
        if self._parts is None:
            return None
        worker, application, followers, _ = self._parts
        if worker.why in _ILL:
            return worker.why.value
        if (silent := application.silent_for()) > _JVM_ANSWERS_WITHIN:
            return f"its JVM has not answered for {silent:.0f} seconds"
        if (silent := self._steady() - worker.ticked) > _TICKS_WITHIN:
            return f"it has decided nothing for {silent:.0f} seconds"
        if (silent := max((one.silent_for() for one in followers), default=0.0)) > _TICKS_WITHIN:
            return f"it has read no control topic for {silent:.0f} seconds"
        return None

    def readiness_problem(self) -> str | None:
        """Why it can't claim ranges now; None while it can."""
        if self._parts is None:
            return "its Spark application begins"
        worker, application, followers, is_member = self._parts
        if worker.why is not None:
            return f"it ends: {worker.why.value}"
        if (problem := self.health_problem()) is not None:
            return problem
        if (silent := application.silent_for()) > _JVM_IS_PROMPT:
            return f"its JVM has not answered for {silent:.0f} seconds"
        if not is_member():
            return "it isn't in its group of workers: the brokers of its control topics don't answer, or it begins"
        if not all(one.is_current for one in followers):
            return "it reads its control topics for the first time"
        return None

    def claims(self) -> list[dict[str, Any]]:
        """Its claims that count, for people: table, instant and range, and ages in seconds."""
        now = self._steady()
        return [
            {
                "pipeline": served.pipeline,
                "table": served.name,
                "instant": one.instant,
                "range": one.range_id.number,
                "age_seconds": round(now - one.since, 1),
                "lease_age_seconds": round(now - one.renewed, 1),
                "writing_seconds": None if one.began is None else round(now - one.began, 1),
            }
            for served, one in self._held()
        ]

    def collect(self) -> Iterator[Metric]:
        """Its gauges; called by Prometheus' registry at each scrape."""
        described = self._terms.described()
        yield InfoMetricFamily(
            "sluice_worker", "The worker.", {"name": self._terms.name, "group": self._group, "version": __version__}
        )
        yield _gauge("healthy", "1 if /health answers 200.", float(self.health_problem() is None))
        yield _gauge("ready", "1 if /ready answers 200.", float(self.readiness_problem() is None))
        yield _gauge("slots", "Ranges that it writes at once.", self._terms.slots)
        yield _gauge("lease_seconds", "For how long a claim lasts that isn't renewed.", self._terms.lease)
        if "memory" in described:
            yield _gauge("memory_bytes", "Memory of its processes, the JVM included.", described["memory"] << 20)
        now, held = self._steady(), list(self._held())
        yield _by_table("claims_held", "Ranges that it has claimed and not yet written.", held, len)
        yield _by_table(
            "ranges_writing", "Ranges that it writes now.", held, lambda of: sum(one.began is not None for one in of)
        )
        yield _by_table(
            "claim_age_seconds", "Time since its oldest claim.", held, lambda of: now - min(one.since for one in of)
        )
        yield _by_table(
            "lease_age_seconds",
            "Time since the renewal that is longest ago.",
            held,
            lambda of: now - min(one.renewed for one in of),
        )

    def _held(self) -> Iterator[tuple[ServedTable, HeldClaim]]:
        if self._parts is not None:
            worker = self._parts[0]
            yield from ((worker.tables[one.range_id.topic, one.range_id.table], one) for one in worker.held)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"sluice_worker_{name}", text, value)


def _by_table(
    name: str,
    text: str,
    held: Iterable[tuple[ServedTable, HeldClaim]],
    value: Callable[[list[HeldClaim]], float],
) -> Metric:
    of_table: dict[tuple[str, str], list[HeldClaim]] = {}
    for served, one in held:
        of_table.setdefault((served.pipeline, served.name), []).append(one)
    gauge = GaugeMetricFamily(f"sluice_worker_{name}", text, labels=("pipeline", "table"))
    for table, of in of_table.items():
        gauge.add_metric(table, value(of))
    return gauge
