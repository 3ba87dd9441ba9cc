"""One line of comma-separated values, by Spark's own parser."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

from sluice.errors import ActionRequiredError
from sluice.rows.converters import Converted, ConverterContext
from sluice.rows.converters.text import is_utf8

_CORRUPT: Final = "_sluice_corrupt"


class Converter:
    """A record is one line; its values are the type's fields, in their order."""

    def convert(self, records: DataFrame, data: Column, given: ConverterContext) -> Converted:
        """The line's fields; options are those of Spark's CSV, such as `sep`, `quote` and `timestampFormat`."""
        assert isinstance(given.type, StructType)
        nested = [f.name for f in given.type.fields if isinstance(f.dataType, StructType | ArrayType | MapType)]
        if nested:
            raise ActionRequiredError(
                f"A line of CSV can't hold a struct, array or map: {', '.join(nested)}.",
                next_step=f"give the source's `{given.name}.schema`, with STRING for these.",
            )
        nullable = [StructField(f.name, f.dataType, True) for f in given.type.fields]
        wanted = StructType([*nullable, StructField(_CORRUPT, StringType())])
        options = {**given.options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
        helper = f"_{given.name}_csv"
        # from_csv takes its schema as DDL; field names may be anything, so they are quoted.
        ddl = ", ".join(f"`{f.name.replace('`', '``')}` {f.dataType.simpleString()}" for f in wanted.fields)
        records = records.withColumn(helper, F.from_csv(data.cast("string"), ddl, options))
        parsed = F.col(helper)
        problem = F.when(~is_utf8(data), f"the {given.name} is not UTF-8").when(
            parsed.isNull() | parsed[_CORRUPT].isNotNull(),
            f"the {given.name} is not a line of {len(nullable)} values, or one is not of its column's type",
        )
        return Converted(records, parsed, problem)
