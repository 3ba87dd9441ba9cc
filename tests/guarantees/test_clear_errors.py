"""What is set up wrongly is one clear message: its class, its place, and the next step."""

from __future__ import annotations

import os

import pytest
from confluent_kafka.admin import NewTopic

from sluice.coordinator import Coordinator
from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.local.process import free_port

from .harness import Flow, kafka_settings


def _start_fails(flow: Flow, expected: type[SluiceError], message: str, **where: object) -> SluiceError:
    with pytest.raises(expected, match=message) as caught:
        flow.start()
    assert caught.value.next_step
    for name, value in where.items():
        assert caught.value.where[name] == value
    return caught.value


def test_an_unreachable_broker(make_flow, monkeypatch, shared_jvm):
    monkeypatch.setattr("sluice.control.topic.TIMEOUT", 2)
    monkeypatch.setattr("sluice.control.clients.TIMEOUT", 2)
    monkeypatch.setattr("sluice.sources.kafka.cluster.TIMEOUT", 2)
    flow = make_flow()
    nowhere = f"127.0.0.1:{free_port()}"
    with pytest.raises(RetryableError, match="did not answer") as caught:
        Coordinator(flow.pipeline, kafka_settings(nowhere), None, shared_jvm).start(flow.run())
    assert caught.value.where["bootstrap_servers"] == nowhere
    assert "brokers are up" in caught.value.next_step
    assert not flow.path.exists()


def test_a_missing_topic(make_flow):
    flow = make_flow(partitions=0)
    error = _start_fails(flow, ActionRequiredError, "does not exist", topic=flow.topic)
    assert "`source.kafka.topics`" in error.next_step


def test_a_control_topic_of_several_partitions(make_flow):
    flow = make_flow()
    flow.admin.create_topics([NewTopic(flow.control_topic, 2)])[flow.control_topic].result(30)
    _start_fails(flow, ActionRequiredError, "exactly one partition", control_topic=flow.control_topic, partitions=2)


def test_a_path_below_a_regular_file(make_flow, tmp_path):
    flow = make_flow()
    (tmp_path / "file").write_text("not a folder")
    flow.set(sink__hudi__path=str(tmp_path / "file" / "table"))
    error = _start_fails(flow, ActionRequiredError, "path can't be used", table=f"file://{tmp_path}/file/table")
    assert "sink.hudi.path" in error.next_step


def test_an_unknown_file_system(make_flow):
    flow = make_flow(sink__hudi__path="nosuch://bucket/table")
    error = _start_fails(flow, ActionRequiredError, "path can't be used", table="nosuch://bucket/table")
    assert "Hadoop settings" in error.next_step


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions don't hold root back")
def test_a_path_without_permission(make_flow, tmp_path):
    flow = make_flow()
    (tmp_path / "closed").mkdir(mode=0o500)
    flow.set(sink__hudi__path=str(tmp_path / "closed" / "table"))
    _start_fails(flow, ActionRequiredError, "No permission", table=f"file://{tmp_path}/closed/table")


@pytest.fixture
def loaded(make_flow) -> Flow:
    """A table that has rows: before its first commit, a table has no columns that a pipeline could miss."""
    flow: Flow = make_flow()
    flow.produce(4)
    flow.interval()
    flow.produce(4)
    return flow


@pytest.mark.parametrize(
    ("change", "message", "name"),
    [
        ({"sink__hudi__schema": "id STRING, v STRING, p STRING"}, "schema doesn't fit", "id"),
        ({"sink__hudi__schema": "id BIGINT, p STRING"}, "schema doesn't fit", "v"),
        ({"sink__hudi__partition_fields": "v"}, "partition fields differs", "v"),
        ({"sink__hudi__operation": "upsert", "sink__hudi__record_key": "id"}, "table type differs", "MERGE_ON_READ"),
        ({"sink__hudi__schema": "id NUMBER"}, "schema can't be understood", "NUMBER"),
    ],
)
def test_a_pipeline_that_does_not_fit_its_table(loaded, change, message, name):
    messages = loaded.messages()
    loaded.set(**change)
    error = _start_fails(loaded, ActionRequiredError, message)
    assert name in str(error)
    assert loaded.messages() == messages
    assert loaded.jvm.pending(str(loaded.path)) == []


@pytest.mark.parametrize("name", ["hoodie.metadata.enable", "hoodie.populate.meta.fields"])
def test_an_option_that_exactly_once_rests_on_is_refused_before_anything_is_opened(loaded, name):
    messages = loaded.messages()
    loaded.set(sink__hudi__options={name: False})
    step = loaded.step("start")
    assert (step.status, step.out) == (1, "")
    assert f"sink.hudi.options.{name}: must be true here" in step.err
    assert "Traceback" not in step.err
    assert loaded.messages() == messages


def test_the_command_line_says_it_in_one_message_and_no_stack_trace(make_flow):
    flow = make_flow(partitions=0)
    step = flow.step("start")
    assert step.status == 1
    assert step.out == ""
    assert "does not exist" in step.err
    assert f"topic={flow.topic}" in step.err
    assert "Next step: create the topic" in step.err
    assert "Traceback" not in step.err


def test_the_write_job_says_it_in_one_message(make_flow):
    flow = make_flow()
    flow.produce(4)
    started = flow.start()
    flow.set(control__topic="no-such-control-topic")
    job = flow.write(started)
    assert job.wait() == 1
    assert "no-such-control-topic" in job.text()
    assert "Next step:" in job.text()
    assert "Traceback" not in job.text()


def test_text_does_not_order(make_flow):
    flow = make_flow(sink__hudi__operation="upsert", sink__hudi__record_key="id", sink__hudi__ordering_field="v")
    flow.produce(2)
    with pytest.raises(ActionRequiredError, match="names a STRING") as caught:
        flow.start()
    assert "TIMESTAMP" in caught.value.next_step
    flow.set(sink__hudi__ordering_field=None)
    with pytest.raises(ActionRequiredError, match="ordering fields differs"):
        flow.start()
