"""Each line of a bucket's objects lands once, while objects come, are replaced and go.

A real listing by S3A's client against a server that speaks S3's language, a real Kafka with the log, and real Spark.
"""

from __future__ import annotations

import gzip
import json
from urllib.parse import quote

import pytest

from sluice.airflow.connections import private_settings_of
from sluice.errors import ActionRequiredError
from sluice.private import VARIABLE as PRIVATE
from sluice.sources.files.s3 import Bucket, key_of, uri_of

from .harness import Drivers
from .harness.files import FileFlow, Loads
from .row_files import FORMATS

ODD = ("a b", "a+b", "a%20b", "%", "ä€😀", "a:b", "a?b=c&d", "a#b", "a\\b", "a'\"<>", "a|^`{}", "deep/c d", " x ")


@pytest.fixture
def bucket(s3_jvm):
    """The test bucket as START sees it."""
    with s3_jvm() as jvm:
        yield Bucket(jvm.jvm, jvm.storage.unwrap(), "lake")


def listed(bucket, folder, include=("*",), exclude=()):
    return list(bucket.listing(f"s3a://lake/{folder}", include, exclude))


def test_a_listing_has_every_object_once_by_any_name(bucket, s3, topic_name, monkeypatch):
    """Over pages; each as S3's own answer for it says; and Hadoop reads that very object by its URI."""
    monkeypatch.setattr("sluice.sources.files.s3.PAGE", 2)
    folder = f"{topic_name('in')} %41"
    for key in ODD:
        bucket._client.putObject("lake", f"{folder}/{key}", key)
    for key in ("_SUCCESS", "_temporary/0/x", "deep/.hidden/x", "x.tmp", "marker/", ""):
        bucket._client.putObject("lake", f"{folder}/{key}", "")
    bucket._client.putObject("lake", f"{folder}2/x", "beside")
    found = listed(bucket, folder)
    assert [key_of(one.path) for one in found] == sorted((f"{folder}/{key}" for key in ODD), key=str.encode)
    assert [bucket.look(one.path) for one in found] == found
    with_hadoop = [read(bucket, one.path) for one in found]
    assert [f"{folder}/{content}" for content in with_hadoop] == [key_of(one.path) for one in found]
    assert [one.size for one in found] == [len(content.encode()) for content in with_hadoop]
    assert [one.path for one in listed(bucket, folder, ("deep/*",))] == [uri_of("lake", f"{folder}/deep/c d")]
    assert bucket.look(uri_of("lake", f"{folder}/none")) is None
    assert listed(bucket, f"{folder}/none") == []


def read(bucket, uri):
    hadoop = bucket._jvm.org.apache.hadoop
    path = hadoop.fs.Path(bucket._jvm.java.net.URI(uri))
    stream = path.getFileSystem(hadoop.conf.Configuration()).open(path)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


@pytest.mark.parametrize("key", ["a//b", "deep//b", "/b", "deep/b/"])
def test_an_object_without_a_path_is_refused_or_left_out_by_choice(bucket, topic_name, key):
    """Hadoop would read another one in its place, or none."""
    folder = topic_name("in")
    bucket._client.putObject("lake", f"{folder}/{key}", "x")
    with pytest.raises(ActionRequiredError, match="Hadoop has no path for an object") as caught:
        listed(bucket, folder)
    assert caught.value.where == {"bucket": "lake", "key": f"{folder}/{key}"}
    assert listed(bucket, folder, exclude=("*//*", "/*", "*/")) == []


def test_a_bucket_that_cannot_be_listed_is_told_as_the_source_s(s3_jvm):
    with s3_jvm() as jvm, pytest.raises(ActionRequiredError, match=r"The source's path.+source\.files\.path"):
        list(Bucket(jvm.jvm, jvm.storage.unwrap(), "no-such-bucket").listing("s3a://no-such-bucket/in", ("*",), ()))


class Loaded(Loads):
    """A pipeline from a folder of a bucket into files of a disk."""

    def __init__(self, flow, s3, folder, section):
        super().__init__(flow)
        self.s3, self.folder, self.section = s3, folder, section

    def put(self, name, *lines):
        self.put_bytes(name, "".join(f"{line}\n" for line in lines).encode())

    def put_bytes(self, name, content):
        self.s3.put(f"{self.folder}/{quote(name)}", content)

    def delete(self, name):
        self.s3.delete(f"{self.folder}/{quote(name)}")


@pytest.fixture
def make(tmp_path, bootstrap, s3, s3_jvm, s3_drivers, topic_name):
    """Makes such a pipeline: `make(on_change="reread")`."""

    def made(jvm=s3_jvm, drivers=s3_drivers, **section):
        name = topic_name("f")
        flow = FileFlow(tmp_path, bootstrap, jvm, drivers, name)
        folder = f"in %20{name}"
        files = {"path": f"s3a://lake/{folder}", "log": f"files-{name}", "min_age": "0 seconds"}
        section = {**files, "value": {"converter": "csv"}, **section}
        section = {name: one for name, one in section.items() if one is not None}
        flow.set(source={"files": section}, control__connection="kafka_default")
        flow.set(sink__files__layout="connect", sink__files__topics_dir="topics")
        return Loaded(flow, s3, quote(folder), section)

    return made


