"""Messages as JSON, and the statuses in parts of earlier releases."""

from __future__ import annotations

import json
import random

import pytest
from protocol_messages import abort, ack, end, start, status

from sluice.protocol.confine import start_digest
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.mapping import ClusterAddress
from sluice.protocol.messages import COUNTS, AckCommit, LostOffsets, WriteStatus, decode, encode, join
from sluice.protocol.summary import FIGURES
from sluice.records.plan import ClusterSchemas, Format, RecordPlan, WriterSchema


@pytest.mark.parametrize("message", [start("1"), status("1"), end("1"), ack("1"), abort("1")], ids=lambda m: m.type)
def test_a_message_is_read_back_as_it_was(message):
    assert decode(encode(message)) == message


def test_a_count_of_records_is_in_a_status_in_an_acknowledgement_and_in_summaries():
    assert set(COUNTS) <= set(WriteStatus.model_fields) & set(AckCommit.model_fields) & set(FIGURES)


def test_a_start_has_registries_by_cluster_only_where_clusters_have_their_own():
    own = Format(converter="avro", registry="http://r", schemas=(WriterSchema(id=7, text="t"),))
    plain = start(
        "1",
        records=RecordPlan(value=own, key=own),
        streams=KnownStreams(clusters={"east": ClusterAddress(connection="kafka_east")}),
    )
    fields = json.loads(encode(plain))
    assert list(fields["streams"]["clusters"]["east"]) == ["connection"]
    assert "by_cluster" not in {*fields["records"]["value"], *fields["records"]["key"]}
    assert start_digest(plain) == start_digest(decode(encode(plain)))

    address = ClusterAddress(connection="kafka_east", registry="reg_east")
    several = ClusterSchemas(clusters=("east",), connection="reg_east", registry="http://e", schemas=own.schemas)
    by_cluster = plain.model_copy(
        update={
            "records": RecordPlan(value=Format(converter="avro", by_cluster=(several,))),
            "streams": KnownStreams(clusters={"east": address}),
        }
    )
    assert decode(encode(by_cluster)) == by_cluster
    fields = json.loads(encode(by_cluster))
    assert fields["streams"]["clusters"]["east"]["registry"] == "reg_east"
    (said,) = fields["records"]["value"]["by_cluster"]
    assert (said["clusters"], said["connection"], said["schemas"][0]["id"]) == (["east"], "reg_east", 7)
    assert start_digest(by_cluster) != start_digest(plain)


def test_a_message_says_who_what_and_when_in_plain_json():
    fields = json.loads(encode(start("20260101000000000")))
    assert {"version", "table", "transaction", "epoch", "dag_id", "run_id", "sender", "time", "type"} <= set(fields)


def test_what_is_no_message_is_refused():
    with pytest.raises(ValueError, match="type"):
        decode(b'{"type": "SOMETHING-ELSE"}')


def test_the_parts_of_a_status_of_an_earlier_release_are_joined_in_any_order_with_repeats():
    stats = tuple({"fileId": f"file-{i}", "numWrites": i} for i in range(9))
    whole = status("1", stats=stats, quarantine_stats=stats[:2])
    stats = whole.stats
    parts = [
        whole.model_copy(update={"part": i, "parts": 3, "stats": stats[3 * i : 3 * i + 3], "quarantine_stats": bad})
        for i, bad in enumerate(((), stats[:1], stats[1:2]))
    ]
    shuffled = [*parts, *parts[:2]]
    random.Random(1).shuffle(shuffled)
    assert join(shuffled) == whole
    assert join(parts[1:]) is None
    assert join(parts[:-1]) is None


def test_losses_are_named_with_their_cluster_where_streams_are_read():
    loss = LostOffsets(cluster="east", topic="t", partition=0, committed=5, resumed_at=9, reason="retention")
    assert start("1", losses=(loss,)).losses_in_words == (str(loss),)
    assert start("1", losses=(loss,), streams=KnownStreams()).losses_in_words == (f"east/{loss}",)
