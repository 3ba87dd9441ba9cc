"""The pipeline file's transforms on decoded records."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sluice.identifiers import quoted
from sluice.jvm.catalyst import Catalyst, Unseen, unseen, wrong_step
from sluice.records.changes import DELETED
from sluice.records.settings import Transform
from sluice.records.structs import Type, struct
from sluice.records.transforms import Step, StepError, compiled, refuse_reserved
from sluice.rows.changes import CHANGE, DELETE, SOFT_DELETE, WRITE
from sluice.rows.user_code import user_code

_MULTIPLIES = ("Generate", "Union")


class Transforms:
    """The steps in their order, in parts: a function of the user's begins one, since it must see no bad record."""

    def __init__(self, transforms: Sequence[Transform], hidden: Sequence[str], problem: str) -> None:
        """With the names of the columns that accompany rows unseen, including `problem`."""
        self._hidden = hidden
        self._problem = problem
        self.parts: list[list[tuple[int, Transform]]] = [[]]
        for number, transform in enumerate(transforms, 1):
            if transform.kind == "python" and (number > 1):
                self.parts.append([])
            self.parts[-1].append((number, transform))

    def shape(self, frame: DataFrame, part: int) -> DataFrame:
        """The rows after a part's steps.

        Raises:
            ActionRequiredError: a step doesn't fit the columns, or a function can't be used.
        """
        if not self.parts[part]:
            return frame
        catalyst = Catalyst(frame.sparkSession._jvm)
        for number, transform in self.parts[part]:
            columns = self._visible(frame)
            try:
                step = compiled(transform, columns)
                if step.function is None:
                    catalyst.columns_after(columns, step)
                frame = self._applied(frame, step)
            except StepError as error:
                raise wrong_step(number, transform, columns, str(error)) from None
            except AnalysisException as error:
                raise wrong_step(number, transform, columns, str(error).strip().splitlines()[0]) from error
        return frame

    def unseen(self, frame: DataFrame) -> Unseen:
        """The columns before the first step that no step uses; see `sluice.jvm.catalyst.unseen`."""
        steps = [transform for part in self.parts for _, transform in part]
        return unseen(frame.sparkSession._jvm, self._visible(frame), steps)

    def _visible(self, frame: DataFrame) -> Type:
        return struct(f for f in frame.schema.jsonValue()["fields"] if f["name"] not in self._hidden)

    def _applied(self, frame: DataFrame, step: Step) -> DataFrame:
        if step.function is not None:
            return self._by_function(frame, step.function)
        if step.problem is not None:
            frame = frame.withColumn(self._problem, F.coalesce(F.col(self._problem), F.expr(step.problem)))
        if step.where is not None:
            frame = self._filtered(frame, F.expr(step.where))
        if step.select is not None:
            hidden = [name for name in self._hidden if name in frame.columns]
            frame = frame.selectExpr(*step.select, *map(quoted, hidden))
        return frame

    def _filtered(self, frame: DataFrame, condition: Column) -> DataFrame:
        """Without the rows for which the condition isn't true; bad records are kept.

        A change after which it isn't true takes its row away: the table has the rows for which it is.
        """
        if CHANGE not in frame.columns:
            return frame.where(F.col(self._problem).isNotNull() | condition)
        gone = F.col(self._problem).isNull() & (F.col(CHANGE) == WRITE) & ~F.coalesce(condition, F.lit(False))
        if DELETED not in self._hidden:  # else it is the records' own, if there is one
            return frame.withColumn(CHANGE, F.when(gone, DELETE).otherwise(F.col(CHANGE)))
        frame = frame.withColumn(DELETED, gone | F.col(DELETED))
        return frame.withColumn(CHANGE, F.when(gone, SOFT_DELETE).otherwise(F.col(CHANGE)))

    def _by_function(self, frame: DataFrame, name: str) -> DataFrame:
        made = user_code(name, "function")(frame)
        if not isinstance(made, DataFrame):
            raise StepError(f"{name} returned no DataFrame, but {type(made).__name__}")
        lost = [column for column in self._hidden if column in frame.columns and column not in made.columns]
        if lost:
            raise StepError(
                f"{name} lost the columns {', '.join(lost)}, by which a row is known; let them pass through"
            )
        refuse_reserved([column for column in made.columns if column not in self._hidden])
        before, after = _nodes(frame), _nodes(made)
        if any(after.count(kind) > before.count(kind) for kind in _MULTIPLIES):
            raise StepError(f"{name} makes several rows of one (explode or union); an array can stay one column")
        return made


def _nodes(frame: DataFrame) -> list[str]:
    """The kinds of the plan's nodes."""
    found: list[str] = []
    left = [frame._jdf.queryExecution().analyzed()]
    while left:
        node = left.pop()
        found.append(str(node.nodeName()))
        children = node.children()
        left += [children.apply(i) for i in range(children.size())]
    return found
