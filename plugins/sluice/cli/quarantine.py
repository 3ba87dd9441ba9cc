"""`sluice quarantine`: lists records that were set aside, shows one and its fault, and sends them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sluice.cli.inspect import Json
from sluice.cli.output import Column, show
from sluice.cli.places import PipelineFile, require_kafka
from sluice.cli.set_aside import QuarantinedRecords, place_of
from sluice.errors import ActionRequiredError
from sluice.pipeline import Pipeline

if TYPE_CHECKING:
    from sluice.protocol.quarantine import Quarantined

app = typer.Typer(help="Look at bad records that were set aside, and send them again.", no_args_is_help=True)
Instants = Annotated[list[str], typer.Option("--instant", help="Of these intervals only; may be repeated.")]
_BY_ARRIVAL: Final = (
    "In this table a key's last record is its row, so a record that is sent again wins over all records that "
    "came after it."
)
_FORGETS: Final = (
    "This sink doesn't keep the positions of all changes, so an old change that is sent again can win over a newer "
    "one, or bring a row back that was deleted since."
)
_REPLAY: Final = "`sluice replay` its interval, which lets no older version win"
_FROM_THE_SOURCE: Final = (
    "have the source send the rows as they are now, for instance by an incremental snapshot of Debezium's"
)
_SHOWN = 256  # bytes of a key or value
_MAGIC, _WITH_ID = 0, 5  # Confluent's wire format: a zero byte, then a schema id of four


@app.command("list")
def list_(file: PipelineFile, instant: Instants = [], json: Json = False) -> None:  # noqa: B006  # Typer makes its own
    """List what was set aside, by interval and reason."""
    here = QuarantinedRecords.of(file)
    redriven, replayed = here.sent(), here.replayed()
    lost = sorted({one.topic for of in here.lost(redriven.given_up).values() for one in of})
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    sent: Counter[tuple[str, ...]] = Counter()
    for of, paths in here.files.committed(instant).items():
        for record in here.files.records(paths, whole=False):
            key = (of, record.stage, record.reason, here.clusters.of(record))
            named = dict(zip(("instant", "stage", "reason", "cluster"), key, strict=True))
            group = groups.setdefault(key, {**named, "records": 0, "first": record.place})
            group["records"] += 1
            sent[key] += redriven.has(place_of(record), record.log.topic)
    rows = [{**g, "redriven": sent[k], "replayed_by": replayed.get(k[0])} for k, g in sorted(groups.items())]
    names = [*here.clusters.shown, "instant", "stage", "reason"]
    columns = [*map(Column, names), Column("records", right=True), Column("first")]
    total = sum(g["records"] for g in rows)
    show(
        {"quarantine": here.files.path, "records": total, "groups": rows, "lost_notes": lost},
        "groups",
        [*columns, Column("redriven", right=True), Column("replayed_by")],
        as_json=json,
        caption=f"{total:,} records in {here.files.path}.{_of_lost(lost)}",
    )


@app.command()
def explain(
    file: PipelineFile,
    place: Annotated[str, typer.Argument(help="The record's position: 'topic[partition]@offset'.")],
    json: Json = False,
) -> None:
    """Show one record in full, and how to recover it."""
    here = QuarantinedRecords.of(file)
    record = here.find(here.place(place))
    again = here.sent()
    sent = again.has(place_of(record), record.log.topic)
    lost = {one.topic for of in here.lost(again.given_up).values() for one in of if one.concern(record.instant)}
    replayed = here.replayed().get(record.instant)
    facts = {
        "record": record.place,
        "cluster": here.clusters.of(record),
        "reason": record.reason,
        "stage": record.stage,
        "instant": record.instant,
        "run": record.run_id,
        "range": record.range_number,
        "record time": record.timestamp.isoformat() if record.timestamp else None,
        "topic id": record.log.topic,
        "cluster id": record.log.cluster,
        "redriven": sent,
        "lost notes": ", ".join(sorted(lost)) if lost and not sent else None,
        "replayed by": replayed,
        **{f"header {name}": _shown(value) for name, value in record.headers},
        "key": _shown(record.key),
        "key in hex": _hex(record.key),
        "key's schema id": _schema_id(record.key),
        "value": _shown(record.value),
        "value in hex": _hex(record.value),
        "value's schema id": _schema_id(record.value),
        "value's bytes": None if record.value is None else len(record.value),
        "left out": record.left_out,
        "what next": _next_step(here.pipeline, file, record, sent, replayed, here.other_log(record)),
    }
    rows = [{"what": name, "is": value} for name, value in facts.items() if value is not None]
    show({"facts": rows} if not json else facts, "facts", [Column("what"), Column("is")], as_json=json)


@app.command()
def redrive(
    file: PipelineFile,
    instant: Instants = [],  # noqa: B006
    offset: Annotated[
        list[str], typer.Option("--offset", help="Only the record at 'topic[partition]@offset'; may be repeated.")
    ] = [],  # noqa: B006
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be sent.")] = False,
    as_newest: Annotated[
        bool, typer.Option("--as-newest", help="Where the last record of a key wins: let it be these.")
    ] = False,
    json: Json = False,
) -> None:
    """Send records to the partitions that they came from again, as they came; none is ever sent twice."""
    here = QuarantinedRecords.of(file)
    require_kafka(here.pipeline)
    if not as_newest:
        _refuse_older_versions(here.pipeline)
    chosen = here.chosen(instant, {here.place(text) for text in offset})
    by_partition, now, there = chosen.check()
    if not dry_run:
        by_partition = chosen.send(now, there)
    rows = [{**tp._asdict(), "records": number} for tp, number in sorted(by_partition.items())]
    columns = [*map(Column, here.clusters.shown), Column("topic")]
    columns += [Column("partition", right=True), Column("records", right=True)]
    what = "Would send" if dry_run else "Sent"
    caption = f"{what} {by_partition.total():,} records again; those of before are not sent twice."
    show({"sent": rows, "dry_run": dry_run}, "sent", columns, as_json=json, caption=caption)


@app.command()
def give_up(
    file: PipelineFile,
    topic: Annotated[str, typer.Argument(help="The topic of the notes, as in the error.")],
    reason: Annotated[str, typer.Option(help="Why they aren't needed; stays in the topic of new notes.")],
    json: Json = False,
) -> None:
    """Continue without lost notes of records sent again; records that were noted there can be sent a second time."""
    if not reason.strip():
        raise ActionRequiredError("Notes are given up with a reason only.", next_step="add --reason 'why'.")
    here = QuarantinedRecords.of(file)
    require_kafka(here.pipeline)
    rows = [
        {"cluster": cluster, "topic": one.topic, "topic_id": one.log} for cluster, one in here.give_up(topic, reason)
    ]
    columns = [*map(Column, here.clusters.shown), Column("topic"), Column("topic_id")]
    caption = f"Given up, as is noted in {here.topics.current}."
    show({"given_up": rows}, "given_up", columns, as_json=json, caption=caption)


def _of_lost(topics: Sequence[str]) -> str:
    """A sentence on notes that can't be read any more."""
    of = ", ".join(topics)
    return f" The notes in {of} are lost: more may have been sent again than is said here." if topics else ""


