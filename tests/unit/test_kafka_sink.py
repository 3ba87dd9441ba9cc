"""The section `sink.kafka`, and which columns become what."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import ValidationError

from sluice.errors import ActionRequiredError, IntervalError
from sluice.kafka.config import KafkaSettings
from sluice.protocol.committable import Committable
from sluice.sinks.files.storage import LocalStorage
from sluice.sinks.kafka import staging
from sluice.sinks.kafka.identity import TopicLife, changes_of
from sluice.sinks.kafka.log import NOTHING, Commit, TableLog
from sluice.sinks.kafka.options import KafkaTopic
from sluice.sinks.kafka.options.names import topics_of, transactional_id, way_of_writing
from sluice.sinks.kafka.options.pinned import PinnedTopic
from sluice.sinks.kafka.options.takes import LARGEST, Group, Takes, as_option, from_option
from sluice.sinks.kafka.schemas import connect_schema, json_schema
from sluice.sinks.kafka.shape import shape_of
from sluice.sinks.kafka.staged import Staged, committable
from sluice.sinks.kafka.staging import checksum, local_staging

PROJECT = Path(__file__).parents[2]
GOOD = {"connection": "target", "topic": "out", "staging": "/staging/out"}


def section(**more):
    return KafkaTopic.model_validate({**GOOD, **more})


def pinned(**more):
    return PinnedTopic.of(section(**more).writer("t", None, maintained=False))


def shaped(columns, **more):
    return shape_of(pinned(**more), columns)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"producer": {"transactional.id": "mine"}}, "transactional.id: not among the settings"),
        ({"producer": {"enable.idempotence": "false"}}, "enable.idempotence: not among"),
        ({"producer": {"acks": 1}}, "acks: not among"),
        ({"producer": {"sasl.password": "x"}}, "a secret must not be in a pipeline file"),
        ({"tombstones": True}, "name its columns in `key_fields`"),
        ({"value": {"encoder": "avro"}}, "encoder avro needs `registry`"),
        ({"value": {"encoder": "json", "registry": "r"}}, "encoder json has no schema in a `registry`"),
        ({"key": {"encoder": "string"}}, "no `key_fields` say what they are"),
        ({"key_fields": ["a", "b"], "key": {"encoder": "string"}}, "key.encoder string writes one column"),
        ({"value": {"encoder": "arvo"}}, "there is json, json_with_schema, "),
        ({"value": {"encoder": "module:"}}, "or a class of your own as `module:Class`"),
        ({"value": {"encoder": "json", "options": {"a": "1"}}}, "options are for an encoder of your own, not for"),
        ({"value": {"encoder": "m:C", "registry": "r"}}, "encoder m:C has no schema in a `registry`"),
        ({"value": {"encoder": "m:C", "options": {"password": "x"}}}, "a secret must not be in a pipeline file"),
        ({"record_key": "id"}, "`record_key` is for tables"),
        ({"log_topic": "out"}, "log_topic and topic are two topics"),
        ({"topic": "${name}"}, "of variables there is ${topic} alone"),
        ({"transaction_timeout": "1 day"}, "from 1 second to 12 hours"),
        ({"staging": "relative/path"}, "absolute path"),
    ],
)
def test_what_cant_be_kept_is_refused_by_name(more, says):
    with pytest.raises(ValidationError) as caught:
        section(**more)
    assert says in str(caught.value)


def test_the_docs_encoder_of_ones_own_is_the_one_that_is_tested_and_its_section_loads():
    docs = (PROJECT / "docs" / "kafka-sink.md").read_text()
    python, text = re.search(r"```python\n(.*?)```\n\n```yaml\n(.*?)```", docs, re.DOTALL).groups()
    assert (PROJECT / "tests" / "guarantees" / "fixed_fields.py").read_text().endswith(python)
    value = KafkaTopic.model_validate(yaml.safe_load(text)["sink"]["kafka"]).value
    assert (value.encoder, value.options) == ("fixed_fields:FixedFields", {"widths": "3,5"})


def test_an_encoder_that_start_commit_pins_is_a_known_one_or_a_class():
    good = section(value={"encoder": "a.b:C"}).writer("t", None, maintained=False)
    assert PinnedTopic.of(good).value_encoder == "a.b:C"
    wrong = good.model_copy(update={"options": {**good.options, "value_encoder": "a b"}})
    with pytest.raises(ActionRequiredError, match="value_encoder"):
        PinnedTopic.of(wrong)


def test_a_table_has_one_transactional_id_whoever_asks():
    """The number of write jobs, an attempt or a release isn't in it."""
    assert transactional_id(section().table_id) == transactional_id(section(partitioner="same").table_id)
    assert transactional_id(section().table_id) != transactional_id(section(log_topic="other").table_id)
    assert section().table_id == "kafka://target/_sluice.out"
    assert section(topic="copy.${topic}").log == "_sluice.copy.each"


