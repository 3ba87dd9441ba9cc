"""Which entries a folder's files need in their log, without Kafka and Spark."""

from __future__ import annotations

import os
import random
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from io import BytesIO
from itertools import chain

import pytest

from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.config import KafkaSettings
from sluice.pipeline import Pipeline
from sluice.protocol.messages import PlannedRange
from sluice.records.settings import Converter
from sluice.sources.files import cleaning as cleaning_of
from sluice.sources.files import hdfs
from sluice.sources.files import source as source_of_files
from sluice.sources.files.avro import fault
from sluice.sources.files.cleaning import Cleaning
from sluice.sources.files.disk import Disk, place_of, uri_of
from sluice.sources.files.entries import (
    BITS,
    Entry,
    Found,
    Logged,
    decoded,
    encoded,
    is_read,
    new_lines,
    path_of,
    require_rows,
    root_of,
    whole_file,
)
from sluice.sources.files.hdfs import uri_of as uri_of_hdfs
from sluice.sources.files.known import Known
from sluice.sources.files.options import FORMAT, FilesOfFolder
from sluice.sources.files.reader import FilesReader
from sluice.sources.files.rows import is_damage
from sluice.sources.files.s3 import bucket_of, key_of, of_source
from sluice.sources.files.s3 import uri_of as uri_of_object
from sluice.sources.files.source import FilesSource
from sluice.storages import HADOOP, S3

SECTION = {"path": "/data/in", "log": "files"}
ARCHIVE = {"clean_source": "archive", "on_change": "reread"}


@pytest.mark.parametrize(
    ("name", "path", "include", "exclude", "read"),
    [
        ("a.csv", "a.csv", ("*",), (), True),
        ("a.csv", "deep/a.csv", ("*.csv",), (), True),
        ("a.csv", "deep/a.csv", ("deep/*.csv",), (), True),
        ("a.csv", "a.csv", ("deep/*",), (), False),
        ("a.csv", "a.csv", ("*.json",), (), False),
        ("a.csv", "a.csv", ("*.json", "*.csv"), (), True),
        ("a.csv", "a.csv", ("*",), ("a*",), False),
        ("_SUCCESS", "_SUCCESS", ("*",), (), False),
        (".a.csv.crc", ".a.csv.crc", ("*",), (), False),
        ("a.csv.tmp", "a.csv.tmp", ("*",), (), False),
        ("a.csv._COPYING_", "a.csv._COPYING_", ("*",), (), False),
    ],
)
def test_patterns_choose_files_by_name_or_by_path(name, path, include, exclude, read):
    assert is_read(name, path, include, exclude) is read


def test_an_entry_is_the_same_after_the_log():
    entry = Entry("file:///in/a", 10, 1_700_000_000_000_001, "7", 0, 10, header="id")
    assert decoded(encoded(entry), 0) == entry
    for other in (b"", b"no JSON", b"{}", b"\xff", None):
        with pytest.raises(ActionRequiredError, match="is no entry"):
            decoded(other, 5)


def test_a_path_comes_back_from_its_uri(tmp_path):
    file = tmp_path / "a b%20ä#?.csv"
    file.write_text("x\n")
    (found,) = Disk().listing(uri_of(str(tmp_path)), ("*",), ())
    assert place_of(found.path) == file
    assert (found.size, found.id) == (2, str(file.stat().st_ino))
    assert Disk().look(found.path) == found


def test_a_folder_is_the_one_of_that_very_name(tmp_path):
    """A pipeline file's path has no escapes, for a source as for a sink."""
    for name in ("a b", "a%20b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one").write_text("x")
    (found,) = Disk().listing(f"file://{tmp_path}/a%20b", ("*",), ())
    assert place_of(found.path) == tmp_path / "a%20b" / "one"


