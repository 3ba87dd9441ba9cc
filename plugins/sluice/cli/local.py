"""`sluice local`: Kafka, Airflow and Spark on this machine, and the demos."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.local.__main__ import app
from sluice.local.errors import told_in_short


@app.command()
def demo() -> None:
    """Load a year of real flights by Airflow's scheduler, and compare every row with Kafka."""
    from sluice.local.demo.__main__ import play

    play()


@app.command()
def demo_clusters() -> None:
    """Move a stream from one Kafka cluster to another while records arrive, and compare every row."""
    from sluice.local.demo.clusters import play

    play()


@app.command()
def demo_connectors() -> None:
    """Load a table of a database into a topic, and that into four sinks while jobs are killed; compare every row."""
    from sluice.local.demo.connectors import play

    play()


def main(arguments: Sequence[str]) -> None:
    """Run one of the commands; an expected failure is a message, not a stack trace."""
    with told_in_short():
        app(arguments, prog_name="sluice local")
