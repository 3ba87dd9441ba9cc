"""The metadata table is what a commit needs, whoever has taken it away, or parts of it, since the last interval."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing

import pytest

from ..thorough import also
from .harness import Flow, SharedJvm

UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}
WHOLE = {"sink__hudi__partition_fields": []}  # of a table without partitions Hudi keeps no statistics by partition


def _noted(flow: Flow) -> set[str]:
    """The metadata table's partitions as the table's settings have them."""
    lines = (flow.path / ".hoodie" / "hoodie.properties").read_text().splitlines()
    noted = next(line for line in lines if line.startswith("hoodie.table.metadata.partitions="))
    return set(noted.partition("=")[2].split(","))


@pytest.mark.parametrize(
    "settings", [WHOLE, {**UPSERT, **WHOLE}, *also({}, UPSERT)], ids=["append", "upsert", "by p", "upsert by p"]
)
def test_after_hudis_own_restore_intervals_go_on_from_the_offsets_restored_to(make_flow, settings):
    """The restore notes column statistics, and takes the commit that made them off the metadata table."""
    flow = make_flow(**settings, write__ranges=2)
    flow.produce(20)
    kept = str(flow.interval().instant)
    at = flow.offsets()
    for value in "bc":
        flow.produce(20, values=value)
        flow.interval()
    flow.restore(kept)
    assert _noted(flow) == {"files", "column_stats"}, "the restore noted nothing, so this test shows nothing"
    assert flow.offsets() == at
    flow.check(complete=False)
    flow.produce(20, values="d")
    started = flow.start()
    assert {r.partition: r.start for group in started.ranges for r in group} == at
    flow.write_all(started)
    flow.commit(started)
    flow.check()
    flow.produce(20, values="e")
    flow.interval()
    flow.check()


@pytest.mark.thorough
def test_a_restore_to_before_the_metadata_tables_compaction_makes_it_anew_and_intervals_go_on(make_flow):
    flow = make_flow(table_services={"metadata_after_delta_commits": 1})
    instants = []
    for value in "abc":
        flow.produce(20, values=value)
        instants.append(str(flow.interval().instant))
        flow.serve("metadata_compaction")
    timeline = flow.path / ".hoodie" / "metadata" / ".hoodie" / "timeline"
    compacted = set(timeline.glob("*_*.commit"))
    assert compacted, "the metadata table was not compacted, so this test shows nothing"
    flow.restore(instants[0])
    assert not compacted & set(timeline.glob("*_*.commit"))
    flow.produce(20, values="d")
    flow.interval()
    flow.check()


def _copied_without(flow: Flow) -> None:
    shutil.rmtree(flow.path / ".hoodie" / "metadata")


def _half_copied(flow: Flow) -> None:
    for file in (flow.path / ".hoodie" / "metadata" / ".hoodie" / "timeline").glob("*.deltacommit*"):
        file.unlink()


def _written_without(flow: Flow) -> None:
    options = {"hoodie__metadata__enable": "false"}
    if flow.pipeline.sink.hudi.operation == "upsert":
        options |= {"hoodie__datasource__write__operation": "upsert", "hoodie__index__type": "SIMPLE"}
    flow.append_by_spark(range(1000, 1010), **options)


LOSSES = [_copied_without, *also(_half_copied, _written_without)]


@pytest.mark.parametrize("loses", LOSSES, ids=lambda loses: loses.__name__.strip("_"))
@pytest.mark.parametrize("settings", [*also({"sink__hudi__record_key": "id"}), UPSERT], ids=["append", "upsert"])
def test_a_table_that_has_lost_its_metadata_table_is_loaded_on(
    make_flow, settings: dict[str, str], loses: Callable[[Flow], None]
):
    flow = make_flow(**settings)
    for value in "ab":
        flow.produce(20, values=value)
        flow.interval()
    if loses is not _written_without:  # which would roll it back
        flow.produce(20, values="c")
        flow.start()  # and never ended: it has to be rolled back, without the metadata table
    loses(flow)
    flow.produce(20, values="d")
    flow.interval()
    flow.check()
    assert flow.jvm.pending(str(flow.path)) == []


def test_a_jvm_that_has_seen_more_schemas_than_hudis_cache_holds_commits_all_the_same(make_flow):
    """Hudi compares the metadata table's schema by identity, and keeps it in a cache of 1,024 schemas."""
    flow = make_flow()
    with closing(SharedJvm()) as own, own() as jvm:
        flow.jvm = own
        flow.produce(20)
        flow.interval()
        schemas = jvm.jvm.org.apache.hudi.common.schema
        for number in range(1500):
            schema = schemas.HoodieSchema.parse(f'{{"type": "record", "name": "of{number}", "fields": []}}')
            for _ in range(2):  # the cache prefers what was asked for twice
                schemas.HoodieSchemaCache.intern(schema)
        flow.produce(20)
        flow.interval()
        flow.check()
