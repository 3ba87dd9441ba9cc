"""A message names nothing outside of its table, whoever has written it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.connectors.registry import confinement
from sluice.errors import IntervalError
from sluice.protocol.committable import COUNTS, Committable
from sluice.protocol.confine import Confinement, require_digest, start_digest
from sluice.protocol.messages import AbortCommit, StartCommit, TableSpec, WriteStatus, decode, encode
from sluice.records.plan import Format, RecordPlan, WriterSchema
from sluice.sinks.hudi.write_stats import STAT_FIELDS

TABLE, INSTANT = "s3a://lake/orders", "20260101000000000"
ENVELOPE: dict[str, Any] = {
    "table": TABLE, "transaction": INSTANT, "epoch": 1, "dag_id": "d", "run_id": "r", "sender": "s",
    "time": datetime(2026, 1, 1, 12, tzinfo=UTC),
}  # fmt: skip
GROUP = "be915637-db15-470e-94cb-189f48b39e12-0"
BASE = f"{GROUP}_0-0-0_{INSTANT}.parquet"
LOG = f".{GROUP}_{INSTANT}.log.1_0-12-34"
CDC = f"{LOG}-cdc"
refusal = confinement().refusal


def writer(**fields: Any) -> TableSpec:
    return TableSpec(**{
        "path": TABLE, "name": "orders", "table_type": "COPY_ON_WRITE", "operation": "append", "record_key": (),
        "partition_fields": (), "ordering_fields": (), "schema_ddl": "id BIGINT", "schema_avro": "{}", "options": {},
        **fields,
    })  # fmt: skip


def start(**fields: Any) -> StartCommit:
    return StartCommit(**{**ENVELOPE, "read_position": 0, "ranges": (), "writer": writer(), **fields})


def status(name: str = "stats", **stat: Any) -> WriteStatus:
    stats = ({"fileId": GROUP, "path": f"JFK/{BASE}", "partitionPath": "JFK", "prevCommit": "null", **stat},)
    return WriteStatus(**ENVELOPE, range=0, attempt="a", **{name: stats})


@pytest.mark.parametrize(
    "message",
    [
        start(),
        start(replaced_file_groups={"": (GROUP,), "p=1/q=2": (GROUP,)}, replays=INSTANT),
        AbortCommit(**ENVELOPE, reason="r", table_partitions=("", "p=1", "2026-01-01 10:00:00", "..x", "a..b", "ä/ö")),
        status(),
        status(path=BASE, partitionPath=""),
        status(path=BASE, partitionPath=None),
        status(path=None, partitionPath=None, fileId=None),
        status(path="", partitionPath="", fileId="", prevCommit=""),
        status(path=f"a/b/{LOG}", partitionPath="a/b", logFiles=[LOG], baseFile=BASE),
        status("quarantine_stats"),
        status(prevCommit="20251231235959999", prevBaseFile=BASE, tempPath=None, logVersion=1, logOffset=-1),
        status(cdcStats={f"JFK/{CDC}": 9}, runtimeStats={"totalCreateTime": 412}, recordsStats={}, minEventTime=None),
    ],
)
def test_what_the_product_sends_counts(message):
    assert refusal(message, TABLE) is None


@pytest.mark.parametrize(
    "message",
    [
        start(table="s3a://lake/other", writer=writer(path="s3a://lake/other")),
        start(writer=writer(path="s3a://lake/other")),
        start(transaction="../../x"),
        start(transaction="*}"),
        start(replays="*"),
        start(replaced_file_groups={"../other": (GROUP,)}),
        start(replaced_file_groups={"p": ("../x",)}),
        *(
            AbortCommit(**ENVELOPE, reason="r", table_partitions=("ok", bad))
            for bad in ("..", "../other", "a/../../b", "/etc", "s3a://other/x", "file:/etc", ".hoodie",
                        ".hoodie/timeline", ".", "a/./b", "a\nb", "a\x00")
        ),
        *(
            status(kind, **stat)
            for kind in ("stats", "quarantine_stats")
            for stat in (
                {"path": f"../{BASE}", "partitionPath": ".."},
                {"path": f"/etc/{BASE}", "partitionPath": "/etc"},
                {"path": f"s3a://other/{BASE}", "partitionPath": "s3a://other"},
                {"path": f".hoodie/{BASE}", "partitionPath": ".hoodie"},
                {"path": f"LAX/{BASE}"},
                {"path": "JFK/../LAX/x.parquet"},
                {"path": "JFK/hoodie.properties"},
                {"path": ""},
                {"path": None},
                {"path": f"JFK/{GROUP}_0-0-0_20250101000000000.parquet"},
                {"fileId": "another"},
                {"fileId": None},
                {"baseFile": f"../{BASE}"},
                {"prevBaseFile": "/etc/passwd"},
                {"logFiles": [LOG, "../../x"]},
                {"logFiles": "../../x"},
                {"logFiles": [["../../x"]]},
                {"cdcStats": {f"../other/{CDC}": 9}},
                {"cdcStats": {f"LAX/{CDC}": 9}},
                {"cdcStats": {"JFK/hoodie.properties": 9}},
                {"cdcStats": {f"JFK/{CDC}": "../x"}},
                {"cdcStats": [f"../other/{CDC}"]},
                {"tempPath": "/etc/passwd"},
                {"tempPath": f"JFK/{BASE}"},
                {"prevCommit": "../x"},
                {"prevCommit": ["x"]},
                {"numInserts": "../x"},
                {"fileSizeInBytes": 1 << 63},
                {"runtimeStats": {"path": "../x"}},
                {"runtimeStats": {"totalScanTime": "../x"}},
                {"bootstrapPath": "../x"},
                {"path": "", "partitionPath": "", "fileId": "", "tempPath": "/etc/passwd"},
                {"path": "x", "partitionPath": "", "fileId": ""},
                {"path": "", "partitionPath": "JFK", "fileId": ""},
                {"path": "", "partitionPath": "", "fileId": GROUP},
                {"path": BASE, "partitionPath": "", "fileId": ""},
            )
        ),
    ],
    ids=repr,
)  # fmt: skip
def test_a_message_that_names_what_is_outside_does_not_count(message):
    assert refusal(message, TABLE)


def test_what_is_whole_in_a_message_is_for_a_sink_to_judge_and_nothing_else_is():
    judged = []

    def inline(one: Committable, instant: str) -> Iterator[str]:
        judged.append((one.payload.get("name"), instant))
        yield from ["bad"] if one.payload.get("name") == "bad" else []

    apart = Committable(path="a/b", payload={"name": "bad"})
    others = Confinement(frozenset({"inner"}), inline)
    stats = [Committable.of_wire({"name": name}) for name in ("one", "another", "bad")]
    whole = WriteStatus(**ENVELOPE, range=0, attempt="a", stats=(apart, stats[0]), quarantine_stats=(stats[1],))
    assert others.refusal(whole, TABLE) is None
    assert judged == [("one", INSTANT), ("another", INSTANT)]
    for name in ("stats", "quarantine_stats"):
        assert others.refusal(whole.model_copy(update={name: (apart, *stats)}), TABLE) == "bad"
    assert others.is_inside(".hoodie/x")
    assert not others.is_inside("inner/x")


IMPORTED = """
import sys
from sluice.connectors.registry import confinement
confinement()
print(*sorted({name.partition(".")[0] for name in sys.modules} & {"airflow", "pyspark", "py4j", "confluent_kafka"}))
"""


def test_readers_need_no_library_of_a_sinks_to_judge():
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == []


WORDS = st.text(max_size=9) | st.sampled_from(["../x", "/etc", BASE, LOG])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=5,
)


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for name, inner in value.items() for text in (name, *texts(inner))]
    if isinstance(value, list | tuple):
        return [text for inner in value for text in texts(inner)]
    return [value] if isinstance(value, str) else []


# Decoding makes numbers of COUNTS.
OTHERS = st.text(max_size=20).filter(lambda name: name not in {*COUNTS, "payload"})


@given(field=st.sampled_from(sorted(STAT_FIELDS - COUNTS)) | OTHERS, value=JSON)
def test_a_stat_names_no_path_but_its_file_s_whatever_its_fields_say(field, value):
    if refusal(status(**{field: value}), TABLE) is None:
        assert field in STAT_FIELDS or field == "recordsStats"
        if field != "recordsStats":  # Hudi doesn't read it
            assert not [text for text in texts(value) if "/" in text and text != f"JFK/{BASE}"]


def test_the_digest_is_of_what_a_start_says_however_it_travels():
    many = tuple(WriterSchema(id=n, text="x" * 100, struct={"a": n}) for n in range(1000))
    sent = start(records=RecordPlan(value=Format(converter="avro", schemas=many)), topic_ids={"c": {"t": None}})
    read = decode(encode(sent))
    assert isinstance(read, StartCommit)
    assert b'"xz"' in encode(sent)
    require_digest(read, start_digest(sent))
    require_digest(read, None)
    for forged in (
        read.model_copy(update={"writer": writer(options={"hoodie.x": "y"})}),
        read.model_copy(update={"quarantine": writer(path="s3a://other")}),
        read.model_copy(update={"records": RecordPlan(value=Format(converter="os:system"))}),
    ):
        with pytest.raises(IntervalError, match="not the one"):
            require_digest(forged, start_digest(sent))
