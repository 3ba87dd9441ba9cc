"""A cluster is known by Kafka's own id: its Airflow connection may be renamed, or lead to it by another address."""

from __future__ import annotations

import pytest

from sluice.coordinator import Started
from sluice.errors import ActionRequiredError
from sluice.local.broker import LocalBroker
from sluice.protocol.offsets import Checkpoint

from ..thorough import also
from .harness import Flow

UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}


def _clusters(flow: Flow) -> Checkpoint:
    return Checkpoint.model_validate_json(flow.commits()[-1]["sluice.offsets"])


@pytest.mark.parametrize("settings", [*also({}), UPSERT], ids=["append", "upsert"])
def test_a_renamed_connection_goes_on_where_it_was(make_flow, settings):
    flow = make_flow(**settings)
    flow.produce(20)
    first = str(flow.interval().instant)
    before = _clusters(flow).clusters
    flow.connection = "orders_cluster"
    flow.interval_is_empty()
    flow.produce(10)
    assert flow.interval().records == 10
    flow.check()
    after = _clusters(flow).clusters
    assert (list(before), list(after)) == (["kafka_default"], ["orders_cluster"])
    assert after["orders_cluster"].cluster_id == before["kafka_default"].cluster_id
    assert flow.interval(kind="replay", instant=first, reason="its files were damaged").records == 20
    flow.check()


@pytest.mark.parametrize("renamed", [*also("before its commit"), "and left to the next start"])
def test_an_interval_that_was_planned_under_the_old_name(make_flow, renamed):
    flow = make_flow()
    flow.produce(10)
    flow.interval()
    flow.produce(10)
    started = flow.start()
    flow.write_all(started)
    flow.connection = "orders_cluster"
    if renamed == "before its commit":
        assert flow.commit(started).records == 10
        flow.interval_is_empty()
    else:
        assert flow.interval().records == 10
    flow.check()
    flow.produce(10)
    assert flow.interval().records == 10
    flow.check()


def test_another_cluster_under_another_name_is_not_taken_for_new(make_flow, home, tmp_path):
    """Its offsets are of another log, as they would be under the old name: a person says how to go on."""
    flow = make_flow()
    flow.produce(10)
    flow.interval()
    with LocalBroker(home, tmp_path / "other", cluster_id="c2x1aWNlLWxvY2FsLTAwMg") as other:
        flow.move(other.bootstrap, "other_cluster")
        flow.create_topic(2)
        flow.produce(6, ids=range(100, 106))
        with pytest.raises(ActionRequiredError, match="the connection now leads to another cluster"):
            flow.coordinator().start(flow.run())
        flow.set(source__kafka__on_offset_loss="earliest")
        started = flow.start()
        assert isinstance(started, Started)
        flow.write_all(started)
        assert flow.commit(started).records == 6
        assert sorted(i for (i,) in flow.read("id")) == [*range(10), *range(100, 106)]
        flow.set(source__kafka__on_offset_loss="fail")
        flow.interval_is_empty()
