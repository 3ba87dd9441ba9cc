"""Names as identifiers: the one place that puts a name between quotes, and takes a dotted name apart. Pure."""

from __future__ import annotations

import re
from typing import Final

_PIECES: Final = re.compile(r'"(?:[^"]|"")*"|[^".]+|\.|"')
_LAST_QUOTED: Final = re.compile(r'(?:^|[./])"(?:[^"]|"")*"$')
_PLACEHOLDERS: Final = re.compile(r"\"(?:[^\"]|\"\")*\"|'(?:[^']|'')*'|[?%]")
_CATALOG: Final = re.compile(r"[A-Za-z0-9_]{1,128}")
_RECORD: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def quoted(name: str) -> str:
    """A name in Spark SQL, whatever is in it."""
    return _between("`", name)


def sql_quoted(name: str, mark: str = '"') -> str:
    """A name in SQL as the standard has it, and each database here: MariaDB's sessions have ANSI_QUOTES.

    Args:
        name: the name.
        mark: what another database puts around names; empty for nothing.
    """
    return _between(mark, name)


def _between(mark: str, name: str) -> str:
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


def parts(text: str) -> tuple[str, ...]:
    """The names of a dotted name. Dots between double quotes belong to a name, and a quote there is written twice.

    Raises:
        ValueError: a quote isn't closed, or a name is empty.
    """
    names = [""]
    for piece in _PIECES.findall(text):
        if piece == '"':
            raise ValueError("a double quote isn't closed")
        if piece == ".":
            names.append("")
        else:
            names[-1] += piece[1:-1].replace('""', '"') if piece.startswith('"') else piece
    if not all(names):
        raise ValueError("a name between dots is empty")
    return tuple(names)


def dotted(*names: str) -> str:
    """Names with dots between, of which `parts` makes the same names: those with a dot or a quote are quoted."""
    return ".".join(sql_quoted(name) if "." in name or '"' in name else name for name in names)


def suffixed(text: str, suffix: str) -> str:
    """A dotted name or a path with more behind its last name: between the quotes if that is quoted."""
    return f'{text[:-1]}{suffix}"' if _LAST_QUOTED.search(text) else f"{text}{suffix}"


def is_record_name(name: str) -> bool:
    """Whether a schema's record or message may have this full name, such as `com.example.Flight`."""
    return _RECORD.fullmatch(name) is not None


def percent_marks(sql: str) -> str:
    """SQL with `%s` for each value, as Python's clients want it, given SQL with `?`; text between quotes stays."""

    def mark(found: re.Match[str]) -> str:
        return "%s" if found[0] == "?" else found[0].replace("%", "%%")

    return _PLACEHOLDERS.sub(mark, sql)


def catalog_name(name: str) -> str:
    """A name of a database or a table that Hive's metastore takes.

    https://github.com/apache/hive/blob/rel/release-2.3.9/metastore/src/java/org/apache/hadoop/hive/metastore/MetaStoreUtils.java

    Raises:
        ValueError: it isn't.
    """
    if not _CATALOG.fullmatch(name):
        raise ValueError(f"{name!r} is none that the metastore takes: letters from a to z, digits and _, up to 128")
    return name
