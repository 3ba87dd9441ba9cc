"""Pipelines that load a table of a database, and the table as the database's own clients see it."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from typing import Any

import pytest

from sluice.errors import SluiceError
from sluice.protocol.offsets import OFFSETS_KEY, Checkpoint, TopicPartition

from .databases import CONNECTION, Readable
from .flow import Flow
from .processes import CLUSTER

DDL = "id BIGINT, v STRING"
UPSERT = {
    "schema": "id BIGINT NOT NULL, v STRING",
    "insert_mode": "upsert",
    "pk_mode": "record_key",
    "pk_fields": "id",
    "delete_enabled": True,
}
TOMBSTONES: dict[str, Any] = {"changes": {"format": "tombstones"}, "source__kafka__key": {"converter": "json"}}


class Table:
    """A pipeline, and its table as a client of the database sees it."""

    def __init__(self, flow: Flow, database: Readable) -> None:
        self.flow, self.database = flow, database
        self.name = flow.pipeline.sink.jdbc.table

    def rows(self, columns: str = "id, v") -> list[tuple[Any, ...]]:
        if self.name not in self.database.tables():
            return []
        return self.database.query(f'SELECT {columns} FROM "{self.name}"')

    def position(self) -> dict[int, int]:
        """The offsets up to which the table has the topic, as its row among the positions says."""
        sql = f"SELECT metadata FROM \"_sluice_positions\" WHERE sink_table LIKE '%{self.name}' AND instant IS NOT NULL"
        found = self.database.query(sql)
        if not found:
            return {}
        checkpoint = Checkpoint.model_validate_json(json.loads(found[0][0])[OFFSETS_KEY])
        ends = {p: checkpoint.covered(TopicPartition(CLUSTER, self.flow.topic, p)) for p in self.flow.log_ends()}
        return {p: spans[-1][1] for p, spans in ends.items() if spans}

    def check(self) -> None:
        """Rows and offsets agree, and no record is missing."""
        offsets = self.position()
        covered = [sent for sent in self.flow.sent if sent.offset < offsets.get(sent.partition, 0)]
        assert Counter(self.rows()) == Counter((sent.id, sent.value) for sent in covered)
        assert len(covered) == len(self.flow.sent)
        assert self.staging() == set()

    def staging(self) -> set[str]:
        return self.database.staging()


def keyed(number: int, version: str | None, **more: Any) -> tuple[bytes, bytes | None]:
    """A record of a key, or its tombstone."""
    key = json.dumps({"id": number}).encode()
    return key, None if version is None else json.dumps({"id": number, "v": version, **more}).encode()


def refused(flow: Flow) -> SluiceError:
    """How an interval ends that can't be loaded: its run is aborted afterwards, as its DAG does it."""
    run = flow.run()
    started = flow.start(run)
    for number in range(len(started.ranges)):
        flow.write(started, number).wait()
    with pytest.raises(SluiceError) as caught:
        flow.commit(started)
    flow.abort(run)
    return caught.value


def jdbc_table(flow: Flow, database: Readable, section: dict[str, Any] | None = None) -> Table:
    """A flow's table in a database."""
    jdbc = {"connection": CONNECTION, "schema": DDL, "auto_create": True, **(section or {})}
    jdbc.setdefault("table", flow.topic.replace("-", "_"))
    flow.set(sink__hudi=None, sink__jdbc=jdbc)
    flow.secret_environment.update(database.environment())
    return Table(flow, database)


def require_refused(table: Table, commit: subprocess.Popen[str]) -> None:
    """The commit ends and has committed nothing, and the next interval all."""
    assert commit.wait(600) != 0
    out, err = commit.communicate()
    assert "rolled back" in err, out + err
    assert (table.rows(), table.position()) == ([], {})
    table.flow.interval()
    table.check()
