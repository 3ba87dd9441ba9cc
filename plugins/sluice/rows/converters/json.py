"""JSON objects, by Spark's own parser; in Connect's envelope if the option `schemas.enable` is true.

With the option `rest` a column has all fields that no other column has, each as it was written.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sluice.records.settings import REST
from sluice.rows.converters import Converted, ConverterContext
from sluice.rows.converters.connect import (
    DEFAULTS,
    OPTION,
    Payload,
    envelope_type,
    is_enveloped,
    numbers_of,
    payload_of,
    takes_defaults,
)
from sluice.rows.converters.json_checks import (
    CORRUPT,
    SEAL,
    ends_at_only_brace,
    options,
    problem_of,
    sealed,
    strange,
    unsound,
)
from sluice.rows.converters.json_texts import Texts, other_fields


class Converter:
    """A record is one JSON object; fields that the type doesn't have are passed over, or kept in the column `rest`."""

    def convert(self, records: DataFrame, data: Column, given: ConverterContext) -> Converted:
        """The object's fields; options are Spark's for JSON, and Connect's."""
        assert isinstance(given.type, StructType)
        enveloped = is_enveloped(given)
        kind = envelope_type(given) if enveloped else given.type
        rest = given.options.get(REST)
        nullable = [StructField(f.name, f.dataType, True) for f in kind.fields if f.name != rest]
        wanted = StructType([*nullable, SEAL, CORRUPT])
        helper, once = f"_{given.name}_json", F.col(f"_{given.name}_once")
        records = records.withColumn(f"_{given.name}_once", ends_at_only_brace(data))
        records = records.withColumn(helper, F.from_json(sealed(data, once), wanted, _options(given)))
        parsed = F.col(helper)
        if rest is not None:
            return _with_rest(records, data, parsed, problem_of(data, once, parsed, given), given)
        problem = F.coalesce(problem_of(data, once, parsed, given), unsound(parsed, kind, given))
        names = given.type.names
        if not enveloped:
            unknown = strange(data.cast("string"), parsed, names, given)
            records, written = _numbers_as_written(records, data, parsed, Texts(given.type), given)
            return Converted(records, written, F.coalesce(problem, unknown))
        numbers = F.col(f"_{given.name}_numbers")
        records = records.withColumn(f"_{given.name}_numbers", numbers_of(data, parsed, given.type))
        value, read = payload_of(Payload(data, parsed, given.type, takes_defaults(given), numbers))
        records = records.withColumn(f"_{given.name}_payload", value)
        lacking = F.when(parsed["payload"].isNull(), "the envelope has no payload, or its payload is null").when(
            ~read, "a DATE, TIMESTAMP or DECIMAL of the payload is not what the column or the record's schema says"
        )
        made = F.col(f"_{given.name}_payload")
        unknown = strange(F.get_json_object(data.cast("string"), "$.payload"), made, names, given)
        records, written = _numbers_as_written(records, data, made, Texts(given.type, within="payload"), given)
        return Converted(records, written, F.coalesce(problem, lacking, unknown))


def _with_rest(records: DataFrame, data: Column, parsed: Column, problem: Column, given: ConverterContext) -> Converted:
    """The object's fields, and all others in the column that the option `rest` names."""
    assert isinstance(given.type, StructType)
    rest = given.options[REST]
    known = [field for field in given.type.fields if field.name != rest]
    records, written = _numbers_as_written(records, data, parsed, Texts(StructType(known)), given)
    others = F.col(f"_{given.name}_rest")
    records = records.withColumn(
        f"_{given.name}_rest", other_fields(data, [field.name for field in known], _options(given))
    )
    made = F.struct(*((others if name == rest else written[name]).alias(name) for name in given.type.names))
    lost = F.when(others.isNull(), f"the fields of the {given.name} that no column has can't be read")
    return Converted(records, made, F.coalesce(problem, unsound(made, given.type, given), lost))


def _numbers_as_written(
    records: DataFrame, data: Column, value: Column, texts: Texts, given: ConverterContext
) -> tuple[DataFrame, Column]:
    """The records with two helper columns, and the second of these: the objects with numbers in STRINGs as written."""
    if not texts.paths:
        return records, value
    again, written = f"_{given.name}_texts", f"_{given.name}_written"
    records = records.withColumn(again, texts.read_again(data, value, _options(given)))
    return records.withColumn(written, texts.as_written(value, F.col(again))), F.col(written)


def _options(given: ConverterContext) -> dict[str, str]:
    return options({name: value for name, value in given.options.items() if name not in (OPTION, DEFAULTS, REST)})
