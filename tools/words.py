"""Refuses words in Markdown, docstrings, comments and messages that hide their meaning, and names the usual ones.

Code, quotations, addresses of links, strings of one word, the names of the rules that the simulation takes out, and
this file may hold them.
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
PAGES = ("*.md", "docs/**/*.md", "bench/*.md", "docker/*.md", "examples/**/*.md")
SOURCES = ("plugins/**/*.py", "dags/**/*.py", "spark_jobs/**/*.py", "examples/**/*.py", "bench/*.py", "tools/*.py")
SETTINGS = ("dags/**/*.yaml", "docker-compose.yml")
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
_HASH = re.compile(r"(?:^|(?<=\s))#[ ]*")
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


def messages_of(source: str) -> Iterator[tuple[int, str]]:
    """Strings of more than one word but docstrings, each with its first line and without its line breaks.

    A string is whole: adjacent literals are one, as are strings that `+` joins, and an expression in it is a `·`.
    """
    nodes: list[ast.AST] = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        match node:
            case ast.Expr(value=ast.Constant()):
                continue
            case ast.Constant() | ast.JoinedStr() | ast.BinOp(op=ast.Add()) if (text := _literal(node)) is not None:
                if len(text.split()) > 1:
                    yield node.lineno, " ".join(text.split())
                nodes += _expressions(node)
            case _:
                nodes += ast.iter_child_nodes(node)


def comments_of(settings: str) -> Iterator[tuple[int, str]]:
    """Comments of YAML, each with its first line; adjacent lines that are comments and nothing else as one text."""
    block: list[str] = []
    for number, line in enumerate([*settings.splitlines(), ""], 1):
        code, *comment = _HASH.split(line, 1)
        if block and (code.strip() or not comment):
            yield number - len(block), "\n".join(block)
            block = []
        if comment and code.strip():
            yield number, comment[0]
        elif comment:
            block.append(comment[0])


def _literal(node: ast.AST) -> str | None:
    """The text of a string's expression; None for one without any."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_literal(part) or "·" for part in parts)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            texts = (_literal(left), _literal(right))
            return None if texts == (None, None) else "".join("·" if text is None else text for text in texts)
    return None


def _expressions(node: ast.AST) -> Iterator[ast.AST]:
    """The expressions in a string's expression that `_literal` doesn't read."""
    match node:
        case ast.JoinedStr(values=parts):
            yield from (part.value for part in parts if isinstance(part, ast.FormattedValue))
        case ast.BinOp(left=left, right=right):
            for side in (left, right):
                yield from [side] if _literal(side) is None else _expressions(side)


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
    modules = sorted({module for pattern in SOURCES for module in PROJECT.glob(pattern)} - {Path(__file__)})
    for module in modules:
        name, source = module.relative_to(PROJECT).as_posix(), module.read_text()
        texts = sorted((*prose_of(source), *messages_of(source)))
        errors += (error for line, text in texts for error in refused(text, name, line))
    for file in sorted(file for pattern in SETTINGS for file in PROJECT.glob(pattern)):
        name = file.relative_to(PROJECT).as_posix()
        errors += (e for line, text in comments_of(file.read_text()) for e in refused(text, name, line))
    sys.stderr.write("".join(f"{error}\n" for error in errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
