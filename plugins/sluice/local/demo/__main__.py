"""`make demo`: real flights from Kafka into Hudi tables by Airflow's scheduler, and the proof that none is lost.

It continues from an earlier demo's state: the flights are published again, so that topic and append table both grow,
and the month's states change once more. Nothing is deleted; `make clean` does that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.panel import Panel
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from sluice import runtime
from sluice.control.topic import ControlTopic
from sluice.kafka.config import KafkaSettings
from sluice.local.airflow import LocalAirflow
from sluice.local.airflow_api import AirflowApi
from sluice.local.credentials import ADMIN
from sluice.local.demo import screen
from sluice.local.demo.arrival import INTERVALS, Arrival
from sluice.local.demo.intervals import Interval
from sluice.local.demo.killer import WorkerKiller
from sluice.local.demo.pipelines import DemoPipeline, demo_pipelines
from sluice.local.demo.stage import Stage, main
from sluice.local.demo.topics import PARTITIONS, ensure_topic
from sluice.local.demo.trouble import Trouble
from sluice.local.errors import LocalRuntimeError
from sluice.local.workers import GROUP, start_workers, workers_there
from sluice.pipeline.workers import dag_of_workers

_WORKER_WITHIN = 90.0  # seconds that a worker has to come, on a busy laptop


class _Demo:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._home = stage.home
        self._out = stage.out
        self._broker = stage.broker

    def run(self) -> bool:
        """Run the demo, and return whether Kafka and both tables hold the same."""
        began = time.monotonic()
        self._stage.heading("1. Java, jars and class archives")
        self._stage.install()
        self._stage.heading("2. Kafka and Airflow")
        airflow = self._stage.start()
        settings = KafkaSettings("kafka_default", airflow.environment.kafka)
        pipelines = self._pipelines(settings)
        api = AirflowApi(airflow.environment)
        with self._out.status("Waiting for Airflow to read the pipelines"):
            for demo in pipelines:
                api.await_dag(demo.name)
        self._out.print(f"Airflow  {airflow.environment.url}, with the DAGs {' and '.join(p.name for p in pipelines)}")
        self._worker(api, settings)

        self._stage.heading("3. Flights arrive, the scheduler's intervals land them")
        self._out.print(f"At least {INTERVALS} intervals of each pipeline commit while records are still arriving.")

        def check_alive() -> None:
            for part, running in (("The broker", self._broker.running), ("Airflow", airflow.running)):
                if not running:
                    again = f"`{runtime.command('demo')}` starts it, and continues."
                    raise LocalRuntimeError(f"{part} has ended.", next_step=again)

        killer = WorkerKiller(lambda line: self._out.print(line))
        intervals = Arrival(self._out, settings, api, pipelines, check_alive, killer.look_at).run()
        killer.sum_up()

        self._stage.heading("4. Is every record in its table, once?")
        same = self._compare(settings, pipelines, intervals)
        self._out.print(screen.intervals_table([(name, i) for name, found in intervals.items() for i in found]))

        self._stage.heading("5. One commit fails, and one interval is replayed")
        trouble = Trouble(self._out, self._home, settings, api)
        trouble.fail_and_recover()
        append = next(p for p in pipelines if not p.upserts)
        first = next(i for i in intervals[append.name] if i.committed and i.rows)
        trouble.replay(append.name, first.start.transaction)
        same = self._compare(settings, [append], intervals) and same
        self._finish(airflow, pipelines, intervals, same, time.monotonic() - began)
        return same

    def _pipelines(self, settings: KafkaSettings) -> list[DemoPipeline]:
        with self._out.status("Reading the flights"):
            pipelines = demo_pipelines(self._home)
            for demo in pipelines:
                made = ensure_topic(settings, demo.topic)
                state = f"made, {PARTITIONS} partitions" if made else "there already; its records stay, new ones follow"
                self._out.print(f"Topic    {demo.topic}: {state}; {demo.stream.total:,} records will be published")
                ControlTopic(settings, demo.pipeline.control_topic).ensure()
        return pipelines

    def _worker(self, api: AirflowApi, settings: KafkaSettings) -> None:
        """A long-lived worker; until one is there, each range is written by a separate Spark job."""
        with self._out.status("Airflow starts a worker, a Spark application that stays"):
            kept = start_workers(api)
            attempts = Retrying(
                retry=retry_if_result(lambda there: not there),
                wait=wait_fixed(1),
                stop=stop_after_delay(_WORKER_WITHIN if kept else 0),
                retry_error_callback=lambda _: (),
            )
            there: tuple[str, ...] = attempts(workers_there, settings)
        if there:
            self._out.print(f"Worker   {', '.join(there)}, kept by the DAG {dag_of_workers(GROUP)}")
        else:
            self._out.print("Worker   none yet: each range is written by a separate Spark job until there is one")

    def _compare(
        self, settings: KafkaSettings, pipelines: Sequence[DemoPipeline], intervals: dict[str, list[Interval]]
    ) -> bool:
        verdicts = []
        for demo in pipelines:
            reader = "Spark" if demo.upserts else "hudi-rs, which shares no code with what wrote it"
            with self._out.status(f"Reading the topic {demo.topic}, and its table with {reader}"):
                verdicts.append((demo, demo.compare(settings, intervals[demo.name][-1].start.table)))
        self._out.print(screen.verdict_table(verdicts))
        return all(verdict.same for _, verdict in verdicts)

    def _finish(
        self,
        airflow: LocalAirflow,
        pipelines: Sequence[DemoPipeline],
        intervals: dict[str, list[Interval]],
        same: bool,
        seconds: float,
    ) -> None:
        url = airflow.environment.url
        committed = sum(i.committed for found in intervals.values() for i in found)
        verdict = (
            f"[bold green]EXACTLY ONCE[/]: {committed} intervals, and both tables hold what Kafka holds, row for row."
            if same
            else "[bold red]NOT THE SAME[/]: a table differs from its topic; see above. Please report this."
        )
        pages = "\n".join(f"  {url}/dags/{p.name}" for p in pipelines)
        tables = "\n".join(f"  {intervals[p.name][-1].start.table}" for p in pipelines)
        password = airflow.environment.credentials().password
        self._out.print()
        self._out.print(
            Panel(
                f"{verdict}  ({seconds / 60:.1f} minutes)\n\n"
                f"Airflow keeps running: {url}\n"
                # Shown, because a user who may run this may also read the file; not written to any log.
                f"Log in as [bold]{ADMIN}[/] with [bold]{password}[/]\n\n"
                f"Look at the page Sluice, where each transaction is drawn:\n  {url}/plugin/sluice\n"
                f"and at each interval in the grid, with a note on what it committed:\n{pages}\n"
                f"The tables:\n{tables}\n"
                "The pipelines, which you can copy for your own topics:\n"
                + "\n".join(f"  dags/pipelines/{p.name}.yaml" for p in pipelines)
                + f"\n\n[bold]{runtime.command('demo')}[/] publishes the flights again. "
                f"[bold]{runtime.command('down')}[/] stops all; the data stays.",
                border_style="green" if same else "red",
            )
        )


def play() -> None:
    """Run it; the process ends with 1 unless Kafka and both tables hold the same."""
    main(lambda stage: _Demo(stage).run(), "demo")


if __name__ == "__main__":
    play()
