"""Converters in pipeline files: what is right loads, docs included, and what is wrong says what to correct."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from sluice.errors import PipelineFileError
from sluice.pipeline import load_pipeline

PROJECT = Path(__file__).parents[2]
DOCS = (PROJECT / "docs" / "converters.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)


def load(tmp_path: Path, value: dict[str, object], schema: str | None = "id BIGINT") -> None:
    file = tmp_path / "p.yaml"
    sink = {"path": "/lake/p", "schema": schema} if schema else {"path": "/lake/p"}
    file.write_text(
        yaml.safe_dump({"name": "p", "source": {"kafka": {"topics": "t", "value": value}}, "sink": {"hudi": sink}})
    )
    load_pipeline(file)


@pytest.mark.parametrize("text", blocks("yaml"), ids=lambda text: text.split("\n")[0])
def test_the_docs_pipeline_files_load(tmp_path, text):
    file = tmp_path / "p.yaml"
    file.write_text(text)
    load_pipeline(file)


def test_the_docs_own_converter_is_the_one_that_is_tested():
    tested = (PROJECT / "tests" / "guarantees" / "fixed_width.py").read_text()
    assert tested.endswith(blocks("python")[0])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"converter": "arvo"}, "there is json, avro, .* or a class of your own as `module:Class`"),
        ({"converter": "avro"}, "converter avro needs a `registry` or a `schema_file`"),
        ({"converter": "protobuf"}, "converter protobuf needs a `registry` or a `schema_file`"),
        ({"converter": "json", "registry": "r"}, "a `registry` is for avro, protobuf, json_schema, not for json"),
        ({"converter": "json", "subject": "s"}, "`subject` is a name in a `registry`"),
        ({"converter": "string"}, "converter string makes one column: name it by `as`"),
        ({"converter": "avro", "registry": "r", "schema": "id INT"}, "`schema` says the fields, and so does registry"),
        ({"converter": "bytes", "as": "b", "schema": "id INT"}, "and so does converter bytes"),
        ({"converter": "csv", "options": {"rest": "others"}}, "`rest` is for converter json, for objects without"),
        ({"options": {"rest": "o", "schemas.enable": True}}, "`rest` is for converter json, for objects without"),
        ({"converter": "avro", "registry": "r", "message": "m"}, "`message` is for converter protobuf"),
        ({"converter": "avro", "schema_file": "none.avsc"}, "The schema file does not exist"),
    ],
)
def test_what_is_wrong_is_told(tmp_path, value, says):
    with pytest.raises(PipelineFileError, match=says):
        load(tmp_path, value)


def test_columns_must_come_from_somewhere(tmp_path):
    with pytest.raises(PipelineFileError, match=r"sink\.hudi\.schema"):
        load(tmp_path, {"converter": "csv"}, schema=None)
    load(tmp_path, {"converter": "avro", "registry": "r"}, schema=None)