def test_a_listing_has_no_hidden_folders_and_no_link_that_leads_nowhere(tmp_path):
    for name in ("a/b/one", "_temporary/0/two", ".hidden/three"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "four").symlink_to(tmp_path / "nowhere")
    assert [place_of(f.path).name for f in Disk().listing(uri_of(str(tmp_path)), ("*",), ())] == ["one"]


def test_a_name_that_java_has_no_path_for_is_refused(tmp_path):
    (tmp_path / os.fsdecode(b"\xff.csv")).write_text("1")
    with pytest.raises(ActionRequiredError, match="isn't UTF-8") as caught:
        list(Disk().listing(str(tmp_path), ("*",), ()))
    assert "udcff" in str(caught.value)
    assert list(Disk().listing(str(tmp_path), ("*",), ("*.csv",))) == []


def test_an_object_comes_back_from_its_uri():
    for key in ("in/a b", "a+b", "a%20b", "ä€😀", "a?b#c", "a:b", "a\nb", "a//b/"):
        uri = uri_of_object("lake", key)
        assert (bucket_of(uri), key_of(uri)) == ("lake", key)
        assert not set(" ?#\n+ä").intersection(uri)


def test_a_file_of_hdfs_comes_back_from_its_uri():
    for root in ("hdfs://namenode:8020", "hdfs://"):
        for path in ("/in/a b", "/a+b", "/a%20b", "/ä€😀", "/a?b#c", "/a\nb"):
            uri = uri_of_hdfs(root, path)
            assert (root_of(uri), path_of(uri)) == (root, path)
            assert not set(" ?#\n+ä").intersection(uri)


def proto(**fields):
    """A Protobuf message of fields that are named by their numbers: `_1=2`."""

    def number(value):
        return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + number(value >> 7)

    made = b""
    for name, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            tag = int(name[1:]) << 3
            if isinstance(value, bytes):
                made += number(tag | 2) + number(len(value)) + value
            elif isinstance(value, float):
                made += number(tag | 1) + bytes(8)
            else:
                made += number(tag) + number(value)
    return made


def test_a_page_of_hdfs_is_decoded_as_the_name_node_sends_it():
    """Fields that aren't looked at, of any kind, are passed over; a folder has no blocks."""
    facts = {"_4": proto(_1=0o644), "_5": b"user", "_99": 1.5}
    folder = proto(_1=1, _2=b"deep", _3=0, **facts, _7=1_700_000_000_000, _13=16_386)
    file = proto(
        _1=2, _2="ä.csv".encode(), _3=2**40, _7=1_700_000_000_001, **facts, _12=proto(_1=5, _3=0), _13=2**40 + 1
    )
    written = proto(_1=2, _2=b"", _3=0, _7=1_700_000_000_002, _12=proto(_1=0, _2=[b"x" * 300] * 2, _3=1), _13=9)
    page, remaining = hdfs._decoded(proto(_1=[folder, file, written], _2=7))
    assert remaining == 7
    assert [tuple(one) for one in page] == [
        ("deep", True, False, 0, 1_700_000_000_000, 16_386, False),
        ("ä.csv", False, True, 2**40, 1_700_000_000_001, 2**40 + 1, False),
        ("", False, True, 0, 1_700_000_000_002, 9, True),
    ]
    assert hdfs._decoded(b"") == ([], 0)


def test_an_object_is_the_same_by_its_etag_whenever_it_was_put():
    found = Found("s3a://lake/a", 5, 3_000_000, "e1")
    entry = whole_file(found, None)
    assert entry.is_still(found._replace(modified=9_000_000))
    assert not entry.is_still(found._replace(id="e2"))
    assert not entry.is_still(found._replace(size=6))
    assert not whole_file(found._replace(path="file:///a"), None).is_still(found._replace(modified=9_000_000))


class Looked:
    """A bucket that shows an object so often, and then another state of it."""

    def __init__(self, *states):
        self._states = iter(states)

    def listing(self, folder, include, exclude):
        raise NotImplementedError

    def look(self, uri):
        return next(self._states)


