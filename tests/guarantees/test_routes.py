"""Routes: one topic's records go to several tables, each committed with its own offsets, and none is lost unseen."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from confluent_kafka.admin import NewTopic

from sluice.coordinator import Coordinator, Outcome
from sluice.errors import ActionRequiredError
from sluice.pipeline import load_pipeline

from .harness import Flow, wait_for
from .quarantined import TOLERANT, places, quarantine

RECORD = "id BIGINT, type STRING, amount DOUBLE, v STRING"


def table(flow: Flow, name: str, columns: str, **own) -> dict:
    return {"sink": {"hudi": {"path": f"{flow.path}_{name}", "schema": columns}}, **own}


class Routed(Flow):
    """One of the pipelines of a file with routes."""

    def __init__(self, flow: Flow, route: str) -> None:
        self.__dict__.update(flow.__dict__)
        self.route = route
        self.path = flow.path.with_name(f"{flow.path.name}_{route}")

    @property
    def pipeline(self):
        return load_pipeline(f"{self.file}#{self.route}")


def routed(make_flow, otherwise: str, **more) -> dict[str, Flow]:
    flow = make_flow(
        1, sink=None, source__kafka__value={"schema": RECORD}, transforms=[{"set": {"v": "upper(v)"}}], **more
    )
    upsert = {"operation": "upsert", "record_key": "id"}
    order = table(flow, "order", "id BIGINT, amount DOUBLE, v STRING")
    payment = table(flow, "payment", "id BIGINT, v STRING", **{"is": "pay.ment", "transforms": [{"drop": "amount"}]})
    payment["sink"]["hudi"] |= upsert
    flow.set(routes={"by": "lower(type)", "tables": {"order": order, "payment": payment}, "otherwise": otherwise})
    return {name: Routed(flow, name) for name in ("order", "payment")}


def send(flow: Flow, number: int, kind: str | None) -> int:
    return flow.produce_raw(json.dumps({"id": number, "type": kind, "amount": 1.5, "v": f"v{number}"}).encode())


def rows(flow: Flow) -> list[tuple]:
    return sorted((row["id"], row["v"]) for row in flow.all_columns())


def filtered(flow: Flow) -> int:
    statuses = [m for m in flow.messages() if m.type == "WRITE-STATUS" and m.table == flow.table]
    return int(statuses[-1].records_filtered)


def test_each_table_takes_its_records_and_commits_its_own_offsets(make_flow):
    flows = routed(make_flow, "payment")
    order, payment = flows["order"], flows["payment"]
    assert [f.pipeline.name for f in flows.values()] == [f"{order.topic}.order", f"{order.topic}.payment"]
    for number, kind in enumerate(["order", "Pay.Ment", "ORDER", "refund", None]):
        send(order, number, kind)
    order.interval()
    assert rows(order) == [(0, "V0"), (2, "V2")]
    assert filtered(order) == 3
    send(order, 5, "order")
    payment.interval()  # the tables needn't be at the same place
    assert rows(payment) == [(1, "V1"), (3, "V3"), (4, "V4")]
    assert filtered(payment) == 3
    assert (order.offsets(), payment.offsets()) == ({0: 5}, {0: 6})
    assert {"amount"} == set(order.all_columns()[0]) - set(payment.all_columns()[0])
    order.interval()
    assert rows(order) == [(0, "V0"), (2, "V2"), (5, "V5")]
    assert (order.offsets(), payment.offsets()) == ({0: 6}, {0: 6})


def test_a_record_that_belongs_to_none_stops_the_first_pipeline_alone(make_flow):
    flows = routed(make_flow, "fail")
    order, payment = flows["order"], flows["payment"]
    send(order, 0, "order")
    offset = send(order, 1, "refund")
    run = order.run()
    started = order.start(run)
    assert order.write(started).wait() == 1
    with pytest.raises(ActionRequiredError, match=r"it belongs to no route: lower\(type\) is none of") as caught:
        order.commit(started)
    assert f"offset={offset}" in str(caught.value)
    assert "refund" not in str(caught.value)
    order.abort(run)
    outcome = payment.interval()
    assert outcome.records == 0
    assert filtered(payment) == 2


@pytest.mark.thorough
def test_a_record_that_belongs_to_none_is_quarantined_once(make_flow):
    flows = routed(make_flow, "fail", **TOLERANT)
    order, payment = flows["order"], flows["payment"]
    for number, kind in enumerate(["order", "refund", "pay.ment"]):
        send(order, number, kind)
    for flow in flows.values():
        flow.interval()
    assert [rows(flow) for flow in flows.values()] == [[(0, "V0")], [(2, "V2")]]
    assert places(quarantine(order)) == [(0, 1)]
    assert quarantine(payment) == []


@pytest.mark.thorough
def test_left_out_where_the_file_says_so(make_flow):
    flows = routed(make_flow, "ignore")
    send(flows["order"], 0, "refund")
    for flow in flows.values():
        assert isinstance(flow.coordinator(), Coordinator)
        outcome = flow.interval()
        assert isinstance(outcome, Outcome)
        assert "1 records were filtered out" in outcome.summary
        assert rows(flow) == []


def test_many_topics_into_one_table_and_whence_each_row_came(make_flow, create_topic):
    other = create_topic("other")
    flow = make_flow(
        1,
        sink__hudi__schema="id BIGINT, came_from STRING, part INT, place BIGINT, arrived_at TIMESTAMP",
        sink__hudi__partition_fields="came_from",
        source__kafka__columns={
            "came_from": "topic", "part": "partition", "place": "offset", "arrived_at": "timestamp",
        },
    )  # fmt: skip
    flow.set(source__kafka__topics=[flow.topic, other])
    flow.produce_raw(b'{"id": 1, "part": 77}')
    first, flow.topic = flow.topic, other
    flow.produce_raw(b'{"id": 2}')
    flow.produce_raw(b'{"id": 3}')
    flow.interval()
    found = sorted((r["id"], r["came_from"], r["part"], r["place"]) for r in flow.all_columns())
    assert found == [(1, first, 0, 0), (2, other, 0, 0), (3, other, 0, 1)]
    assert all(r["arrived_at"] is not None for r in flow.all_columns())


def test_topics_by_a_pattern(make_flow, create_topic):
    flow = make_flow(1, sink__hudi__schema="id BIGINT, v STRING, p STRING")
    flow.set(source__kafka__topics=None, source__kafka__topics_pattern=f"{flow.topic}(-.*)?")
    flow.produce_raw(b'{"id": 1, "v": "a", "p": "p0"}')
    flow.interval()
    first = flow.topic
    new = NewTopic(f"{first}-new", 1, 1)
    flow.admin.create_topics([new])[f"{first}-new"].result(30)
    wait_for(lambda: f"{first}-new" in flow.admin.list_topics(timeout=10).topics, "the topic", pause=0.1)
    flow.topic = f"{first}-new"
    flow.produce_raw(b'{"id": 2, "v": "b", "p": "p0"}')
    flow.interval()
    assert flow.rows(metadata=True) == Counter({(1, "a"): 1, (2, "b"): 1})
    flow.admin.delete_topics([flow.topic])[flow.topic].result(30)
    wait_for(lambda: flow.topic not in flow.admin.list_topics(timeout=10).topics, "the topic to go", pause=0.1)
    with pytest.raises(ActionRequiredError, match=f"are gone: {flow.topic}"):
        flow.start(flow.run())
    flow.set(source__kafka__topics_pattern="nothing-is-called.so")
    with pytest.raises(ActionRequiredError, match="No topic has a name like"):
        flow.start(flow.run())
