"""Two spellings of one place are one location; names that are no paths stay as they are."""

from __future__ import annotations

import pytest

from sluice.locations import location


@pytest.mark.parametrize(
    "spellings",
    [
        ("s3a://lake/a/b", "s3://lake/a/b", "s3n://lake/a/b/", "S3A://Lake//a/./b", "s3a://lake/a/x/../b"),
        ("hdfs://nn/lake/a", "hdfs://NN:8020/lake/a", "hdfs://nn//lake/a/."),
        ("file:///lake/a", "file://localhost/lake/a", "file:////lake/a"),
        ("abfs://c@account/a", "abfss://c@account/a"),
        ("s3a://lake", "s3a://lake/", "s3a://lake//"),
    ],
)
def test_spellings_of_one_place(spellings):
    assert len({location(path) for path in spellings}) == 1
    assert location(location(spellings[0])) == location(spellings[0])


def test_other_places_are_other_locations():
    paths = (
        "s3a://lake/a", "s3a://lake/A", "s3a://lake/a b", "s3a://pond/a", "hdfs://nn/a", "hdfs://nn:9000/a", "hdfs:///a",
        "file:///a", "gs://lake/a", "jdbc://warehouse/shop.orders", "kafka://judge/_sluice.orders",
    )  # fmt: skip
    assert len({location(path) for path in paths}) == len(paths)


@pytest.mark.parametrize("name", ["jdbc://Warehouse/a//b/../c", "kafka://judge/_sluice.orders", "orders", ""])
def test_names_that_are_no_paths_stay(name):
    assert location(name) == name
