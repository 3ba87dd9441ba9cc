"""Checks that every link of a Markdown page within this project leads to a file, and to a heading that is there.

So must the tests and the project's files that a page names in code, such as `test_pages.py` or `tools/links.py`.
Each page of docs/ is in the site's navigation once, and in an index: docs/README.md, or that of its folder. Its
lines have 120 characters at most, except tables, code, and lines that an address makes longer.
An anchor is what GitHub makes of a heading: https://github.com/gjtorikian/html-pipeline, TableOfContentsFilter.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

PROJECT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "bench/*.md", "docker/*.md", "examples/**/*.md")
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_FILE = re.compile(r"(?:(?:tests|plugins|tools|bench|spark_jobs|examples|docker|dags)/[\w/.*-]+|test_[\w*]+)\.py")
_WIDTH = 120
_NAMED = re.compile(r"""<[a-z]+[^>]*\b(?:id|name)=["']([^"']+)["']""")


def broken(page: Path) -> Iterator[str]:
    """Each link of a page that leads nowhere, as `file:line: address: reason`."""
    for line, address in _links(page):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not target.exists():
            yield f"{page}:{line}: {address}: there is no such file"
        elif parts.fragment and target.suffix == ".md" and unquote(parts.fragment) not in anchors(target):
            yield f"{page}:{line}: {address}: there is no such heading"


def missing(page: Path) -> Iterator[str]:
    """Each test or file of the project that a page names in code and that isn't there, as `file:line: name: reason`."""
    for token in _MARKDOWN.parse(page.read_text()):
        for part in token.children or []:
            name = part.content
            if part.type == "code_inline" and _FILE.fullmatch(name):
                patterns = (name,) if "/" in name else (f"tests/**/{name}", f"bench/{name}")
                if not any(found for pattern in patterns for found in PROJECT.glob(pattern)):
                    yield f"{page}:{_line(token)}: {name}: there is no such file"


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, and the ones that HTML in it names."""
    text = page.read_text()
    tokens = _MARKDOWN.parse(text)
    headings = [after for token, after in pairwise(tokens) if token.type == "heading_open"]
    found: set[str] = set()
    for heading in headings:
        plain = anchor = _anchor(heading)
        number = 0
        while anchor in found:
            number += 1
            anchor = f"{plain}-{number}"
        found.add(anchor)
    return frozenset(found | set(_NAMED.findall(text)))


def _anchor(heading: Token) -> str:
    said = "".join(part.content for part in heading.children or [] if part.type in ("text", "code_inline"))
    return re.sub(r"[^\w\- ]", "", said.lower()).replace(" ", "-")


def _links(page: Path) -> Iterator[tuple[int, str]]:
    for token in _MARKDOWN.parse(page.read_text()):
        for part in token.children or []:
            address = part.attrGet("href") if part.type == "link_open" else part.attrGet("src")
            if address and part.type in ("link_open", "image"):
                yield _line(token), str(address)


def _line(token: Token) -> int:
    return token.map[0] + 1 if token.map else 0


def wide(page: Path) -> Iterator[str]:
    """Each line of a page's prose that is too long, as `file:line: reason`."""
    text = page.read_text()
    lines = text.splitlines()
    for token in _MARKDOWN.parse(text):
        if token.type in ("paragraph_open", "heading_open") and token.map:
            for number in range(*token.map):
                if len(lines[number]) > _WIDTH and max(map(len, lines[number].split())) < _WIDTH:
                    yield f"{page}:{number + 1}: the line has {len(lines[number])} characters, {_WIDTH} at most"


class _Tags(yaml.SafeLoader):
    """Reads MkDocs's settings without looking up the Python names in them."""


_Tags.add_multi_constructor("tag:yaml.org,2002:python/", lambda _loader, _suffix, _node: None)


def unlisted(project: Path) -> Iterator[str]:
    """Each page that the navigation of `mkdocs.yml` or the index lacks, or that is in the navigation twice.

    Args:
        project: the folder of `mkdocs.yml` and `docs`.
    """
    docs = project / "docs"
    nav = list(_pages_of(yaml.load((project / "mkdocs.yml").read_text(), _Tags)["nav"]))
    pages = {page.relative_to(docs).as_posix(): page for page in sorted(docs.rglob("*.md"))}
    for name, page in pages.items():
        if nav.count(name) != 1:
            yield f"mkdocs.yml: {name}: it is {nav.count(name)} times in the navigation"
        indexes = {docs / "README.md", page.parent / "README.md"}
        if name != "README.md" and not any(page in _targets(index) for index in indexes if index.exists()):
            yield f"docs/README.md: {name}: the index doesn't name it"


def _pages_of(nav: object) -> Iterator[str]:
    match nav:
        case str(page):
            yield page
        case list(entries):
            for entry in entries:
                yield from _pages_of(entry)
        case dict(sections):
            for entries in sections.values():
                yield from _pages_of(entries)


@cache
def _targets(index: Path) -> frozenset[Path]:
    return frozenset((index.parent / unquote(urlsplit(address).path)).resolve() for _, address in _links(index))


def main() -> int:
    """Read all pages, and print what is wrong with them."""
    pages = sorted({page for pattern in PAGES for page in PROJECT.glob(pattern)})
    errors = [error.removeprefix(f"{PROJECT}/") for page in pages for error in (*broken(page), *missing(page))]
    for page in sorted((PROJECT / "docs").rglob("*.md")):
        errors += [error.removeprefix(f"{PROJECT}/") for error in wide(page)]
    errors += unlisted(PROJECT)
    sys.stderr.write("".join(f"{error}\n" for error in errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
