"""Checks that every link of a Markdown page within this project leads to a file, and to a heading that is there.

So must the tests and the project's files that a page names in code, such as `test_pages.py` or `tools/links.py`.
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

from markdown_it import MarkdownIt
from markdown_it.token import Token

PROJECT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "bench/*.md", "docker/*.md", "examples/**/*.md")
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_FILE = re.compile(r"(?:(?:tests|plugins|tools|bench|spark_jobs|examples|docker|dags)/[\w/.*-]+|test_[\w*]+)\.py")
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
    """The anchors of a page's headings, and those that HTML in it names."""
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


def main() -> int:
    """Read all pages, and print the links that lead nowhere."""
    pages = sorted({page for pattern in PAGES for page in PROJECT.glob(pattern)})
    errors = [error.removeprefix(f"{PROJECT}/") for page in pages for error in (*broken(page), *missing(page))]
    sys.stderr.write("".join(f"{error}\n" for error in errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
