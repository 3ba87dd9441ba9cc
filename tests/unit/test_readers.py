"""What `sluice doctor` says of a table. By the readers themselves: tests/guarantees/test_readers.py."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from sluice.errors import ActionRequiredError
from sluice.sinks.hudi.readers import READERS, Facts, verdict, verdicts
from sluice.sinks.hudi.versions import NOTE, begun_change

from ..guarantees.harness.flow import invoke

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "read-the-tables.md"
APPEND = Facts(version=9, merges=False, uncompacted=0, newest_needed=False)


def table(folder: Path, kind: str, version: int, *instants: str, more: str = "") -> Path:
    path = folder / "table"
    (path / ".hoodie" / "timeline").mkdir(parents=True)
    settings = f"#written by Java\nhoodie.table.type={kind}\nhoodie.table.version={version}\n{more}"
    (path / ".hoodie" / "hoodie.properties").write_text(settings)
    for instant in instants:
        (path / ".hoodie" / "timeline" / instant).write_bytes(b"")
    return path


def sees(path: Path) -> dict[str, str]:
    return {one.reader: one.sees for one in verdicts(str(path))}


def test_a_version_that_a_reader_does_not_know_is_an_error_for_it(tmp_path):
    found = sees(table(tmp_path, "COPY_ON_WRITE", 8))
    assert (found["spark-hudi-0.15"], found["spark-hudi-1.0"], found["hudi-rs"]) == ("nothing", "all rows", "all rows")
    assert set(found) == set(READERS)


@pytest.mark.parametrize(
    ("instants", "seen"),
    [
        (("20260101000000000_20260101000005000.deltacommit",), "some rows"),
        (
            (
                "20260101000000000_20260101000005000.deltacommit",
                "20260102000000000_20260102000005000.commit",
                "20260103000000000.deltacommit.requested",
            ),
            "all rows",
        ),
        (
            (
                "20260102000000000_20260102000005000.commit",
                "20260103000000000_20260103000005000.deltacommit",
            ),
            "some rows",
        ),
    ],
)
def test_a_reader_that_needs_base_files_may_lack_what_is_not_compacted(tmp_path, instants, seen):
    found = sees(table(tmp_path, "MERGE_ON_READ", 8, *instants))
    assert (found["hudi-rs"], found["spark-hudi-1.0"]) == (seen, "all rows")


def test_it_says_what_would_have_to_change():
    assert verdict("athena", APPEND).needed == (
        "it doesn't know table version 9: set table_version to 6, and run `sluice service table_version`",
    )
    assert "table_version to 8" in verdict("emr", APPEND).needed[0]
    upsert = Facts(version=8, merges=True, uncompacted=0, newest_needed=False)
    assert "upserts, which needs version 8" in verdict("athena", upsert).needed[0]
    partial = Facts(version=9, merges=True, uncompacted=2, newest_needed=True)
    assert "needs version 9" in verdict("emr", partial).needed[0]
    assert "2 commits since the last compaction" in verdict("hudi-rs", partial).needed[0]


@pytest.mark.parametrize(
    "more", ["hoodie.table.partial.update.mode=FILL_UNAVAILABLE\n", "hoodie.table.ordering.fields=a,b\n"]
)
def test_what_only_the_newest_version_has_is_read_from_the_table(tmp_path, more):
    path = table(tmp_path, "MERGE_ON_READ", 9, more=more)
    emr = next(one for one in verdicts(str(path)) if one.reader == "emr")
    assert emr.needed[0].startswith("the table needs version 9")


def test_the_page_has_the_same_versions():
    rows = re.findall(r"^\| (\d)[^|]*\| (.+?) \| (.+?) \| (.+?) \| (.+?) \|", PAGE.read_text(), re.MULTILINE)
    columns = ("spark-hudi-0.15", "spark-hudi-1.0", "spark-hudi-1.2", "hudi-rs")
    for version, *cells in rows:
        known = {name: cell != "refuses" for name, cell in zip(columns, cells, strict=True)}
        assert known == {name: int(version) in READERS[name].versions for name in columns}
    assert [version for version, *_ in rows] == ["6", "8", "9"]
    assert READERS["spark-hudi-1.1"].versions == READERS["spark-hudi-1.2"].versions  # one column of the page


def _meta(properties: dict[str, str]) -> Any:
    """A meta client of Hudi's, as far as the note of a change asks it."""
    config = SimpleNamespace(getProps=lambda: SimpleNamespace(getProperty=properties.get))
    return SimpleNamespace(getTableConfig=lambda: config, getBasePath=lambda: "/lake/t")


def test_the_command(tmp_path):
    path = table(tmp_path, "COPY_ON_WRITE", 8)
    file = tmp_path / "p.yaml"
    sections = {
        "name": "p",
        "source": {"kafka": {"topics": "t"}},
        "sink": {"hudi": {"path": str(path), "schema": "id BIGINT"}},
    }
    file.write_text(yaml.safe_dump(sections))
    assert invoke("doctor", str(file)).exit_code == 0
    refused = invoke("doctor", str(file), "--reader", "athena")
    assert refused.exit_code == 1
    assert "athena: it doesn't know table version 8: set table_version to 6, and run `sluice service" in refused.output
    assert invoke("doctor", str(file), "--reader", "emr").exit_code == 0
    with pytest.raises(ActionRequiredError, match=r"No reader is known as presto.*spark-hudi-0.15"):
        raise invoke("doctor", str(file), "--reader", "presto").exception or AssertionError
    with (path / ".hoodie" / "hoodie.properties").open("a") as settings:
        settings.write(f"{NOTE}={{}}\n")
    with pytest.raises(ActionRequiredError, match=r"version is being changed.*run it again"):
        raise invoke("doctor", str(file), "--reader", "emr").exception or AssertionError
    with pytest.raises(ActionRequiredError, match=f"setting {NOTE} can't be read: to: Field required"):
        begun_change(_meta({NOTE: "{}"}))
