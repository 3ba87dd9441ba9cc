"""The demo's middle: records arrive, the scheduler's intervals land them, and both are watched to the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from sluice import runtime
from sluice.kafka.config import KafkaSettings
from sluice.local.airflow_api import AirflowApi
from sluice.local.demo.intervals import ControlTopicWatch, Interval
from sluice.local.demo.pipelines import DemoPipeline
from sluice.local.demo.replay import Replay
from sluice.local.demo.screen import Bars, ended
from sluice.local.demo.topics import bounds
from sluice.local.errors import LocalRuntimeError

INTERVALS = 3  # of each pipeline that must commit while records are still arriving
_STEADY = 150.0  # seconds of steady publishing: two and a half of the pipelines' minutes
_TIMEOUT = 1800.0
_FAILED_RUNS = 3
_API_EVERY = 5  # ticks, one a second: queries would take time from two cores


class _Watched:
    """One pipeline: its replay, its intervals since the demo began, and its DAG runs."""

    def __init__(self, settings: KafkaSettings, demo: DemoPipeline) -> None:
        self.demo = demo
        self.replay = Replay(settings, demo.stream, _STEADY)
        self.by_scheduler: set[str] = set()
        self.failed: set[str] = set()
        self.told: set[str] = set()
        self._settings = settings
        self._watch = ControlTopicWatch(settings, demo.pipeline.control_topic)
        self._earlier = {i.start.transaction for i in self._watch.intervals(demo.name) if i.over}
        self._base = sum(self._watch.committed_offsets(demo.name).values())
        self.backlog = sum(high for _, high in bounds(settings, demo.topic).values()) - self._base
        self._ends: dict[int, int] = {}

    @property
    def intervals(self) -> list[Interval]:
        """The intervals that came to their end since the demo began, or have not yet."""
        return [i for i in self._watch.intervals(self.demo.name) if i.start.transaction not in self._earlier]

    @property
    def committed_records(self) -> int:
        """How many records were committed since the demo began."""
        return sum(self._watch.committed_offsets(self.demo.name).values()) - self._base

    @property
    def enough(self) -> bool:
        """Whether the scheduler has made as many committed intervals as the demo wants to see."""
        return sum(i.committed and i.start.run_id in self.by_scheduler for i in self.intervals) >= INTERVALS

    @property
    def done(self) -> bool:
        """Whether everything is published and committed."""
        if not self.replay.finished:
            return False
        if not self._ends:
            self._ends = {p: high for p, (_, high) in bounds(self._settings, self.demo.topic).items()}
        return self._watch.committed_offsets(self.demo.name) == self._ends

    def poll(self) -> None:
        """Take in the records that came since the last call.

        Raises:
            LocalRuntimeError: a record was not delivered.
        """
        self.replay.check()
        self._watch.poll()

    def close(self) -> None:
        """Stop publishing and watching."""
        self.replay.stop()
        if self.replay.ident is not None:
            self.replay.join(10)
        self._watch.close()


class Arrival:
    """Publishes and watches.

    Args:
        out: where lines go.
        settings: the cluster.
        api: Airflow's.
        pipelines: the demo's.
        check_alive: called once a second; raises where the broker or Airflow has gone.
        look_at: called once a second with the intervals of each pipeline since the demo began.
    """

    def __init__(
        self,
        out: Console,
        settings: KafkaSettings,
        api: AirflowApi,
        pipelines: Sequence[DemoPipeline],
        check_alive: Callable[[], None],
        look_at: Callable[[str, Sequence[Interval]], None],
    ) -> None:
        self._out = out
        self._settings = settings
        self._api = api
        self._pipelines = pipelines
        self._check_alive = check_alive
        self._look_at = look_at
        self._ticks = 0

    def run(self) -> dict[str, list[Interval]]:
        """Publish everything and wait until it is committed; returns each pipeline's intervals.

        Raises:
            LocalRuntimeError: it doesn't come about: runs fail, something has ended, or time is up.
        """
        watched = [_Watched(self._settings, demo) for demo in self._pipelines]
        for w in watched:
            w.failed = {run.run_id for run in self._api.runs(w.demo.name) if run.state == "failed"}
        earlier_failures = {w.demo.name: len(w.failed) for w in watched}
        try:
            with Bars(self._out, {w.demo.name: w.backlog for w in watched}, self._pipelines) as bars:
                for w in watched:
                    w.replay.start()
                # Unpaused only now: the scheduler starts a run at once, which is to find records.
                self._until(lambda: all(w.replay.acknowledged > 0 for w in watched), watched, bars)
                for w in watched:
                    self._api.unpause(w.demo.name)
                self._until(lambda: self._step(watched, earlier_failures), watched, bars)
        finally:
            for w in watched:
                w.close()
        return {w.demo.name: w.intervals for w in watched}

    def _until(self, condition: Callable[[], bool], watched: Sequence[_Watched], bars: Bars) -> None:
        def tick() -> bool:
            self._check_alive()
            for w in watched:
                w.poll()
                self._tell(w)
                self._look_at(w.demo.name, w.intervals)
                bars.show(w.demo.name, w.replay.acknowledged, w.committed_records, w.intervals)
            return condition()

        attempts = Retrying(
            retry=retry_if_result(lambda met: not met), wait=wait_fixed(1), stop=stop_after_delay(_TIMEOUT)
        )
        try:
            attempts(tick)
        except RetryError:
            raise LocalRuntimeError(
                f"Not everything was committed within {_TIMEOUT / 60:.0f} minutes.",
                next_step=f"look at the DAG runs in Airflow; `{runtime.command('demo')}` "
                "continues after the committed offsets.",
            ) from None

    def _step(self, watched: Sequence[_Watched], earlier_failures: dict[str, int]) -> bool:
        self._ticks += 1
        if self._ticks % _API_EVERY == 0:
            for w in watched:
                self._look_at_runs(w, earlier_failures[w.demo.name])
        if all(w.enough for w in watched):
            for w in watched:
                w.replay.publish_rest()
        return all(w.enough and w.done for w in watched)

    def _look_at_runs(self, w: _Watched, earlier_failures: int) -> None:
        runs = self._api.runs(w.demo.name)
        w.by_scheduler |= {run.run_id for run in runs if run.scheduled}
        for run in runs:
            if run.state == "failed" and run.run_id not in w.failed:
                w.failed.add(run.run_id)
                self._out.print(f"  {w.demo.name:<13}  DAG run {run.run_id} [red]failed[/]: {escape(run.note)}")
        if len(w.failed) - earlier_failures >= _FAILED_RUNS:
            raise LocalRuntimeError(
                f"{_FAILED_RUNS} runs of {w.demo.name} failed.",
                next_step="read the notes above, and the tasks' logs in Airflow, which keeps running.",
            )

    def _tell(self, w: _Watched) -> None:
        for interval in w.intervals:
            if interval.end is not None and interval.start.transaction not in w.told:
                w.told.add(interval.start.transaction)
                self._out.print(ended(w.demo.name, interval, arriving=not w.replay.finished))
