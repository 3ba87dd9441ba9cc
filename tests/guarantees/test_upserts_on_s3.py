"""An attempt that is late replaces no file on S3, which lets a second writer have any name."""

from __future__ import annotations

from collections import Counter

import pytest

from .harness import Flow, Pause

UPSERT = {"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}


class Bucket(Flow):
    """One pipeline whose table lies in a bucket."""

    def in_bucket(self, s3) -> Bucket:
        self._s3, self._base = s3, str(self.path).lstrip("/")
        self.set(sink__hudi__path=f"{s3.uri}{self.path}")
        return self

    def objects(self, instant: str) -> dict[str, bytes]:
        """The data files of an interval, by their keys."""
        keys = [f"{self._base}/{name}" for name in self._s3.listing(self._base) if not name.startswith(".hoodie/")]
        return {key: self._s3.read(key) for key in keys if f"_{instant}." in key}

    def rows(self, *, metadata: bool) -> Counter[tuple[int, str]]:
        found = self.drivers.idle().ask("read", f"{self._s3.uri}{self.path}", metadata)
        return Counter((row[0], row[1]) for row in found)


@pytest.fixture
def flow(s3, tmp_path, bootstrap, s3_jvm, s3_drivers, topic_name):
    made = Bucket(tmp_path, bootstrap, s3_jvm, s3_drivers, topic_name("t"), **UPSERT).in_bucket(s3)
    made.create_topic(2)
    return made


def test_what_an_earlier_attempt_uploads_late_takes_no_committed_file_s_place(flow, s3):
    """Two attempts, each a Spark application, have the same stages and tasks. The second is committed.

    The first is then ended in the middle of a file, whose stream is closed on the way out: it has the first blocks, and
    looks whole.
    """
    flow.produce(0, ids=range(40), values="a")
    flow.interval()
    flow.produce(0, ids=range(0, 40, 2), values="b")
    started = flow.start()
    pause = Pause("participant.after_write", flow.folder)
    zombie = flow.write_alone(started, failpoint=pause.failpoint)
    pause.wait(zombie)
    of_zombie = flow.objects(started.instant)
    assert of_zombie
    for key in of_zombie:
        s3.delete(key)  # on S3 nothing is there before a stream is closed
    flow.write_alone(started).succeed()
    flow.commit(started)
    zombie.kill()
    for key in of_zombie:
        s3.put(key, b"")
    wanted = Counter({(i, f"b{i}" if i % 2 == 0 else f"a{i}"): 1 for i in range(40)})
    assert flow.rows(metadata=True) == wanted
    flow.produce(0, ids=range(0, 40, 4), values="c")
    flow.interval()
    assert not [content for content in flow.objects(started.instant).values() if not content]
    wanted = Counter({(i, f"{'c' if i % 4 == 0 else 'b' if i % 2 == 0 else 'a'}{i}"): 1 for i in range(40)})
    assert flow.rows(metadata=True) == wanted
