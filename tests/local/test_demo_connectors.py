"""What `make demo-connectors` rests on: a database without root, readers that see every row, and a kill that hits."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from sluice.local import postgresql
from sluice.local.demo.connectors import feeder, loader, targets
from sluice.local.demo.databases import Sqlite
from sluice.local.demo.fingerprint import columns_of, fingerprint
from sluice.local.demo.flights import Record, Stream
from sluice.local.demo.killer import Killer
from sluice.local.demo.tables import avro_files, parquet_files
from sluice.local.demo.writer import Writer, lines
from sluice.local.errors import LocalRuntimeError
from sluice.local.home import SluiceHome
from sluice.local.postgresql import LocalPostgreSql
from sluice.pipeline import load_pipeline

COLUMNS = columns_of("flight INT, carrier STRING")
ROWS = [{"flight": 1545, "carrier": "UA"}, {"flight": 1141, "carrier": None}]


def test_its_pipelines_load(tmp_path, monkeypatch):
    monkeypatch.setenv("SLUICE_LAKE", str(tmp_path))
    database = Sqlite(tmp_path / "departures.sqlite")
    made = [loader(database, tmp_path), feeder(database), *targets(database)]
    for target in made:
        target.write(tmp_path)
    loaded = [load_pipeline(tmp_path / f"{t.name}.yaml") for t in made]
    sinks = [p.sink.options.connector.partition(":")[0].split(".")[2] for p in loaded]
    assert sinks == ["jdbc", "kafka", "hudi", "files", "files", "jdbc"]


def test_the_first_table_is_made_once_and_numbers_its_rows(tmp_path):
    file = tmp_path / "departures.sqlite"
    database = Sqlite(file)
    assert database.make_source(COLUMNS)
    assert not database.make_source(COLUMNS)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executemany("INSERT INTO departures_log (flight, carrier) VALUES (:flight, :carrier)", ROWS)
    assert list(database.rows("departures_log", {"id": int, **COLUMNS})) == [
        {"id": number, **row} for number, row in enumerate(ROWS, 1)
    ]


def test_an_application_writes_each_row_once_into_files_that_appear_whole(tmp_path):
    stream = Stream("t", len(ROWS), lambda start, end: (Record(b"", json.dumps(r).encode()) for r in ROWS[start:end]))
    writer = Writer(tmp_path, stream, 60)
    writer.write_rest()
    writer.start()
    writer.join(60)
    writer.check()
    assert writer.written == len(ROWS)
    assert list(lines(tmp_path)) == ROWS
    assert {file.suffix for file in tmp_path.iterdir()} == {".json"}


def test_rows_of_files_are_read(tmp_path):
    import fastavro
    import pyarrow as pa
    from pyarrow import parquet

    folder = tmp_path / "topics" / "departures" / "origin=EWR"
    folder.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(ROWS), folder / "departures+0+0000000000+0000000001.parquet")
    fields = [{"name": "flight", "type": "int"}, {"name": "carrier", "type": ["null", "string"]}]
    with (folder / "departures+0+0000000000+0000000001.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "departures", "fields": fields}, ROWS, codec="deflate")
    expected = fingerprint(ROWS, COLUMNS)
    assert fingerprint(parquet_files(f"file://{tmp_path}", COLUMNS), COLUMNS) == expected
    assert fingerprint(avro_files(f"file://{tmp_path}"), COLUMNS) == expected


@pytest.mark.skipif(postgresql.installed_programs() is None, reason="PostgreSQL's server is not on this machine")
def test_the_database_starts_stops_and_keeps_its_data(tmp_path):
    home = SluiceHome(tmp_path)
    server, again = LocalPostgreSql.of_home(home), LocalPostgreSql.of_home(home)
    try:
        server.start()
        with server.connected() as connection:
            connection.execute("CREATE TABLE departures (flight INT)")
            connection.execute("INSERT INTO departures VALUES (1545)")
            connection.commit()
        server.stop()
        assert not server.running
        again.start()
        with again.connected() as connection:
            assert connection.execute("SELECT flight FROM departures").fetchall() == [(1545,)]
        assert server.running, "another process of the same home sees it, as `make down` does"
    finally:
        again.stop()
        server.stop()
    assert (tmp_path / "demo" / "postgresql" / "password").stat().st_mode & 0o077 == 0


def test_a_machine_without_it_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setattr(postgresql, "installed_programs", lambda: None)
    monkeypatch.setattr(postgresql, "_WHEEL", tmp_path / "missing.txt")
    with pytest.raises(LocalRuntimeError, match="PostgreSQL isn't on this machine"):
        LocalPostgreSql.of_home(SluiceHome(tmp_path)).start()


def test_the_killer_kills_a_job_of_its_pipeline_and_no_other(tmp_path):
    java = tmp_path / "java"
    java.symlink_to(Path(sys.executable).resolve())
    environment = {**os.environ, "PYTHONHOME": sys.base_prefix}

    def job(name: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([java, "-c", "input()", "--name", name], stdin=subprocess.PIPE, env=environment)

    ours, others = job("sluice-departures_avro-20261123-0"), job("sluice-departures-20261123-0")
    told: list[str] = []
    try:
        with Killer(["departures_avro"], told.append) as killer:
            assert ours.wait(60) == -9
        killer.check()
        assert others.poll() is None
        assert len(told) == 1
    finally:
        for process in (ours, others):
            process.kill()
            process.communicate()


def test_a_demo_that_killed_nothing_shows_nothing():
    with Killer([], print) as killer:
        pass
    with pytest.raises(LocalRuntimeError, match="No write job"):
        killer.check()
