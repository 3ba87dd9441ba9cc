"""What each START notes of a table beside its position, and the next one compares.

A position says which rows were read only for as long as numbers don't begin again below it, and no table with older
rows becomes a part of the one that is read: else rows would be lost unseen.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from sluice.databases.engine import Ask, Engine
from sluice.errors import ActionRequiredError
from sluice.sources.jdbc.options import JdbcTables
from sluice.sources.jdbc.tables import DURABLE, SERVER, Windowed, log_id
from sluice.untrusted import json_of

NOTED = "noted"
"""The option of a value's format that has the notes of a START; missing where it is of an earlier release."""


@dataclass(frozen=True)
class Noted:
    """A table as START has found it, before it looked how far rows are settled.

    Attributes:
        log: the id of the table and the column to which positions belong.
        life: by a name in the database an id, which is another one when the column's numbers may have begun again.
        parts: the ids of the tables whose rows are the table's.
        read_to: the position up to which the schedule has read the table when the interval is committed.
    """

    log: str
    life: Mapping[str, str] = field(default_factory=dict)
    parts: Sequence[str] = ()
    read_to: int = 0


def noted(ask: Ask, engine: Engine, options: JdbcTables, windowed: Windowed) -> Noted:
    """What is to be noted of a table, without its position."""
    life = {} if options.by_time or windowed.column is None else engine.life(ask, windowed.relation, windowed.column)
    return Noted(log_id(options, windowed.relation), life, tuple(sorted(engine.parts(ask, windowed.relation))))


def as_option(found: Mapping[str, Noted]) -> dict[str, str]:
    """Notes by their tables as an option of START's; none where there is nothing to note."""
    return {NOTED: json.dumps({topic: asdict(one) for topic, one in found.items()})} if found else {}


def of_option(reading: Mapping[str, str]) -> dict[str, Noted]:
    """The notes in the options of an earlier START."""
    return {topic: Noted(**one) for topic, one in json_of(reading.get(NOTED, "{}")).items()}


def require_continued(ask: Ask, engine: Engine, options: JdbcTables, windowed: Windowed, last: Noted) -> None:
    """Check that a position of the last START says now as then which rows were read.

    A person who has looked names that position in `starting_offsets`, and it is taken as it is.

    Args:
        ask: the database.
        engine: its kind.
        options: the source's section.
        windowed: the table.
        last: the note of the last START.

    Raises:
        ActionRequiredError: rows below the position may be new.
    """
    topic = windowed.relation.topic
    if last.log != log_id(options, windowed.relation) or last.read_to in options.positions_of(topic):
        return
    now = noted(ask, engine, options, windowed)
    known = f"name {last.read_to} as the table's position in `starting_offsets` for one run"
    if last.life and _is_another(last.life, now.life):
        raise ActionRequiredError(
            f"The numbers of column {windowed.column.name if windowed.column else ''} may have begun again since the "
            f"last interval was planned: {engine.begun_again}.",
            next_step=f"nothing was read. If new rows have numbers below {last.read_to}, number them anew from there, "
            f"or load the source's table into a new one. If none has, {known}.",
            source=topic,
            was=", ".join(f"{name}={id_}" for name, id_ in last.life.items()),
            now=", ".join(f"{name}={id_}" for name, id_ in now.life.items()),
        )
    for part in sorted(set(now.parts) - set(last.parts)):
        bound = engine.literal(last.read_to, windowed.bound, options.db_timezone)
        name = engine.filled_below(ask, windowed.relation, part, windowed.expression, bound)
        if name is not None:
            raise ActionRequiredError(
                f"{name} became a part of the table since the last interval was planned, and has rows from before the "
                "end of the last window.",
                next_step="nothing was read. If no interval has read these rows, have them touched, so that the "
                f"database dates or numbers them anew. If they were read, {known}.",
                source=topic,
                read_up_to=last.read_to,
            )


def require_nothing_missing(
    ask: Ask, engine: Engine, options: JdbcTables, tables: Sequence[Windowed], last: Mapping[str, str]
) -> dict[str, str]:
    """Check that the server that answers has all that the last START's had.

    A replica that is promoted without the last transactions gives their numbers again, below positions that were read.

    Args:
        ask: the database.
        engine: its kind.
        options: the source's section.
        tables: the tables that are read.
        last: the options of the last START.

    Returns:
        The server that answers; empty where there is nothing to compare.

    Raises:
        ActionRequiredError: it may lack something, and a person hasn't named the tables' positions.
    """
    server, notes = json_of(last.get(SERVER, "{}")), of_option(last)
    found = {one.relation.topic: (notes[one.relation.topic], one) for one in tables if one.relation.topic in notes}
    unnamed = {
        topic: note.read_to
        for topic, (note, one) in found.items()
        if note.log == log_id(options, one.relation) and note.read_to not in options.positions_of(topic)
    }
    if not server or not unnamed:
        return {}
    why = engine.missing(ask, server, json_of(last.get(DURABLE, "{}")), numbers=not options.by_time)
    if why is not None:
        below = (
            "New rows may get numbers below the positions: set each sequence, or AUTO_INCREMENT, to its table's "
            "position at least, and number rows anew that have such a number and were never read."
            if not options.by_time
            else "Rows that it lacks stay in the table that is loaded, with the versions that were read. Have rows "
            "touched that it has in an older version, or has dated before the positions, so that they are read."
        )
        named = ", ".join(f"{topic}: {{0: {read_to}}}" for topic, read_to in sorted(unnamed.items()))
        raise ActionRequiredError(
            f"The server that answers may lack what was there when the last interval was planned: {why}.",
            next_step=f"nothing was read. Where it lacks nothing, or once the following is done, name the positions in "
            f"`starting_offsets` for one run: {{{named}}}. {below}",
        )
    return engine.server(ask)


def _is_another(before: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether something was made again; a partition that is gone, or new, is none of it while another one is there."""
    same = {name for name, id_ in before.items() if now.get(name) == id_}
    return not same or any(name in now for name in before.keys() - same)
