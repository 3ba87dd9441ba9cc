"""Each line and row of a folder's files on HDFS lands once, while files come, are written, replaced and go.

A real HDFS, a real Kafka with the log, and real Spark.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest

from sluice.errors import ActionRequiredError, RetryableError
from sluice.sources.files.entries import path_of
from sluice.sources.files.hadoop import storage_of
from sluice.sources.files.hdfs import Hdfs

from ..thorough import also
from .harness import Drivers, wait_for
from .harness.files import FileFlow, Loads
from .row_files import FORMATS

ODD = ("a b", "a+b", "a%20b", "%", "ä€😀", "a?b=c&d", "a#b", "a\\b", "a'\"<>", "a|^`{}", "deep/c d", " x ")
CHANGED = "was replaced or changed after it was listed"


class Folder:
    """A folder of HDFS, as the programs that write there have it."""

    def __init__(self, jvm, uri, path):
        self.jvm, self.uri, self.path = jvm.jvm, f"{uri}{path}", path
        self.hadoop, self.configuration = jvm.jvm.org.apache.hadoop, jvm.storage.unwrap()
        # A cluster of one data node has none to put in the place of one that fails.
        self.configuration.set("dfs.client.block.write.replace-datanode-on-failure.policy", "NEVER")
        root = jvm.jvm.java.net.URI.create(f"{uri}/")
        self.files = self.hadoop.fs.FileSystem.newInstance(root, self.configuration)
        self.storage = storage_of(self.jvm, self.configuration, uri)

    def at(self, name):
        """Hadoop's path of a name, whose letters mean nothing else."""
        return self.hadoop.fs.Path("hdfs", self.uri.split("/")[2], f"{self.path}/{name}")

    def put(self, name, content=b""):
        """A file that is closed."""
        stream = self.files.create(self.at(name), True)
        stream.write(content)
        stream.close()

    def open(self, name, content):
        """A file that is being written, of which readers see the content."""
        stream = self.files.create(self.at(name), True)
        return self.write_on(stream, content)

    def write_on(self, stream, content):
        stream.write(content)
        stream.hflush()
        return stream

    def append(self, name, content):
        return self.write_on(self.files.append(self.at(name)), content)

    def delete(self, name):
        assert self.files.delete(self.at(name), True)

    def rename(self, name, to):
        assert self.files.rename(self.at(name), self.at(to))

    def truncate(self, name, size):
        """Cut a file off; its last block is recovered before it is closed."""
        self.files.truncate(self.at(name), size)
        wait_for(lambda: self.files.isFileClosed(self.at(name)), "the block to be recovered", pause=0.1)

    def time(self, name):
        return self.files.getFileStatus(self.at(name)).getModificationTime()

    def set_time(self, name, milliseconds):
        self.files.setTimes(self.at(name), milliseconds, -1)

    def listed(self, include=("*",), exclude=()):
        return list(self.storage.listing(self.uri, include, exclude))

    def look(self, name):
        found = [one for one in self.listed() if path_of(one.path) == f"{self.path}/{name}"]
        return found[0] if found else None


@pytest.fixture
def folder_of(hdfs, shared_jvm) -> Iterator:
    with shared_jvm() as jvm:
        yield lambda path: Folder(jvm, hdfs.uri, path)


def test_a_listing_has_every_file_once_by_any_name(folder_of, topic_name):
    """Each as a look at it alone has it; and Hadoop reads that very file by its URI."""
    folder = folder_of(f"/{topic_name('in')} %41")
    for name in ODD:
        folder.put(name, name.encode())
    for name in ("_SUCCESS", "_temporary/0/x", "deep/.hidden/x", "x.tmp", "x._COPYING_"):
        folder.put(name)
    found = folder.listed()
    assert sorted(path_of(one.path) for one in found) == sorted(f"{folder.path}/{name}" for name in ODD)
    assert [folder.storage.look(one.path) for one in found] == found
    assert [read(folder, one.path) for one in found] == [
        path_of(one.path).removeprefix(f"{folder.path}/") for one in found
    ]
    assert [one.size for one in found] == [len(read(folder, one.path).encode()) for one in found]
    assert [path_of(one.path) for one in folder.listed(("deep/*",))] == [f"{folder.path}/deep/c d"]
    assert [folder.storage.look(f"{folder.uri}/{name}") for name in ("none", "deep", "%25/below")] == [None] * 3


def read(folder, uri):
    path = folder.hadoop.fs.Path(folder.jvm.java.net.URI(uri))
    stream = path.getFileSystem(folder.configuration).open(path)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def test_a_large_folder_is_listed_by_pages(folder_of, topic_name, monkeypatch):
    folder = folder_of(f"/{topic_name('in')}")
    names = [f"{number:04}" for number in range(1_100)]  # dfs.ls.limit is 1000
    for name in names:
        folder.put(name)
    asked = []
    decoded = Hdfs._pages

    def pages(self, path):
        for page in decoded(self, path):
            asked.append(len(page))
            yield page

    monkeypatch.setattr(Hdfs, "_pages", pages)
    assert [one.path.rpartition("/")[2] for one in folder.listed()] == names
    assert asked == [1000, 100]


