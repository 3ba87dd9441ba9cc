"""Commits of other writers: ours are found behind them, and what a peer has loaded is gone on from."""

from __future__ import annotations

from collections import Counter

import pytest

from sluice.errors import ActionRequiredError, IntervalError
from sluice.protocol.offsets import OFFSETS_KEY, RFC32_KEY, STREAMER_V1_KEY, STREAMER_V2_KEY

from ..readers.bundles import append, bundle
from ..thorough import also
from .harness import DDL, Flow


def test_another_writers_commit_in_between_keeps_our_offsets(make_flow):
    flow = make_flow(sink__hudi__record_key="id")
    flow.produce(20)
    flow.interval()
    offsets = flow.offsets()
    flow.append_by_spark(range(1000, 1010))
    assert OFFSETS_KEY not in flow.commits()[-1]
    flow.produce(20)
    started = flow.start()
    assert {r.partition: r.start for r in started.ranges[0]} == offsets
    flow.write_all(started)
    flow.commit(started)
    flow.check()


def test_another_writer_that_rolls_our_instant_back_makes_the_commit_fail_and_no_more(make_flow):
    """Hudi's single writer takes an instant that it finds open for a dead writer's, and rolls it back."""
    flow = make_flow(sink__hudi__record_key="id")
    flow.produce(20)
    started = flow.start()
    flow.write_all(started)
    flow.append_by_spark(range(1000, 1010))
    with pytest.raises(IntervalError, match="something rolled it back"):
        flow.commit(started)
    flow.interval()
    flow.check()


def test_a_pending_instant_that_the_control_topic_doesnt_name_is_warned_of(make_flow, capsys):
    """As a table has one that was copied with an interval open: its copy's own topic knows nothing of it."""
    flow = make_flow()
    flow.produce(20)
    flow.interval()
    timeline = flow.path / ".hoodie" / "timeline"
    for state in ("commit.requested", "inflight"):
        (timeline / f"20200101000000000.{state}").touch()
    flow.produce(20)
    capsys.readouterr()
    flow.interval()
    warned = [line for line in capsys.readouterr().out.splitlines() if "this control topic doesn't name" in line]
    assert len(warned) == 1
    assert "20200101000000000" in warned[0]
    flow.check()
    assert flow.jvm.pending(str(flow.path)) == ["20200101000000000"]


@pytest.mark.thorough
def test_offsets_are_found_in_the_archive_and_archived_files_are_not_swept(make_flow):
    flow = make_flow(sink__hudi__record_key="id")
    flow.produce(20)
    flow.interval()
    ours = flow.commits()[-1]["instant"]
    archiving = {
        "hoodie__clean__commits__retained": "1",
        "hoodie__keep__min__commits": "2",
        "hoodie__keep__max__commits": "3",
        "hoodie__commits__archival__batch": "1",
    }
    for i in range(9):
        flow.append_by_spark(range(1000 + i * 10, 1005 + i * 10), **archiving)
        if ours not in {c["instant"] for c in flow.commits()}:
            break
    assert ours not in {c["instant"] for c in flow.commits()}, "our commit was not archived, so this test shows nothing"
    flow.produce(20)
    flow.interval()
    flow.check()


def _peers_table(flow: Flow, key: str, prefix: str, checkpoint: str) -> None:
    """A table that a peer has loaded from our topic up to its checkpoint."""
    flow.produce(40)
    flow.drivers.idle()
    options = {"hoodie.datasource.write.commitmeta.key.prefix": prefix, key: checkpoint}
    flow.append_by_spark(range(1000, 1020), **{k.replace(".", "__"): v for k, v in options.items()})
    assert flow.commits()[-1][key] == checkpoint


@pytest.mark.parametrize(
    ("key", "prefix", "checkpoint"),
    [
        (STREAMER_V2_KEY, "streamer.checkpoint", "{topic},0:10,1:12"),
        *also(
            (STREAMER_V1_KEY, "deltastreamer.checkpoint", "{topic},0:10,1:12"),
            (RFC32_KEY, "kafka.commit", "0=10,1=12"),
        ),
    ],
)
def test_a_peers_table_goes_on_from_its_own_checkpoint(make_flow, key, prefix, checkpoint):
    flow = make_flow(sink__hudi__record_key="id", source__kafka__starting_offsets="earliest")
    _peers_table(flow, key, prefix, checkpoint.format(topic=flow.topic))
    flow.sent = [
        s for s in flow.sent if s.offset >= (10 if s.partition == 0 else 12)
    ]  # the peer's rows stand for these
    started = flow.start()
    assert {r.partition: r.start for r in started.ranges[0]} == {0: 10, 1: 12}
    flow.write_all(started)
    flow.commit(started)
    flow.check()
    # And back: a peer that takes the table over finds its own key at our offsets.
    ends = flow.log_ends()
    written = flow.commits()[-1]
    assert written[RFC32_KEY] == f"0={ends[0]},1={ends[1]}"
    assert written[STREAMER_V1_KEY] == written[STREAMER_V2_KEY] == f"{flow.topic},0:{ends[0]},1:{ends[1]}"


@pytest.mark.thorough
@pytest.mark.parametrize(("release", "version"), [("0.15.0", 6), ("1.0.2", 8), ("1.1.1", 9)])
def test_a_table_by_an_earlier_release_goes_on(make_flow, home, release, version):
    """The log of its metadata table has records with fewer fields. https://github.com/apache/hudi/issues/19559"""
    stats = {"hoodie.metadata.index.column.stats.enable": "true"}
    flow = make_flow(
        source__kafka__starting_offsets="earliest",
        sink__hudi__record_key="id",
        sink__hudi__table_version=version,
        sink__hudi__options=stats,
        table_services={"metadata_after_delta_commits": 1},
    )
    flow.produce(40)
    options = {
        "hoodie.table.name": flow.topic,
        "hoodie.datasource.write.operation": "insert",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "v",
        "hoodie.datasource.write.partitionpath.field": "p",
        **stats,
        "hoodie.embed.timeline.server": "false",
        "hoodie.datasource.write.commitmeta.key.prefix": "deltastreamer.checkpoint",
        STREAMER_V1_KEY: f"{flow.topic},0:10,1:12",
    }
    ids = [range(1000 + 10 * commit, 1010 + 10 * commit) for commit in range(3)]
    rows = [[(i, f"spark{i}", f"p{i % 2}") for i in some] for some in ids]
    append(bundle(home, release), flow.path, DDL, rows, options)
    flow.others += Counter((row[0], row[1]) for some in rows for row in some)
    flow.sent = [s for s in flow.sent if s.offset >= (10 if s.partition == 0 else 12)]
    flow.interval()
    flow.check()
    for value in "bc":
        flow.produce(20, values=value)
        flow.interval()
    flow.check()
    flow.serve("metadata_compaction")
    flow.produce(20, values="d")
    flow.interval()
    flow.check()


def test_a_peers_checkpoint_past_the_logs_end_is_refused(make_flow):
    flow = make_flow(sink__hudi__record_key="id")
    _peers_table(flow, STREAMER_V1_KEY, "deltastreamer.checkpoint", f"{flow.topic},0:10,1:9999")
    with pytest.raises(ActionRequiredError, match="past the log's end") as caught:
        flow.start()
    assert (caught.value.where["partition"], caught.value.where["committed_offset"]) == (1, 9999)
