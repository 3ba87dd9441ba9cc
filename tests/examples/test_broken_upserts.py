"""A small sink that upserts, and ones that break a rule each: the check of `sluice.testing` for it finds it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from datetime import timedelta

import pytest

from sluice.connectors.capabilities import SinkCapabilities
from sluice.connectors.sink import Pinned
from sluice.records.plan import RecordPlan
from sluice.testing import SinkConformance, UpsertConformance, Version
from sluice_lines.options import JsonLines
from sluice_lines.sink import LOG, ROWS, JsonLinesTable, write_file
from sluice_lines.source import local


class UpsertSink:
    """What `sluice.connectors.sink.Sink` asks for, of one folder."""

    def __init__(self, folder):
        writer = JsonLines(path=str(folder / "table"), schema_="id BIGINT").writer("t", None, maintained=False)
        self._writer = writer.model_copy(update={"operation": "upsert", "record_key": ("key",)})

    @contextmanager
    def open(self):
        opened = JsonLinesTable(self._writer, timedelta(minutes=1))
        opened.written_as = lambda _writer, _further=(): opened
        yield opened

    def pin(self, table, last, clusters):
        return Pinned(RecordPlan(), table.writer)


class TestUpserts(UpsertConformance):
    """Versions in the order of their commits; the largest order wins, and of equal ones the last."""

    def sink(self, folder):
        return UpsertSink(folder)

    def capabilities(self):
        return SinkCapabilities(atomic_with_checkpoint=True, upsert=True)

    def write_versions(self, folder, table, instant, attempt, versions):
        return [write_file(table.writer.path, instant, attempt, map(json.dumps, versions))]

    def files(self, table):
        manifests = sorted((table / LOG).glob("*.json"))
        return [table / path for manifest in manifests for path in json.loads(manifest.read_text())["files"]]

    def versions(self, folder):
        lines = [line for file in self.files(local(str(folder / "table"))) for line in file.read_text().splitlines()]
        return self.merged([Version(*json.loads(line)) for line in lines])

    def merged(self, versions):
        rows = {}
        for version in versions:
            if version.key not in rows or version.order >= rows[version.key].order:
                rows[version.key] = version
        return list(rows.values())


class EveryVersionIsARow(TestUpserts):
    def merged(self, versions):
        return versions


class EqualOnesAreTwoRows(TestUpserts):
    def merged(self, versions):
        best = {v.key: v.order for v in super().merged(versions)}
        return [v for v in versions if v.order == best[v.key]]


class TheFirstOfEqualOnesWins(TestUpserts):
    def merged(self, versions):
        return super().merged(versions[::-1])


class TheLastCommittedWins(TestUpserts):
    def merged(self, versions):
        return list({v.key: v for v in versions}.values())


class TheLastWrittenOfAnIntervalWins(TestUpserts):
    def write_versions(self, folder, table, instant, attempt, versions):
        last = list({v.key: v for v in versions}.values())
        return super().write_versions(folder, table, instant, attempt, last)


class MixesWhatATaskBrings(TestUpserts):
    def write_ranges(self, folder, table, instant, attempt, ranges):
        mixed = sorted(version for versions in ranges for version in versions)
        return self.write_versions(folder, table, instant, attempt, mixed)


class OverwritesInPlace(TestUpserts):
    def write_versions(self, folder, table, instant, attempt, versions):
        keys = {v.key for v in versions}
        for file in (folder / "table" / ROWS).glob("*.jsonl"):
            stay = [line for line in file.read_text().splitlines() if json.loads(line)[0] not in keys]
            file.write_text("".join(f"{line}\n" for line in stay))
        return super().write_versions(folder, table, instant, attempt, versions)


class ReadsWhatLiesThere(TestUpserts):
    """Every file of a committed instant, whatever its manifest names."""

    def files(self, table):
        return [f for m in sorted((table / LOG).glob("*.json")) for f in sorted((table / ROWS).glob(f"{m.stem}_*"))]


class SaysThatItAppends(TestUpserts):
    def capabilities(self):
        return SinkCapabilities(atomic_with_checkpoint=True)


BROKEN = [
    (SaysThatItAppends, "it_says_that_it_upserts"),
    (EqualOnesAreTwoRows, "the_same_range_twice_is_there_once"),
    (EveryVersionIsARow, "a_later_version_takes_the_place_of_the_one_before"),
    (TheFirstOfEqualOnesWins, "a_later_version_takes_the_place_of_the_one_before"),
    (TheLastCommittedWins, "an_older_version_that_comes_late_loses"),
    (TheLastWrittenOfAnIntervalWins, "of_the_versions_of_one_interval_the_last_is_the_row"),
    (MixesWhatATaskBrings, "of_ranges_that_one_task_brings_each_keeps_its_order"),
    (OverwritesInPlace, "after_a_roll_back_the_versions_before_it_are_there"),
    (ReadsWhatLiesThere, "a_zombie_s_version_is_never_the_row"),
]
for broken, _ in BROKEN:
    broken.__test__ = False  # they are tested by what they fail


def test_each_check_has_a_sink_that_it_finds():
    checks = {name.removeprefix("test_") for name in set(dir(UpsertConformance)) - set(dir(SinkConformance))}
    assert {check for check in checks if hasattr(UpsertConformance, f"test_{check}")} == {check for _, check in BROKEN}


@pytest.mark.parametrize(("broken", "check"), BROKEN)
def test_a_sink_that_breaks_a_rule_fails(tmp_path, broken, check):
    arguments = () if check == "it_says_that_it_upserts" else (tmp_path,)
    with pytest.raises(AssertionError):
        getattr(broken(), f"test_{check}")(*arguments)
