"""Checks who imports whom, and with `--draw` puts the picture of it into docs/design.md.

Rooms are in rows, from the bottom up. A room imports from rows below it and from itself, from nothing beside it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "plugins" / "sluice"
DESIGN = PROJECT / "docs" / "design.md"
BEGIN, END = "<!-- layers -->\n", "<!-- /layers -->\n"

# Rooms from the bottom up, each with its folders. What lies in the package itself, in no folder, is the base.
ROWS: tuple[dict[str, tuple[str, ...]], ...] = (
    {"base": ()},
    {"records": ("records",)},
    {"registry": ("schemas.registry",), "protocol": ("protocol",)},
    {"connectors": ("connectors",), "kafka": ("kafka",), "jvm": ("jvm",)},
    {"databases": ("databases",)},
    {"options": ("sources.*.options", "sinks.*.options")},  # what a pipeline file says of a connector, and its rules
    {"pipeline": ("pipeline",)},
    {"alerts": ("airflow.alerts",), "connect": ("connect",), "rows": ("rows",), "schemas": ("schemas",)},
    {"control": ("control",)},
    {
        "participant": ("participant",),
        "coordinator": ("coordinator",),
        "sinks": ("sinks",),
        "sources": ("sources",),
    },
    {"launch": ("participant.launch",), "testing": ("testing",)},
    {"verification": ("coordinator.verification",)},
    {"airflow": ("airflow",)},
    {"page": ("page",), "local": ("local",)},
    {"demo": ("local.demo",)},
    {"cli": ("cli",)},
)
# Words of one connector's, and the only places that may have them: no other one knows a source or a sink by name.
OWN_WORDS = {
    r"source\.kafka\b": ("sources/kafka/",),
    r"source\.jdbc\b": ("sources/jdbc/",),
    r"source\.files\b": ("sources/files/",),
    r"sink\.hudi\b": ("sinks/hudi/",),
    r"sink\.files\b": ("sinks/files/",),
    r"sink\.jdbc\b": ("sinks/jdbc/",),
    r"sink\.kafka\b": ("sinks/kafka/",),
    r"COPY_ON_WRITE|MERGE_ON_READ": ("sinks/hudi/",),
    r"HoodieDeltaWriteStat|(?:b|prevB)aseFile|cdcStats|logFiles|hoodie_partition_metadata": ("sinks/hudi/",),
    # On the wire of version 1 a committable's counts have these names.
    r"numWrites|numDeletes|totalWrite\w+": ("sinks/hudi/", "protocol/committable.py"),
}
# One decision, one place: what only these files may say, and what others use in its stead.
ONE_PLACE = {
    # Spark's defaults cut times to milliseconds and leave fields out that are null.
    r"(?:(?<![.\w])(?<!def )to_json\(|(?:F|functions)\.to_json\b|StructsToJson)": (
        ("records/json_text.py", "rows/json_text.py"),
        "use json_sql or as_json, which write values as JSON for all sinks",
    ),
    # Spark's own parser takes a time of day for one of today, and a number for a year.
    r"(?i:to_timestamp\w*\(|\bto_date\(|timestamp_(?:seconds|millis|micros)\(|date_from_unix_date\(|date_add\()": (
        (
            "records/times.py",
            "rows/times.py",
            "connect/transforms.py",  # steps of the user's
            "sinks/files/options/partitioning.py",  # from the number of a stretch
            "databases/jdbc/dialect.py",  # Oracle's own, of the sink's text
            "databases/mariadb/engine.py",  # from a number that the database was asked for
            "databases/postgresql/engine.py",
            "sources/jdbc/reader.py",
        ),
        "use of_text or of_number of records/times.py or rows/times.py, which know what it means as a time",
    ),
    r"(?<!def )\bfrom_(?:json|csv)\(": (
        (
            "rows/converters/connect.py",  # decimals, and defaults without times
            "rows/converters/csv.py",
            "rows/converters/json.py",
            "rows/converters/json_schema.py",
            "rows/converters/json_texts.py",  # with the options that json.py hands it
            "sinks/jdbc/rows.py",
        ),
        "use a converter, whose options are those of records.times.reading: by Spark's own a time of day is today's",
    ),
}
# Airflow, Spark and Kafka in the imports of a file; the rooms that may not have any.
FOREIGN = ("airflow", "pyspark", "py4j", "confluent_kafka")
PURE = ("base", "records", "protocol", "databases", "options", "pipeline", "alerts", "connect", "connectors")
# The code of a sink is found by its section (`connectors/registry.py`): a room that imports one knows no user's.
BY_SECTION = ("sinks",)
_FOLDERS = {folder: room for row in ROWS for room, folders in row.items() for folder in folders}
_HEIGHT = {room: height for height, row in enumerate(ROWS) for room in row}


def room_of(module: str) -> str | None:
    """The room of a module of ours, by the innermost folder that is one: `sources.kafka.options` is no source."""
    names = module.split(".")
    if "." not in module and not (PACKAGE / module).is_dir():
        return "base"
    inside = (".".join(names[:i]) for i in range(len(names), 0, -1))
    return next((room for name in inside for folder, room in _FOLDERS.items() if fnmatchcase(name, folder)), None)


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """The line and name of each module that a file imports, inside of functions, too."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inside = node.module == "sluice"
            yield from ((node.lineno, f"{node.module}.{name.name}" if inside else node.module) for name in node.names)


