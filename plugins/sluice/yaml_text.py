"""Reads YAML of untrusted authors, within bounds: some hundred bytes can expand to gigabytes. Pure.

Anchors and aliases are allowed, for they save words; their expansion is counted. Nesting and values are bounded before
anything is composed: PyYAML composes by recursion, its parser in C crashes the process where that is too deep, and
composing takes three times as long as parsing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

DEEPEST = 60
"""Levels of lists and mappings."""
_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C, where PyYAML has it: ten times as fast


class YamlTextError(ValueError):
    """The text can't be read.

    Attributes:
        line: where, from 1; None if unknown.
    """

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True)
class Bounds:
    """The limits of a text.

    Attributes:
        characters: its length.
        values: the number of texts, lists and mappings, with aliases expanded.
    """

    characters: int
    values: int


def composed(text: str, bounds: Bounds) -> yaml.Node | None:
    """YAML's nodes, which know their lines; None of an empty text.

    Raises:
        YamlTextError: it is no YAML, or more than the bounds allow.
    """
    if len(text) > bounds.characters:
        raise YamlTextError(f"it has {len(text)} characters, and may have {bounds.characters}")
    try:
        _require_small(text, bounds.values)
        node: yaml.Node | None = yaml.compose(text, Loader=_PARSER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = str(getattr(error, "problem", None) or error)
        raise YamlTextError(problem, mark.line + 1 if mark else None) from error
    if node is not None:
        _written_out(node, {}, bounds.values)
    return node


def constructed(node: yaml.Node | None) -> Any:
    """The data of nodes.

    Raises:
        YamlTextError: a value isn't what it is written as, such as a date that doesn't exist.
    """
    if node is None:
        return None
    try:
        return yaml.constructor.SafeConstructor().construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise YamlTextError(str(getattr(error, "problem", error)), mark.line + 1 if mark else None) from error
    except Exception as error:  # its constructors raise whatever Python's types do: of dates, numbers, tags
        raise YamlTextError(f"a value can't be read: {error}", node.start_mark.line + 1) from error


def _require_small(text: str, most: int) -> None:
    """Bound depth and values before anything is composed; an alias counts as one here."""
    depth = number = 0
    for event in yaml.parse(text, Loader=_PARSER):
        number += isinstance(event, yaml.NodeEvent)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise YamlTextError(f"lists and mappings are nested more than {DEEPEST} deep", _line(event))
        if number > most:
            raise _too_many(most, _line(event))


def _line(event: yaml.Event) -> int | None:
    return event.start_mark.line + 1 if event.start_mark is not None else None


def _too_many(most: int, line: int | None) -> YamlTextError:
    return YamlTextError(f"it has more than {most} values, aliases written out", line)


def _written_out(node: yaml.Node, known: dict[int, int | None], most: int) -> int:
    """A node's number of values, expanded; `known` has the numbers of nodes met before, None for enclosing nodes."""
    if id(node) in known:
        number = known[id(node)]
        if number is None:
            raise YamlTextError("an anchor's value holds itself", node.start_mark.line + 1)
        return number
    known[id(node)] = None
    inner: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        inner = node.value
    elif isinstance(node, yaml.MappingNode):
        inner = [one for pair in node.value for one in pair]
    number = 1
    for one in inner:
        number += _written_out(one, known, most)
        if number > most:
            raise _too_many(most, node.start_mark.line + 1)
    known[id(node)] = number
    return number
