"""One line of comma-separated values by RFC 4180, read by Spark's own parser.

That parser takes a quote that isn't closed for a value up to the end, and the end of a line for a part of a value. So
a value is added at the end of each record, which has to be found as the last one of the line; and an end of line
outside of quotes makes a record a bad one. U+FFFF, which is no character, means the end of the input there: the rest of
such a record would be left out, and the next record would be read from its middle. A number beyond the range of a FLOAT
or DOUBLE would be infinite.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from sluice.errors import ActionRequiredError
from sluice.identifiers import quoted
from sluice.records.csv import break_outside_quotes, rfc_4180, separator
from sluice.records.times import reading
from sluice.rows.converters import Converted, ConverterContext
from sluice.rows.converters.text import first_of, is_utf8

_CORRUPT: Final = "_sluice_corrupt"
_SEAL: Final = "_sluice_end"
_END: Final = "\uffff"
_UNFIT: Final = (ArrayType, BinaryType, MapType, StructType)
_INFINITE: Final = r"^[+-]?(Inf|Infinity)$"


class Converter:
    """A record is one line; its values are the type's fields, in their order."""

    def convert(self, records: DataFrame, data: Column, given: ConverterContext) -> Converted:
        """The line's fields, whether an end of line follows or not.

        Options are those of Spark's CSV, such as `sep`, `quote` and `timestampFormat`.
        """
        assert isinstance(given.type, StructType)
        unfit = [f.name for f in given.type.fields if isinstance(f.dataType, _UNFIT)]
        if unfit:
            raise ActionRequiredError(
                f"A line of CSV can hold neither a struct, array or map nor bytes: {', '.join(unfit)}.",
                next_step=f"give the source's `{given.name}.schema`, with STRING for these.",
            )
        nullable = [StructField(f.name, f.dataType, True) for f in given.type.fields]
        ends = [StructField(_SEAL, StringType()), StructField(_CORRUPT, StringType())]
        own = {**reading(rfc_4180(given.options)), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        line = F.regexp_replace(data.cast("string"), r"(\r\n|\n|\r)\z", "")
        sealed = F.concat(line, F.lit(separator(given.options) + _SEAL))
        helper = f"_{given.name}_csv"
        ended = data.cast("string").contains(_END)
        readable = F.when((line != "") & ~ended, sealed)
        records = records.withColumn(helper, F.from_csv(readable, _ddl([*nullable, *ends]), own))
        parsed = F.col(helper)
        floats = [f.name for f in nullable if isinstance(f.dataType, FloatType | DoubleType)]
        beyond = F.lit(False)
        if floats:
            infinite = reduce(lambda one, other: one | other, (_is_infinite(parsed[name]) for name in floats))
            texts = [StructField(f.name, StringType()) for f in nullable]
            records = records.withColumn(f"{helper}_texts", F.from_csv(F.when(infinite, readable), _ddl(texts), own))
            beyond = _beyond(parsed, F.col(f"{helper}_texts"), floats, own)
        torn = (first_of(data, "\n") >= 0) | (first_of(data, "\r") >= 0)
        torn &= line.rlike(break_outside_quotes(given.options))
        problem = F.when(~is_utf8(data), f"the {given.name} is not UTF-8")
        problem = problem.when(ended, f"the {given.name} has U+FFFF, which is no character")
        problem = problem.when(
            parsed.isNull() | parsed[_CORRUPT].isNotNull() | ~parsed[_SEAL].eqNullSafe(_SEAL) | torn,
            f"the {given.name} is not a line of {len(nullable)} values, or one is not of its column's type",
        )
        words = f"the {given.name} has a number beyond the range of its column's type"
        return Converted(records, parsed, problem.when(beyond, words))


def _ddl(fields: list[StructField]) -> str:
    """from_csv takes its schema as DDL; field names may be anything, so they are quoted."""
    return ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in fields)


def _is_infinite(value: Column) -> Column:
    return F.coalesce(F.abs(value) == F.lit(float("inf")), F.lit(False))


def _beyond(parsed: Column, texts: Column, floats: list[str], own: Mapping[str, str]) -> Column:
    """Whether a number is infinite, and its text isn't infinity's by the user's options or by a name known to Java."""
    named = {name.lower(): value for name, value in own.items()}
    said = [named[option] for option in ("positiveinf", "negativeinf") if option in named]
    wrong = [_is_infinite(parsed[name]) & ~(texts[name].rlike(_INFINITE) | texts[name].isin(*said)) for name in floats]
    return F.coalesce(reduce(lambda one, other: one | other, wrong), F.lit(False))