def used() -> Iterator[tuple[Path, int, str, str]]:
    """File, line, room of the file, and what it imports: a room of ours, or one of `FOREIGN`.

    A folder's `__init__.py` runs before whatever is in the folder: it imports for the rooms inside of it, too.
    """
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        own = room_of(module)
        if own is None:
            if module not in ("__init__", "sources", "sinks"):
                yield file, 1, module, "no room"
            continue
        rooms = {own, *_rooms_inside(file.parent)} if file.name == "__init__.py" else {own}
        for line, name in imports(file):
            first, _, rest = name.partition(".")
            to = room_of(rest) or "no room" if first == "sluice" else first
            if first == "sluice" or first in FOREIGN:
                yield from ((file, line, room, to) for room in rooms)


def _rooms_inside(folder: Path) -> set[str]:
    """The rooms of the folders below a folder."""
    below = (inner for inner in folder.rglob("*/") if inner != folder)
    return {room for inner in below if (room := room_of(".".join(inner.relative_to(PACKAGE).parts))) is not None}


def strange_words(file: str, text: str) -> Iterator[tuple[int, str]]:
    """Line and word where a file of the package says what only another folder may say."""
    for words, places in OWN_WORDS.items():
        if not file.startswith(places):
            for number, line in enumerate(text.splitlines(), 1):
                yield from ((number, found.group()) for found in re.finditer(rf"\b(?:{words})", line))


def second_places(file: str, text: str) -> Iterator[tuple[int, str, str]]:
    """Line, word and what to use instead, where a file of the package makes a decision that is another file's."""
    for words, (places, instead) in ONE_PLACE.items():
        if file not in places:
            for number, line in enumerate(text.splitlines(), 1):
                yield from ((number, found.group(), instead) for found in re.finditer(words, line))


def wrong(own: str, imported: str) -> bool:
    """Whether a room may not import this."""
    if imported in FOREIGN:
        return own in PURE
    if imported in BY_SECTION:
        return own not in BY_SECTION
    return imported != own and (imported not in _HEIGHT or _HEIGHT[imported] >= _HEIGHT.get(own, -1))


def picture() -> str:
    """The rooms and who imports whom, as Mermaid draws it; the base, which all import, is left out."""
    edges = sorted({(own, to) for _, _, own, to in used() if own != to and to in _HEIGHT and to != "base"})
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"    {own} --> {to}" for own, to in edges if not _through_others(own, to, edges)]
    return "\n".join([*lines, "```", ""])


def _through_others(own: str, to: str, edges: list[tuple[str, str]]) -> bool:
    """Whether a room reaches another by way of a third: the picture leaves such arrows out."""
    ahead, seen = [b for a, b in edges if a == own and b != to], {own}
    while ahead:
        room = ahead.pop()
        if room == to:
            return True
        if room not in seen:
            seen.add(room)
            ahead += [b for a, b in edges if a == room]
    return False


def main() -> int:
    """Print what is wrong, and see to the picture."""
    errors = [
        f"{file.relative_to(PROJECT)}:{line}: {own} may not import {to}"
        for file, line, own, to in used()
        if wrong(own, to)
    ]
    errors += [
        f"{file.relative_to(PROJECT)}:{line}: {word} is for its connector's own folder: ask the pipeline's options or "
        "capabilities"
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, word in strange_words(file.relative_to(PACKAGE).as_posix(), file.read_text())
    ]
    errors += [
        f"{file.relative_to(PROJECT)}:{line}: {word.rstrip('(')}: {instead}"
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, word, instead in second_places(file.relative_to(PACKAGE).as_posix(), file.read_text())
    ]
    before, begin, rest = DESIGN.read_text().partition(BEGIN)
    drawn = f"{before}{begin}\n{picture()}\n{END}{rest.partition(END)[2]}"
    if "--draw" in sys.argv:
        DESIGN.write_text(drawn)
    elif drawn != DESIGN.read_text():
        errors.append("docs/design.md: the picture is not of this code; run: python tools/layers.py --draw")
    sys.stderr.write("".join(f"{error}\n" for error in errors))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