def test_whatever_changes_a_file_is_seen(folder_of, topic_name):
    """A file that is open for writing isn't listed, and is no more the one that it was."""
    folder = folder_of(f"/{topic_name('in')}")
    folder.put("a", b"1\n")
    before, time = folder.look("a"), folder.time("a")
    assert (before.size, before.modified) == (2, time * 1000)

    stream = folder.append("a", b"2\n")
    known = folder.files.getFileStatus(folder.at("a")).getLen()
    folder.write_on(stream, b"3\n")
    status = folder.files.getFileStatus(folder.at("a"))
    assert (status.getLen(), status.getModificationTime()) == (known, time)  # though readers see more
    assert read(folder, before.path) == "1\n2\n3\n"
    assert folder.listed() == []
    assert folder.storage.look(before.path).id != before.id
    stream.close()
    after = folder.look("a")
    assert (after.size, after.id) == (6, before.id)
    assert after.modified > before.modified

    folder.truncate("a", 2)
    assert folder.look("a").modified > after.modified
    folder.put("a", b"9\n")
    folder.set_time("a", time)
    replaced = folder.look("a")
    assert replaced._replace(id=before.id) == before
    assert replaced.id != before.id
    folder.rename("a", "b")
    assert folder.look("b")._replace(path=before.path) == replaced
    assert folder.storage.look(before.path) is None
    for content in (b"", b"x"):
        stream = folder.open("c", content)
        assert folder.look("c") is None
        stream.close()
        assert folder.look("c").size == len(content)


def test_a_folder_that_is_not_there_is_told(folder_of, topic_name):
    folder = folder_of(f"/{topic_name('in')}")
    with pytest.raises(ActionRequiredError, match="folder of the files doesn't exist") as caught:
        folder.listed()
    assert caught.value.where["path"] == folder.uri
    folder.put("a")
    with pytest.raises(ActionRequiredError, match="folder of the files doesn't exist"):
        list(folder.storage.listing(f"{folder.uri}/a", ("*",), ()))
    folder.delete("a")
    assert folder.listed() == []


def test_what_the_name_node_refuses_is_told_with_the_path(folder_of, topic_name, shared_jvm, hdfs):
    """A person has to grant a right, or correct the address; a name node that doesn't answer is asked again."""
    folder = folder_of(f"/{topic_name('in')}")
    folder.put("mine/a")
    nobody = folder.hadoop.fs.permission.FsPermission("000")
    folder.files.setPermission(folder.at("mine"), nobody)
    security = folder.hadoop.security.UserGroupInformation
    before = security.getLoginUser()
    security.setLoginUser(security.createRemoteUser("somebody"))
    try:
        theirs = storage_of(folder.jvm, folder.configuration, folder.uri)
        with pytest.raises(ActionRequiredError, match=r"No permission on the source's folder.+right to read") as caught:
            list(theirs.listing(folder.uri, ("*",), ()))
    finally:
        security.setLoginUser(before)
    assert caught.value.where["path"] == f"{folder.uri}/mine"
    with pytest.raises(ActionRequiredError, match=r"The source's path can't be used.+source\.files\.path"):
        storage_of(folder.jvm, folder.configuration, "hdfs://no-such-host.invalid:1/in").look("hdfs://none/in/a")


class Loaded(Loads):
    """A pipeline from a folder of HDFS into files of a disk."""

    def __init__(self, flow, folder):
        super().__init__(flow)
        self.folder = folder

    def put(self, name, *lines):
        self.folder.put(name, text(*lines))


@pytest.fixture
def make(tmp_path, bootstrap, folder_of, shared_jvm, drivers, topic_name):
    """Makes such a pipeline: `make(on_change="reread")`."""

    def made(**section):
        name = topic_name("f")
        flow = FileFlow(tmp_path, bootstrap, shared_jvm, drivers, name)
        folder = folder_of(f"/in %20{name}")
        files = {"path": folder.uri, "log": f"files-{name}", "min_age": "0 seconds"}
        if "format" not in section:
            files["value"] = {"converter": "csv"}
        flow.set(source={"files": {**files, **section}}, control__connection="kafka_default")
        flow.set(sink__files__layout="connect", sink__files__topics_dir="topics")
        return Loaded(flow, folder)

    return made


def line(number, value=None):
    return f"{number},{value or f'v{number}'},p"


def text(*lines):
    return "".join(f"{one}\n" for one in lines).encode()