@pytest.mark.parametrize(
    ("after", "says"),
    [
        ({}, None),
        ({"modified": 9_000_000}, "was replaced or changed"),  # and put back, while it was read
        ({"id": "e2"}, "was replaced or changed"),
        (None, "was deleted"),
    ],
)
def test_an_object_has_to_be_the_same_at_both_looks(after, says, monkeypatch):
    found = Found("s3a://lake/a", 5, 6_000_000, "e1")
    reader = FilesReader(None, None)
    bucket = Looked(found, None if after is None else found._replace(**after))
    monkeypatch.setattr(reader, "_storage", lambda path: bucket)
    listed = whole_file(found._replace(modified=3_000_000), None)  # the same bytes were put again since
    monkeypatch.setattr(reader, "_entries", lambda planned: [(7, listed)])
    planned = PlannedRange(cluster="c", topic="files", partition=0, start=7 << BITS, end=8 << BITS)
    reader.require_unchanged([planned])
    with pytest.raises(ActionRequiredError, match=says) if says else nullcontext():
        reader.require_unchanged([planned])


def test_an_answer_of_a_storage_is_told_of_the_source_and_asks_for_no_right_to_write():
    for row in (*S3, *HADOOP):
        assert "table" not in of_source(row.what)
        assert not any(one in of_source(row.next_step) for one in ("put and delete", "write access"))


def test_a_bucket_has_the_section_s_connection():
    section = {**SECTION, "path": "s3a://lake/in"}
    assert FilesOfFolder.model_validate(section).bucket_logins == {}
    with_login = FilesOfFolder.model_validate({**section, "connection": "aws_default"})
    assert (with_login.bucket_logins, with_login.connections) == ({"lake": "aws_default"}, ())


def logged(*entries, partition=0, listed=0):
    """Entries in one partition of a log, each listed a millisecond after the one before."""
    return [Logged(partition, number, listed + number, entry) for number, entry in enumerate(entries)]


def compared(entries, found, *, grows=False):
    with Known(grows=grows) as known:
        known.learn(logged(*entries))
        known.see(found)
        return [(one.found, one.before, one.displaced) for one in known.compared()]


def test_only_files_that_are_not_as_listed_are_looked_at_the_oldest_first():
    a, b, c = (Found(f"file:///{name}", 5, time, name) for name, time in (("a", 3), ("b", 2), ("c", 1)))
    replaced = Found("file:///a", 5, 4, "a2")
    assert compared([], [a, b, c]) == [(c, None, None), (b, None, None), (a, None, None)]
    assert compared([whole_file(one, None) for one in (a, b, c)], [a, b]) == []
    assert compared([whole_file(a, None)], [replaced]) == [(replaced, whole_file(a, None), None)]
    again = [whole_file(a, None), whole_file(replaced, None)]
    assert compared(again, [replaced]) == []
    assert compared(again, [a]) == []  # put back, and read already
    other = Found("file:///a", 6, 5, "a3")
    assert compared(again, [other]) == [(other, whole_file(replaced, None), None)]


