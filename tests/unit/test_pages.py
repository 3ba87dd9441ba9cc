"""What tools/links.py and tools/words.py refuse in the pages."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from sluice.pipeline import Hudi, Pipeline, load_pipelines

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


def test_the_reference_names_every_key_of_a_pipeline_file():
    # Other pages of the reference have these.
    elsewhere = {"Encoder", "FilesOfFolder", "JdbcTables", "KafkaTopic", "Metadata", "TableBeside", "TopicSettings"}
    whole = Pipeline.model_json_schema(by_alias=True)
    sections = {"the top level": whole, "sink.hudi": Hudi.model_json_schema(by_alias=True)} | whole["$defs"]
    reference = (TOOLS.parent / "docs" / "pipeline.md").read_text()
    named = {key for code in re.findall(r"`([^`]+)`", reference) for key in re.split(r"\W+", code)}
    missing = {
        f"{section}: {key}"
        for section, schema in sections.items()
        if section not in elsewhere
        for key in schema.get("properties", {})
        if key not in named
    }
    assert not missing


def test_each_page_is_in_the_navigation_once_and_in_an_index(links, tmp_path):
    docs = tmp_path / "docs"
    (docs / "folder").mkdir(parents=True)
    for name in ("a.md", "twice.md", "lost.md", "folder/README.md", "folder/b.md", "folder/unnamed.md"):
        (docs / name).write_text("# A page\n")
    (docs / "README.md").write_text("[a](a.md#top) [twice](twice.md) [folder](folder/README.md)\n\n`lost.md`\n")
    (docs / "folder" / "README.md").write_text("[b](b.md)\n")
    (tmp_path / "mkdocs.yml").write_text(
        "x: !!python/name:a.b\nnav: [README.md, {A: a.md}, {B: [twice.md, {C: twice.md}, folder/README.md, "
        "folder/b.md, folder/unnamed.md]}]\n"
    )
    assert [error.split(": ", 1)[1] for error in links.unlisted(tmp_path)] == [
        "folder/unnamed.md: the index doesn't name it",
        "lost.md: it is 0 times in the navigation",
        "lost.md: the index doesn't name it",
        "twice.md: it is 2 times in the navigation",
    ]


def test_a_line_of_prose_has_120_characters_at_most(links, tmp_path):
    page = tmp_path / "a.md"
    long = "word " * 25
    page.write_text(f"# A\n\n{long}\n\n- {long}\n\n| {long} |\n|---|\n\n    {long}\n\n[x](https://{'x' * 130}/)\n")
    assert [error.split(":")[1] for error in links.wide(page)] == ["3", "5"]


@pytest.fixture(scope="module")
def site() -> ModuleType:
    return tool("docs_site")


@pytest.mark.parametrize(
    ("github", "python_markdown"),
    [
        ("1. a\n\n   b\n2. c\n", "1. a\n\n    b\n\n2. c\n"),
        ("- a\n  b\n- c\n", "- a\n    b\n- c\n"),
        ("1. a\n   - b\n\n         code\n", "1. a\n    - b\n\n            code\n"),
        ("1. a:\n   ```sh\n   x\n\n     y\n   ```\n2. b\n", "1. a:\n\n    ```sh\n    x\n\n      y\n    ```\n\n2. b\n"),
        ("text:\n- a\n", "text:\n\n- a\n"),
        ("text\n\n    - code\n", "text\n\n    - code\n"),
    ],
)
def test_lists_are_indented_as_python_markdown_reads_them(site, github, python_markdown):
    assert site.for_python_markdown(github) == python_markdown


def test_links_out_of_docs_lead_to_places_on_the_site(site):
    page = "guarantees/README.md"
    assert site.relinked("[c](../../CONTRIBUTING.md#tests)", page) == "[c](../project/CONTRIBUTING.md#tests)"
    assert site.relinked("[d](../design.md#a)", page) == "[d](../design.md#a)"
    assert site.relinked("[x](https://example.org/)", page) == "[x](https://example.org/)"
    assert site.relinked("[n](../nowhere.md)", page) == "[n](../nowhere.md)"  # MkDocs reports it
    assert site.relinked("[d](docs/design.md)", "project/CONTRIBUTING.md") == "[d](../design.md)"
    assert site.relinked("[t](tests/guarantees)", "project/CONTRIBUTING.md") == "t"


def test_the_environments_of_site_and_project_are_apart():
    """`make install` takes none of the site's packages."""
    assert "mkdocs" not in (TOOLS.parent / "requirements.lock").read_text()
    assert "mkdocs-material==" in (TOOLS.parent / "docs" / "requirements.lock").read_text()


def test_tests_and_files_that_a_page_names_are_there(links, tmp_path):
    page = tmp_path / "a.md"
    page.write_text(
        "`test_pages.py`, `tests/unit/test_pages.py`, `tools/*.py`, `speeds.py`, `test_none.py`, `tools/no.py`"
    )
    assert [error.split(": ")[1] for error in links.missing(page)] == ["test_none.py", "tools/no.py"]
