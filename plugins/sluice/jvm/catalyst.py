"""Catalyst, Spark's analyzer, without a Spark session: checks a pipeline file's expressions before a job.

It takes milliseconds in the coordinator's JVM, so a mistake in a pipeline file is found when an interval is planned, or
by `sluice validate`, and not in every write job.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from sluice.errors import ActionRequiredError
from sluice.records.settings import Transform
from sluice.records.structs import Type, in_words, names
from sluice.records.transforms import Step, StepError, compiled, refuse_reserved

_ONE_TO_ONE = ("Project", "Filter", "LocalRelation")


@dataclass(frozen=True)
class Shaped:
    """What steps come to: the columns after them, None where a function of the user's makes them.

    Attributes:
        columns: as Spark's JSON.
        checked: how many steps could be looked at.
    """

    columns: Type | None
    checked: int


@dataclass(frozen=True)
class Unseen:
    """The columns that no step uses, by their fate.

    Attributes:
        kept: they are there after all steps, under their own names.
        dropped: a step leaves them out.
    """

    kept: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()


class Catalyst:
    """Spark's analyzer with its built-in functions."""

    def __init__(self, jvm: Any) -> None:
        """With a JVM's view by Py4J that has Spark on its class path."""
        self._catalyst = jvm.org.apache.spark.sql.catalyst
        self._jvm = jvm
        analysis = self._catalyst.analysis
        catalog = self._catalyst.catalog.SessionCatalog(
            self._catalyst.catalog.InMemoryCatalog(
                jvm.org.apache.spark.SparkConf(False), jvm.org.apache.hadoop.conf.Configuration(False)
            ),
            analysis.FunctionRegistry.builtin(),
            analysis.TableFunctionRegistry.builtin(),
            jvm.org.apache.spark.sql.internal.SQLConf.get(),
        )
        fake = _object(analysis, "FakeV2SessionCatalog")
        self._analyzer = analysis.Analyzer(jvm.org.apache.spark.sql.connector.catalog.CatalogManager(fake, catalog))
        self._parser = _object(self._catalyst.parser, "CatalystSqlParser")

    def columns_after(self, columns: Type, step: Step) -> Type:
        """The columns after a step in SQL.

        Raises:
            StepError: an expression isn't SQL, names what isn't there, or would not give the same row each time.
        """
        plan = self._relation(columns)
        self._conditions(step, plan)
        if step.select is None:
            return columns
        after: Type = json.loads(self._selected(step.select, plan)[0].schema().json())
        refuse_reserved(names(after))
        return after

    def unseen(self, columns: Type, step: Step) -> Unseen:
        """The columns that a step in SQL hands on as they are, or leaves out without a look at their values.

        The analyzed plan says so, whatever the step's text is: `*`, another spelling or a computed name.

        Raises:
            StepError: as `columns_after`.
        """
        plan = self._relation(columns)
        known = {int(one.exprId().id()): str(one.name()) for one in _each(plan.output())}
        nodes = self._conditions(step, plan)
        passed = set(known.values())
        if step.select is not None:
            selected = self._selected(step.select, plan)
            nodes += selected
            passed = {
                known[int(one.exprId().id())]
                for one in _each(selected[0].projectList())
                if _is_attribute(one) and int(one.exprId().id()) in known
            }
        looked_at: set[str] = set()
        for node in nodes:
            looked_at |= {known[number] for number in _references(node) if number in known}
        return Unseen(frozenset(passed - looked_at), frozenset(set(known.values()) - passed - looked_at))

    def _conditions(self, step: Step, plan: Any) -> list[Any]:
        """The analyzed nodes of a step's conditions."""
        nodes: list[Any] = []
        for wanted in (step.where, step.problem):
            if wanted is not None:
                condition = wanted if wanted is step.where else f"({wanted}) IS NULL"
                nodes += self._analyzed(self._catalyst.plans.logical.Filter(self._parsed(condition), plan))
        return nodes

    def _selected(self, expressions: Sequence[str], plan: Any) -> list[Any]:
        return self._analyzed(self._catalyst.plans.logical.Project(self._named(expressions), plan))

    def _relation(self, columns: Type) -> Any:
        kind = self._jvm.org.apache.spark.sql.types.DataType.fromJson(json.dumps(columns))
        attributes = _object(self._catalyst.types, "DataTypeUtils").toAttributes(kind)
        nothing = _object(self._jvm.scala.collection.immutable, "Nil")
        return self._catalyst.plans.logical.LocalRelation(attributes, nothing, False)

    def _named(self, expressions: Sequence[str]) -> Any:
        found = self._jvm.java.util.ArrayList()
        no_name = _object(self._jvm.scala, "None")
        for expression in expressions:
            parsed = self._parsed(expression)
            if str(parsed.getClass().getSimpleName()) not in ("Alias", "MultiAlias", "UnresolvedStar"):
                parsed = self._catalyst.analysis.UnresolvedAlias(parsed, no_name)
            found.add(parsed)
        return self._jvm.scala.collection.JavaConverters.asScalaBuffer(found).toList()

    def _parsed(self, expression: str) -> Any:
        try:
            return self._parser.parseExpression(expression)
        except Py4JJavaError as error:
            raise StepError(f"`{expression.strip()}` is not Spark SQL: {_reason(error)}") from error

    def _analyzed(self, plan: Any) -> list[Any]:
        """The nodes of the analyzed plan, the outermost first, without the relation."""
        tracker = self._catalyst.QueryPlanningTracker(_object(self._jvm.scala, "None"))
        try:
            analyzed = self._analyzer.executeAndCheck(plan, tracker)
        except Py4JJavaError as error:
            raise StepError(_reason(error)) from error
        patterns = self._catalyst.trees.TreePattern
        if analyzed.containsPattern(patterns.PLAN_EXPRESSION()):
            raise StepError("a query inside an expression would read something else than the record")
        if not analyzed.deterministic() or analyzed.containsPattern(patterns.CURRENT_LIKE()):
            raise StepError(
                "an expression has another value each time (rand, uuid, current_timestamp and the like), and an "
                "attempt that is repeated must make the same rows; a record's own time is `columns: {name: timestamp}`"
            )
        nodes, node = [], analyzed
        while str(node.nodeName()) != "LocalRelation":
            if str(node.nodeName()) not in _ONE_TO_ONE:
                raise StepError("aggregates, window functions and explode don't make one row of one record")
            nodes.append(node)
            node = node.children().apply(0)
        return nodes


