"""A table partition's folder: each value is found by its value, and what can't be a folder is a bad record."""

from __future__ import annotations

import pytest

from ..thorough import also
from .harness import Flow
from .quarantined import TOLERANT, places, quarantine

UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}
ENCODED = {"sink__hudi__options": {"hoodie.datasource.write.partitionpath.urlencode": True}}
AMBIGUOUS = ["a=b", "50%25", "10:15", "a/b", "100%", "x{y}*[z]", "plain"]


def _load(flow: Flow, values: list[str]) -> None:
    for number, value in enumerate(values):
        flow.produce(1, ids=[number], partitions=[number % 2], fields={"p": value})
    flow.interval()


@pytest.mark.parametrize("settings", [{}, UPSERT], ids=["append", "upsert"])
def test_a_table_that_encodes_its_folders_says_so_to_readers_and_takes_any_value(make_flow, settings):
    flow = make_flow(**settings, **ENCODED)
    _load(flow, AMBIGUOUS)
    flow.check()
    assert {folder.name for folder in flow.path.iterdir() if folder.name != ".hoodie"} == {
        "a%3Db", "50%2525", "10%3A15", "a%2Fb", "100%25", "x%7By}%2A%5Bz%5D", "plain",
    }  # fmt: skip
    found = {value: flow.where(f"p = '{value}'") for value in AMBIGUOUS}
    assert found == {value: [number] for number, value in enumerate(AMBIGUOUS)}


@pytest.mark.parametrize("settings", [*also({}), UPSERT], ids=["append", "upsert"])
def test_a_value_that_cant_be_a_folder_is_a_bad_record(make_flow, settings):
    flow = make_flow(**{**TOLERANT, **settings}, partitions=1)
    bad = ["10:15", "a:b/c", "x/y:z", "tab\t", "line\n", "x" * 256, "x/" + "\u00e9" * 128,
           ".hoodie_partition_metadata", "__HIVE_DEFAULT_PARTITION__", "a/../b"]  # fmt: skip
    good = ["2024/01/31", "a b", "\u00e9\u4e16\U0001f600", "x" * 255, "a=b"]
    for number, value in enumerate([*bad, *good]):
        flow.produce(1, ids=[number], partitions=[0], fields={"p": value})
    outcome = flow.interval()
    assert (outcome.records, len(bad)) == (len(good), len(quarantine(flow)))
    assert places(quarantine(flow)) == [(0, number) for number in range(len(bad))]
    assert all("the value of p can't be a table partition's folder" in row["reason"] for row in quarantine(flow))
    assert flow.where("true") == list(range(len(bad), len(bad) + len(good)))
