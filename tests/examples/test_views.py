"""What people are shown of the example's tables, and what they are told of what its sink doesn't have."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from sluice.cli import app
from sluice.connectors.views import CommitFacts, commit_log_of, shows_commits
from sluice.errors import ActionRequiredError

from .test_lines import Runs, append


def told(*command: str) -> str:
    """How a command is refused."""
    done = CliRunner().invoke(app, command)
    assert isinstance(done.exception, ActionRequiredError), done.output
    return str(done.exception)


def test_verify_names_the_sink_and_says_what_to_do_instead(tmp_path, pipeline):
    error = told("verify", str(tmp_path / "visits.yaml"))
    assert "sink.json_lines has nothing that reads its rows" in error
    assert "`sluice transactions` says what each interval has read and written" in error


@pytest.mark.parametrize("command", [("list",), ("explain", "a.log[0]@0"), ("redrive",)])
def test_the_quarantine_s_commands_name_the_sink_and_say_that_nothing_is_lost(tmp_path, pipeline, command):
    error = told("quarantine", command[0], str(tmp_path / "visits.yaml"), *command[1:])
    assert "sink.json_lines has none that could be read" in error
    assert "nothing is lost: a bad record stops its interval" in error


def test_its_commits_are_shown(pipeline, files, jvm):
    runs, log = Runs(pipeline, jvm), commit_log_of("json_lines", pipeline.table_id)
    assert log.read() is None
    append(files / "a.log", ["one", "two"])
    committed = runs.interval().instant
    append(files / "a.log", ["three"])
    begun = runs.coordinator().start(runs.next()).instant
    timeline = log.read()
    assert [timeline.standing(instant) for instant in (committed, begun)] == ["completed", "pending"]
    assert timeline.standing("20200101000000000") == "absent"  # not archived: there is no archive
    assert timeline.of_others([committed]) == []
    (instant,) = timeline.of_others([])
    assert instant.modified is not None
    facts = log.facts(instant)
    assert facts == CommitFacts("append", 2, facts.bytes_written, 1, 1, facts.extra)
    assert facts.bytes_written > 0
    assert "sluice.offsets" in facts.extra


def test_a_sink_that_shows_none_is_named(monkeypatch):
    from sluice_lines.options import JsonLines

    monkeypatch.setattr(JsonLines, "commit_log", "")
    assert not shows_commits("json_lines")
    assert not shows_commits("not_installed")
    with pytest.raises(ActionRequiredError, match="`json_lines` doesn't show the commits"):
        commit_log_of("json_lines", "/lake/visits")