def shaped(jvm: Any, columns: Type, transforms: Sequence[Transform]) -> Shaped:
    """The columns after each step, as far as they are known: up to the first function of the user's.

    Raises:
        ActionRequiredError: a step is wrong; it is named by number and key, with the columns before it.
    """
    if not transforms:
        return Shaped(columns, 0)
    catalyst = Catalyst(jvm)
    for number, transform in enumerate(transforms, 1):
        if transform.kind == "python":
            return Shaped(None, number - 1)
        try:
            columns = catalyst.columns_after(columns, compiled(transform, columns))
        except StepError as error:
            raise wrong_step(number, transform, columns, str(error)) from None
    return Shaped(columns, len(transforms))


def unseen(jvm: Any, columns: Type, transforms: Sequence[Transform]) -> Unseen:
    """The columns that no step uses; a function of the user's may use all of its input.

    Raises:
        ActionRequiredError: as `shaped`.
    """
    given = {name.lower(): name for name in names(columns)}  # a step may write a name in other letters
    left, dropped = frozenset(given), frozenset[str]()
    catalyst = Catalyst(jvm) if transforms else None
    for number, transform in enumerate(transforms, 1):
        if catalyst is None or transform.kind == "python":
            return Unseen(frozenset(), frozenset(given[name] for name in dropped))
        try:
            step = compiled(transform, columns)
            found = catalyst.unseen(columns, step)
            columns = catalyst.columns_after(columns, step)
        except StepError as error:
            raise wrong_step(number, transform, columns, str(error)) from None
        kept, gone = ({name.lower() for name in part} for part in (found.kept, found.dropped))
        left, dropped = left & kept, dropped | (left & gone)
    return Unseen(*(frozenset(given[name] for name in part) for part in (left, dropped)))


def wrong_step(number: int, transform: Transform, columns: Type, reason: str) -> ActionRequiredError:
    """The error of a step that is wrong."""
    kind = transform.kind.rstrip("_")
    return ActionRequiredError(
        f"Step {number} of `transforms` (`{kind}`) is wrong: {reason}.",
        next_step=f"correct transforms[{number}].{kind}; before it there are the columns "
        + ", ".join(f"{f['name']} {in_words(f['type'])}" for f in columns["fields"])
        + ".",
        key=f"transforms.{number - 1}.{kind}",
    )


def _each(found: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    return (found.apply(i) for i in range(found.size()))


def _is_attribute(expression: Any) -> bool:
    return str(expression.getClass().getSimpleName()) == "AttributeReference"


def _references(node: Any) -> Iterator[int]:
    """The ids of the attributes that a projection or filter computes with, rather than hands on."""
    if str(node.nodeName()) == "Filter":
        expressions = [node.condition()]
    else:
        expressions = [one for one in _each(node.projectList()) if not _is_attribute(one)]
    return (int(one.exprId().id()) for expression in expressions for one in _each(expression.references().toSeq()))


def _object(package: Any, name: str) -> Any:
    """A Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _reason(error: Py4JJavaError) -> str:
    said = error.java_exception.getMessage()
    if said is None:  # looking up a function that isn't built in would need a catalog, and there is none
        return "it calls a function that Spark doesn't have"
    lines = [line.strip() for line in str(said).strip().splitlines()]
    return lines[0].rstrip(".;")[:500]
