"""The hook of `mkdocs.yml`: makes of GitHub's Markdown what MkDocs reads, without a second copy of any page.

- Pages of the project that docs/ links to, such as CHANGELOG.md, become pages of the site; other files of the project
  become files of it. Links are rewritten.
- Python-Markdown wants what is inside of a list's item indented by four, and an empty line before a list or a table.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from markdown_it import MarkdownIt

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

PROJECT = Path(__file__).parents[1]
OUTSIDE = "project"
"""The site's folder for what isn't in docs/."""

_MARKDOWN = MarkdownIt("commonmark").enable("table")
_LINK = re.compile(r"\[([^\[\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_MARKER = re.compile(r"([-*+]|\d+[.)])( +)")


def on_files(files: Files, *, config: Any) -> Files:
    """Add what the pages of docs/, and the pages that are added, link to."""
    from mkdocs.structure.files import File

    seen = {file.src_uri for file in files}
    pages = [place for place in (place_of(uri) for uri in sorted(seen)) if place.suffix == ".md"]
    while pages:
        page = pages.pop()
        for target in _linked(page):
            uri = uri_of(target)
            if uri not in seen and target.is_file():
                seen.add(uri)
                files.append(File.generated(config, uri, abs_src_path=str(PROJECT / target)))
                pages += [target] if target.suffix == ".md" else []
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """A page's Markdown, as MkDocs reads it."""
    return for_python_markdown(relinked(markdown, page.file.src_uri))


def place_of(uri: str) -> Path:
    """Where the source of a page or file of the site is, from the project's folder."""
    path = PurePosixPath(uri)
    return Path(*path.parts[1:]) if path.parts[0] == OUTSIDE else Path("docs", *path.parts)


def uri_of(place: Path) -> str:
    """The site's address of a file of the project; the inverse of `place_of`."""
    inside = place.parts[0] == "docs"
    return PurePosixPath(*place.parts[1:]).as_posix() if inside else PurePosixPath(OUTSIDE, place).as_posix()


def relinked(markdown: str, uri: str) -> str:
    """The same with each link to a file of the project leading to its place on the site; a folder is named only."""

    def link(match: re.Match[str]) -> str:
        text, address, anchor = match.groups()
        target = _target(place_of(uri), address)
        if target is None:
            return text if (PROJECT / place_of(uri).parent / address).is_dir() else match[0]
        to = os.path.relpath(uri_of(target), PurePosixPath(uri).parent).replace(os.sep, "/")
        return f"[{text}]({to}{anchor or ''})"

    return _LINK.sub(link, markdown)


def _linked(page: Path) -> Iterator[Path]:
    for match in _LINK.finditer((PROJECT / page).read_text()):
        target = _target(page, match[2])
        if target is not None:
            yield target


def _target(page: Path, address: str) -> Path | None:
    """The file of the project that a page's link leads to; a folder's README.md, if it has one."""
    found = (PROJECT / page.parent / address).resolve()
    found = found / "README.md" if found.is_dir() else found
    return found.relative_to(PROJECT) if found.is_file() and PROJECT in found.parents else None


def for_python_markdown(markdown: str) -> str:
    """The same with the contents of lists indented by four, and empty lines between blocks."""
    lines = markdown.split("\n")
    indents: dict[int, tuple[int, int, bool]] = {}  # line: depth, column of the contents, whether it has the marker
    apart: set[int] = set()  # lines before which there has to be an empty one
    columns: list[int] = []
    for token in _MARKDOWN.parse(markdown):
        if token.type == "list_item_close":
            columns.pop()
        if not token.map:
            continue
        begin, end = token.map
        if token.type == "list_item_open":
            columns.append(_column(lines[begin], columns[-1] if columns else 0))
            indents |= {number: (len(columns), columns[-1], number == begin) for number in range(begin, end)}
            if "" in "\n".join(lines[begin:end]).rstrip().split("\n"):
                apart.add(end)  # an item of several blocks, to the last of which the next item would belong
        elif token.type == "fence" and columns:
            apart |= {begin, end}
        elif token.type in ("bullet_list_open", "ordered_list_open", "table_open") and not columns:
            apart.add(begin)
    made: list[str] = []
    for number, line in enumerate(lines):
        if number in apart and line.strip() and made and made[-1].strip():
            made.append("")
        made.append(_indented(line, *indents[number]) if number in indents else line)
    return "\n".join(made)


def _column(line: str, outer: int) -> int:
    """The column at which the contents of a list's item begin."""
    marker = _MARKER.search(line, outer)
    return marker.end() if marker else outer + 2


def _indented(line: str, depth: int, column: int, marked: bool) -> str:
    if not line.strip():
        return ""
    if marked:
        return " " * 4 * (depth - 1) + line.lstrip()
    return " " * 4 * depth + (line[column:] if not line[:column].strip() else line.lstrip())
