"""The `sluice` command on real parts: for people as tables, for programs as JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .harness import environment


@pytest.fixture(scope="module")
def loaded(make_flow_of_module):
    flow = make_flow_of_module()
    for _ in range(2):
        flow.produce(20)
        flow.interval()
    flow.produce(6)
    return flow


def _sluice(flow, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sluice.cli", arguments[0], str(flow.file), *arguments[1:]]
    return subprocess.run(command, env=environment(flow.bootstrap), capture_output=True, text=True)


def _json(flow, *arguments: str):
    done = _sluice(flow, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_plan_shows_the_next_interval(loaded):
    assert [(r["partition"], r["start"], r["end"]) for r in _json(loaded, "plan")["reads"]] == [
        (0, 20, 23),
        (1, 20, 23),
    ]
    assert "flow" in loaded.topic or loaded.topic in _sluice(loaded, "plan").stdout


def test_plan_shows_what_a_window_would_read(loaded):
    window = _json(loaded, "plan", "--offsets", f"{loaded.topic}[1]:15-22")
    assert [(r["start"], r["end"]) for r in window["reads"]] == [(20, 22)]
    assert window["covered"] == 5


def test_offsets_show_where_each_partition_stands(loaded):
    rows = _json(loaded, "offsets")["offsets"]
    assert [(r["partition"], r["next"], r["log_end"], r["lag"]) for r in rows] == [(0, 20, 23, 3), (1, 20, 23, 3)]
    assert rows[0]["covered"] == [[0, 20]]


def test_transactions_tell_the_history(loaded):
    rows = _json(loaded, "transactions")["transactions"]
    assert [(r["kind"], r["state"], r["written"]) for r in rows] == [("continue", "committed", 20)] * 2
    assert len(_json(loaded, "transactions", "--last", "1")["transactions"]) == 1


def test_a_wrong_range_is_one_clear_line(loaded):
    done = _sluice(loaded, "plan", "--offsets", "0:1-2")
    assert done.returncode == 1
    assert "write topic[partition]:start-end" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.thorough
def test_verify_replay_and_passing_over(loaded):
    verified = _sluice(loaded, "verify", "--master", "local[1]")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "the same, row for row: 40 rows" in " ".join(verified.stdout.split())
    instant = _json(loaded, "transactions")["transactions"][0]["instant"]
    replayed = _sluice(loaded, "replay", instant, "--master", "local[1]", "--reason", "a wrong file")
    assert replayed.returncode == 0, replayed.stderr
    loaded.check(complete=False)
    passed = _sluice(loaded, "offsets", "--pass-over", f"{loaded.topic}[0]:20-23", "--reason", "test data")
    assert passed.returncode == 0, passed.stderr
    assert loaded.offsets() == {0: 23, 1: 20}
    newest = _json(loaded, "transactions")["transactions"][-1]
    assert (newest["kind"], newest["what"]) == ("correction", "test data")


def test_verify_finds_a_row_that_the_topic_does_not_have(make_flow):
    flow = make_flow(sink__hudi__operation="upsert", sink__hudi__record_key="id")
    flow.produce(10)
    flow.interval()
    verified = flow.verify("--json")
    assert verified.exit_code == 0, verified.output
    assert json.loads(verified.stdout)["intervals"][0]["in_table"] == 10
    flow.append_by_spark(range(1000, 1001), **{"hoodie.datasource.write.table.type": "MERGE_ON_READ"})
    done = flow.verify()
    assert done.exit_code == 1, done.output
    assert "DIFFER in 1 of 1" in " ".join(done.stdout.split())
