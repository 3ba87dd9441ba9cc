"""The values that can be a folder of a table partition, and their encoded names. SQL; pure.

A text is a folder if each of its parts, between slashes, is a name that file systems, Hadoop's paths and a table's
readers take alike. A table with `hoodie.datasource.write.partitionpath.urlencode` escapes what Hive escapes, as Hudi's
own key generators do: then a slash is part of a name, and nearly every text is a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sluice.identifiers import quoted
from sluice.records.transforms import text

URL_ENCODED: Final = "hoodie.datasource.write.partitionpath.urlencode"
HIVE_STYLE: Final = "hoodie.datasource.write.hive_style_partitioning"
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hudi's folder of an empty value: a text that is its name would share it."""
_ESCAPED: Final = "%" + "".join(chr(n) for n in (*range(1, 32), 127)) + "\"#'*/:=?\\{[]^"  # its result first
_CHARACTER: Final = r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Zs}\p{Cf}\p{Co}\p{Cn}"
"""Of a name: all but controls, separators of lines, and halves of characters."""
_RESERVED: Final = r"(?!\.{1,2}(?:/|\z))"
_OWN: Final = r"(?!\.hoodie(?:_partition_metadata)?(?:/|\z))"
_NAME: Final = rf"{_RESERVED}[{_CHARACTER}&&[^/:]]+"  # a colon in front of the first slash is a scheme, to Hadoop
_FOLDER: Final = rf"\A{_OWN}{_NAME}(?:/{_NAME})*\z"
_ENCODED_FOLDER: Final = rf"\A{_OWN}{_RESERVED}[{_CHARACTER}&&[^/:]]+\z"
_LONGEST: Final = 255  # bytes of a name, on the file systems that have a limit


def is_on(options: Mapping[str, str], name: str) -> bool:
    """Whether a table's option of that name is switched on; both are off by default."""
    return options.get(name, "false").lower() == "true"


def folder(value: str, *, encoded: bool) -> str:
    """The folder of a value.

    Args:
        value: the value, a STRING.
        encoded: whether the table encodes names.
    """
    name = value
    for character in _ESCAPED if encoded else "":
        name = f"replace({name}, {text(character)}, '%{ord(character):02X}')"
    return f"CASE WHEN {value} = '' THEN '{NO_VALUE}' ELSE {name} END"


def no_folder(column: str, options: Mapping[str, str]) -> str:
    """Whether a column's value, as STRING, can't be a folder of the table."""
    value = f"cast({quoted(column)} AS STRING)"
    encoded = is_on(options, URL_ENCODED)
    name = folder(value, encoded=encoded)
    prefix = len(f"{column}=".encode()) if is_on(options, HIVE_STYLE) else 0
    astray = f"NOT ({name} RLIKE {text(_ENCODED_FOLDER if encoded else _FOLDER)})"
    long = f"exists(split({name}, '/'), part -> octet_length(part) > {_LONGEST - prefix})"
    return f"({value} = '{NO_VALUE}' OR {astray} OR {long})"
