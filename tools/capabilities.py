"""Checks that docs/sinks.md says of each sink what its capabilities say; with `--draw` writes it there.

Also checks that a sink has the parts that its capabilities name, and no part that none of its pipelines has. They are
declared twice because a pipeline file is read without the sink's code.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from sluice.connectors.capabilities import SinkCapabilities
from sluice.connectors.options import SinkOptions
from sluice.connectors.registry import load
from sluice.connectors.sink import KeepsQuarantine, TellsCatalogs
from sluice.sinks.files.options import Files
from sluice.sinks.hudi.options import Hudi
from sluice.sinks.jdbc.options import Jdbc
from sluice.sinks.kafka.options import KafkaTopic

PAGE = Path(__file__).parents[1] / "docs" / "sinks.md"
BEGIN, END = "<!-- capabilities -->\n", "<!-- /capabilities -->\n"

_KEYED = {"path": "/lake/t", "schema": "id BIGINT", "operation": "upsert", "record_key": "id"}
_JDBC = {"connection": "warehouse", "table": "t", "schema": "id BIGINT"}
_UPSERTED = {"insert_mode": "upsert", "pk_mode": "record_key", "pk_fields": "id", "delete_enabled": True}
_KAFKA = {"connection": "target", "topic": "t", "staging": "/staging/t", "schema": "id BIGINT"}
SINKS: dict[str, SinkOptions] = {
    "Hudi, append": Hudi.model_validate({"path": "/lake/t", "schema": "id BIGINT"}),
    "Hudi, upsert by partition": Hudi.model_validate({**_KEYED, "key_placement": "trusted"}),
    "Hudi, upsert by hash": Hudi.model_validate(
        {**_KEYED, "key_placement": "hashed", "buckets": 4, "ordering_field": "id"}
    ),
    "JDBC, insert": Jdbc.model_validate(_JDBC),
    "JDBC, upsert": Jdbc.model_validate({**_JDBC, **_UPSERTED}),
    "Kafka": KafkaTopic.model_validate(_KAFKA),
    "Kafka, tombstones": KafkaTopic.model_validate({**_KAFKA, "tombstones": True, "key_fields": "id"}),
    "files": Files.model_validate({"path": "/lake/t", "schema": "id BIGINT"}),
}
ROWS: dict[str, Callable[[SinkCapabilities], bool | str]] = {
    "rows and offsets in one commit, each record once": lambda can: can.atomic_with_checkpoint,
    "backfill and ranges, out of their order": lambda can: not can.upsert or can.keeps_newer,
    "the last version of a key is its row": lambda can: can.upsert,
    "change data: deletes": lambda can: can.delete,
    "change data: a value that the database did not log stays": lambda can: can.keeps_unavailable,
    "records without a key beside those with one": lambda can: not can.upsert or can.keyless,
    "change data: `truncate: apply`": lambda can: can.truncate,
    "deletes of a table that is read in bulk": lambda can: can.mirrors,
    "keys may move between partitions": lambda can: can.upsert and not can.finds_keys_by_partition,
    "replay of an interval": lambda can: (
        "replaces its rows" if can.replaces_interval else can.upsert and can.keeps_newer
    ),
    "bad records set aside, dead letters, re-drive": lambda can: can.quarantine,
    "`table_services`": lambda can: ", ".join(sorted(can.services)) or False,
    "`catalog_sync`": lambda can: can.catalogs,
}
PARTS: dict[type, Callable[[SinkCapabilities], bool]] = {
    KeepsQuarantine: lambda can: can.quarantine,
    TellsCatalogs: lambda can: can.catalogs,
}
SHOWN: dict[str, Callable[[SinkOptions], bool | str]] = {
    "the page shows the table's own commits": lambda section: bool(section.commit_log),
    "`sluice verify`": lambda section: (
        bool(section.table_rows) and ("each interval" if section.rows_are_told_apart else "the whole table")
    ),
}


def disagreeing() -> list[str]:
    """A line for each part that a sink has, and no section of it names, or the other way round."""
    declared: dict[str, list[SinkCapabilities]] = {}
    for section in SINKS.values():
        declared.setdefault(section.connector, []).append(section.capabilities)
    return [
        f"{connector}: {part.__name__} is {'there' if there else 'missing'}, and its capabilities say otherwise"
        for connector, each in declared.items()
        for part, named in PARTS.items()
        for there in [issubclass(load(connector), part)]
        if there != any(map(named, each))
    ]


def table() -> str:
    """A row for each thing that a sink may do, a column for each sink."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield f"| | {' | '.join(SINKS)} |"
    yield "|---" * (len(SINKS) + 1) + "|"
    for what, asked in ROWS.items():
        yield f"| {what} | {' | '.join(_word(asked(one.capabilities)) for one in SINKS.values())} |"
    for what, of in SHOWN.items():
        yield f"| {what} | {' | '.join(_word(of(one)) for one in SINKS.values())} |"


def _word(answer: bool | str) -> str:
    return answer if isinstance(answer, str) else "yes" if answer else "no"


def main() -> int:
    """Compare, or draw."""
    wrong = disagreeing()
    for line in wrong:
        print(line)  # noqa: T201
    if wrong:
        return 1
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    page = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if "--draw" in sys.argv:
        PAGE.write_text(page)
    elif PAGE.read_text() != page:
        print("docs/sinks.md isn't what the capabilities say; run: python tools/capabilities.py --draw")  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
