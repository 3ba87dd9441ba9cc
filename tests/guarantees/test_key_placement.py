"""A key's versions are in one partition, or the interval is refused: an upsert never doubles a row."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from sluice.errors import ActionRequiredError

from ..thorough import also
from .harness import Flow

CHECKED = {
    "sink__hudi__operation": "upsert",
    "sink__hudi__record_key": "id",
    "sink__hudi__key_placement": None,  # the default of a pipeline file
    "sink__hudi__schema": "id BIGINT, v STRING, p STRING, version BIGINT",
    "sink__hudi__ordering_field": "version",
}
MURMUR2, CRC32 = {"partitioner": "murmur2"}, {"partitioner": "consistent"}
"""librdkafka's own settings: these tests compare with its partitioners, not with ours."""


def versions(ids: range, version: int) -> list[tuple[bytes | None, bytes]]:
    rows = ({"id": i, "v": f"v{version}-{i}", "p": f"p{i % 2}", "version": version} for i in ids)
    return [(str(row["id"]).encode(), json.dumps(row).encode()) for row in rows]


def table(flow: Flow) -> Counter[Any]:
    return Counter(flow.read("id", "version"))


def rows_of(**versions: range) -> Counter[Any]:
    """`rows_of(v1=range(9))`: those ids once, in version 1."""
    return Counter((i, int(name[1:])) for name, ids in versions.items() for i in ids)


def refused(flow: Flow, match: str) -> ActionRequiredError:
    """An interval that is written, and not committed."""
    run = flow.run()
    started = flow.start(run)
    flow.write_all(started)
    with pytest.raises(ActionRequiredError, match=match) as caught:
        flow.commit(started)
    assert flow.abort(run).state == "aborted"
    return caught.value


@pytest.mark.parametrize(("first", "second", "name"), [(MURMUR2, CRC32, "murmur2"), *also((CRC32, MURMUR2, "crc32"))])
def test_a_second_producer_with_another_partitioner_is_refused(make_flow, first, second, name):
    flow = make_flow(partitions=3, write__ranges=2, **CHECKED)
    flow.produce_keyed(versions(range(40), 1), **first)
    flow.interval()
    assert flow.note()["placement"] == {"kind": "checked", "buckets": None, "partitioners": {flow.topic: [name]}}
    right = rows_of(v1=range(40))
    assert table(flow) == right
    moved = flow.produce_keyed(versions(range(40), 3), **second)
    error = refused(flow, f"{name} leads, which has placed all keys")
    placed = flow.produce_keyed(versions(range(40), 3), **first)
    wrong = [at for at, (partition, _) in zip(moved, placed, strict=True) if at[0] != partition]
    assert error.where["records"] == len(wrong)
    assert (error.where["topic"], error.where["partition"]) == (flow.topic, min(wrong, key=lambda at: at[::-1])[0])
    assert error.where["offset"] == min(offset for _, offset in wrong)
    assert "trusted" in error.next_step
    assert "hashed" in error.next_step
    assert table(flow) == right


def test_keys_that_no_partitioner_explains_and_records_without_a_key_are_refused(make_flow):
    flow = make_flow(partitions=3, **CHECKED)
    flow.produce_keyed(versions(range(10), 1), partition=1)
    error = refused(flow, "a known partitioner")
    assert error.where["partition"] == 1
    keyless = [(None, value) for _, value in versions(range(4), 1)]
    [*_, (partition, offset)] = flow.produce_keyed(keyless, partition=2)
    error = refused(flow, "Records have no key")
    assert (error.where["partition"], error.where["offset"]) == (partition, offset - 3)
    assert flow.commits() == []
    flow.set(sink__hudi__key_placement="trusted")  # the person knows better
    flow.interval()
    assert table(flow) == rows_of(v1=range(10)) + rows_of(v1=range(4)), "trusted means that nobody looks"


def test_in_one_partition_every_record_is_where_it_belongs(make_flow):
    flow = make_flow(partitions=1, **CHECKED)
    flow.produce_keyed(versions(range(6), 1), partition=0)
    flow.produce_keyed([(None, value) for _, value in versions(range(3), 2)], partition=0)
    flow.interval()
    assert table(flow) == rows_of(v2=range(3), v1=range(3, 6))
    assert flow.note()["placement"]["partitioners"] == {}


def test_hashed_keys_may_move_and_topics_may_grow(make_flow):
    flow = make_flow(partitions=2, **{**CHECKED, "sink__hudi__key_placement": "hashed", "sink__hudi__buckets": 3})
    flow.produce_keyed(versions(range(30), 1), partition=0)
    flow.produce_keyed([(None, value) for _, value in versions(range(10), 2)], partition=1)
    flow.interval()
    assert table(flow) == rows_of(v2=range(10), v1=range(10, 30))
    assert flow.note()["placement"] == {"kind": "hashed", "buckets": 3, "partitioners": {}}
    flow.grow(4)
    flow.produce_keyed(versions(range(5, 15), 4), partition=3)
    flow.produce_keyed(versions(range(0, 30, 3), 3), partition=2)  # older than what partition 3 has of some keys
    flow.interval()
    expected = {**dict.fromkeys(range(30), 1), **dict.fromkeys(range(10), 2), **dict.fromkeys(range(0, 30, 3), 3)}
    expected |= dict.fromkeys(range(5, 15), 4)
    assert table(flow) == Counter(expected.items())
    assert Counter(flow.read("id", "version", metadata=False)) == Counter(expected.items())
    groups = {f.name.split("_")[0].lstrip(".") for f in flow.data_files()}
    assert len(groups) == 3 * 2, "three buckets in each of two table partitions"
    for other in ({"sink__hudi__buckets": 4}, {"sink__hudi__key_placement": "trusted", "sink__hudi__buckets": None}):
        flow.set(**other)
        with pytest.raises(ActionRequiredError, match="another rule") as caught:
            flow.start()
        assert caught.value.where["in_table"] == "hashed over 3 buckets"
    assert flow.jvm.pending(str(flow.path)) == []
