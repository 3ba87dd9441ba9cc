"""JSON numbers in STRINGs, as they were written.

Spark's parser copies a number that it reads as STRING by way of a DOUBLE: 1.10 becomes `1.1`, digits beyond the 17th
are lost, and 1e400 becomes `"Infinity"`. So records with such a text are parsed once more, with each number as a text;
so are records whose further fields are kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from secrets import token_hex
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

# From the end of the last number: what is before the next one outside of texts, and that number.
_NUMBER: Final = (
    r'\G((?:[^"0-9-]++|-(?![0-9])|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+)'
    r"(-?[0-9][0-9.eE+-]*+)"
)
# What a DOUBLE's text looks like, and an object or array, which may have one inside.
_OF_A_DOUBLE: Final = r"^(?:-?[0-9]+\.[0-9]+(?:E-?[0-9]+)?$|[\[{])"
_INFINITE: Final = ('"Infinity"', '"-Infinity"')


def _new_mark() -> str:
    """What numbers begin with while they are texts: new for each job, so that no record can have it."""
    return token_hex(16)


@dataclass(frozen=True)
class Texts:
    """The STRINGs of a type, and how to read their numbers as they were written.

    STRINGs in arrays and maps stay as Spark reads them.

    Attributes:
        kind: the type of the objects.
        within: the field of the record that has the object; None if the record is the object.
        mark: what numbers begin with while they are texts.
    """

    kind: StructType
    within: str | None = None
    mark: str = field(default_factory=_new_mark)

    @property
    def paths(self) -> list[tuple[str, ...]]:
        """Where the type has STRINGs: names of fields, from the outermost."""
        return list(_texts(self.kind, ()))

    def read_again(self, data: Column, value: Column, given: Mapping[str, str]) -> Column:
        """The STRINGs of records that may have a number among them, with each number as a marked text; else null.

        Args:
            data: the records, as BINARY.
            value: what Spark's parser made of their objects: structs with the fields of `kind`.
            given: the options of the parser.
        """
        marked = _marked(data, self.mark)
        some = reduce(lambda one, other: one | other, (_may_be_a_double(_at(value, path)) for path in self.paths))
        kind = _texts_alone(self.kind)
        if self.within is None:
            return F.when(some, F.from_json(marked, kind, dict(given)))
        outer = StructType([StructField(self.within, kind)])
        return F.when(some, F.from_json(marked, outer, dict(given)).getField(self.within))

    def as_written(self, value: Column, again: Column) -> Column:
        """The objects, in which each STRING has its number as the record has it.

        Args:
            value: as for `read_again`. A column: it is read for each STRING.
            again: what `read_again` made. A column, too.
        """
        return _rebuilt(value, again, self.kind, self.mark)


def other_fields(data: Column, known: Collection[str], given: Mapping[str, str]) -> Column:
    """The fields of JSON objects, as MAP<STRING, STRING>: a text as it is, any other value as JSON, null as null.

    Args:
        data: the objects, as BINARY.
        known: the fields to leave out.
        given: the options of the parser.
    """
    mark = _new_mark()
    fields = F.from_json(_marked(data, mark), "MAP<STRING, STRING>", dict(given))
    if known:
        fields = F.map_filter(fields, lambda name, _: ~name.isin(*known))
    return F.transform_values(fields, lambda _, text: F.when(text.contains(mark), _without(mark, text)).otherwise(text))


def _marked(data: Column, mark: str) -> Column:
    return F.regexp_replace(data.cast("string"), _NUMBER, f'$1"{mark}$2"')


def _without(mark: str, text: Column) -> Column:
    """The text, or the JSON in it, with its numbers as numbers again."""
    return F.regexp_replace(text, f'"?{mark}([^"]*+)"?', "$1")


def _rebuilt(value: Column, again: Column, kind: StructType, mark: str) -> Column:
    """One struct of all fields, not a change for each: plans of hundreds of columns stay flat."""
    fields = []
    for one in kind.fields:
        known = value.getField(one.name)
        if isinstance(one.dataType, StringType):
            read = again.getField(one.name)
            known = F.when(read.contains(mark) & known.isNotNull(), _without(mark, read)).otherwise(known)
        elif isinstance(one.dataType, StructType) and _has_texts(one.dataType):
            known = _rebuilt(known, again.getField(one.name), one.dataType, mark)
        fields.append(known.alias(one.name))
    return F.when(value.isNotNull(), F.struct(*fields))


def _may_be_a_double(text: Column) -> Column:
    """Never null: a condition on one column would else hide those on others."""
    number = text.contains(".") & text.rlike(_OF_A_DOUBLE)
    return F.coalesce(number | text.contains(_INFINITE[0]) | text.contains(_INFINITE[1]), F.lit(False))


def _texts(kind: StructType, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for one in kind.fields:
        path = (*at, one.name)
        if isinstance(one.dataType, StringType):
            yield path
        elif isinstance(one.dataType, StructType):
            yield from _texts(one.dataType, path)


def _texts_alone(kind: StructType) -> StructType:
    return StructType(
        [StructField(one.name, _narrowed(one.dataType)) for one in kind.fields if _has_texts(one.dataType)]
    )


def _narrowed(kind: DataType) -> DataType:
    return _texts_alone(kind) if isinstance(kind, StructType) else kind


def _has_texts(kind: DataType) -> bool:
    return isinstance(kind, StringType) or (isinstance(kind, StructType) and any(True for _ in _texts(kind, ())))


def _at(value: Column, path: tuple[str, ...]) -> Column:
    return reduce(lambda struct, name: struct.getField(name), path, value)
