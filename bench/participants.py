"""Who takes part: each a named command line, built from a Job."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.ivy import ensure

from bench.home import jars, java_home, spark_home
from sluice.local.home import SluiceHome

if TYPE_CHECKING:
    from collections.abc import Callable

HOME = ".sluice"
PEERS = Path(__file__).resolve().parent / "peers"

# What Hudi's Spark quick start says to set; its --packages are a class path here, so nothing is resolved.
HUDI_SESSION = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
}
# A streaming query has no adaptive execution: with the default of 200 its index look-up on two cores runs 2,500
# tasks where the batch query runs 170, which no user would leave so.
SHUFFLE_PARTITIONS = 8
ICEBERG_EVERY = 10.0  # seconds between the commits of Iceberg's sink; it says 300 itself, for files that are larger


@dataclass(frozen=True)
class Job:
    """One run of one participant.

    `starting` holds the first offset of the window in each partition; None means the earliest there is.
    """

    scenario: str
    operation: str
    bootstrap: str
    topic: str
    home: Path
    run: str
    records: int
    starting: dict[int, int] | None = None
    master: str = "local[2]"
    driver_memory: str = "2g"
    database: str = ""
    """A JDBC URL, in scenarios that load a database."""
    folder: str = ""
    """Where the records lie as lines of files, in scenarios that read those."""

    @property
    def table(self) -> Path:
        return self.home / "table"

    @property
    def table_type(self) -> str:
        return "MERGE_ON_READ" if self.operation == "upsert" else "COPY_ON_WRITE"

    @property
    def starting_offsets(self) -> str:
        """As Spark's Kafka source takes them."""
        if self.starting is None:
            return "earliest"
        return json.dumps({self.topic: {str(p): o for p, o in self.starting.items()}})


@dataclass(frozen=True)
class Participant:
    """`reads` is the format in which a check reads its table afterwards, None if it writes none."""

    name: str
    title: str
    commands: Callable[[Job], list[list[str]]]
    reads: str | None = "hudi"