def test_topics_are_named_after_the_sources():
    assert topics_of("copy.${topic}", ("a", "b")) == ("copy.a", "copy.b")
    assert topics_of("out", ("a", "b")) == ("out",)
    with pytest.raises(ActionRequiredError, match="Kafka has no topics of that name"):
        topics_of("a b", ("a",))


def test_what_topics_take_is_said_by_name_only_where_it_differs_from_most():
    small, most, compacted = Takes(2000), Takes(1_048_588), Takes(1_048_588, keyed=True)
    found = {"a": most, "b": small, "c": most, "d": compacted, "e": most}
    assert from_option(as_option(found)) == (Group(small, ("b",)), Group(compacted, ("d",)), Group(most, ()))
    assert from_option(as_option({"a": small})) == (Group(small, ()),)
    assert from_option(as_option({})) == (Group(Takes(LARGEST), ()),)
    ways = {way_of_writing(section().writer("t", None, maintained=False).model_copy(update={"options": {"takes": t}}))
            for t in ("[]", "[1]")}  # fmt: skip
    assert len(ways) == 1  # of the same rows, a topic with another limit gets the same records


def test_a_start_of_a_release_that_did_not_ask_what_topics_take_says_that_they_take_all():
    assert pinned().groups == (Group(Takes(LARGEST), ()),)
    given = pinned().model_copy(update={"takes": as_option({"a": Takes(1000)})})
    assert given.groups == (Group(Takes(1000), ()),)


def test_columns_by_what_they_are_for():
    found = shaped(["id", "v", "h", "at"], key_fields="id", headers_from="h", timestamp="at")
    assert (found.key, found.value, found.headers_from, found.timestamp) == (("id",), ("id", "v"), "h", "at")
    assert shaped(["id", "v"], key_fields="id", value={"encoder": "bytes"}).value == ("v",)
    with pytest.raises(ValueError, match="key_fields names a column that the rows don't have: nobody"):
        shaped(["id"], key_fields="nobody")
    with pytest.raises(ValueError, match="writes one column, and there are id, v"):
        shaped(["id", "v"], value={"encoder": "string"})


def test_which_commits_were_written_in_the_same_way():
    """An interval without records is written in no way of its own."""
    log = TableLog(KafkaSettings("target", {"bootstrap.servers": "localhost:1"}), "log")
    found = []
    for number, way in enumerate((NOTHING, NOTHING, "a", "a", "b", "b"), 1):
        commit = Commit(number, f"2026010100000000{number}", "", 0, 0, 0, {}, written=way, since=log.since(way))
        record = log.record_of_commit(commit)
        log._take(number, record.key, record.value, record.headers)
        found.append(log.last.since)
    assert found == [1, 1, 1, 1, 5, 5]


def test_the_way_of_writing_is_that_of_what_participants_have_staged(tmp_path):
    def way(*ways: str) -> str | None:
        staged = [committable(f"20260101000000000/{i}", {}, 0, 0, one) for i, one in enumerate(ways)]
        return Staged(LocalStorage(tmp_path), "20260101000000000", staged, "log").way

    assert [way(), way("a"), way("a", "a"), way("a", "b")] == [None, "a", "a", ""]


def test_schemas_of_types():
    kind = {"type": "struct", "fields": [
        {"name": "id", "type": "long", "nullable": False}, {"name": "n", "type": "decimal(9,2)", "nullable": True},
    ]}  # fmt: skip
    connect = connect_schema(kind)
    assert connect["fields"][0] == {"field": "id", "type": "int64", "optional": False}
    assert connect["fields"][1]["parameters"] == {"scale": "2", "connect.decimal.precision": "9"}
    assert json.loads(json_schema(kind, "t"))["required"] == ["id"]
    with pytest.raises(ValueError, match="has no map"):
        connect_schema({"type": "map", "keyType": "integer", "valueType": "string", "valueContainsNull": True})


@pytest.mark.parametrize("path", ["20990101000000000/a", "20260101000000000", "20260101000000000/../x", "/etc"])
def test_a_status_that_names_another_folder_is_refused(tmp_path, path):
    """Whoever may write to the control topic may not have files of others sent."""
    one = Committable(rows=1, path=path, payload={"files": [["f.parquet", 1]]})
    with pytest.raises(IntervalError, match="none of this interval"):
        Staged(LocalStorage(tmp_path), "20260101000000000", [one], "log")


