"""What a worker answers to probes and to Prometheus: when it is well, when it can claim, and what it has written."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from protocol_messages import INSTANT, status

from sluice import __version__
from sluice.errors import ActionRequiredError, RetryableError
from sluice.participant.claiming import End, HeldClaim, RangeId, ServedTable, Terms
from sluice.participant.endpoint import answering
from sluice.participant.vitals import Vitals

TABLE = ("control", "file:///lake/flights")
SERVED = ServedTable(None, None, 600.0, pipeline="flights", name="flights of today")  # type: ignore[arg-type]
LABELS = {"pipeline": "flights", "table": "flights of today"}


class Observed:
    """A worker that runs, as its parts show it, and its endpoint."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.worker = SimpleNamespace(tables={TABLE: SERVED}, ticked=1000.0, held=(), why=None)
        self.jvm_silent = 0.0
        self.follower = SimpleNamespace(silent=0.2, is_current=True)
        self.follower.silent_for = lambda: self.follower.silent
        self.is_member = True
        terms = Terms("worker-1", 30.0, 2, described=lambda: {"memory": 3})
        self.vitals = Vitals(terms, "default", lambda: self.now)

    def begin(self) -> None:
        application: Any = SimpleNamespace(silent_for=lambda: self.jvm_silent)
        worker: Any = self.worker
        self.vitals.runs(worker, application, [self.follower], lambda: self.is_member)

    def answers(self) -> tuple[str | None, str | None]:
        return self.vitals.health_problem(), self.vitals.readiness_problem()


@pytest.fixture
def seen() -> Observed:
    observed = Observed()
    observed.begin()
    return observed


def test_a_worker_that_waits_for_work_is_well_and_ready_for_as_long_as_its_loops_run(seen):
    for _ in range(3):
        seen.now += 3600
        seen.worker.ticked = seen.now - 1
        assert seen.answers() == (None, None)


def test_a_worker_that_begins_is_well_and_not_ready():
    assert Observed().answers() == (None, "its Spark application begins")


