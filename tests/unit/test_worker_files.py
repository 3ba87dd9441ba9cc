"""Which pipelines a worker serves, and which changes of files end it for another to begin."""

from __future__ import annotations

from pathlib import Path

import pytest
from protocol_messages import INSTANT, TABLE, WRITER, start

from sluice.airflow.workers_dag import build_workers_dags, raise_worker_errors
from sluice.errors import ActionRequiredError, PipelineFileError
from sluice.participant.serving import misfit
from sluice.pipeline.load import load_pipeline
from sluice.pipeline.workers import ServedFiles, dag_of_workers, pipelines_of
from sluice.protocol.messages import FurtherTable
from sluice.protocol.transaction import TableLog
from sluice.records.plan import RecordPlan

TEXT = """
name: {name}
source: {{kafka: {{topics: {name}}}}}
sink: {{hudi: {{path: file:///lake/{name}, schema: id BIGINT}}}}
{write}
"""


def _write(folder: Path, name: str, workers: str = "", more: str = "") -> Path:
    file = folder / f"{name}.yaml"
    write = f"write: {{workers: {workers}{more}}}" if workers else ""
    file.write_text(TEXT.format(name=name, write=write))
    return file


def test_a_wrong_file_of_a_folder_stops_no_other(tmp_path):
    _write(tmp_path, "ours", "default")
    _write(tmp_path, "others", "elsewhere")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("name: wrong\nsoruce: {}\n")
    told: list[PipelineFileError] = []
    assert [p.name for p in pipelines_of([tmp_path], "default", told.append)] == ["ours"]
    assert [Path(str(error.where["file"])).name for error in told] == ["wrong.yaml"]
    with pytest.raises(PipelineFileError):
        pipelines_of([tmp_path / "ours.yaml", wrong], "default")


def test_a_group_that_nobody_names_is_told(tmp_path):
    _write(tmp_path, "others", "elsewhere")
    with pytest.raises(ActionRequiredError, match="No pipeline"):
        pipelines_of([tmp_path], "default")


def test_pipelines_that_need_two_spark_applications_are_refused(tmp_path):
    _write(tmp_path, "a", "default")
    _write(tmp_path, "b", "default", ", conf: {spark.sql.shuffle.partitions: 3}")
    with pytest.raises(ActionRequiredError, match=r"write\.conf"):
        pipelines_of([tmp_path], "default")


@pytest.mark.parametrize(
    ("change", "same"),
    [
        pytest.param(lambda folder: None, True, id="nothing"),
        pytest.param(lambda folder: _write(folder, "others", "elsewhere", ", ranges: 7"), True, id="of another group"),
        pytest.param(lambda folder: _write(folder, "new"), True, id="a new file without workers"),
        pytest.param(lambda folder: (folder / "new.yaml").write_text("naem: x"), True, id="a new file that is wrong"),
        pytest.param(lambda folder: _write(folder, "ours", "default", ", ranges: 7"), False, id="its own file"),
        pytest.param(lambda folder: _write(folder, "new", "default"), False, id="a new file of its group"),
        pytest.param(lambda folder: (folder / "ours.yaml").unlink(), False, id="its own file is gone"),
        pytest.param(lambda folder: _write(folder, "ours", "elsewhere"), False, id="its own file has left the group"),
        pytest.param(lambda folder: (folder / "ours.yaml").write_text("naem: x"), False, id="its own is wrong"),
    ],
)
def test_only_changes_of_its_own_pipelines_end_a_worker(tmp_path, change, same):
    _write(tmp_path, "ours", "default")
    _write(tmp_path, "others", "elsewhere")
    files = ServedFiles([tmp_path], "default")
    change(tmp_path)
    assert files.are_same() is same


def test_a_wrong_file_of_workers_takes_no_other_group_off_the_schedule(tmp_path):
    (tmp_path / "good.yaml").write_text("workers: 1\n")
    for number, text in enumerate((b"\xff\xfe", b"workers: 2026-02-30", b"[" * 3000, b"workers: !!bool x")):
        (tmp_path / f"wrong{number}.yaml").write_bytes(text)
    (dag,) = build_workers_dags(tmp_path, tmp_path, auto_register=False)
    assert dag.dag_id == dag_of_workers("good")
    with pytest.raises(PipelineFileError, match="wrong0"):
        raise_worker_errors(tmp_path, tmp_path)


def test_a_start_that_names_other_places_than_the_pipelines_file_is_left_alone(tmp_path):
    """Also by a worker that trusts the topic: bad records would be written there."""
    file = _write(tmp_path, "t", "default", "}\nerrors: {tolerance: all")
    pipeline = load_pipeline(file)

    def why(**more):
        log = TableLog(TABLE).extend([(0, start(INSTANT, **more))])
        return misfit(pipeline, None, None, log.transactions[INSTANT], trusting=True)

    def at(path):
        return WRITER.model_copy(update={"path": path})

    assert why() is None
    assert why(quarantine=at(f"{TABLE}_quarantine")) is None
    assert why(quarantine=at("file:///lake/others")) == "its quarantine is another than the pipeline's"
    further = FurtherTable(topics=("t",), writer=at("file:///lake/others"), records=RecordPlan())
    assert why(tables=(further,)) == "it loads a table that the pipeline doesn't"