@pytest.mark.parametrize(
    "payload",
    [
        {"files": 5},
        {"files": [[]]},
        {"files": [["f.parquet", "5"]]},
        {"files": [["f.parquet", float("inf")]]},
        {"files": [["f.parquet", 5, 7]]},
        {"files": [], "smallest": float("inf")},
        {"files": [], "smallest": "1"},
        {"files": [], "way": ["a"]},
    ],
)
def test_a_status_of_another_form_is_refused(tmp_path, payload):
    one = Committable(rows=1, path="20260101000000000/a", payload=payload)
    with pytest.raises(IntervalError, match="in the form that this table's write jobs use"):
        Staged(LocalStorage(tmp_path), "20260101000000000", [one], "log")


def test_files_that_are_gone_or_changed_are_not_sent(tmp_path):
    folder = tmp_path / "20260101000000000" / "a"
    folder.mkdir(parents=True)
    one = Committable(rows=1, path="20260101000000000/a", payload={"files": [["f.parquet", 5]]})
    staged = Staged(LocalStorage(tmp_path), "20260101000000000", [one], "log")
    with pytest.raises(IntervalError, match="A staged file is"):
        list(staged.records())
    (folder / "f.parquet").write_bytes(b"other")
    one = Committable(rows=1, path="20260101000000000/a", payload={"files": [["f.parquet", 4]]})
    with pytest.raises(IntervalError, match="not as it was written"):
        list(Staged(LocalStorage(tmp_path), "20260101000000000", [one], "log").records())


def test_a_staged_file_with_other_records_is_not_sent_though_it_has_the_size(tmp_path):
    folder = tmp_path / "20260101000000000" / "a"
    folder.mkdir(parents=True)

    def wrote(amount: str) -> tuple[int, str]:
        record = {"topic": "t", "key": b"k", "value": f"amount={amount}".encode(), "headers": None,
                  "partition": None, "timestamp": 1}  # fmt: skip
        pq.write_table(pa.Table.from_pylist([record]), folder / "f.parquet")
        return (folder / "f.parquet").stat().st_size, checksum(LocalStorage(tmp_path), "20260101000000000/a/f.parquet")

    found = wrote("100")
    one = committable("20260101000000000/a", {"f.parquet": found}, 1, 0)
    sent = [record.value for record in Staged(LocalStorage(tmp_path), "20260101000000000", [one], "log").records()]
    assert sent == [b"amount=100"]
    assert wrote("999")[0] == found[0]
    with pytest.raises(IntervalError, match="not as it was written"):
        list(Staged(LocalStorage(tmp_path), "20260101000000000", [one], "log").records())


def test_the_staging_path_is_a_folder_of_this_account(tmp_path, monkeypatch):
    """Who owns a folder reads what is put there; a group may be shared with the accounts of Spark's machines."""
    folder = tmp_path / "staging" / "orders"
    local_staging(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    local_staging(folder)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ActionRequiredError, match="can't be used"):
        local_staging(file / "staging")
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    monkeypatch.setattr(staging, "_ROOT", -1)
    with pytest.raises(ActionRequiredError, match="of another account"):
        local_staging(folder)
    folder.chmod(0o770)
    local_staging(folder)
    monkeypatch.setattr(os, "getegid", lambda: folder.stat().st_gid + 1)
    monkeypatch.setattr(os, "getgroups", list)
    with pytest.raises(ActionRequiredError, match="of another account"):
        local_staging(folder)


def test_a_topic_is_known_by_its_id_and_where_keys_decide_by_its_partitions():
    known = {"a": ["id-a", 2], "old": [None, 2]}
    now = {"a": TopicLife("id-a", 2), "old": TopicLife("id", 2), "new": TopicLife("id-n", 1)}

    def changes(by_key=(), **other):
        return list(changes_of(known, {**now, **other}, ["a", "old", "new"], by_key))

    assert changes(["a", "old", "new"]) == []
    assert changes(a=TopicLife("another", 2)) == ["a was deleted and made again"]
    assert list(changes_of(known, {}, ["a"], [])) == ["a was deleted"]
    assert changes(a=TopicLife("id-a", 3)) == []
    assert changes(["a"], a=TopicLife("id-a", 3)) == ["a has 3 partitions, and had 2, so that keys move"]
