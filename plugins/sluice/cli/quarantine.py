"""`sluice quarantine`: the records that were set aside, what is wrong with one of them, and sending them again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice.cli.inspect import Json
from sluice.cli.output import Column, show
from sluice.cli.places import PipelineFile, require_kafka
from sluice.cli.set_aside import SetAside, place_of
from sluice.errors import ActionRequiredError
from sluice.pipeline import Pipeline

if TYPE_CHECKING:
    from sluice.protocol.quarantine import Quarantined

app = typer.Typer(help="Look at bad records that were set aside, and send them again.", no_args_is_help=True)
Instants = Annotated[list[str], typer.Option("--instant", help="Of these intervals only; may be repeated.")]
_SHOWN = 256  # bytes of a key or value
_MAGIC, _WITH_ID = 0, 5  # Confluent's wire format: a zero byte, then a schema id of four


@app.command("list")
def list_(file: PipelineFile, instant: Instants = [], json: Json = False) -> None:  # noqa: B006  # Typer makes its own
    """List what was set aside, by interval and reason."""
    here = SetAside.of(file)
    redriven, replayed = here.sent(), here.replayed()
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
        {"quarantine": here.files.path, "records": total, "groups": rows},
        "groups",
        [*columns, Column("redriven", right=True), Column("replayed_by")],
        as_json=json,
        caption=f"{total:,} records in {here.files.path}.",
    )


@app.command()
def explain(
    file: PipelineFile,
    place: Annotated[str, typer.Argument(help="Where the record stands: 'topic[partition]@offset'.")],
    json: Json = False,
) -> None:
    """Say all that is known of one record, and what can be done about it."""
    here = SetAside.of(file)
    record = here.find(here.place(place))
    sent = here.sent().has(place_of(record), record.log.topic)
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
        "what next": _next_step(file, record, sent, replayed, here.other_log(record)),
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
    here = SetAside.of(file)
    require_kafka(here.pipeline)
    if not as_newest:
        _refuse_older_versions(here.pipeline)
    chosen = here.chosen(instant, {here.place(text) for text in offset})
    by_partition, now = chosen.check()
    if not dry_run:
        by_partition = chosen.send(now)
    rows = [{**tp._asdict(), "records": number} for tp, number in sorted(by_partition.items())]
    columns = [*map(Column, here.clusters.shown), Column("topic")]
    columns += [Column("partition", right=True), Column("records", right=True)]
    what = "Would send" if dry_run else "Sent"
    caption = f"{what} {by_partition.total():,} records again; those of before are not sent twice."
    show({"sent": rows, "dry_run": dry_run}, "sent", columns, as_json=json, caption=caption)


def _refuse_older_versions(pipeline: Pipeline) -> None:
    """Refuse to put an old version of a row, or a row that was deleted since, on top of what came after it."""
    sink, changes = pipeline.sink.options, pipeline.changes
    by_arrival = changes.format == "tombstones" if changes is not None else not sink.ordering_field
    if sink.capabilities.upsert and by_arrival:
        raise ActionRequiredError(
            "In this table the record of a key that came last is its row, so a record that is sent again wins over "
            "all that came after it.",
            next_step="`sluice replay` its interval, which lets no older version win; or add --as-newest, if these "
            "records are to be the newest of their keys.",
            table=sink.table_id,
        )


def _shown(data: bytes | None) -> str | None:
    """The first bytes as text; what is no text shows as escapes."""
    if data is None:
        return None
    return data[:_SHOWN].decode(errors="backslashreplace") + ("…" if len(data) > _SHOWN else "")


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data[:_SHOWN].hex(" ", 4) + (" …" if len(data) > _SHOWN else "")


def _schema_id(data: bytes | None) -> str | None:
    if data is None or len(data) < _WITH_ID or data[0] != _MAGIC:
        return None
    return f"{int.from_bytes(data[1:_WITH_ID])}, if it is in Confluent's wire format"


def _next_step(file: Path, record: Quarantined, sent: bool, replayed: str | None, other_log: str | None) -> str:
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
    return (
        f"If the pipeline should take it: correct {file}, then `sluice replay {file} {record.instant}`, which reads "
        f"its whole interval again, or `sluice quarantine redrive {file} --offset '{record.place}'`, which sends it to "
        "its topic again, behind all others of its key. If the record is wrong: have its producer send a right one."
    )
