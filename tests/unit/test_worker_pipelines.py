"""Which pipelines a group of workers writes."""

from __future__ import annotations

import pytest

from sluice.errors import ActionRequiredError, PipelineFileError
from sluice.pipeline.workers import pipelines_of

TEXT = """
name: {name}
source:
  kafka:
    topics: {name}
sink:
  hudi:
    path: /tmp/lake/{name}
    schema: id BIGINT
write:
  workers: {group}
  driver_memory: {memory}
"""


@pytest.fixture
def write(tmp_path):
    def write(name, *, group="fast", memory="1g", **more):
        file = tmp_path / f"{name}.yaml"
        lines = [f"  {key}: {value}" for key, value in more.items()]
        file.write_text(TEXT.format(name=name, group=group, memory=memory) + "\n".join(lines) + "\n")
        return file

    return write


def names(files, group="fast"):
    return [pipeline.name for pipeline in pipelines_of(files, group)]


def test_those_that_name_the_group(write):
    assert names([write("orders"), write("visits", group="slow"), write("clicks")]) == ["orders", "clicks"]


def test_a_wrong_file_stops_none_of_the_others(write, tmp_path):
    wrong = write("wrong", memroy="2g")
    gone = tmp_path / "gone.yaml"
    assert names([wrong, write("orders"), gone]) == ["orders"]


def test_a_wrong_file_is_told_where_no_other_names_the_group(write):
    with pytest.raises(PipelineFileError, match="memroy"):
        pipelines_of([write("wrong", memroy="2g"), write("visits", group="slow")], "fast")


def test_a_group_that_nobody_names_is_told(write):
    with pytest.raises(ActionRequiredError, match=r"write\.workers: fast"):
        pipelines_of([write("visits", group="slow")], "fast")


def test_those_that_can_not_share_a_spark_application_are_told(write):
    with pytest.raises(ActionRequiredError, match=r"write\.connection") as told:
        pipelines_of([write("orders"), write("clicks", connection="spark_big")], "fast")
    assert told.value.where["pipelines"] == "orders, clicks"