class TestCleaning:
    """Only files that are committed, and as they were read, leave their folder; another file never does."""

    def found(self, file):
        found = Disk().look(uri_of(str(file)))
        assert found is not None
        return found

    def folder(self, tmp_path, *names):
        folder = tmp_path / "in"
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)
        return folder

    def below(self, folder):
        return sorted(str(one.relative_to(folder)) for one in folder.rglob("*"))

    @pytest.mark.parametrize("archive", [None, "done"])
    def test_a_file_leaves_and_its_folder_stays(self, tmp_path, archive):
        folder = self.folder(tmp_path, "a.csv", "deep/b.csv", "c.csv")
        to = tmp_path / archive if archive else None
        cleaning = Cleaning(f"file://{folder}", to and f"file://{to}")
        assert cleaning.clean(self.found(folder / "a.csv"))
        assert cleaning.clean(self.found(folder / "deep/b.csv"))
        assert self.below(folder) == ["c.csv", "deep"]
        if to:
            assert self.below(to) == ["a.csv", "deep", "deep/b.csv"]
            self.folder(tmp_path, "a.csv")
            assert cleaning.clean(self.found(folder / "a.csv"))
            assert self.below(to) == ["a-1.csv", "a.csv", "deep", "deep/b.csv"]

    def test_another_file_under_the_name_stays(self, tmp_path):
        folder = self.folder(tmp_path, "a.csv")
        read = self.found(folder / "a.csv")
        (folder / "a.csv").write_text("other lines")
        assert not Cleaning(str(folder), None).clean(read)
        assert ((folder / "a.csv").read_text(), self.below(folder)) == ("other lines", ["a.csv"])
        (folder / "a.csv").unlink()
        assert not Cleaning(str(folder), None).clean(read)
        assert self.below(folder) == []

    def test_another_file_stays_though_a_third_has_taken_its_name(self, tmp_path, monkeypatch):
        """It comes in the very moment in which the file is moved aside."""
        folder = self.folder(tmp_path, "a.tar.csv")
        read = self.found(folder / "a.tar.csv")
        (folder / "a.tar.csv").write_text("second")

        class Look(Disk):
            def look(self, uri):
                (folder / "a.tar.csv").write_text("third")
                return super().look(uri)

        monkeypatch.setattr(cleaning_of, "Disk", Look)
        assert not Cleaning(str(folder), None).clean(read)
        assert {one.name: one.read_text() for one in folder.iterdir()} == {
            "a.tar.csv": "third",
            "a-1.tar.csv": "second",
        }

    def left(self, tmp_path, name, text="left"):
        """A file that a process which died had moved aside."""
        aside = self.folder(tmp_path) / ".sluice-cleaning" / "0f" / name
        aside.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text)
        return aside

    def contents(self, folder):
        return {str(one.relative_to(folder)): one.read_text() for one in folder.rglob("*") if one.is_file()}

    def test_start_puts_back_what_a_death_left_aside(self, tmp_path):
        folder = self.folder(tmp_path)
        asked = []
        inode = str(self.left(tmp_path, "deep/a.csv").stat().st_ino)
        assert Cleaning(str(folder), None).restore(asked.append) == []
        assert self.below(folder) == ["deep", "deep/a.csv"]
        assert [(one.path, one.id) for one in asked] == [(uri_of(str(folder / "deep/a.csv")), inode)]

    @pytest.mark.parametrize(
        ("include", "listed", "there", "waiting"),
        [
            ("*", False, {"a.csv": "new", "a-1.csv": "left"}, 0),
            ("*", True, {"a.csv": "new", ".sluice-cleaning/0f/a.csv": "left"}, 0),
            ("a.csv", False, {"a.csv": "new", ".sluice-cleaning/0f/a.csv": "left"}, 1),
        ],
        ids=["unread: under another name", "read: it waits", "unread: no other name is read"],
    )
    def test_what_was_left_aside_meets_a_new_file(self, tmp_path, include, listed, there, waiting):
        folder = self.folder(tmp_path)
        self.left(tmp_path, "a.csv")
        (folder / "a.csv").write_text("new")
        assert len(Cleaning(str(folder), None, (include,)).restore(lambda _: listed)) == waiting
        assert self.contents(folder) == there

    def test_commit_takes_away_what_was_left_aside_if_it_is_committed(self, tmp_path):
        folder = self.folder(tmp_path)
        self.left(tmp_path, "deep/a.csv")
        self.left(tmp_path, "b.csv")
        cleaning = Cleaning(str(folder), str(tmp_path / "done"))
        cleaning.finish(lambda one: one.path.endswith("a.csv"))
        assert self.contents(folder) == {".sluice-cleaning/0f/b.csv": "left"}
        assert self.contents(tmp_path / "done") == {"deep/a.csv": "left"}

    @pytest.mark.parametrize("links", [False, True])
    def test_a_death_between_the_two_names_of_a_move_leaves_one_copy(self, tmp_path, links, monkeypatch):
        if links:
            monkeypatch.setattr(cleaning_of.ctypes, "CDLL", lambda *_, **__: None)
        aside = self.left(tmp_path, "a.csv")
        (tmp_path / "done").mkdir()
        os.link(aside, tmp_path / "done/a.csv")
        Cleaning(str(tmp_path / "in"), str(tmp_path / "done")).finish(lambda _: True)
        assert (self.below(tmp_path / "in"), self.below(tmp_path / "done")) == ([], ["a.csv"])

    @pytest.mark.parametrize("links", [False, True])
    def test_no_file_gets_the_name_of_another(self, tmp_path, links, monkeypatch):
        """Where the kernel or the file system has no rename for that, a link does it."""
        if links:
            monkeypatch.setattr(cleaning_of.ctypes, "CDLL", lambda *_, **__: None)
        folder = self.folder(tmp_path, "a.csv")
        (tmp_path / "done").mkdir()
        (tmp_path / "done/a.csv").symlink_to("nowhere")
        (tmp_path / "done/a-1.csv").write_text("of before")
        assert Cleaning(str(folder), str(tmp_path / "done")).clean(self.found(folder / "a.csv"))
        assert (tmp_path / "done/a.csv").is_symlink()
        assert (tmp_path / "done/a-1.csv").read_text() == "of before"
        assert (tmp_path / "done/a-2.csv").read_text() == "a.csv"

    def test_a_link_stays(self, tmp_path):
        folder = self.folder(tmp_path, "a.csv")
        (folder / "b.csv").symlink_to("a.csv")
        assert not Cleaning(str(folder), None).clean(self.found(folder / "b.csv"))
        assert self.below(folder) == ["a.csv", "b.csv"]

    def test_an_archive_within_the_folder_is_refused_by_whichever_way(self, tmp_path):
        folder = self.folder(tmp_path, "a.csv")
        (tmp_path / "link").symlink_to(folder)
        for archive in ("link/done", "link/../link/done", "."):
            with pytest.raises(ActionRequiredError, match="within their folder"):
                Cleaning(str(folder), str(tmp_path / archive)).require_separate()
        Cleaning(str(folder), str(tmp_path / "inside")).require_separate()

    def test_an_archive_that_cannot_be_written_to_is_told(self, tmp_path):
        folder = self.folder(tmp_path, "a.csv")
        (tmp_path / "done").write_text("no folder")
        cleaning = Cleaning(str(folder), str(tmp_path / "done"))
        with pytest.raises(RetryableError, match="can't be taken out of its folder"):
            cleaning.clean(self.found(folder / "a.csv"))
        assert cleaning.restore(lambda _: True) == []
        assert self.below(folder) == ["a.csv"]

    def test_only_committed_entries_of_long_ago_let_a_file_go(self):
        """Passed-over ones aren't committed; a file with a further entry waits for that."""
        a, b, c, d = (Found(f"file:///{name}", 5, time, name) for time, name in enumerate("abcd"))
        again = Found("file:///b", 6, 9, "b2")
        with Known(grows=False) as known:
            known.learn(logged(*(whole_file(one, None) for one in (a, b, c)), listed=100))
            known.learn(logged(whole_file(again, None), whole_file(d, None), partition=1, listed=200))
            known.see([a, b, c._replace(size=7), d])
            assert list(known.committed(1000)) == []
            known.cover(0, [(0, 3)])
            assert list(known.committed(1000)) == [a]  # b was listed again since; c is another file now
            assert known.is_committed(c)
            assert not known.is_committed(d)
            known.cover(1, [(0, 1)])
            assert list(known.committed(1000)) == [a, b]
            assert list(known.committed(150)) == [a]
            assert list(known.committed(99)) == []


