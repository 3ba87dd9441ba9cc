"""What the Kafka sink calls its things: staged columns, folders, its log's keys. Pure."""

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
"""In a topic's name: the name of the topic that a record came from."""
SHORTENED: Final = "shortened"
"""An option of the topic of bad records: of a record that is too large for it, it has what it takes."""
LEFT_OUT: Final = "sluice.left_out"
"""The header of a bad record that says what of it the topic of bad records doesn't take, in words."""
_NOT_IN_RECORDS: Final = ("staging", "takes", "compression", "compression_level")
_TABLE: Final = re.compile(r"kafka://([\w.\-]{1,200})/([A-Za-z0-9._-]{1,249})")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def staging_folder(instant: str, attempt: str | None = None) -> str:
    """Where an interval's records are staged, or one attempt's of them, below the staging path."""
    return f"{instant}/{attempt}" if attempt is not None else instant


def transactional_id(table: str) -> str:
    """The one transactional id of a table: for people its name, and a hash of the whole."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", table.rpartition("/")[2])
    return f"sluice.sink.{name}.{hashlib.sha256(table.encode()).hexdigest()[:12]}"


def way_of_writing(writer: TableSpec) -> str:
    """Tells whether two intervals have made the same records of the same rows: the columns, encoders and schemas."""
    how = {name: value for name, value in writer.options.items() if name not in _NOT_IN_RECORDS}
    return hashlib.sha256(json.dumps([writer.schema_ddl, sorted(how.items())]).encode()).hexdigest()[:16]


def log_of(table: str) -> tuple[str, str]:
    """The connection and the topic of a table's log, given its id.

    Raises:
        ActionRequiredError: it is no id of this sink's.
    """
    found = _TABLE.fullmatch(table)
    if found is None:
        raise ActionRequiredError(
            "This is no id of a table of Kafka topics.",
            next_step="it is kafka://<connection>/<log topic>; find who writes to the control topic.",
            table=table,
        )
    return found[1], found[2]


def default_log(topic: str) -> str:
    """The log's topic where the file names none."""
    return f"_sluice.{topic.replace(EACH, 'each')}"


def quarantine_topic(log: str) -> str:
    """The topic of bad records, given the topic of their log: `orders.quarantine` for `_sluice.orders_quarantine`."""
    name = log.removeprefix("_sluice.")
    name = f"{name.removesuffix('_quarantine')}.quarantine" if name.endswith("_quarantine") else name
    return name if name != log else f"{log}.records"


def topics_of(template: str, topics: tuple[str, ...]) -> tuple[str, ...]:
    """The topics that records of these topics are written to.

    Raises:
        ActionRequiredError: a name is none that Kafka allows.
    """
    made = dict.fromkeys(template.replace(EACH, one) for one in topics) if EACH in template else {template: None}
    for name in made:
        if not _TOPIC.fullmatch(name):
            raise ActionRequiredError(
                f"Kafka has no topics of that name: {name}.",
                next_step="correct the sink's `topic`: letters, digits, dots, dashes and underscores, up to 249.",
            )
    return tuple(made)
