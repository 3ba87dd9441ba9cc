"""The demo's output: bars while it runs, a line for each interval that ends, and the tables at the end."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from sluice.local.demo.intervals import Interval
from sluice.local.demo.pipelines import DemoPipeline, Verdict
from sluice.protocol.messages import AbortCommit, PlannedRange
from sluice.protocol.transaction import State

_COLOURS = {State.COMMITTED: "green", State.ABORTED: "red", State.OPEN: "cyan", State.DECIDED: "cyan"}


def console() -> Console:
    """Standard output; wide enough for the tables where it is a file."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=max(made.width, 132))


class Bars:
    """For each topic the numbers of published and of committed records."""

    def __init__(self, out: Console, backlog: dict[str, int], pipelines: Iterable[DemoPipeline]) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._progress = Progress(*columns, TimeElapsedColumn(), console=out, refresh_per_second=2)
        self._published: dict[str, TaskID] = {}
        self._committed: dict[str, TaskID] = {}
        for p in pipelines:
            total = p.stream.total
            self._published[p.name] = self._progress.add_task(f"[bold]{p.name}[/] published", total=total, note="")
            everything = total + backlog[p.name]
            self._committed[p.name] = self._progress.add_task(f"[bold]{p.name}[/] committed", total=everything, note="")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, name: str, published: int, committed: int, intervals: list[Interval]) -> None:
        """Move a pipeline's bars."""
        done = sum(i.committed for i in intervals)
        note = f"{done} interval{'s' * (done != 1)}"
        if intervals and not intervals[-1].over:
            reading = sum(r.end - r.start for r in intervals[-1].start.offset_ranges)
            note += f", one open with {reading:,} records"
        self._progress.update(self._published[name], completed=published)
        self._progress.update(self._committed[name], completed=committed, note=note)


def ended(name: str, interval: Interval, *, arriving: bool) -> str:
    """The line for an interval that has come to its end, while records were still `arriving` or later."""
    state = f"[{_COLOURS.get(interval.state, 'yellow')}]{interval.state.value}[/]"
    what = f"{interval.rows:,} rows" if interval.rows is not None else ""
    if isinstance(interval.end, AbortCommit):
        what = escape(interval.end.reason)
    more = ", records still arriving" if arriving else ""
    return f"  {name:<13}  instant {interval.start.transaction}  {state}  {what} in {_seconds(interval)} s{more}"


def intervals_table(intervals: list[tuple[str, Interval]]) -> Table:
    """Every interval of this demo, oldest first."""
    table = Table(title="The intervals, by the control topic", title_justify="left")
    for heading, justify in (("Pipeline", "left"), ("Instant", "left"), ("State", "left"), ("Rows", "right")):
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("Offsets", no_wrap=True)
    table.add_column("Seconds", justify="right", no_wrap=True)
    table.add_column("DAG run")
    for name, interval in sorted(intervals, key=lambda pair: pair[1].start.time):
        table.add_row(
            name,
            interval.start.transaction,
            f"[{_COLOURS.get(interval.state, 'yellow')}]{interval.state.value}[/]",
            "" if interval.rows is None else f"{interval.rows:,}",
            "\n".join(f"{r.partition}: {r.start:,} to {r.end:,}" for r in _ranges(interval)),
            _seconds(interval),
            interval.start.run_id,
            end_section=True,
        )
    return table


def verdict_table(verdicts: list[tuple[DemoPipeline, Verdict]]) -> Table:
    """Kafka and the tables side by side."""
    table = Table("Pipeline", "Compared", "In Kafka", "In the table", "Verdict", title="Kafka and the tables")
    table.title_justify = "left"
    for pipeline, verdict in verdicts:
        what = "each key's last version" if pipeline.upserts else "every record"
        same = "[bold green]identical[/]" if verdict.same else "[bold red]DIFFERENT[/]"
        table.add_row(pipeline.name, what, _lines(verdict.kafka), _lines(verdict.table), same, end_section=True)
    return table


def _lines(value: object) -> str:
    return str(value).replace(", checksum", "\nchecksum")


def _ranges(interval: Interval) -> list[PlannedRange]:
    return sorted(interval.start.offset_ranges, key=lambda r: (r.topic, r.partition))


def _seconds(interval: Interval) -> str:
    return "" if interval.seconds is None else f"{interval.seconds:.1f}"