def test_a_log_that_has_a_file_twice_is_refused():
    entry = whole_file(Found("file:///a", 5, 3, "a"), None)
    with pytest.raises(ActionRequiredError, match="has a file twice"):
        compared([entry, entry], [])


def test_a_file_that_grows_is_known_by_its_id_under_any_name(tmp_path):
    old, new = Found("file:///app.log", 5, 3, "1"), Found("file:///app.log", 2, 9, "2")
    entry = Entry(*old, start=0, end=5, head="h", tail="t")
    rotated = old._replace(path="file:///app.log.1", modified=4)
    assert compared([entry], [rotated, new], grows=True) == [(rotated, entry, None), (new, None, None)]
    assert compared([entry], [new], grows=True) == [(new, None, entry)]


@pytest.mark.parametrize("seed", range(6))
def test_a_log_with_more_partitions_than_at_first_has_each_line_of_files_that_grow_once(seed, tmp_path, monkeypatch):
    """Partitions have no order among them, so a file's entries stay in the first one's."""
    topic: list[list[Logged]] = [[]]

    class Log:
        def __init__(self, _settings, _topic, _extend):
            pass

        def append(self, found):
            for partition, entry in list(found):
                topic[partition].append(Logged(partition, len(topic[partition]), 0, entry))

    monkeypatch.setattr(source_of_files, "Appending", Log)
    monkeypatch.setattr(source_of_files, "entries", lambda _, __, partition, start: topic[partition][start:])
    options = FilesOfFolder(path=str(tmp_path), log="files", grows=True, min_age=timedelta(0))
    source = FilesSource(options, KafkaSettings("kafka_default", {"bootstrap.servers": "nowhere:1"}))
    dice, written = random.Random(seed), dict.fromkeys(range(4), 0)
    for _ in range(12):
        for number in dice.sample(list(written), 2):
            written[number] += 1
            with (tmp_path / f"{number}.log").open("a") as file:
                file.write(f"{number}: {written[number]}\n")
        topic.extend([] for _ in range(dice.randrange(2)))
        source._add_new("files", range(len(topic)), datetime.now(UTC))
    listed = [one.entry for partition in topic for one in partition]
    read = [place_of(e.path).read_bytes()[e.start : e.end].decode().splitlines() for e in listed]
    assert sorted(chain(*read)) == sorted(f"{n}: {i + 1}" for n, count in written.items() for i in range(count))
    assert len(topic) > 3


