"""Errors keep their class, place and next step on every way they travel."""

from __future__ import annotations

import pickle

import pytest

from sluice.errors import ActionRequiredError, IntervalError, PipelineFileError, RetryableError, from_report
from sluice.kafka.config import KafkaSettings


@pytest.mark.parametrize("kind", [RetryableError, IntervalError, ActionRequiredError, PipelineFileError])
def test_an_error_survives_the_way_between_processes(kind):
    error = kind("It broke.", next_step="mend it.", topic="t", offset=3, missing=None)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == "It broke. [topic=t, offset=3] Next step: mend it."
    assert again.where == {"topic": "t", "offset": 3}


@pytest.mark.parametrize(
    ("recovery", "kind"), [("retry", RetryableError), ("fail_run", IntervalError), ("act", ActionRequiredError)]
)
def test_a_reported_error_keeps_its_class_and_its_words(recovery, kind):
    original = kind("It broke.", next_step="mend it.", offset=3)
    again = from_report(recovery, str(original))
    assert type(again) is kind
    assert str(again) == str(original)


def test_settings_never_show_their_secrets():
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required password="hush";'
    settings = KafkaSettings("k", {"bootstrap.servers": "b:9092", "sasl.password": "hush"}, {"sasl.jaas.config": login})
    assert "hush" not in repr(settings)


def test_settings_without_brokers_are_refused():
    with pytest.raises(ActionRequiredError, match="bootstrap servers"):
        KafkaSettings("k", {})
