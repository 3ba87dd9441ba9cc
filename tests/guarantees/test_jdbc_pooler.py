"""A table is loaded into another one by way of PgBouncer, and each session is given back as it was.

PgBouncer in transaction pooling, with the real server behind it.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from dataclasses import asdict, replace

import pytest

from sluice.connectors.connections import VARIABLE, given
from sluice.connectors.views import commit_log_of

from ..cluster.servers import PgBouncer, pgbouncer_program
from .harness.windows import COLUMNS, TIMED

# What the pooler itself sets by each client's first message.
_CLIENTS = {"application_name", "client_encoding", "DateStyle", "TimeZone"}


@pytest.fixture
def pooler(postgresql):
    program = pgbouncer_program()
    if program is None:
        pytest.skip("PgBouncer is missing: on Debian it is in `pgbouncer`")
    made = PgBouncer(program, postgresql.server, sessions=4)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _settings(pooler):
    """Those of each of the pooler's sessions, by what the server calls it."""
    found = {}
    with ExitStack() as open_:
        clients = [open_.enter_context(closing(pooler.connect())) for _ in range(pooler.sessions)]
        for client in clients:  # each transaction that is open at the same time has another session
            cursor = client.cursor()
            cursor.execute("SELECT pg_backend_pid()")
            ((process,),) = cursor.fetchall()
            cursor.execute("SELECT name, setting FROM pg_settings")
            found[process] = {name: setting for name, setting in cursor.fetchall() if name not in _CLIENTS}
        for client in clients:  # the pooler closes a session in the middle of whose transaction a client goes
            client.commit()
    return found


def test_an_interval_by_way_of_a_pooler_leaves_its_sessions_as_they_were(
    postgresql, pooler, make_flow, monkeypatch, topic_name
):
    """START, write job, commit and the page's look: none sets anything for longer than its transaction."""
    name = topic_name("s").replace("-", "_")
    postgresql.run(f"CREATE TABLE {name} ({COLUMNS['postgresql']})")
    postgresql.run(f"INSERT INTO {name} (version) SELECT generate_series(1, 50)")
    before = _settings(pooler)
    assert len(before) == pooler.sessions
    # A statement that is prepared by name would be another client's, too.
    extra = {"properties": {"prepareThreshold": "0"}}
    known = [replace(postgresql.connection, id=one, port=pooler.port, extra=extra) for one in ("shop", "warehouse")]
    environment = {VARIABLE: json.dumps([asdict(one) for one in known])}
    flow = make_flow(0)
    flow.secret_environment.update(environment)
    monkeypatch.setenv(VARIABLE, environment[VARIABLE])
    into = {"connection": "warehouse", "table": f"{name}_copy", "auto_create": True}
    source = {"jdbc": {"connection": "shop", "tables": f"public.{name}", **TIMED, "clock_margin": "0 seconds"}}
    flow.set(source=source, control__connection="kafka_default", sink__hudi=None, sink__jdbc=into)
    assert flow.interval().records == 50
    postgresql.run(f"INSERT INTO {name} (version) VALUES (51)")
    assert flow.interval().records == 1
    with given(known):
        assert len(commit_log_of("jdbc", flow.pipeline.table_id).read().instants) == 2
    assert postgresql.query(f"SELECT version FROM {name}_copy ORDER BY 1") == [(n,) for n in range(1, 52)]
    after = _settings(pooler)
    assert after.keys() == before.keys()
    assert after == before
    postgresql.run(f"DROP TABLE {name}, {name}_copy")
