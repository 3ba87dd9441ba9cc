"""Which small changes the core's sources allow: cosmic-ray's operators, and two that it doesn't have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator
from parso.python.tree import Name

CORE = (
    "protocol/*.py",
    "coordinator/*.py",
    "control/*.py",
    "participant/*.py",
    "sinks/*/log.py",
    "sinks/*/commits.py",
    "sinks/hudi/timeline.py",
    "sinks/hudi/completions.py",
    "sinks/hudi/write_stats.py",
)

# Without those that almost any call notices, since another type results, such as `+` to `**`.
_FROM_COSMIC_RAY = (
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is")),
    *(f"ReplaceComparisonOperator_{pair}" for pair in ("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("Add_Sub", "Sub_Add", "Mul_FloorDiv", "FloorDiv_Mul")),
    *(f"ReplaceBinaryOperator_{pair}" for pair in ("BitOr_BitAnd", "BitAnd_BitOr")),
    *(f"ReplaceUnaryOperator_Delete_{one}" for one in ("Not", "USub")),
    *("AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr", "ReplaceOrWithAnd"),
    *("ReplaceBreakWithContinue", "ReplaceContinueWithBreak"),
    *("ExceptionReplacer", "NumberReplacer", "ZeroIterationForLoop"),
)
_WORDS = ("info", "warning", "error", "exception", "debug")  # methods of a logger


class RemoveStatement(Operator):
    """Takes out a call, a raise, or an assignment to an attribute or an element."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "simple_stmt" and self._has_an_effect(node.children[0]):
            yield node.children[0].start_pos, node.children[0].end_pos

    @staticmethod
    def _has_an_effect(statement: Any) -> bool:
        if statement.type == "expr_stmt":
            return statement.children[0].type == "atom_expr" and statement.children[1].type != "annassign"
        return statement.type in ("atom_expr", "raise_stmt") or statement == "raise"

    def mutate(self, node: Any, index: int) -> Any:
        node.children[0] = Name("pass", node.start_pos, node.get_first_leaf().prefix)
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


class InvertMembership(Operator):
    """Makes `in` of `not in`, and the other way round."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "comparison":
            for child in node.children[1::2]:
                if child.get_code().split() in (["in"], ["not", "in"]):
                    yield child.start_pos, child.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        places = [at for at in range(1, len(node.children), 2) if "in" in node.children[at].get_code().split()]
        now = " in" if "not" in node.children[places[index]].get_code() else " not in"
        node.children[places[index]] = parso.parse(now)
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


def _operators() -> Iterator[Operator]:
    yield from (get_operator(f"core/{name}")() for name in _FROM_COSMIC_RAY)
    yield RemoveStatement()
    yield InvertMembership()


@dataclass(frozen=True)
class Place:
    """Where an operator can change a file, and which code that is in.

    Attributes:
        module: path of the file within `plugins/sluice`.
        function: the qualified name of what it is in, or empty at the module's top.
        first: the first line of the function, decorators included; None outside of functions.
    """

    module: str
    operator: Operator
    occurrence: int
    line: int
    function: str
    first: int | None


@dataclass(frozen=True)
class Change:
    """What becomes of a file at a place.

    Attributes:
        was: the statements that change, on one line.
        now: what they are then.
        code: the whole file with the change.
    """

    place: Place
    was: str
    now: str
    code: str

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What stays when other lines of the file change."""
        return self.place.module, self.place.function, self.was, self.now


def places(root: Path) -> Iterator[Place]:
    """All places of the core's sources under `plugins/sluice`, in an order that depends on the sources alone."""
    for file in sorted({file for pattern in CORE for file in root.glob(pattern)}):
        nodes = list(ast_nodes(get_ast(file.read_text())))
        for operator in _operators():
            found = ((node, start) for node in nodes for start, _ in operator.mutation_positions(node))
            for occurrence, (node, start) in enumerate(found):
                if not _is_left_out(node, operator):
                    yield Place(file.relative_to(root).as_posix(), operator, occurrence, start[0], *_where(node))


def change(root: Path, place: Place) -> Change | None:
    """What the operator makes of the file; None if that is the same, or no Python."""
    source = (root / place.module).read_text()
    code = mutate_code(source, place.operator, place.occurrence)
    if code is None or code == source:
        return None
    try:
        compile(code, place.module, "exec")
    except SyntaxError:  # the star of a signature is an operator to cosmic-ray
        return None
    return Change(place, *_differing(source, code), code)


def _ancestors(node: Any) -> Iterator[Any]:
    while node is not None:
        yield node
        node = node.parent


def _is_left_out(node: Any, operator: Operator) -> bool:
    """Types, wording, and what no process runs."""
    if isinstance(operator, RemoveStatement):
        return _is_a_word(node.children[0]) or any(_is_left_out_within(one, node) for one in _ancestors(node))
    at_top = not any(one.type in ("funcdef", "lambdef") for one in _ancestors(node))
    if at_top and "Bit" in type(operator).__name__:
        return True  # a union of types
    child = node
    for one in _ancestors(node):
        if one.type == "raise_stmt" or _is_a_word(one) or _is_left_out_within(one, child):
            return True
        child = one
    return False


def _is_left_out_within(one: Any, child: Any) -> bool:
    if one.type in ("tfpdef", "assert_stmt", "decorator", "import_from", "import_name", "fstring"):
        return True
    if one.type == "annassign":
        return child is one.children[1]
    if one.type == "funcdef":
        return child is one.annotation or one.name.value in ("__repr__", "__str__")
    return one.type == "if_stmt" and "TYPE_CHECKING" in one.children[1].get_code()


def _is_a_word(node: Any) -> bool:
    """Whether it is a line of the log, or an error with its text."""
    if node.type not in ("atom_expr", "power"):
        return False
    parts = [child.get_code().strip() for child in node.children]
    if parts[0] == "reach":  # where tests kill a process; it does nothing else
        return True
    if parts[0].endswith("Error") and parts[1].startswith("("):
        return True
    return len(parts) > 2 and parts[-2].removeprefix(".") in _WORDS and "log" in parts[0].lower()


def _where(node: Any) -> tuple[str, int | None]:
    names, first = [], None
    for one in _ancestors(node):
        if one.type in ("funcdef", "classdef"):
            names.append(one.name.value)
            if one.type == "funcdef" and first is None:
                outer = one.parent
                while outer.type in ("async_stmt", "async_funcdef", "decorated"):
                    one, outer = outer, outer.parent
                first = one.start_pos[0]
    return ".".join(reversed(names)), first


def _differing(before: str, after: str) -> tuple[str, str]:
    """The lines from the first to the last that differ, in both."""
    old, new = before.splitlines(), after.splitlines()
    while old and new and old[0] == new[0]:
        old.pop(0), new.pop(0)
    while old and new and old[-1] == new[-1]:
        old.pop(), new.pop()
    return " ".join(" ".join(old).split()), " ".join(" ".join(new).split())
