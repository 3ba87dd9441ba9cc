"""`sluice quarantine`: the records that were set aside, what is wrong with one of them, and sending them again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sluice.cli.inspect import Json, history
from sluice.cli.output import Column, show
from sluice.cli.places import PipelineFile, coordinator, require_kafka, settings
from sluice.errors import ActionRequiredError
from sluice.pipeline import Pipeline, load_pipeline
from sluice.pipeline.model import SHARED_CONTROL_TOPIC

if TYPE_CHECKING:
    from sluice.connectors.views import QuarantineReader
    from sluice.kafka.config import KafkaSettings
    from sluice.protocol.identity import LogId, LogIds
    from sluice.protocol.quarantine import Quarantined
    from sluice.protocol.redriven import Place
    from sluice.sources.kafka.redriven import Redriven

app = typer.Typer(help="Look at bad records that were set aside, and send them again.", no_args_is_help=True)
Instants = Annotated[list[str], typer.Option("--instant", help="Of these intervals only; may be repeated.")]
_PLACE = re.compile(r"^(?P<topic>.+)\[(?P<partition>\d+)\]@(?P<offset>\d+)$")
_SHOWN = 256  # bytes of a key or value
_MAGIC, _WITH_ID = 0, 5  # Confluent's wire format: a zero byte, then a schema id of four


@app.command("list")
def list_(file: PipelineFile, instant: Instants = [], json: Json = False) -> None:  # noqa: B006  # Typer makes its own
    """List what was set aside, by interval and reason."""
    here = _Quarantine.of(file)
    redriven, replayed = here.redriven.places(), here.replayed()
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    sent: Counter[tuple[str, str, str]] = Counter()
    for of, paths in here.files.committed(instant).items():
        for record in here.files.records(paths, whole=False):
            key = (of, record.stage, record.reason)
            group = groups.setdefault(
                key,
                {"instant": of, "stage": key[1], "reason": key[2], "records": 0, "first": record.place},
            )
            group["records"] += 1
            sent[key] += redriven.has(_place_of(record), record.log.topic)
    rows = [{**g, "redriven": sent[k], "replayed_by": replayed.get(k[0])} for k, g in sorted(groups.items())]
    columns = [Column("instant"), Column("stage"), Column("reason"), Column("records", right=True), Column("first")]
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
    here = _Quarantine.of(file)
    record = here.find(_place(place))
    sent = here.redriven.places().has(_place_of(record), record.log.topic)
    replayed = here.replayed().get(record.instant)
    facts = {
        "record": record.place,
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
    here = _Quarantine.of(file)
    require_kafka(here.pipeline)
    if not as_newest:
        _refuse_older_versions(here.pipeline)
    chosen = here.chosen(instant, {_place(text) for text in offset})
    by_partition, topic_ids = chosen.check()
    if not dry_run:
        by_partition = here.redriven.send(chosen.records(), topic_ids)
    rows = [
        {"topic": topic, "partition": partition, "records": number}
        for (topic, partition), number in sorted(by_partition.items())
    ]
    columns = [Column("topic"), Column("partition", right=True), Column("records", right=True)]
    what = "Would send" if dry_run else "Sent"
    caption = f"{what} {by_partition.total():,} records again; those of before are not sent twice."
    show({"sent": rows, "dry_run": dry_run}, "sent", columns, as_json=json, caption=caption)


@dataclass(frozen=True)
class _Quarantine:
    """A pipeline's quarantine, and what was sent again of it."""

    file: Path
    pipeline: Pipeline
    kafka: KafkaSettings
    files: QuarantineReader
    redriven: Redriven

    @classmethod
    def of(cls, file: Path) -> _Quarantine:
        from sluice.connectors.views import quarantine_reader_of
        from sluice.protocol.quarantine import quarantine_path
        from sluice.sources.kafka.redriven import Redriven

        pipeline = load_pipeline(file)
        table = pipeline.table_id
        path = quarantine_path(table, pipeline.errors)
        files = quarantine_reader_of(pipeline.sink.place, pipeline.sink.options, path)
        topic = f"{pipeline.control.topic or SHARED_CONTROL_TOPIC}.redriven"  # of all tables: a record is sent once
        kafka = settings(pipeline)[0]
        return cls(file, pipeline, kafka, files, Redriven(kafka, topic, table))

    def replayed(self) -> Mapping[str, str]:
        """The intervals that a replay has read again, and the newest such replay: their bad records may be rows now."""
        return {instant: by[-1] for instant, by in history(self.file).replayed_by.items() if by}

    def find(self, place: Place) -> Quarantined:
        """A record, as the newest interval that read it has set it aside."""
        for paths in reversed(list(self.files.committed().values())):
            for path in paths:
                if any(_place_of(record) == place for record in self.files.records([path], whole=False)):
                    return next(record for record in self.files.records([path]) if _place_of(record) == place)
        raise ActionRequiredError(
            f"The quarantine has no record {_text(place)}.",
            next_step="look at `sluice quarantine list`; a record that was loaded is in the table.",
            quarantine=self.files.path,
        )

    def chosen(self, instants: Sequence[str], places: set[Place]) -> _Chosen:
        """The records of these intervals, or of all that no replay has read again; only those places, if any."""
        replayed = self.replayed()
        for instant in instants:
            if instant in replayed:
                raise ActionRequiredError(
                    f"The interval was read again by {replayed[instant]}: what was bad may be a row now.",
                    next_step="name that instant if it has bad records still; nothing was sent.",
                    instant=instant,
                )
        files = {i: paths for i, paths in self.files.committed(instants).items() if i not in replayed}
        return _Chosen(self, files, frozenset(places))

    def log_ids(self, topics: Sequence[str]) -> LogIds:
        """Kafka's own ids of the logs that these topics have now."""
        from sluice.sources.kafka.cluster import KafkaCluster

        return KafkaCluster(self.kafka).log_ids(topics)

    def other_log(self, record: Quarantined) -> str | None:
        """Why the log that a record stands in isn't the topic's any more; None where nothing says so."""
        try:
            now = self.log_ids([record.topic])
        except ActionRequiredError as error:
            return error.what
        return record.log.other_than(now.of(self.kafka.name, record.topic))


