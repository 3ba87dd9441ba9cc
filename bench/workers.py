"""Sluice with a worker that is warm, against peers: START and COMMIT are commands, and the worker writes between them.

    python -m bench.workers small                      # 1,000 records, against (a)
    python -m bench.workers append                     # 2,000,000 records, against (c)
    python -m bench.workers append --against iceberg   # the same, against Iceberg's sink for Kafka Connect
    python -m bench.workers stays                      # against a stream that stays: ten intervals of 10,000 records
    python -m bench.workers stays --against iceberg    # against Iceberg's sink, which commits at the same rate
    python -m bench.workers two                        # an append over four ranges by one worker, and by two
    python -m bench.workers append --records 20000     # does it work at all?

The worker's processor time is that of its processes while the interval lasts, and is part of Sluice's. Its first
intervals aren't counted, since its JVM still compiles. Participants take turns; at the end a fresh Spark session reads
all tables, and a run whose rows aren't the produced ones is void. Exit code 1: some run was void.
"""

from __future__ import annotations

import argparse
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import psutil

from bench import records
from bench.checks import check
from bench.participants import ICEBERG, PARQUET, STREAMING, environment, iceberg_stays, structured_streaming
from bench.peers.iceberg_sink import committed
from bench.report import NONE, markdown_table, shown_spread
from bench.trees import CommandError, Cost, seconds_of
from bench.worker_side import (
    COLD,
    KEPT,
    Ground,
    Interval,
    NotByWorkersError,
    Table,
    Worker,
    WorkerOptions,
    ground,
    workers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bench.participants import Job, Participant
    from bench.records import Expected

IDLE = 10.0  # seconds over which the worker is watched while nothing is to be done
POLL = 0.05
PEERS = {"streaming": STREAMING, "parquet": PARQUET, "iceberg": ICEBERG}
KINDS = {"Sluice, warm worker, steps cold": COLD, "Sluice, warm worker, steps' JVM kept": KEPT}


@dataclass
class Sample:
    """One run of one participant. `void` says why it does not count, if so."""

    cost: Cost
    place: Path
    reads: str = "hudi"
    workers_cpu: float | None = None
    void: str | None = None
    steps: Interval | None = None
    writers: dict[int, str] = field(default_factory=dict)


Samples = dict[str, list[Sample]]


def judge(ground: Ground, samples: Samples, wanted: Expected) -> bool:
    """Read every sample's table, and make void what differs; whether all are as they must be."""
    for reads in {s.reads for found in samples.values() for s in found}:
        those = [s for found in samples.values() for s in found if s.reads == reads and s.void is None]
        checked = check([(str(s.place), wanted) for s in those], reads, ground.work) if those else []
        for sample, (problem, _) in zip(those, checked, strict=True):
            sample.void = problem
    for name, found in samples.items():
        for sample in found:
            if sample.void is not None:
                ground.say(f"VOID {name}: {sample.void}")
    return all(s.void is None for found in samples.values() for s in found)


def valid(samples: Samples, name: str) -> list[Sample]:
    return [sample for sample in samples[name] if sample.void is None]


# small and append -----------------------------------------------------------------------------------------------------


def compare(ground: Ground, peer: Participant, count: int, runs: int, warm_up: int, options: WorkerOptions) -> bool:
    """Runs of a new table each: Sluice with cold steps and with a kept JVM, and the peer as cold as it is."""
    topic = f"{options.group}-events"
    wanted = ground.topic(topic, count)
    places = {
        (kind, run): Table.made(
            ground.job(topic, f"{'kept' if minutes == KEPT else 'cold'}-{run}", count), options.group
        )
        for kind, minutes in KINDS.items()
        for run in range(warm_up + runs)
    }
    samples: Samples = {peer.title: [], **{kind: [] for kind in KINDS}}
    with workers(places.values(), options, 1, ground.work) as (worker,):
        for run in range(warm_up + runs):
            for kind, minutes in KINDS.items():
                ground.say(f"{kind}: run {run + 1} of {warm_up + runs}")
                sample = _interval(ground, places[kind, run], worker, f"run-{run}", minutes)
                if run >= warm_up or sample.void is not None:
                    samples[kind].append(sample)
            if run >= warm_up:
                ground.say(f"{peer.title}: run {run + 1} of {warm_up + runs}")
                samples[peer.title].append(
                    _peers(ground, peer, ground.job(topic, f"peer-{run}", count, options.master))
                )
        idle = seconds_of(worker.tree)
        time.sleep(IDLE)
        idle = (seconds_of(worker.tree) - idle) * 60 / IDLE
    good = judge(ground, samples, wanted)
    columns = ("participant", "wall s", "CPU s", "of it the worker's", "÷ peer, wall", "÷ peer, CPU", "others' CPU s")
    print(markdown_table((*columns, "START, write, COMMIT, s", "valid runs"), rows_of(samples, peer.title)))
    print(f"\n{count:,} records; the worker while idle: {idle:.2f} CPU s a minute.")
    return good


def _interval(ground: Ground, table: Table, worker: Worker, run_id: str, minutes: str) -> Sample:
    os.sync()  # or one participant pays for the pages that the one before it left dirty
    void = steps = None
    workers_cpu = seconds_of(worker.tree)
    with ground.meter.measured() as cost:
        try:
            steps = table.interval(ground.meter, run_id, minutes, ground.log("steps"))
        except (CommandError, NotByWorkersError) as error:
            void = str(error)
    return Sample(cost, table.place, workers_cpu=seconds_of(worker.tree) - workers_cpu, void=void, steps=steps)


def _peers(ground: Ground, peer: Participant, job: Job) -> Sample:
    job.home.mkdir(parents=True)
    os.sync()
    void = None
    with ground.meter.measured() as cost:
        try:
            for command in peer.commands(job):
                ground.meter.run(command, environment(), ground.log("peer"))
        except CommandError as error:
            void = str(error)
    return Sample(cost, job.table, peer.reads or "hudi", void=void)


def rows_of(samples: Samples, peer: str) -> list[tuple[str, ...]]:
    """A line for each participant."""
    rows = []
    for name, found in samples.items():
        good, rivals = valid(samples, name), valid(samples, peer)
        count = f"{len(good)} of {len(found)}"
        if not good:
            rows.append((name, "void", "void", *[NONE] * 5, count))
            continue
        ratios = [NONE, NONE]
        if rivals and name != peer:
            ours, theirs = ((_middle(of, "wall"), _middle(of, "cpu")) for of in (good, rivals))
            ratios = [f"{a / b:.2f}" for a, b in zip(ours, theirs, strict=True)]
        shares = [s.workers_cpu for s in good if s.workers_cpu is not None]
        steps = [s.steps[:3] for s in good if s.steps is not None]
        parts = [f"{statistics.median(part):.2f}" for part in zip(*steps, strict=True)]
        rows.append(
            (
                name,
                shown_spread([s.cost.wall for s in good], 2),
                shown_spread([s.cost.cpu for s in good], 2),
                f"{statistics.median(shares):.2f}" if shares else NONE,
                *ratios,
                f"{_middle(good, 'others_cpu'):.1f}",
                ", ".join(parts) or NONE,
                count,
            )
        )
    return rows


def _middle(samples: Sequence[Sample], what: str) -> float:
    return float(statistics.median(getattr(s.cost, what) for s in samples))


# stays ----------------------------------------------------------------------------------------------------------------


class Timeline:
    """What of an append table of Hudi's can be read now."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._rows: dict[str, int] = {}

    def rows(self) -> int:
        """Of all files of instants that are completed."""
        import pyarrow.parquet as pq

        for commit in (self._table / ".hoodie" / "timeline").glob("*_*.commit"):
            instant = commit.name.split("_")[0]
            if instant not in self._rows:
                files = self._table.glob(f"*/*_{instant}.parquet")
                self._rows[instant] = sum(pq.read_metadata(file).num_rows for file in files)
        return sum(self._rows.values())


class Snapshots:
    """What of Iceberg's table can be read now."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def rows(self) -> int:
        return committed(self._home)


class Kept(NamedTuple):
    """An interval of a participant that stays: what it used, and the delays to be readable."""

    cpu: float
    since_produced: float
    since_tick: float


@dataclass(frozen=True)
class Staying:
    """A peer that stays: how it is started with so many seconds between its commits, and where its rows are seen."""

    title: str
    reads: str
    command: Callable[[Job, int], list[str]]
    timeline: Callable[[Job], Timeline | Snapshots]


STAYING = {
    "streaming": Staying(
        "(a) Structured Streaming that stays",
        "hudi",
        lambda job, trigger: [*structured_streaming(job)[0], "--trigger", str(trigger)],
        lambda job: Timeline(job.table),
    ),
    "iceberg": Staying(ICEBERG.title, "parquet", iceberg_stays, lambda job: Snapshots(job.home)),
}


class Peer:
    """A peer that stays; its own trigger begins its intervals."""

    def __init__(self, ground: Ground, process: subprocess.Popen[bytes], kind: Staying, job: Job) -> None:
        self._ground = ground
        self._process = process
        self.title, self.reads = kind.title, kind.reads
        self.timeline = kind.timeline(job)
        self.tree = psutil.Process(process.pid)
        self.topic = job.topic
        self.place = job.table

    def seconds(self) -> float:
        return seconds_of(self.tree)

    def tick(self, _number: int) -> None:
        if self._process.poll() is not None:
            raise RuntimeError(f"the peer has ended; see:\n{self._ground.log('peer').read_text()[-1500:]}")


class Intervals:
    """Sluice with a worker; START begins when its schedule says so."""

    title = "Sluice, warm worker, steps' JVM kept"
    reads = "hudi"

    def __init__(self, ground: Ground, table: Table, topic: str, others: Peer) -> None:
        self._ground = ground
        self._table = table
        self._others = others
        self.timeline = Timeline(table.place)
        self.topic = topic
        self.place = table.place

    def seconds(self) -> float:
        """Of worker, steps and their JVM: of all that isn't the peer's."""
        return self._ground.meter.seconds() - self._others.seconds()

    def tick(self, number: int) -> None:
        self._table.interval(self._ground.meter, f"run-{number}", KEPT, self._ground.log("steps"))


def stays(
    ground: Ground, kind: Staying, count: int, intervals: int, warm_up: int, trigger: int, options: WorkerOptions
) -> bool:
    """Intervals of so many records, one side's and then the other's: both stay for all of it.

    Records arrive half a period before the tick at which Sluice and a query look for them, since a query's trigger is a
    multiple of its period, and so is a schedule. Iceberg's sink counts its periods from when it began.
    """
    topics = ["peer-events", "sluice-events"]
    for topic in topics:
        records.create_topic(ground.bootstrap, topic)
    job, table = ground.job(topics[0], "peer"), Table.made(ground.job(topics[1], "warm"), options.group)
    with (
        _staying(ground, kind, job, trigger) as peer,
        workers([table], options, 1, ground.work),
        ThreadPoolExecutor(1) as pool,
    ):
        sides: tuple[Peer | Intervals, ...] = (peer, Intervals(ground, table, topics[1], peer))
        found: dict[str, list[Kept]] = {side.title: [] for side in sides}
        for number in range(warm_up + intervals):
            for side in sides:
                kept = _kept_interval(ground, side, number, count, trigger, pool)
                ground.say(f"{side.title}: {kept.since_tick:.2f} s after its tick, {kept.cpu:.2f} CPU s")
                if number >= warm_up:
                    found[side.title].append(kept)
    wanted = records.expected(ground.seed, records.Window(0, count * (warm_up + intervals)))
    rows: list[tuple[str, ...]] = []
    good = True
    for side in sides:
        (checked,) = check([(str(side.place), wanted)], side.reads, ground.work)
        if checked.problem is not None:
            good = False
            ground.say(f"VOID {side.title}: {checked.problem}")
            rows.append((side.title, "void", NONE, NONE))
        else:
            rows.append(
                (side.title, *(shown_spread(list(values), 2) for values in zip(*found[side.title], strict=True)))
            )
    columns = ("participant", "CPU s an interval", "s from produced to readable", "of them after the tick")
    print(markdown_table(columns, rows))
    print(f"\n{intervals} intervals of {count:,} records, every {trigger} s, after {warm_up} that don't count.")
    return good


def _kept_interval(
    ground: Ground, side: Peer | Intervals, number: int, count: int, trigger: int, pool: ThreadPoolExecutor
) -> Kept:
    """Produce half a period before a tick, and wait until a period is over and all is readable."""
    half = trigger / 2
    # The one before ends about half a period before the next tick.
    tick = math.ceil((time.time() + 0.9 * half) / trigger) * trigger
    time.sleep(max(0.0, tick - half - time.time()))
    cpu = side.seconds()
    records.produce(ground.bootstrap, side.topic, ground.seed, records.Window(number * count, (number + 1) * count))
    produced = time.time()
    ticked: Future[None] | None = None
    while side.timeline.rows() < (number + 1) * count:
        if time.time() > tick + 20 * trigger + 300:
            raise RuntimeError(f"{side.title}: interval {number} can't be read")
        if ticked is None and time.time() >= tick:
            ticked = pool.submit(side.tick, number)
        if ticked is not None and ticked.done():
            ticked.result()
        time.sleep(POLL)
    readable = time.time()
    if ticked is not None:
        ticked.result()
    time.sleep(max(0.0, tick + half - time.time()))
    return Kept(side.seconds() - cpu, readable - produced, readable - tick)


@contextmanager
def _staying(ground: Ground, kind: Staying, job: Job, trigger: int) -> Iterator[Peer]:
    job.home.mkdir(parents=True)
    with ground.log("peer").open("wb") as out:
        process = subprocess.Popen(
            kind.command(job, trigger), env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield Peer(ground, process, kind, job)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


# two ------------------------------------------------------------------------------------------------------------------


def two(ground: Ground, count: int, ranges: int, runs: int, warm_up: int, memory: str) -> bool:
    """The same append by one worker of one slot and one core, and by two of them; new tables each time."""
    topic = "two-events"
    wanted = ground.topic(topic, count, ranges)
    titles = {"one": "one worker", "two": "two workers"}
    places = {
        (group, run): Table.made(ground.job(topic, f"{group}-{run}", count), group, ranges=ranges)
        for group in titles
        for run in range(warm_up + runs)
    }
    options = {group: WorkerOptions(group, 1, memory, "local[1]") for group in titles}
    samples: Samples = {title: [] for title in titles.values()}
    with (
        workers([t for (g, _), t in places.items() if g == "one"], options["one"], 1, ground.work) as one,
        workers([t for (g, _), t in places.items() if g == "two"], options["two"], 2, ground.work),
    ):
        for run in range(warm_up + runs):
            for group, title in titles.items():
                ground.say(f"{title}: run {run + 1} of {warm_up + runs}")
                sample = _interval(ground, places[group, run], one[0], f"run-{run}", KEPT)
                if sample.steps is not None:
                    sample.writers = places[group, run].writers(sample.steps.control_offset)
                if run >= warm_up or sample.void is not None:
                    samples[title].append(sample)
    good = judge(ground, samples, wanted)
    rows, middles = [], {}
    for title in titles.values():
        those = valid(samples, title)
        steps = [s.steps for s in those if s.steps is not None]
        if not steps:
            rows.append((title, "void", NONE, NONE, NONE, NONE))
            continue
        middles[title] = statistics.median(s.write for s in steps)
        rows.append(
            (
                title,
                shown_spread([s.write for s in steps], 2),
                shown_spread([s.cost.wall for s in those], 2),
                shown_spread([s.cost.cpu for s in those], 2),
                "; ".join(_shares(s.writers) for s in those),
                f"{len(those)} of {len(samples[title])}",
            )
        )
    columns = ("who writes", "write s", "interval s", "CPU s", "ranges of each worker, by run", "valid runs")
    print(markdown_table(columns, rows))
    if len(middles) == 2:
        first, second = middles.values()
        print(f"\n{count:,} records in {ranges} ranges: one ÷ two, wall time of the write: {first / second:.2f}")
    return good


def _shares(writers: dict[int, str]) -> str:
    names = sorted(set(writers.values()))
    return "+".join(str(list(writers.values()).count(name)) for name in names) or NONE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", choices=["small", "append", "stays", "two"])
    parser.add_argument(
        "--against", choices=sorted(PEERS), help="streaming in small and stays, else parquet; stays has no parquet"
    )
    parser.add_argument("--records", type=int, help="1,000 in small, 10,000 an interval in stays, else 2,000,000")
    parser.add_argument("--runs", type=int, help="that count, of each participant; 10 in small and stays, else 3")
    parser.add_argument("--warm-up", type=int, help="intervals that don't count; 4 in small, 2 in stays, else 1")
    parser.add_argument("--slots", type=int, default=2, help="of the worker; two has one slot")
    parser.add_argument("--memory", default="2g", help="of a worker's driver")
    parser.add_argument("--trigger", type=int, default=30, help="seconds between intervals, in stays")
    parser.add_argument("--ranges", type=int, default=4, help="and partitions, in two")
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    count = given.records or {"small": 1_000, "stays": 10_000}.get(given.scenario, 2_000_000)
    runs = given.runs or (10 if given.scenario in ("small", "stays") else 3)
    warm_up = given.warm_up if given.warm_up is not None else {"small": 4, "stays": 2}.get(given.scenario, 1)
    against = given.against or ("parquet" if given.scenario == "append" else "streaming")
    if given.scenario == "stays" and against not in STAYING:
        parser.error(f"stays can be against {' or '.join(STAYING)}")
    options = WorkerOptions(given.scenario, given.slots, given.memory)
    with ground(given.seed) as on:
        if given.scenario == "two":
            good = two(on, count, given.ranges, runs, warm_up, given.memory)
        elif given.scenario == "stays":
            good = stays(on, STAYING[against], count, runs, warm_up, given.trigger, options)
        else:
            good = compare(on, PEERS[against], count, runs, warm_up, options)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
