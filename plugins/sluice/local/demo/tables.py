"""Reads the tables with readers that share nothing with what wrote them, or as little as there is."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sluice import runtime
from sluice.local.demo.fingerprint import Columns, Fingerprint, fingerprint
from sluice.local.errors import LocalRuntimeError
from sluice.local.java import java_home
from sluice.local.venv import command, search_path
from sluice.participant.launch.settings import spark_conf

APPLICATION = Path(__file__).with_name("read_application.py")


def append_table(path: str, columns: Columns) -> Fingerprint:
    """A copy-on-write table's rows, by hudi-rs: another implementation of Hudi, in Rust, without a JVM."""
    return fingerprint(_rows(path, columns), columns)


def _rows(path: str, columns: Columns) -> Iterator[Mapping[str, Any]]:
    from hudi import HudiTableBuilder

    for batch in HudiTableBuilder.from_base_uri(path).build().read():
        values = [batch.column(name).to_pylist() for name in columns]
        for row in zip(*values, strict=True):
            yield dict(zip(columns, row, strict=True))


def parquet_files(path: str, columns: Columns) -> Iterator[Mapping[str, Any]]:
    """The rows of all Parquet files below `topics`, by pyarrow."""
    from pyarrow import parquet

    for file in _files(path, "parquet"):
        with parquet.ParquetFile(file) as opened:
            for batch in opened.iter_batches(columns=list(columns)):
                yield from batch.to_pylist()


def avro_files(path: str) -> Iterator[Mapping[str, Any]]:
    """The rows of all Avro files below `topics`, by fastavro."""
    import fastavro

    for file in _files(path, "avro"):
        with file.open("rb") as opened:
            yield from fastavro.reader(opened)  # type: ignore[misc]


def _files(path: str, suffix: str) -> list[Path]:
    return sorted((Path(path.removeprefix("file://")) / "topics").rglob(f"*.{suffix}"))


def upsert_table(path: str, ddl: str) -> Fingerprint:
    """A merge-on-read table's rows, by Spark in a separate process; hudi-rs needs a base file in each file group.

    Raises:
        LocalRuntimeError: Spark failed.
    """
    conf = spark_conf("local[2]", {})
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    environment = {**os.environ, "JAVA_HOME": str(java_home()), **search_path(runtime.packages())}
    with tempfile.TemporaryDirectory(prefix="sluice-demo-") as folder:
        answer = Path(folder) / "fingerprint.json"
        submit = command("spark-submit", "--master", "local[2]", *options, str(APPLICATION), path, ddl, str(answer))
        done = subprocess.run(submit, env=environment, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise LocalRuntimeError(
                f"Spark could not read the table {path}.",
                next_step="read the log below.",
                detail=done.stdout + done.stderr,
            )
        return Fingerprint(**json.loads(answer.read_text()))