class TestGrowing:
    """Only lines that end are read, each once."""

    def grown(self, file, before=None, header=None):
        (found,) = Disk().listing(uri_of(str(file.parent)), ("*",), ())
        return new_lines(found, before, Disk(), header)

    def test_a_line_that_does_not_end_waits(self, tmp_path):
        file = tmp_path / "a"
        file.write_text("one")
        assert self.grown(file) is None
        file.write_text("one\ntw")
        first = self.grown(file)
        assert (first.start, first.end) == (0, 4)
        assert self.grown(file, first) is None
        file.write_text("one\ntwo\n" + "x" * 100_000)
        second = self.grown(file, first)
        assert (second.start, second.end) == (4, 8)
        assert second.is_still(Found(second.path, 200_000, 0, second.id))
        assert not second.is_still(Found(second.path, 7, second.modified, second.id))
        assert not second.is_still(Found(second.path, 8, second.modified, "other"))

    def test_its_edges_show_another_content(self, tmp_path):
        file = tmp_path / "a"
        file.write_text("".join(f"line {i}\n" for i in range(10_000)))
        entry = self.grown(file)
        uri = uri_of(os.fspath(file))
        assert Disk().edges(uri, entry.end) == (entry.head, entry.tail)
        text = file.read_text()
        for other in ("L" + text[1:], text[:-2] + "X\n"):
            file.write_text(other)
            assert Disk().edges(uri, entry.end) != (entry.head, entry.tail)

    def test_a_compressed_one_is_refused(self, tmp_path):
        (tmp_path / "a.gz").write_bytes(b"x")
        with pytest.raises(ActionRequiredError, match="compressed"):
            self.grown(tmp_path / "a.gz")


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"path": "gs://bucket/in"}, "on a disk, such as /data/in, in a bucket"),
        ({"path": "hdfs://namenode//in"}, "a name between slashes is empty"),
        ({"path": "hdfs:///data/../in"}, "made of dots"),
        ({"path": "hdfs://namenode/in", "grows": True}, "once it is closed"),
        ({"path": "hdfs://namenode/in", "connection": "aws_default"}, "for a path on s3a://"),
        ({"path": "s3a://bucket//in"}, "a name between slashes is empty"),
        ({"path": "s3a://bucket/in", "grows": True}, "an object never grows"),
        ({"connection": "aws_default"}, "for a path on s3a://"),
        ({"topics": "t"}, "is for records of Kafka's"),
        ({"max_records": 5}, "is for records of Kafka's"),
        ({"header": "a\nb"}, "one line"),
        ({"clean_source": "archive"}, "belong together"),
        ({"archive_path": "/data/done"}, "belong together"),
        ({"clean_source": "delete"}, "needs `on_change: reread`"),
        ({"clean_source": "delete", "on_change": "reread", "grows": True}, "leave old ones to logrotate"),
        ({"clean_source": "delete", "on_change": "reread", "path": "s3a://b/in"}, "lifecycle rule"),
        ({"clean_source": "delete", "on_change": "reread", "path": "hdfs://n/in"}, "those of HDFS stay"),
        ({**ARCHIVE, "archive_path": "s3a://b/done"}, "a folder of a disk"),
        ({**ARCHIVE, "archive_path": "/data/in/done"}, "neither within the other"),
        ({**ARCHIVE, "archive_path": "/data"}, "neither within the other"),
        ({"log": "a b"}, "pattern"),
        ({"format": "orc"}, "'text', 'parquet' or 'avro'"),
        ({"format": "parquet", "header": "id"}, "`header` is a first line of text"),
        ({"format": "avro", "grows": True}, "`grows` is for files of text"),
        ({"format": "parquet", "value": {"converter": "json"}}, "`value.converter` is for lines of text"),
        ({"format": "avro", "value": {"schema": "id INT", "options": {"sep": ";"}}}, "`value.options` is for lines"),
        ({"format": "avro", "value": Converter(converter="string", **{"as": "v"})}, "`value.converter` is for lines"),
    ],
)
def test_a_section_that_cannot_be_is_refused(section, says):
    with pytest.raises(ValueError, match=says):
        FilesOfFolder.model_validate({**SECTION, **section})


