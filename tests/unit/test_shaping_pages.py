"""The pipeline files of the pages on shaping and schemas can be copied as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sluice.errors import PipelineFileError
from sluice.pipeline import load_pipelines

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def test_the_files_of_the_page_on_shaping_load(tmp_path):
    file = tmp_path / "pipeline.yaml"
    numbers = []
    for text in blocks("shaping.md"):
        file.write_text(text)
        numbers.append(len(load_pipelines(file)))
    assert numbers == [1, 2, 1]


def test_the_file_that_has_no_schema_yet_lacks_nothing_else(tmp_path):
    (text,) = blocks("schemas.md")
    file = tmp_path / "clicks.yaml"
    file.write_text(text)
    with pytest.raises(PipelineFileError, match=r"give the table's columns as sink\.hudi\.schema"):
        load_pipelines(file)
    file.write_text(f"{text}    schema: id BIGINT\n")
    assert load_pipelines(file)[0].name == "clicks"
