"""Refuses words in Markdown, docstrings and comments that hide their meaning, and names the usual ones.

Code, quotations, addresses of links, and the names of the rules that the simulation takes out may hold them.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "bench/*.md", "docker/*.md")
SOURCES = ("plugins/**/*.py", "dags/**/*.py", "spark_jobs/**/*.py")
WORDS: dict[str, str] = {
    r"nobody|no one": "no process, no reader, no user …",
    r"whoever|whomever": "the process, reader, user … that",
    r"somebody|someone": "a process, a reader, a user …",
    r"anybody|anyone": "any process, any user …",
    r"told": "said, notified, distinguished, known",
    r"stands?|stood": "is, is written, holds, means, suspended",
    r"of (?:its|their|one's|\w+'s) own": "a separate, a dedicated, its, their",
    r"(?:go|goes|going|went|gone) on": "continue, resume",
    r"those (?:that|which|who)": "the noun that is meant",
    r"that which": "the noun that is meant",
    r"(?:of|from|in|by|for|with|to|on|than|as|like) what (?:is|was|are|were|has|have|had)": "the noun that is meant",
}
"""A pattern, and what to say instead."""

_GAP = r"[ ]*[ \n][ ]*"
_PATTERNS = {
    re.compile(rf"(?<![\w-])(?:{words.replace(' ', _GAP)})(?![\w-])", re.IGNORECASE): instead
    for words, instead in WORDS.items()
}
_FENCE = re.compile(r"^([ ]*)(`{3,}|~{3,}).*?^[ ]*\2[`~]*[ ]*$", re.DOTALL | re.MULTILINE)
_MUTANTS = re.compile(r"^<!-- mutants -->$.*?^<!-- /mutants -->$", re.DOTALL | re.MULTILINE)  # named in the tests
_INDENTED = re.compile(r"(?<=\n\n)(?:(?: {4}|\t)(?![ ]*(?:[-*+]|\d+\.) ).*\n?|\n)+")
_CODE = re.compile(r"(`+)(?!`)(?:[^`]|(?!\1(?!`))`)+?\1(?!`)")
_LINK = re.compile(r"\]\([^)\s]*\)|<[^>\s]+>|https?://\S+")
_ENTRY = re.compile(r"^ +\w+: ", re.MULTILINE)  # an argument or attribute, which has its name from the code
_QUOTED_LINES = re.compile(r"^[ ]*>.*$", re.MULTILINE)
_QUOTED = re.compile(r'"(?:[^"\n]|\n(?![ ]*\n))*"|“[^”]*”')


def refused(text: str, file: str, first_line: int = 1) -> Iterator[str]:
    """Each word of a text that the list refuses, as `file:line: word: instead`.

    Args:
        text: Markdown, or a docstring.
        file: where the text is from, for the messages.
        first_line: the line of the file that the text begins at.
    """
    prose = _prose(text)
    found = (
        (match.start(), match[0], instead) for words, instead in _PATTERNS.items() for match in words.finditer(prose)
    )
    for at, word, instead in sorted(found):
        line = first_line + prose.count("\n", 0, at)
        yield f"{file}:{line}: '{' '.join(word.split())}': {instead}"


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments of Python code, each with its first line; adjacent comment lines as one text."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)) as constant):
                yield constant.lineno, _ENTRY.sub(_blank, inspect.cleandoc(text))
    block: list[str] = []
    began, column = 0, -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, at = token.start
        if block and (line, at) != (began + len(block), column):
            yield began, "\n".join(block)
            block = []
        if not block:
            began, column = line, at
        block.append(token.string.lstrip("# "))
    if block:
        yield began, "\n".join(block)


def _prose(text: str) -> str:
    for code in (_FENCE, _MUTANTS, _INDENTED, _CODE, _LINK, _QUOTED_LINES, _QUOTED):
        text = code.sub(_blank, text)
    return text


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", "·", match[0])


def main() -> int:
    """Read all pages and modules, and print every refused word."""
    pages = sorted(page for pattern in PAGES for page in PROJECT.glob(pattern))
    named = ((page, page.relative_to(PROJECT).as_posix()) for page in pages)
    errors = [error for page, name in named for error in refused(page.read_text(), name)]
    modules = sorted(module for pattern in SOURCES for module in PROJECT.glob(pattern))
    for module in modules:
        name = module.relative_to(PROJECT).as_posix()
        errors += (e for line, text in prose_of(module.read_text()) for e in refused(text, name, line))
    sys.stderr.write("".join(f"{error}\n" for error in errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