def test_rows_are_read_by_the_types_of_their_columns():
    """Only which columns are read may be said of them."""
    plain = FilesOfFolder.model_validate({**SECTION, "format": "parquet"})
    named = FilesOfFolder.model_validate({**SECTION, "format": "avro", "value": {"schema": "id INT"}})
    assert plain.value.options == {FORMAT: "parquet"}
    assert (named.value.schema_, named.value.options) == ("id INT", {FORMAT: "avro"})
    assert plain.value.converter == named.value.converter
    assert plain.capabilities.typed
    text = FilesOfFolder.model_validate(SECTION)
    assert (text.format, text.capabilities.typed, text.value) == ("text", False, Converter())


@pytest.mark.parametrize(
    ("further", "says"),
    [
        ({"errors": {"max_record_bytes": "1 MiB"}}, "`errors.max_record_bytes` is for records of bytes"),
        ({"columns": {"raw": "value"}}, "only where values are bytes"),
    ],
)
def test_rows_have_no_bytes(further, says):
    files = {**SECTION, "format": "parquet", "columns": further.pop("columns", {})}
    sink = {"files": {"path": "/lake/t", "schema": "id INT, raw BINARY"}}
    whole = {"name": "p", "source": {"files": files}, "sink": sink, "control": {"connection": "k"}, **further}
    with pytest.raises(ValueError, match=says):
        Pipeline.model_validate(whole)