def _refuse_older_versions(pipeline: Pipeline) -> None:
    """Refuse to overwrite later changes with an old version of a row, or with a row that was deleted since."""
    sink, changes = pipeline.sink.options, pipeline.changes
    if not sink.capabilities.upsert:
        return
    if changes is None:
        ordered, why = bool(sink.ordering_field), _BY_ARRIVAL
    elif changes.format == "tombstones":
        ordered, why = False, _BY_ARRIVAL
    else:  # the order of changes holds where the sink keeps the positions of rows, including deleted ones
        ordered, why = sink.capabilities.keeps_newer, _FORGETS
    if not ordered:
        raise ActionRequiredError(
            why,
            next_step=f"{_REPLAY if _replays(pipeline) else _FROM_THE_SOURCE}; or add --as-newest, if these records "
            "are to be the newest of their keys.",
            table=sink.table_id,
        )


def _replays(pipeline: Pipeline) -> bool:
    """Whether an interval of the pipeline can be replayed."""
    can = pipeline.sink.options.capabilities
    return can.replaces_interval or (can.upsert and can.keeps_newer)


def _shown(data: bytes | None) -> str | None:
    """The first bytes as text, with escapes for bytes that aren't text."""
    if data is None:
        return None
    return data[:_SHOWN].decode(errors="backslashreplace") + ("…" if len(data) > _SHOWN else "")


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data[:_SHOWN].hex(" ", 4) + (" …" if len(data) > _SHOWN else "")


def _schema_id(data: bytes | None) -> str | None:
    if data is None or len(data) < _WITH_ID or data[0] != _MAGIC:
        return None
    return f"{int.from_bytes(data[1:_WITH_ID])}, if it is in Confluent's wire format"


def _next_step(
    pipeline: Pipeline, file: Path, record: Quarantined, sent: bool, replayed: str | None, other_log: str | None
) -> str:
    if replayed:
        return f"The interval was replayed by {replayed}: the record is a row now, or set aside under that instant."
    if sent:
        return "It was sent again; look for it behind the offsets of that time, in the table or in the quarantine."
    if other_log:
        return f"It can't be read or sent again: {other_log}. Where it still holds, have its producer send it."
    if record.left_out is not None:
        return (
            f"The topic of bad records doesn't take all of it, so it can't be sent again. It is still at its place, "
            f"{record.place}, as long as that topic keeps it: read it there, or have its producer send a smaller one."
        )
    replay = f"`sluice replay {file} {record.instant}`, which reads its whole interval again, or "
    return (
        f"If the pipeline should take it: correct {file}, then {replay if _replays(pipeline) else ''}"
        f"`sluice quarantine redrive {file} --offset '{record.place}'`, which sends it to its topic again, behind all "
        "others of its key. If the record is wrong: have its producer send a right one."
    )
