"""What `sluice interval` prints of an outcome, for programs."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from sluice.cli.interval import _print
from sluice.coordinator import Outcome
from sluice.protocol.standing import Standing


def test_an_outcome_is_json_with_times_and_the_figures_of_its_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    through = datetime(2026, 1, 1, tzinfo=UTC)
    _print(Outcome("empty", "Nothing to read.", valid_through=through, standing=Standing(unreachable=("west",))))
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["valid_through"]) == ("empty", "2026-01-01T00:00:00+00:00")
    assert found["standing"] == {"clusters": {}, "unreachable": ["west"], "metadata_failures": None}
