"""One line of comma-separated values by RFC 4180, read by Spark's own parser.

That parser takes a quote that isn't closed for a value up to the end, and the end of a line for a part of a value. So
a value is added at the end of each record, which has to be found as the last one of the line; and an end of line
outside of quotes makes a record a bad one.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from sluice.errors import ActionRequiredError
from sluice.identifiers import quoted
from sluice.records.csv import break_outside_quotes, rfc_4180, separator
from sluice.records.times import reading
from sluice.rows.converters import Converted, ConverterContext
from sluice.rows.converters.text import first_of, is_utf8

_CORRUPT: Final = "_sluice_corrupt"
_SEAL: Final = "_sluice_end"


class Converter:
    """A record is one line; its values are the type's fields, in their order."""

    def convert(self, records: DataFrame, data: Column, given: ConverterContext) -> Converted:
        """The line's fields, whether an end of line follows or not.

        Options are those of Spark's CSV, such as `sep`, `quote` and `timestampFormat`.
        """
        assert isinstance(given.type, StructType)
        nested = [f.name for f in given.type.fields if isinstance(f.dataType, StructType | ArrayType | MapType)]
        if nested:
            raise ActionRequiredError(
                f"A line of CSV can't hold a struct, array or map: {', '.join(nested)}.",
                next_step=f"give the source's `{given.name}.schema`, with STRING for these.",
            )
        nullable = [StructField(f.name, f.dataType, True) for f in given.type.fields]
        ends = [StructField(_SEAL, StringType()), StructField(_CORRUPT, StringType())]
        own = {**reading(rfc_4180(given.options)), "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        line = F.regexp_replace(data.cast("string"), r"(\r\n|\n|\r)\z", "")
        sealed = F.concat(line, F.lit(separator(given.options) + _SEAL))
        helper = f"_{given.name}_csv"
        # from_csv takes its schema as DDL; field names may be anything, so they are quoted.
        ddl = ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in [*nullable, *ends])
        records = records.withColumn(helper, F.from_csv(F.when(line != "", sealed), ddl, own))
        parsed = F.col(helper)
        torn = (first_of(data, "\n") >= 0) | (first_of(data, "\r") >= 0)
        torn &= line.rlike(break_outside_quotes(given.options))
        problem = F.when(~is_utf8(data), f"the {given.name} is not UTF-8").when(
            parsed.isNull() | parsed[_CORRUPT].isNotNull() | ~parsed[_SEAL].eqNullSafe(_SEAL) | torn,
            f"the {given.name} is not a line of {len(nullable)} values, or one is not of its column's type",
        )
        return Converted(records, parsed, problem)
