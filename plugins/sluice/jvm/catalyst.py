"""Catalyst, Spark's analyzer, without a Spark session: what an expression of the pipeline file comes to, before a job.

It takes milliseconds in the coordinator's JVM, so a mistake in a pipeline file is found when an interval is planned, or
by `sluice validate`, and not in every write job.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
        for wanted in (step.where, step.problem):
            if wanted is not None:
                condition = wanted if wanted is step.where else f"({wanted}) IS NULL"
                self._analyzed(self._catalyst.plans.logical.Filter(self._parsed(condition), plan))
        if step.select is None:
            return columns
        after = self._analyzed(self._catalyst.plans.logical.Project(self._named(step.select), plan))
        refuse_reserved(names(after))
        return after

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

    def _analyzed(self, plan: Any) -> Type:
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
        node = analyzed
        while str(node.nodeName()) != "LocalRelation":
            if str(node.nodeName()) not in _ONE_TO_ONE:
                raise StepError("aggregates, window functions and explode don't make one row of one record")
            node = node.children().apply(0)
        return json.loads(analyzed.schema().json())


def shaped(jvm: Any, columns: Type, transforms: Sequence[Transform]) -> Shaped:
    """What the steps make of the columns, as far as it can be told: up to the first function of the user's.

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


def _object(package: Any, name: str) -> Any:
    """A Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def _reason(error: Py4JJavaError) -> str:
    said = error.java_exception.getMessage()
    if said is None:  # what looks a function up that isn't built in asks a catalog that there is none of
        return "it calls a function that Spark doesn't have"
    lines = [line.strip() for line in str(said).strip().splitlines()]
    return lines[0].rstrip(".;")[:500]