def line(number, value=None):
    return f"{number},{value or f'v{number}'},p"


def test_new_objects_are_read_once_whenever_they_come(make):
    """Late ones of older names, compressed ones, any name; the same bytes again are nothing new, others are told."""
    loaded = make()
    loaded.put("b.csv", line(1), line(2))
    loaded.put_bytes("deep/c d%20ä+#?:.csv.gz", gzip.compress(f"{line(3)}\n{line(4)}\n".encode()))
    loaded.put("empty.csv")
    loaded.put("_hidden.csv", line(98))
    assert loaded.interval() == [1, 2, 3, 4]
    loaded.flow.interval_is_empty()
    loaded.put("b.csv", line(1), line(2))
    loaded.put("a.csv", line(5))
    assert loaded.interval() == [1, 2, 3, 4, 5]
    loaded.delete("a.csv")
    loaded.flow.interval_is_empty()
    loaded.put("b.csv", line(1), line(7))
    refused = loaded.refused()
    assert "was replaced under its name" in refused
    assert "b.csv" in refused


def test_an_object_that_is_replaced_after_it_was_listed_is_never_mixed(make):
    """Before the read, between read and report, and though it is put back meanwhile; the same bytes may come."""
    loaded = make()
    loaded.put("b.csv", line(2), line(3))
    started = loaded.flow.start()
    loaded.put("b.csv", line(7), line(8))
    assert "was replaced or changed after it was listed" in loaded.fails(started)
    loaded.delete("b.csv")
    assert "was deleted after it was listed" in loaded.fails(started)
    loaded.put("b.csv", line(2), line(3))
    with loaded.after_the_read(started) as job:
        loaded.put("b.csv", line(7), line(8))
    assert job.wait() != 0
    assert "was replaced or changed after it was listed" in job.text()
    loaded.put("b.csv", line(2), line(3))
    with loaded.after_the_read(started) as job:
        loaded.put("b.csv", line(7), line(8))
        loaded.put("b.csv", line(2), line(3))
    assert job.wait() != 0
    assert "was replaced or changed after it was listed" in job.text()
    assert loaded.ids() == []
    loaded.flow.write(started).succeed()
    loaded.flow.commit(started)
    assert loaded.ids() == [2, 3]


def test_a_replaced_object_is_read_whole_by_choice(make):
    loaded = make(on_change="reread")
    loaded.put("a.csv", line(1))
    assert loaded.interval() == [1]
    loaded.put("a.csv", line(2), line(3))
    assert loaded.interval() == [1, 2, 3]
    loaded.flow.interval_is_empty()


def test_a_killed_write_job_is_repeated_without_a_trace(make):
    loaded = make(splits=2, max_files=1)
    for number in range(4):
        loaded.put(f"{number}.csv", line(number))
    started = loaded.flow.start()
    assert loaded.flow.write(started, failpoint="participant.after_write=kill").wait() != 0
    loaded.flow.write(started).succeed()
    loaded.flow.commit(started)
    while len(loaded.ids()) < 4:
        loaded.interval()
    assert loaded.ids() == [0, 1, 2, 3]
    loaded.flow.interval_is_empty()


@pytest.mark.parametrize("kind", FORMATS)
def test_rows_of_objects_are_read_once(make, kind):
    """Of any name; a damaged object is named."""
    loaded = make(value=None, format=kind)
    columns, rows = {"id": "INT", "v": "STRING"}, [{"id": number, "v": f"v{number}"} for number in range(3_000)]
    loaded.put_bytes(f"a b%20ä.{kind}", FORMATS[kind](columns, rows))
    assert loaded.interval() == list(range(3_000))
    loaded.put_bytes(f"b.{kind}", FORMATS[kind](columns, rows)[:-30])
    said = loaded.fails(loaded.flow.start())
    assert "A file is damaged or cut off" in said
    assert f"file=s3a://lake/{loaded.folder}/b.{kind}" in said


def test_the_bucket_is_reached_by_the_section_s_connection_alone(make, s3, tmp_path_factory, monkeypatch):
    """By START in a JVM that it opens, and by the write job, without a setting of Hadoop's; no secret shows."""
    for variable in ("HADOOP_CONF_DIR", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", PRIVATE):
        monkeypatch.delenv(variable, raising=False)
    fields = {"conn_type": "aws", "login": s3.key, "password": s3.secret, "extra": s3.extra}
    monkeypatch.setenv("AIRFLOW_CONN_IN", json.dumps(fields))
    loaded = make(None, None, connection="in")
    for variable, value in private_settings_of(loaded.flow.pipeline).to_environment().items():
        monkeypatch.setenv(variable, value)
    drivers = loaded.flow.drivers = Drivers(tmp_path_factory.mktemp("drivers"))  # with that environment
    try:
        loaded.put("a.csv", line(1))
        assert loaded.interval() == [1]
    finally:
        drivers.close()
    texts = [file.read_text() for file in loaded.flow.folder.glob("*.log")]
    texts += [message.model_dump_json() for message in loaded.flow.messages()]
    assert texts
    assert not any(s3.secret in text for text in texts)