@pytest.mark.parametrize(
    ("change", "health", "readiness"),
    [
        ({"jvm_silent": 5.1}, None, "its JVM has not answered for 5 seconds"),
        ({"jvm_silent": 20.1}, "its JVM has not answered for 20 seconds", ...),
        ({"now": 1120.0}, None, None),
        ({"now": 1121.0}, "it has decided nothing for 121 seconds", ...),
        ({"follower.silent": 121.0}, "it has read no control topic for 121 seconds", ...),
        ({"follower.is_current": False}, None, "it reads its control topics for the first time"),
        ({"is_member": False}, None, "it isn't in its group of workers: the brokers of its control topics"),
        ({"worker.why": End.ASKED}, None, "it ends: it was asked to"),
        ({"worker.why": End.NEW_CODE}, None, "it ends: another release"),
        ({"worker.why": End.RANGE_HUNG}, "a range did not end when it was cancelled", "it ends: a range did"),
        ({"worker.why": End.JVM_UNRESPONSIVE}, "its JVM does not answer", "it ends: its JVM"),
        ({"worker.why": End.UNHEALTHY}, "its Spark application is lost or out of memory", "it ends: its Spark"),
        ({"worker.why": End.CONTROL_TOPICS_LOST}, "it can't follow its control topics", "it ends: it can't"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_it_says_what_it_ails_and_what_keeps_it_from_claiming(seen, change, health, readiness):
    for name, value in change.items():
        *path, last = name.split(".")
        setattr(getattr(seen, path[0]) if path else seen, last, value)
    found_health, found_readiness = seen.answers()
    assert found_health == health
    wanted = health if readiness is ... else readiness
    assert (found_readiness or "").startswith(wanted or "")
    assert (found_readiness is None) == (wanted is None)


# Its endpoint


@pytest.fixture
def port(seen) -> Iterator[int]:
    with answering("127.0.0.1", 0, seen.vitals) as port:
        yield port


def _get(port: int, path: str, **headers: str) -> tuple[int, str, bytes]:
    try:
        with urlopen(Request(f"http://127.0.0.1:{port}{path}", headers=headers), timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read()


def test_probes_get_a_status_and_the_reason_in_json(seen, port):
    assert _get(port, "/health") == (200, "application/json", b'{"ok": true, "reason": null}')
    assert _get(port, "/ready?verbose")[0] == 200
    seen.worker.why = End.ASKED
    assert _get(port, "/health")[0] == 200
    code, _, body = _get(port, "/ready")
    assert (code, json.loads(body)) == (503, {"ok": False, "reason": "it ends: it was asked to", "claims": []})
    seen.worker.why = End.RANGE_HUNG
    code, _, body = _get(port, "/health")
    assert (code, json.loads(body)["reason"]) == (503, "a range did not end when it was cancelled")
    assert _get(port, "/")[0] == 404
    assert _get(port, "/../etc/passwd")[0] == 404


def _metrics(port: int) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    code, content_type, body = _get(port, "/metrics")
    assert (code, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = text_string_to_metric_families(body.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def test_prometheus_reads_what_it_has_written_and_what_it_holds(seen, port):
    figures = seen.vitals.figures
    figures.claimed(SERVED)
    figures.wrote(SERVED, status(INSTANT, 0, records_written=7, records_quarantined=3), 1.5)
    figures.wrote(SERVED, status(INSTANT, 1), 2.5)
    figures.failed(SERVED, RetryableError("The broker is gone.", next_step="-"))
    first, second = (RangeId(*TABLE, 4, number) for number in (0, 1))
    seen.worker.held = (
        HeldClaim(first, INSTANT, 960.0, 990.0, 970.0),
        HeldClaim(second, INSTANT, 980.0, 995.0, None),
    )
    found = _metrics(port)

    def value(name: str, **labels: str) -> float:
        return found[f"sluice_worker_{name}", frozenset({**LABELS, **labels}.items())]

    assert value("claims_total") == 1
    assert value("ranges_written_total") == 2
    assert value("range_failures_total", error="RetryableError") == 1
    assert value("records_read_total", cluster="kafka") == 20
    assert value("read_bytes_total", cluster="kafka") == 200
    assert value("records_total", outcome="written") == 17
    assert value("records_total", outcome="quarantined") == 3
    assert (value("write_seconds_count"), value("write_seconds_sum")) == (2, 4.0)
    assert (value("claims_held"), value("ranges_writing")) == (2, 1)
    assert (value("claim_age_seconds"), value("lease_age_seconds")) == (40.0, 10.0)
    alone = {name: v for (name, labels), v in found.items() if not labels}
    assert alone["sluice_worker_healthy"] == alone["sluice_worker_ready"] == 1
    assert (alone["sluice_worker_slots"], alone["sluice_worker_lease_seconds"]) == (2, 30)
    assert alone["sluice_worker_memory_bytes"] == 3 << 20
    assert alone["process_start_time_seconds"] > 0
    info = frozenset({"name": "worker-1", "group": "default", "version": __version__}.items())
    assert found["sluice_worker_info", info] == 1
    assert not [name for name, _ in found if name.endswith("_created")]
    claims = json.loads(_get(port, "/ready")[2])["claims"]
    ages = [{"age_seconds": 40.0, "lease_age_seconds": 10.0}, {"age_seconds": 20.0, "lease_age_seconds": 5.0}]
    assert claims == [
        {**LABELS, "instant": INSTANT, "range": 0, "writing_seconds": 30.0, **ages[0]},
        {**LABELS, "instant": INSTANT, "range": 1, "writing_seconds": None, **ages[1]},
    ]
    seen.worker.held = ()
    gone = {"sluice_worker_claims_held", "sluice_worker_claim_age_seconds", "sluice_worker_lease_age_seconds"}
    assert not gone & {name for name, _ in _metrics(port)}


def test_a_scraper_that_asks_for_openmetrics_gets_it(port):
    code, content_type, body = _get(port, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert (code, content_type.split(";")[0]) == (200, "application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_a_port_in_use_is_an_error_that_says_what_to_do(seen):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(ActionRequiredError, match=r"can't listen on its port.*--port") as raised,
            answering("127.0.0.1", taken.getsockname()[1], seen.vitals),
        ):
            pass
    assert "Address already in use" in str(raised.value)


def test_it_answers_on_ipv6(seen):
    with answering("::1", 0, seen.vitals) as port, urlopen(f"http://[::1]:{port}/health", timeout=10) as answer:
        assert answer.status == 200
