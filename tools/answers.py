"""Checks that docs/guarantees/errors.md has each connector's table of answers; with `--draw` writes them there."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sluice.answers import MEANINGS, Answer
from sluice.databases.dialect import STATES, Kind
from sluice.databases.kinds import KINDS
from sluice.kafka.failures import ANSWERS as KAFKA
from sluice.sinks.hudi.glue import ANSWERS as GLUE
from sluice.sinks.kafka.failures import ANSWERS as KAFKA_SINK
from sluice.storages import HADOOP, S3

PAGE = Path(__file__).parents[1] / "docs" / "guarantees" / "errors.md"
BEGIN, END = "<!-- answers -->\n", "<!-- /answers -->\n"
_OF_A_DATABASE: Mapping[Kind, str] = {
    "passing": f"{MEANINGS['retry']}: no answer, a lock, no room, read-only after a failover",
    "login": f"{MEANINGS['act']}: log-in, database or certificate",
    "refused": f"{MEANINGS['act']}: rights",
    "data": f"{MEANINGS['record']}: constraints, values that a type doesn't hold",
    "other": f"{MEANINGS['act']}: a table, column or statement that isn't right",
}


def _signs(signs: Iterable[object]) -> str:
    return ", ".join(f"`{sign}`" for sign in signs)


def _rows(title: str, table: Iterable[Answer]) -> Iterator[str]:
    yield from (f"**{title}**", "", "| answer | what is done | error |", "|---|---|---|")
    for row in table:
        yield f"| {_signs(row.signs)} | {MEANINGS[row.means]} | {row.what} |"
    yield ""


def tables() -> str:
    """The tables, as the page has them."""
    lines = [
        *_rows("Kafka: source, control topic, sink", KAFKA),
        *_rows("Kafka, of records that the sink sends; these rows come first", KAFKA_SINK),
        *_rows("S3, by S3A and by botocore; these rows come before those of Hadoop", S3),
        *_rows("HDFS and Hadoop's other file systems", HADOOP),
        *_rows("Glue's catalog, which is looked at before a table's first interval", GLUE),
        *("**Databases: JDBC source and sink, by the database's number, else by SQLSTATE**", ""),
        *("| what is done | SQLSTATE begins with |", "|---|---|"),
        *(f"| {_OF_A_DATABASE[kind]} | {_signs(states)} |" for kind, states in STATES.items()),
        *("", "A driver's error over the server's certificate is one of the log-in.", ""),
    ]
    for one in (one.dialect for one in KINDS.values() if one.dialect.codes):
        lines += [f"**{one.name}, by number**", "", "| what is done | number |", "|---|---|"]
        lines += [f"| {_OF_A_DATABASE[kind]} | {_signs(codes)} |" for kind, codes in one.codes.items()]
        lines += [f"| {_OF_A_DATABASE[kind]} | the driver's {_signs(signs)} |" for kind, signs in one.signs.items()]
        lines += [""]
    return "\n".join(lines)


def main() -> int:
    """Compare, or with `--draw` write."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    wanted = f"{before}{BEGIN}\n{tables()}\n{END}{after}"
    if "--draw" in sys.argv[1:]:
        PAGE.write_text(wanted)
    elif wanted != text:
        sys.stderr.write("docs/guarantees/errors.md hasn't the code's tables; run: python tools/answers.py --draw\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
