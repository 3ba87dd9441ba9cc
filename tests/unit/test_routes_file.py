"""A pipeline file with `routes` is several pipelines, and what is wrong in it is told where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.errors import PipelineFileError
from sluice.pipeline import Pipeline, Routes, load_pipeline, load_pipelines

FILE = """\
name: shop
source:
  kafka:
    topics: events
    consumer_group: monitors
    value: {schema: "type STRING, id BIGINT, amount DOUBLE"}
transforms:
  - filter: id > 0
sink:
  hudi:
    options: {hoodie.parquet.max.file.size: 1000000}
routes:
  by: type
  otherwise: fail
  tables:
    order:
      sink: {hudi: {path: /lake/orders, schema: "id BIGINT, amount DOUBLE"}}
    payment:
      is: payment.done
      transforms:
        - drop: amount
      sink: {hudi: {path: /lake/payments, schema: id BIGINT, operation: upsert, record_key: id}}
"""


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "shop.yaml"
    file.write_text(text)
    return file


def test_each_table_is_a_pipeline(tmp_path):
    order, payment = load_pipelines(write(tmp_path, FILE))
    assert (order.name, payment.name) == ("shop.order", "shop.payment")
    assert (order.table_name, payment.table_name) == ("shop_order", "shop_payment")
    assert (order.consumer_group, payment.consumer_group) == ("monitors.order", "monitors.payment")
    assert (order.sink.hudi.operation, payment.sink.hudi.operation) == ("append", "upsert")
    assert payment.sink.hudi.options == {"hoodie.parquet.max.file.size": "1000000"}
    assert [step.kind for step in order.transforms] == ["route", "filter"]
    assert [step.kind for step in payment.transforms] == ["route", "filter", "drop"]
    takes = [p.transforms[0].route for p in (order, payment)]
    assert [(r.is_, r.others, r.otherwise) for r in takes if r] == [
        ("order", ("payment.done",), "fail"),
        ("payment.done", ("order",), "ignore"),
    ]


def test_one_of_them_has_an_address(tmp_path):
    file = write(tmp_path, FILE)
    assert load_pipeline(f"{file}#payment").name == "shop.payment"
    with pytest.raises(PipelineFileError, match=r"name one pipeline: .*shop.yaml#order, .*shop.yaml#payment"):
        load_pipeline(file)
    with pytest.raises(PipelineFileError, match="have no table refund"):
        load_pipeline(f"{file}#refund")


def test_a_table_may_set_each_key_of_a_file_but_those_that_all_share():
    keys = set(Pipeline.model_fields) - {"name", "source", "control"}
    assert Routes(by="kind", tables={"payment": dict.fromkeys(keys)}).tables["payment"].keys() == keys


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("record_key: id}}", "record_kye: id}}", 22, "payment.sink.hudi.record_kye: there is no such key"),
        ("        - drop: amount", "        - dorp: amount", 21, "routes.tables.payment.transforms.0.dorp"),
        ("  - filter: id > 0", "  - filtre: id > 0", 8, "transforms.0.filtre"),
        ("    topics: events", "    topic: events", 4, "source.kafka.topic: there is no such key"),
        ("      is: payment.done", "      is: order", 12, "two tables have the same value"),
        ("otherwise: fail", "otherwise: refund", 12, "`otherwise` is fail, ignore, or one of the tables"),
        ("      is: payment.done", "      name: x", 12, "can't set name"),
        ("  by: type\n", "", 12, "routes.by: this key is missing"),
        ("  by: type", "  bye: type", 13, "did you mean `by`"),
        ("/lake/payments", "/lake/orders", 15, "the same sink.hudi.path"),
        ('    value: {schema: "type STRING, id BIGINT, amount DOUBLE"}\n', "", 3, "source.kafka.value.schema"),
    ],
    ids=lambda value: str(value).strip()[:30],
)
def test_a_mistake_is_told_where_it_stands(tmp_path, old, new, line, says):
    assert old in FILE
    with pytest.raises(PipelineFileError) as caught:
        load_pipelines(write(tmp_path, FILE.replace(old, new)))
    assert says in str(caught.value)
    assert f"shop.yaml:{line}: " in str(caught.value) or f"line={line}" in str(caught.value)
