"""The list of words of tools/words.py, in docstrings, comments and messages."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "words.py"
SOURCE = '''"""A module.

Args:
    told: an argument may have any name.
"""

NAME = "nobody"


def function() -> None:
    """Runs until somebody ends it."""
    # a comment that goes
    # on in its second line
    here = NAME  # `stands` is code, and "whoever" a quotation
'''
MESSAGES = '''"""Nobody reads docstrings here."""

ONE = "told"
TWO = (
    f"{ONE}: the table has a log "
    f"of its {ONE + ' which goes on'} own"
)
THREE = "It goes " + "on: " + ONE + " until somebody comes" + shown("a process that is told")
FOUR = call("a name", next_step=f"find the {ONE} that {ONE}"
    "stands in it")
'''


@pytest.fixture(scope="module")
def words() -> ModuleType:
    spec = importlib.util.spec_from_file_location("words", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_docstrings_and_comments_are_read_with_their_lines(words):
    found = [error for line, text in words.prose_of(SOURCE) for error in words.refused(text, "a.py", line)]
    assert [error.rpartition(": ")[0] for error in found] == ["a.py:11: 'somebody'", "a.py:12: 'goes on'"]


def test_messages_are_read_as_whole_strings(words):
    found = [error for line, text in words.messages_of(MESSAGES) for error in words.refused(text, "a.py", line)]
    assert sorted(error.rpartition(": ")[0] for error in found) == [
        "a.py:6: 'goes on'",
        "a.py:8: 'goes on'",
        "a.py:8: 'somebody'",
        "a.py:8: 'told'",
        "a.py:9: 'stands'",
    ]


def test_comments_of_settings_are_read(words):
    settings = "# what goes\n# on\nname: nobody\npath: a#told # stands\n\n# told\n"
    assert list(words.comments_of(settings)) == [(1, "what goes\non"), (4, "stands"), (6, "told")]


def test_a_word_in_a_module_is_refused(words, monkeypatch, tmp_path, capsys):
    module = tmp_path / "plugins" / "sluice" / "module.py"
    module.parent.mkdir(parents=True)
    module.write_text('"""What nobody knows."""\n')
    monkeypatch.setattr(words, "PROJECT", tmp_path)
    assert words.main() == 1
    assert capsys.readouterr().err.splitlines() == [
        "plugins/sluice/module.py:1: 'nobody': no process, no reader, no user …"
    ]


def test_names_of_rules_in_the_table_of_mutants_are_not_checked(words):
    page = "What nobody knows.\n\n<!-- mutants -->\n\n| nobody waits | 1 |\n\n<!-- /mutants -->\n\nIt stands.\n"
    found = [error.rpartition(": ")[0] for error in words.refused(page, "a.md")]
    assert found == ["a.md:1: 'nobody'", "a.md:9: 'stands'"]
