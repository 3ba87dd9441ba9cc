"""What tools/links.py and tools/words.py refuse in the pages."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from sluice.pipeline import load_pipelines

TOOLS = Path(__file__).parents[2] / "tools"


def tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def words() -> ModuleType:
    return tool("words")


@pytest.fixture(scope="module")
def links() -> ModuleType:
    return tool("links")


@pytest.mark.parametrize("name", ["links", "words"])
def test_the_pages_keep_to_it(name, capsys):
    assert tool(name).main() == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["Nobody reads it.", "a log of its own", "the run goes\non", "It stands there.", "Of those that\nare read"]
)
def test_a_word_of_the_list_is_refused(words, text):
    assert len(list(words.refused(f"First.\n\n{text}\n", "a.md"))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "`nobody`",
        "``a ` nobody``",
        "```\nnobody\n```",
        "    nobody",
        '"Nobody\nreads it."',
        "> nobody",
        "[page](nobody.md)",
        "a standalone cluster",
        "an outstanding commit",
    ],
)
def test_code_quotations_and_other_words_may_hold_it(words, text):
    assert list(words.refused(f"First.\n\n{text}\n\nLast.\n", "a.md")) == []


def test_the_line_is_that_of_the_file(words):
    (error,) = words.refused("a\n```\nb\n```\nthat nobody has", "a.py", first_line=10)
    assert error.startswith("a.py:14: 'nobody': ")


def test_links_lead_to_files_and_headings(links, tmp_path):
    (tmp_path / "b.md").write_text('# `sluice plan`: what\'s read\n\n## Twice\n\n## Twice\n\n<a id="here"></a>\n')
    page = tmp_path / "a.md"
    good = ["b.md", "#top-of-it", "b.md#sluice-plan-whats-read", "b.md#twice-1", "b.md#here", "https://example.org/x#y"]
    bad = ["c.md", "#nowhere", "b.md#twice-2"]
    page.write_text(
        "# Top of it\n\n" + "\n".join(f"[x]({to})" for to in [*good, *bad]) + "\n\n```\n[x](none.md)\n```\n"
    )
    assert [error.split(": ")[1] for error in links.broken(page)] == bad


def test_the_readme_is_short_and_its_pipeline_file_loads(tmp_path):
    readme = (TOOLS.parent / "README.md").read_text()
    assert len(readme.split()) <= 700
    (text,) = re.findall(r"^```yaml\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)
    file = tmp_path / "orders.yaml"
    file.write_text(text)
    assert [pipeline.name for pipeline in load_pipelines(file)] == ["orders"]


def test_the_index_names_every_page():
    docs = TOOLS.parent / "docs"
    index = (docs / "README.md").read_text()
    assert [page.name for page in sorted(docs.glob("*.md")) if page.name not in index] == []


def test_tests_and_files_that_a_page_names_are_there(links, tmp_path):
    page = tmp_path / "a.md"
    page.write_text(
        "`test_pages.py`, `tests/unit/test_pages.py`, `tools/*.py`, `speeds.py`, `test_none.py`, `tools/no.py`"
    )
    assert [error.split(": ")[1] for error in links.missing(page)] == ["test_none.py", "tools/no.py"]
