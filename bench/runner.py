"""Runs scenarios: makes topics, seeds tables, measures, and checks what a reader sees after every run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka.admin import AdminClient

from bench import records
from bench.checks import check
from bench.participants import Job, Participant, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.database import BenchDatabase
    from bench.records import Expected
    from bench.scenarios import Scenario

HERE = Path(__file__).resolve().parent
SUMMED = ("wall", "cpu", "user", "system", "drained", "others_cpu")
Step = dict[str, float | int]


@dataclass(frozen=True)
class Sample:
    """One run of one participant, in seconds, MiB and bytes. `void` says why it does not count, if so."""

    scenario: str
    participant: str
    run: int
    void: str | None
    wall: float = 0.0
    cpu: float = 0.0
    user: float = 0.0
    system: float = 0.0
    drained: float = 0.0
    others_cpu: float = 0.0
    max_rss_mib: int = 0
    read_seconds: float | None = None
    table_bytes: int = 0
    table_files: int = 0
    steps: list[Step] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        return asdict(self)


class StepError(RuntimeError):
    """A process of a participant ended with an error, or had to be killed."""


@dataclass(frozen=True)
class Bench:
    """What all scenarios of one invocation share."""

    bootstrap: str
    work: Path
    seed: int
    master: str
    driver_memory: str
    timeout: float
    say: Callable[[str], None]
    database: BenchDatabase | None = None

    def samples(self, scenario: Scenario, runs: int, only: frozenset[str]) -> Iterator[Sample]:
        """Every run of every participant, interleaved. A participant that could not be seeded is void throughout."""
        topic = f"bench-{scenario.name}"
        records.create_topic(self.bootstrap, topic)
        jobs = {
            p: Job(
                scenario.name,
                scenario.operation,
                self.bootstrap,
                topic,
                self.work / scenario.name / p.name,
                "seed",
                len(scenario.window) if scenario.window else 0,
                None,
                self.master,
                self.driver_memory,
                self.database.url if self.database else "",
                str(self._folder(scenario)) if scenario.files else "",
            )
            for p in scenario.participants
            if not only or p.name in only
        }
        failed: dict[Participant, str] = {}
        starting = None
        if scenario.seeded:
            self._produce(scenario, topic, scenario.seeded)
            for participant, job in jobs.items():
                try:
                    self._seed(scenario, participant, job)
                except StepError as reason:
                    failed[participant] = f"not seeded: {reason}"
            starting = records.end_offsets(self.bootstrap, topic)
            self._forget_control_topics()
        if scenario.window:
            self._produce(scenario, topic, scenario.window)
        wanted = records.expected(self.seed, *scenario.windows)
        for run in range(1, runs + 1):
            for participant, job in jobs.items():
                job = replace(job, run=f"run{run}", starting=starting)
                if participant in failed:
                    yield Sample(scenario.name, participant.name, run, failed[participant])
                    continue
                self.say(f"{scenario.name}: {participant.name}, run {run} of {runs}")
                yield self._run(scenario, participant, job, run, wanted)

    def _produce(self, scenario: Scenario, topic: str, window: records.Window) -> None:
        if scenario.files:
            size = records.write_files(self._folder(scenario), self.seed, window, scenario.files)
        else:
            size = records.produce(self.bootstrap, topic, self.seed, window)
        self.say(f"{topic}: {len(window):,} records of {size:.0f} bytes")

    def _folder(self, scenario: Scenario) -> Path:
        return self.work / f"{scenario.name}-files"

    def _seed(self, scenario: Scenario, participant: Participant, job: Job) -> None:
        if participant.reads is None:
            return
        self.say(f"{scenario.name}: seeding the table of {participant.name}")
        shutil.rmtree(job.home, ignore_errors=True)
        job.home.mkdir(parents=True)
        self._steps(participant, job)
        assert scenario.seeded is not None
        problem, _ = self._check(participant, job, records.expected(self.seed, scenario.seeded))
        if problem:
            raise StepError(problem)
        shutil.copytree(job.home, _kept(job))

    def _forget_control_topics(self) -> None:
        """Delete the seeds' control topics: from one, each run would move its copy of the table to a separate topic.

        The second of them would be refused, since the table has left for the first one's.
        """
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topics = [topic for topic in admin.list_topics(timeout=30).topics if topic.startswith("control-")]
        for deleted in admin.delete_topics(topics).values() if topics else ():
            deleted.result(30)

    def _run(self, scenario: Scenario, participant: Participant, job: Job, run: int, wanted: Expected) -> Sample:
        shutil.rmtree(job.home, ignore_errors=True)
        if _kept(job).exists():
            shutil.copytree(_kept(job), job.home)
        else:
            job.home.mkdir(parents=True)
        if self.database is not None:
            self.database.clear()
        try:
            steps = self._steps(participant, job)
        except StepError as reason:
            return Sample(scenario.name, participant.name, run, str(reason))
        counted = scenario.counted(steps)
        problem, read_seconds = self._check(participant, job, wanted)
        files = [f for f in job.table.rglob("*") if f.is_file()]
        sums = {name: float(sum(s[name] for s in counted)) for name in SUMMED}
        sample = Sample(
            scenario.name,
            participant.name,
            run,
            problem,
            **sums,
            max_rss_mib=max(int(s["max_rss_mib"]) for s in counted),
            read_seconds=read_seconds,
            table_bytes=sum(f.stat().st_size for f in files),
            table_files=len(files),
            steps=steps,
        )
        shutil.rmtree(job.home, ignore_errors=True)
        return sample

    def _steps(self, participant: Participant, job: Job) -> list[Step]:
        """Runs the participant's processes one after the other; raises StepError at the first that fails."""
        log = self.work / f"{job.scenario}-{participant.name}-{job.run}.log"
        result, measured = self.work / "measured.json", []
        for argv in participant.commands(job):
            os.sync()  # or one participant pays for the pages that the one before it left dirty
            subprocess.run(
                [
                    sys.executable,
                    str(HERE / "measure.py"),
                    str(result),
                    str(self.timeout),
                    str(log),
                    "--",
                    *argv,
                ],
                env=environment(),
                cwd=HERE.parent,
                check=True,
            )
            step: Step = json.loads(result.read_text())
            measured.append(step)
            if step["exit_code"] or step["killed"]:
                raise StepError(
                    f"process {len(measured)} ended with code {step['exit_code']}, {step['killed']} killed; "
                    f"its log, {log.name}, ends:\n{log.read_text(errors='replace')[-1500:]}"
                )
        return measured

    def _check(self, participant: Participant, job: Job, wanted: Expected) -> tuple[str | None, float | None]:
        """What is wrong with the table, None if nothing; and how long a fresh reader took for it."""
        if participant.reads is None:
            return None, None
        place = job.database or str(job.table)
        return check([(place, wanted)], participant.reads, self.work, self.master, self.driver_memory)[0]


def _kept(job: Job) -> Path:
    """Where the participant's seeded state is kept, beside the place in which it runs."""
    return job.home.with_name(job.home.name + ".seeded")