def test_new_files_are_read_once_whenever_they_come(make):
    """Late ones, compressed ones, of any name; one that is being written waits until it is closed."""
    loaded = make()
    loaded.put("b.csv", line(1), line(2))
    loaded.folder.put("deep/c d%20ä+#?.csv.gz", gzip.compress(text(line(3), line(4))))
    loaded.folder.put("empty.csv")
    loaded.put("_hidden.csv", line(98))
    stream = loaded.folder.open("open.csv", text(line(5)))
    assert loaded.interval() == [1, 2, 3, 4]
    loaded.flow.interval_is_empty()
    loaded.folder.write_on(stream, text(line(6))).close()
    loaded.put("a.csv", line(7))
    assert loaded.interval() == [1, 2, 3, 4, 5, 6, 7]
    loaded.folder.delete("a.csv")
    loaded.flow.interval_is_empty()
    time = loaded.folder.time("b.csv")
    loaded.put("b.csv", line(1), line(8))
    loaded.folder.set_time("b.csv", time)
    refused = loaded.refused()
    assert "was replaced under its name" in refused
    assert "b.csv" in refused


@pytest.mark.thorough
def test_a_file_that_changes_after_it_was_listed_is_never_mixed(make):
    """Before the read, or between read and report: replaced with its length and time, deleted, or written on."""
    loaded = make()
    folder = loaded.folder
    loaded.put("b.csv", line(2), line(3))
    started, time = loaded.flow.start(), folder.time("b.csv")
    folder.rename("b.csv", "kept.tmp")
    assert "was deleted after it was listed" in loaded.fails(started)

    def replace():
        loaded.put("b.csv", line(7), line(8))
        folder.set_time("b.csv", time)

    def put_back():
        folder.delete("b.csv")
        folder.rename("kept.tmp", "b.csv")

    replace()
    assert CHANGED in loaded.fails(started)
    put_back()
    with loaded.after_the_read(started) as job:
        folder.rename("b.csv", "kept.tmp")
        replace()
    assert job.wait() != 0
    assert CHANGED in job.text()
    put_back()
    with loaded.after_the_read(started) as job:
        stream = folder.append("b.csv", text(line(9)))
    assert job.wait() != 0
    assert CHANGED in job.text()
    assert CHANGED in loaded.fails(started)
    assert loaded.ids() == []
    stream.close()
    folder.truncate("b.csv", len(text(line(2), line(3))))
    folder.set_time("b.csv", time)
    loaded.flow.write(started).succeed()
    loaded.flow.commit(started)
    assert loaded.ids() == [2, 3]


@pytest.mark.thorough
def test_a_file_that_was_appended_to_is_read_whole_by_choice(make):
    """Once it is closed; until then it is the one that was read."""
    loaded = make(on_change="reread")
    loaded.put("a.csv", line(1))
    assert loaded.interval() == [1]
    stream = loaded.folder.append("a.csv", text(line(2)))
    loaded.flow.interval_is_empty()
    stream.close()
    assert loaded.interval() == [1, 1, 2]
    loaded.flow.interval_is_empty()


@pytest.mark.thorough
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


@pytest.mark.parametrize("kind", ["parquet", *also("avro")])
def test_rows_of_files_are_read_once(make, kind):
    """Of any name; a damaged file is named."""
    loaded = make(format=kind)
    columns, rows = {"id": "INT", "v": "STRING"}, [{"id": number, "v": f"v{number}"} for number in range(3_000)]
    loaded.folder.put(f"a b%20ä.{kind}", FORMATS[kind](columns, rows))
    assert loaded.interval() == list(range(3_000))
    loaded.flow.interval_is_empty()
    loaded.folder.put(f"b.{kind}", FORMATS[kind](columns, rows)[:-30])
    said = loaded.fails(loaded.flow.start())
    assert "A file is damaged or cut off" in said
    assert f"file=hdfs://{loaded.folder.uri.split('/')[2]}/in%20%2520" in said
    assert f"/b.{kind}" in said


@pytest.mark.thorough
def test_a_file_that_spark_may_not_read_needs_a_person(make, tmp_path_factory, monkeypatch):
    loaded = make()
    loaded.put("a.csv", line(1))
    started = loaded.flow.start()
    nobody = loaded.folder.hadoop.fs.permission.FsPermission("000")
    loaded.folder.files.setPermission(loaded.folder.at("a.csv"), nobody)
    monkeypatch.setenv("HADOOP_USER_NAME", "somebody")
    drivers = loaded.flow.drivers = Drivers(tmp_path_factory.mktemp("drivers"))  # as that user
    try:
        said = loaded.fails(started)
    finally:
        drivers.close()
    assert "No permission on the source's folder" in said
    assert f"file={loaded.folder.uri.replace(' %', '%20%25')}/a.csv" in said


@pytest.mark.thorough  # each call waits for the name node for ten seconds
def test_a_name_node_that_goes_away_is_asked_again(hdfs, make):
    """By START and by the write job; what was listed is read when it is back."""
    loaded = make()
    loaded.put("a.csv", line(1))
    hdfs.stop()
    with pytest.raises(RetryableError, match="The source's file system doesn't answer") as caught:
        loaded.flow.coordinator().start(loaded.flow.run())
    assert caught.value.where["path"] == loaded.folder.uri
    hdfs.start()
    started = loaded.flow.start()
    hdfs.stop()
    assert "The source's file system doesn't answer" in loaded.fails(started)
    hdfs.start()
    loaded.flow.write(started).succeed()
    loaded.flow.commit(started)
    assert loaded.ids() == [1]
