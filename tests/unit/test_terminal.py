"""What records and messages say reaches the operator's terminal as text."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from sluice import cli
from sluice.cli.output import Column, plain, say, show

CLI = Path(cli.__file__).parent
CLIPBOARD = "\x1b]52;c;cm0gLXJm\x07"
HOSTILE = [
    "[link=https://evil.example]here[/link]",
    '{"a": "[/x]"}',
    CLIPBOARD,
    "\x9b2J",
    "a\rb",
    "\u202egnp.exe",
    "\x7f",
]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_table_shows_a_value_as_it_is(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"what": "value", "is": value}]
    show({"facts": rows}, "facts", [Column("what"), Column("is")], as_json=False, caption=value)
    shown = capsys.readouterr().out
    assert [one for one in shown if not one.isprintable() and one != "\n"] == []
    assert shown.count(plain(value)) == 2, "the value itself is to be seen, in its cell and in the caption"
    show({"facts": rows}, "facts", [Column("what"), Column("is")], as_json=True)
    shown = capsys.readouterr().out
    assert [one for one in shown if not one.isprintable() and one != "\n"] == []
    assert json.loads(shown)["facts"] == rows


@given(st.text())
def test_what_is_printable_stays_and_nothing_else_does(text: str) -> None:
    shown = plain(text)
    assert all(one.isprintable() or one in "\n\t" for one in shown)
    if all(one.isprintable() for one in text):
        assert shown == text


def test_so_do_sentences_and_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"Aborted: {CLIPBOARD}", err=True)
    before = structlog.get_config()
    try:
        cli._log_to_stderr()
        cli._log_to_stderr()
        structlog.get_logger().warning(f"refused {CLIPBOARD}", reason=CLIPBOARD)
    finally:
        structlog.configure(**before)
    said = capsys.readouterr()
    assert "\x1b]" not in said.err + said.out
    assert "\x07" not in said.err + said.out
    assert said.err.count("\\x1b]52") == 3


def test_no_command_prints_in_another_way() -> None:
    """Texts go through `output.py`; what is JSON or YAML has escapes already."""
    found = []
    for path in CLI.glob("*.py"):
        if path.name == "output.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called, first = ast.unparse(node.func), ast.unparse(node.args[0]) if node.args else ""
                is_data = first.startswith(("json.dumps(", "json_text.dumps(")) or "text_of(" in first
                if (called == "typer.echo" and not is_data) or (
                    called.endswith((".print", ".add_row")) and not first.startswith(("cell(", "table"))
                ):
                    found.append(f"{path.name}:{node.lineno} {called}({first})")
    assert found == []