def test_a_file_of_rows_is_not_compressed_as_a_whole():
    found = Found("file:///in/a.snappy.parquet", 5, 3, "1")
    require_rows(found, "parquet")
    for ending in (".gz", ".zst", ".snappy"):
        with pytest.raises(ActionRequiredError, match="can't be read as parquet"):
            require_rows(found._replace(path=f"file:///in/a.parquet{ending}"), "parquet")


@pytest.mark.parametrize(
    ("text", "damage"),
    [
        ("o\n: java.lang.RuntimeException: file:/in/a is not a Parquet file (length is too low: 0)", True),
        (
            "Caused by: org.apache.spark.SparkException: x\nCaused by: java.util.zip.ZipException: invalid distance",
            True,
        ),
        ("Caused by: java.io.IOException: Invalid sync!", True),
        ("Caused by: java.io.EOFException", True),
        ("Caused by: java.lang.ArrayIndexOutOfBoundsException: Index 109 out of bounds", True),
        ("o\n: org.apache.avro.InvalidAvroMagicException: Not an Avro data file.", True),
        ("Caused by: org.apache.parquet.io.ParquetDecodingException: x\nCaused by: java.io.IOException: reset", False),
        ("Caused by: java.io.FileNotFoundException: File file:/in/a does not exist", False),
        ("Caused by: java.lang.OutOfMemoryError: Java heap space", False),
        ("the JVM is gone", False),
        ("o\n: org.apache.spark.SparkException: Job aborted: ExecutorLostFailure (executor 1 exited)", False),
        ("o\n: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.", False),
        ("Caused by: java.lang.InterruptedException", False),
        ("Caused by: shaded.parquet.org.apache.thrift.protocol.TProtocolException: Required field", True),
    ],
)
def test_damage_is_told_from_a_storage_that_fails(text, damage):
    assert is_damage(text) is damage


class TestBlocksOfAvro:
    """What Avro's own reader takes for the end of the rows is told before it reads."""

    MARK = bytes(range(16))

    def file(self, *blocks):
        """Each block: the number of its rows, what it says of its length, its content."""
        header = b"Obj\x01..." + self.MARK
        coded = (self.number(rows) + self.number(length) + content + self.MARK for rows, length, content in blocks)
        return header + b"".join(coded), len(header)

    def number(self, value):
        value, made = (value << 1) ^ (value >> 63), b""
        while value >= 0x80:
            made, value = made + bytes([value & 0x7F | 0x80]), value >> 7
        return made + bytes([value])

    def fault(self, content, begin):
        return fault(BytesIO(content), begin, len(content))

    def test_a_whole_file_has_none(self):
        assert self.fault(*self.file()) is None
        assert self.fault(*self.file((5, 300, b"x" * 300), (1, 0, b""), (2**40, 70_000, b"y" * 70_000))) is None

    def test_a_file_is_cut_off_anywhere_but_between_blocks(self):
        whole, begin = self.file((5, 100, b"x" * 100), (5, 200, b"y" * 200))
        between = len(self.file((5, 100, b"x" * 100))[0])
        for end in range(begin, len(whole)):
            assert (self.fault(whole[:end], begin) is None) == (end in (begin, between)), end

    @pytest.mark.parametrize(
        ("block", "says"),
        [
            ((0, 100), "has no rows"),
            ((-3, 100), "has no rows"),
            ((5, 10_000), "isn't whole"),
            ((5, -1), "isn't whole"),
            ((5, 99), "sync marker"),
        ],
    )
    def test_a_block_that_says_other_than_it_is(self, block, says):
        found = self.fault(*self.file((5, 50, b"a" * 50), (*block, b"x" * 100), (5, 50, b"b" * 50)))
        assert says in found
        assert "at byte 91" in found


def test_the_log_is_the_topic():
    section = FilesOfFolder.model_validate(SECTION)
    assert section.topics == ("files",)
    assert section.topics_in_words == "files of file:///data/in"
    assert section.capabilities.replayable
    assert not section.capabilities.ordered
