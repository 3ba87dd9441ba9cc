"""The class archives of an install: made again after a failure, and done without at last."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.local import archive
from sluice.local.archive import ArchivesMissingError, archives_in_words
from sluice.local.errors import LocalRuntimeError
from sluice.local.home import SluiceHome


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SluiceHome:
    monkeypatch.setattr(archive.runtime, "jars", lambda of: [Path(f"{of}.jar")])
    monkeypatch.setattr(archive.runtime, "local_jars", list)
    monkeypatch.setattr(archive, "class_path", lambda of, name: [Path(f"{name}.jar")])
    monkeypatch.setattr(archive, "java_home", lambda: tmp_path / "java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    return SluiceHome(tmp_path / "home")


def attempts(monkeypatch: pytest.MonkeyPatch, failing: int) -> list[SluiceHome]:
    made: list[SluiceHome] = []

    def make(home: SluiceHome) -> None:
        made.append(home)
        if len(made) <= failing:
            raise ArchivesMissingError("They ended with -6.", next_step="run it again.", detail="Assertion failed")

    monkeypatch.setattr(archive, "_make", make)
    return made


def test_two_failures_are_tried_again(home: SluiceHome, monkeypatch: pytest.MonkeyPatch) -> None:
    made = attempts(monkeypatch, failing=2)
    assert archives_in_words(home) == "made"
    assert len(made) == 3
    assert archives_in_words(home) == "there already"
    assert len(made) == 3


def test_an_install_is_whole_without_archives_and_the_next_one_tries_again(
    home: SluiceHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = attempts(monkeypatch, failing=3)
    said = archives_in_words(home)
    assert said.startswith("not made; all works without them, only slower.")
    assert "Assertion failed" in said
    assert archives_in_words(home) == "made"
    assert len(made) == 4


def test_archives_of_other_jars_are_not_taken_for_present_ones_after_a_failure(
    home: SluiceHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.create()
    (home.archive / "stamp").write_text("of an earlier release")
    attempts(monkeypatch, failing=3)
    archives_in_words(home)
    assert (home.archive / "stamp").read_text() == "not made"


def test_a_machine_without_java_is_told(home: SluiceHome, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise LocalRuntimeError("There is no Java.", next_step="install it.")

    monkeypatch.setattr(archive, "java_home", missing)
    with pytest.raises(LocalRuntimeError, match="There is no Java"):
        archives_in_words(home)
