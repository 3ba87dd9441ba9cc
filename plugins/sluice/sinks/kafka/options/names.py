"""The Kafka sink's names: of staged columns, folders, topics and the transactional id. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Final

from sluice.errors import ActionRequiredError
from sluice.protocol.messages import TableSpec

STAGED: Final = ("topic", "key", "value", "headers", "partition", "timestamp")
"""The columns of a staged record; headers are an array of name and bytes, the timestamp is in milliseconds or null."""
EACH: Final = "${topic}"
"""A placeholder in a topic's name: the topic that a record came from."""
LEFT_OUT: Final = "sluice.left_out"
"""A header of a shortened bad record, which says in words which parts were left out."""
_NOT_IN_RECORDS: Final = ("staging", "takes", "compression", "compression_level")
_TABLE: Final = re.compile(r"kafka://([\w.\-]{1,200})/([A-Za-z0-9._-]{1,249})")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def staging_folder(instant: str, attempt: str | None = None) -> str:
    """The folder, below the staging path, for the staged records of an interval, or of one attempt at it."""
    return f"{instant}/{attempt}" if attempt is not None else instant


def transactional_id(table: str) -> str:
    """A table's only transactional id: its name, for readability, and a hash of its whole id."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", table.rpartition("/")[2])
    return f"sluice.sink.{name}.{hashlib.sha256(table.encode()).hexdigest()[:12]}"


def way_of_writing(writer: TableSpec) -> str:
    """A hash of columns, encoders and schemas: equal for intervals that encode the same rows as the same records."""
    how = {name: value for name, value in writer.options.items() if name not in _NOT_IN_RECORDS}
    return hashlib.sha256(json.dumps([writer.schema_ddl, sorted(how.items())]).encode()).hexdigest()[:16]


def log_of(table: str) -> tuple[str, str]:
    """The connection and the topic of a table's log, given its id.

    Raises:
        ActionRequiredError: it isn't the id of a table of this sink.
    """
    found = _TABLE.fullmatch(table)
    if found is None:
        raise ActionRequiredError(
            "This is no id of a table of Kafka topics.",
            next_step="an id is kafka://<connection>/<log topic>; find out which other program writes to the control "
            "topic.",
            table=table,
        )
    return found[1], found[2]


def default_log(topic: str) -> str:
    """The log's topic if the pipeline file names none."""
    return f"_sluice.{topic.replace(EACH, 'each')}"


def quarantine_topic(log: str) -> str:
    """The topic of bad records, given their log's topic: `orders.quarantine` for `_sluice.orders_quarantine`."""
    name = log.removeprefix("_sluice.")
    name = f"{name.removesuffix('_quarantine')}.quarantine" if name.endswith("_quarantine") else name
    return name if name != log else f"{log}.records"


def topics_of(template: str, topics: tuple[str, ...]) -> tuple[str, ...]:
    """The target topics for the records of some source topics.

    Raises:
        ActionRequiredError: Kafka doesn't allow a topic's name.
    """
    made = dict.fromkeys(template.replace(EACH, one) for one in topics) if EACH in template else {template: None}
    for name in made:
        if not _TOPIC.fullmatch(name):
            raise ActionRequiredError(
                f"Kafka has no topics of that name: {name}.",
                next_step="correct the sink's `topic`: letters, digits, dots, dashes and underscores, up to 249.",
            )
    return tuple(made)