def environment() -> dict[str, str]:
    """The same for every participant: where Java and Spark are, and an address that needs no name service."""
    return {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def spark_submit(script: Path, *arguments: str, master: str, driver_memory: str, hudi: bool = True) -> list[str]:
    """The peers' command line: PySpark's own spark-submit, without a class-data-sharing archive."""
    conf = {
        "spark.driver.extraClassPath": str(jars("spark") / "*"),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        **(HUDI_SESSION if hudi else {}),
    }
    argv = [str(spark_home() / "bin" / "spark-submit"), "--master", master, "--driver-memory", driver_memory]
    for key, value in conf.items():
        argv += ["--conf", f"{key}={value}"]
    return [*argv, str(script), *arguments]


def _peer(job: Job, script: str, *arguments: str, hudi: bool = True) -> list[list[str]]:
    return [spark_submit(PEERS / script, *arguments, master=job.master, driver_memory=job.driver_memory, hudi=hudi)]


def _window(job: Job) -> list[str]:
    return ["--bootstrap", job.bootstrap, "--topic", job.topic, "--path", str(job.table)]


def structured_streaming(job: Job) -> list[list[str]]:
    return _peer(
        job,
        "structured_streaming.py",
        *_window(job),
        "--operation",
        job.operation,
        "--checkpoint",
        str(job.home / "checkpoint"),
        *(("--folder", job.folder) if job.folder else ()),
    )


def streaming_foreach_batch(job: Job) -> list[list[str]]:
    return [[*structured_streaming(job)[0], "--foreach-batch"]]


def hudi_datasource(job: Job) -> list[list[str]]:
    return _peer(
        job,
        "hudi_datasource.py",
        *_window(job),
        "--operation",
        job.operation,
        "--starting-offsets",
        job.starting_offsets,
    )


def datasource_skip_empty(job: Job) -> list[list[str]]:
    return [[*hudi_datasource(job)[0], "--skip-empty"]]


def plain_parquet(job: Job) -> list[list[str]]:
    return _peer(job, "plain_parquet.py", *_window(job), hudi=False)


def plain_jdbc(job: Job) -> list[list[str]]:
    where = ["--bootstrap", job.bootstrap, "--topic", job.topic, "--url", job.database]
    return _peer(job, "plain_jdbc.py", *where, hudi=False)


def plain_jdbc_rewritten(job: Job) -> list[list[str]]:
    return [[*plain_jdbc(job)[0], "--rewrite"]]


def iceberg_stays(job: Job, every: float) -> list[str]:
    """Iceberg's sink, which commits every so many seconds; its jars are fetched at first use."""
    fetched = ensure(SluiceHome.from_env(), "iceberg-sink", PEERS / "iceberg.xml", ("jar", "bundle"))
    where = ["--jars", str(fetched), "--home", str(job.home), "--every", str(every)]
    return [sys.executable, str(PEERS / "iceberg_sink.py"), *where, *_window(job)]


def iceberg_sink(job: Job) -> list[list[str]]:
    return [[*iceberg_stays(job, ICEBERG_EVERY), "--records", str(job.records)]]


def bare_session(job: Job) -> list[list[str]]:
    return _peer(job, "bare_session.py", hudi=False)


def sluice(job: Job) -> list[list[str]]:
    from bench.sluice_side import sluice_commands  # sluice_side takes Job from here

    return sluice_commands(job)


def before(checkout: Path) -> Participant:
    """Sluice as another checkout has it, by its own commands and its own code."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout / "plugins"), str(checkout)])}
    if not (checkout / HOME).exists():  # it was never installed: our Java and jars do
        environment["SLUICE_HOME"] = str(Path(os.environ.get("SLUICE_HOME", HOME)).resolve())

    def commands(job: Job) -> list[list[str]]:
        given = {name: value for name, value in asdict(job).items() if value != ""}  # an older one lacks later fields
        asked = subprocess.run(
            [sys.executable, "-c", _COMMANDS], input=pickle.dumps(given), env=environment, cwd=checkout,
            capture_output=True, check=True,
        )  # fmt: skip
        own = ["env", *(f"{name}={environment[name]}" for name in ("PYTHONPATH", "SLUICE_HOME") if name in environment)]
        return [[*own, *argv] for argv in json.loads(asked.stdout)]

    return Participant("before", f"Sluice before: {checkout.name}", commands)


_COMMANDS = """
import json, pickle, sys
from bench.participants import Job
from bench.sluice_side import sluice_commands
print(json.dumps(sluice_commands(Job(**pickle.load(sys.stdin.buffer)))))
"""

SLUICE = Participant("sluice", "Sluice: start, write, commit", sluice)
SLUICE_FILES = replace(SLUICE, reads="parquet")
SLUICE_JDBC = replace(SLUICE, reads="jdbc")
STREAMING = Participant("structured_streaming", "(a) Structured Streaming, availableNow", structured_streaming)
FOREACH_BATCH = Participant(
    "streaming_foreach_batch", "(a') Structured Streaming, foreachBatch", streaming_foreach_batch
)
DATASOURCE = Participant("hudi_datasource", "(b) Kafka batch, Hudi DataSource", hudi_datasource)
SKIP_EMPTY = Participant("datasource_skip_empty", "(b') Hudi DataSource, looks first", datasource_skip_empty)
PARQUET = Participant("plain_parquet", "(c) Kafka batch, plain Parquet", plain_parquet, reads="parquet")
ICEBERG = Participant("iceberg_sink", "(f) Iceberg's sink for Kafka Connect", iceberg_sink, reads="parquet")
JDBC = Participant("plain_jdbc", "(e) Kafka batch, df.write.jdbc", plain_jdbc, reads="jdbc")
JDBC_REWRITTEN = Participant(
    "plain_jdbc_rewritten", "(e') the same, reWriteBatchedInserts", plain_jdbc_rewritten, reads="jdbc"
)
BARE = Participant("bare_session", "(d) bare Spark session", bare_session, reads=None)
