"""The base of all demos: Java and jars, a Kafka broker and Airflow, and short error messages."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaException
from rich.console import Console

from sluice import runtime
from sluice.errors import SluiceError
from sluice.local.airflow import LocalAirflow
from sluice.local.archive import archives_in_words
from sluice.local.broker import LocalBroker
from sluice.local.demo import screen
from sluice.local.errors import LocalRuntimeError, told_in_short
from sluice.local.home import SluiceHome
from sluice.local.jars import ensure_jars

_BROKER_PORT = 9092


class Stage:
    """The embedded runtime of a demo.

    Args:
        home: its folder.
        out: the console.
    """

    def __init__(self, home: SluiceHome, out: Console) -> None:
        self.home = home
        self.out = out
        self.broker = LocalBroker(home, port=_BROKER_PORT)

    def heading(self, text: str) -> None:
        """The next part begins."""
        self.out.print()
        self.out.rule(f"[bold]{text}[/]", align="left")

    def install(self) -> None:
        """Java, jars and class archives, where they are missing."""
        with self.out.status("Looking for the jars") as status:
            fetched = 0

            def show(line: str) -> None:
                nonlocal fetched
                if "[SUCCESSFUL ]" in line:
                    fetched += 1
                    status.update(f"Fetching the jars of Spark, Hudi and Kafka: {fetched} so far")

            changed = ensure_jars(self.home, show)
            self.out.print("Jars     fetched" if changed else "Jars     there already")
            status.update("Archiving the classes of both JVMs: once, about a minute, and every interval starts faster")
            self.out.print(f"Archives {archives_in_words(self.home)}", markup=False)

    def start(self) -> LocalAirflow:
        """The broker and Airflow, where they don't run yet."""
        with self.home.locked("runtime"):
            with self.out.status("Starting the Kafka broker"):
                self.broker.start()
            self.out.print(f"Kafka    {self.broker.bootstrap}")
            airflow = LocalAirflow.of_home(self.home, self.broker.bootstrap)
            with self.out.status("Starting Airflow: the first time it takes about a minute"):
                airflow.start()
        return airflow


def run(play: Callable[[Stage], bool], name: str) -> None:
    """Run a demo; the process ends with 1 where Kafka and a table differ, with 130 at Ctrl-C.

    Args:
        play: the demo; whether Kafka and its tables hold the same.
        name: of the command that starts it, such as `demo`.

    Raises:
        LocalRuntimeError: something on this machine stops it.
    """
    out = screen.console()
    try:
        same = play(Stage(SluiceHome.from_env().create(), out))
    except KeyboardInterrupt:
        out.print("\n[yellow]Interrupted.[/] What was committed stays committed.")
        out.print(
            f"[bold]{runtime.command(name)}[/] continues from there, "
            f"[bold]{runtime.command('down')}[/] stops everything that still runs."
        )
        raise SystemExit(130) from None
    except SluiceError as error:
        where = "\n".join(f"{name}: {value}" for name, value in error.where.items())
        raise LocalRuntimeError(error.what, next_step=error.next_step, detail=where) from error
    except KafkaException as error:
        look = f"run `{runtime.command('status')}`, then the demo again."
        raise LocalRuntimeError(f"Kafka: {error}.", next_step=look) from error
    if not same:
        raise SystemExit(1)


def main(play: Callable[[Stage], bool], name: str) -> None:
    """Run a demo; an expected failure is a message, not a stack trace."""
    with told_in_short():
        run(play, name)