@dataclass(frozen=True)
class _Chosen:
    """The records that are to be sent again, as far as they weren't sent before."""

    here: _Quarantine
    files: Mapping[str, Sequence[str]]
    places: frozenset[Place]

    def check(self) -> tuple[Counter[tuple[str, int]], dict[str, str | None]]:
        """How many are unsent of each partition, and the ids of their topics.

        Raises:
            ActionRequiredError: one isn't there, or isn't of the log that its topic has now.
        """
        from sluice.cli.redrive import Unsent

        unsent = Unsent.of(self._rows(), self.here.redriven.places())
        now = self.here.log_ids(unsent.topics)
        cluster, commits = self.here.kafka.name, coordinator(self.here.file).checkpoints
        unsent.require_same_logs(cluster, now, commits, self.here.files.path)
        return unsent.by_partition, {topic: now.of(cluster, topic).topic for topic in unsent.topics}

    def _rows(self) -> Iterator[tuple[str, Place, LogId]]:
        missing = set(self.places)
        for instant, paths in self.files.items():
            for record in self.here.files.records(paths, whole=False):
                place = _place_of(record)
                if self._wants(place):
                    missing.discard(place)
                    yield instant, place, record.log
        if missing:
            raise ActionRequiredError(
                f"The quarantine has no record {', '.join(map(_text, sorted(missing)))}.",
                next_step="look at `sluice quarantine list`: a replay may have read it again. Nothing was sent.",
                quarantine=self.here.files.path,
            )

    def records(self) -> Iterator[Quarantined]:
        """The records, whole."""
        for paths in self.files.values():
            for record in self.here.files.records(paths):
                if self._wants(_place_of(record)):
                    yield record

    def _wants(self, place: Place) -> bool:
        return not self.places or place in self.places


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


def _place(text: str) -> Place:
    match = _PLACE.match(text)
    if match is None:
        raise ActionRequiredError(f"'{text}' is no record's place.", next_step="write topic[partition]@offset.")
    return match["topic"], int(match["partition"]), int(match["offset"])


def _place_of(record: Quarantined) -> Place:
    return record.topic, record.partition, record.offset


def _text(place: Place) -> str:
    return f"{place[0]}[{place[1]}]@{place[2]}"


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
    return (
        f"If the pipeline should take it: correct {file}, then `sluice replay {file} {record.instant}`, which reads "
        f"its whole interval again, or `sluice quarantine redrive {file} --offset '{record.place}'`, which sends it to "
        "its topic again, behind all others of its key. If the record is wrong: have its producer send a right one."
    )
