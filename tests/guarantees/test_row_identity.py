"""Each row has a key of its own, and a place in the table: whatever values its record has."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

UPSERT: dict[str, Any] = {
    "sink__hudi__operation": "upsert",
    "sink__hudi__schema": "a STRING, b STRING, v STRING, p STRING",
    "sink__hudi__record_key": ["a", "b"],
}


def values(*records: dict[str, Any]) -> list[bytes]:
    return [json.dumps(record).encode() for record in records]


def test_rows_of_several_ranges_and_topics_have_keys_of_their_own(make_flow):
    flow = make_flow(partitions=2, write__ranges=2)
    flow.produce(40)
    flow.interval()
    flow.produce(40)
    flow.interval()
    found = flow.read("_hoodie_record_key", "_hoodie_commit_seqno", "_hoodie_commit_time")
    keys, numbers, instants = (Counter(column) for column in zip(*found, strict=True))
    assert len(keys) == len(numbers) == 80
    assert set(instants.values()) == {40}
    assert all(key.startswith(instant) for key, _, instant in found)
    flow.check()


def test_keys_that_would_be_the_same_are_refused(make_flow):
    """The key is `a:x,b:y`: a value that holds `,b:` could make two rows one."""
    flow = make_flow(partitions=1, **UPSERT, errors={"tolerance": "all"})
    same = ({"a": "x,b:y", "b": "z"}, {"a": "x", "b": "y,b:z"}, {"a": "x, b: y", "b": "z"})
    flow.produce_values(values(*({**record, "v": str(i), "p": "p"} for i, record in enumerate(same))))
    flow.interval()
    assert sorted(flow.read("a", "b", "v")) == [("x", "y,b:z", "1"), ("x, b: y", "z", "2")]
    assert flow.note()["records_quarantined"] == 1


def test_no_value_leads_out_of_the_table_and_an_empty_one_has_a_folder(make_flow):
    astray = ["../x", "..", "a/../../x", "/etc/x", ".hoodie/x", "a//b", "a/", "."]
    fine = ["a", "", "a/b", "..x", "a.b", "a..b"]
    tables: set[str] = set()
    for operation in ("append", "upsert"):
        flow = make_flow(partitions=1, errors={"tolerance": "all"}, sink__hudi__operation=operation)
        if operation == "upsert":
            flow.set(sink__hudi__record_key="id")
        records = [{"id": i, "v": "v", "p": p} for i, p in enumerate([*astray, *fine])]
        flow.produce_values(values(*records))
        flow.interval()
        found = Counter(row[0] for row in flow.read("id", "p"))
        assert found == Counter(range(len(astray), len(records)))
        paths = {row[0] for row in flow.read("_hoodie_partition_path")}
        assert paths == {p or "__HIVE_DEFAULT_PARTITION__" for p in fine}
        assert flow.note()["records_quarantined"] == len(astray)
        assert not any(".hoodie" in file.parts for file in flow.data_files())
        tables |= {flow.topic, f"{flow.topic}_quarantine"}
        assert {p.name for p in flow.path.parent.iterdir()} == tables
