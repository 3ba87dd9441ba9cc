"""The API server runs no stranger's code: what authors of files and callers send costs them alone."""

from __future__ import annotations

import pytest
from light_page import light_page

GOOD = """\
name: {name}
source:
  kafka:
    topics: [flights]
sink:
  hudi:
    path: file:///lake/{name}
    schema: id BIGINT
"""
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]\n" for i in range(1, 9)
)
WRONG = {
    "no UTF-8": b"name: \xff\xfe",
    "a day that is none": b"start_date: 2026-02-30",
    "a number that is none": b"name: 0b_",
    "a long number": b"name: " + b"9" * 5000,
    "an anchor in itself": b"name: &a [*a]",
    "nested": b"name: " + b"[" * 2000 + b"]" * 2000,
    "not closed": b"[" * 100_000,
    "aliases": BOMB.encode(),
    "a tag": b"name: !!bool x",
    "a null byte": b"source: {kafka: {value: {schema_file: \"a\\0b\"}}}",
    "large": b"# " + b"x" * 2_000_000,
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_one_wrong_file_takes_nothing_from_the_others(kind, tmp_path, monkeypatch):
    with light_page(tmp_path, monkeypatch) as client:
        folder = tmp_path / "pipelines"
        (folder / "good.yaml").write_text(GOOD.format(name="good"))
        (folder / "wrong.yaml").write_bytes(WRONG[kind])
        assert client.get("/connect/connectors").json() == ["good"]
        assert client.get("/connect/connectors/good/status").status_code == 200
        listed = client.get("/api/v1/pipelines").json()
        assert [one["key"] for one in listed["pipelines"]] == ["good"]
        assert sum("wrong.yaml" in str(told) for told in listed["banners"]) == 1
