"""`sluice plan`, `offsets`, `doctor`, `transactions`, `verify` and `replay`: past transactions, and the next one."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from sluice.cli.interval import Master, run_interval
from sluice.cli.output import Column, say, show, spans
from sluice.cli.places import PipelineFile, connections, coordinator, settings
from sluice.connectors.views import readers_of
from sluice.errors import ActionRequiredError
from sluice.pipeline import Pipeline, load_pipeline
from sluice.pipeline.model import SHARED_CONTROL_TOPIC
from sluice.protocol.offsets import OFFSET, TOPIC_PARTITION
from sluice.protocol.request import Request
from sluice.sections import words_of

if TYPE_CHECKING:
    from sluice.protocol.history import TableHistory, TransactionSummary
    from sluice.protocol.messages import ControlMessage

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Ranges = Annotated[
    list[str], typer.Option("--offsets", help="Offsets [start, end) as 'topic[partition]:start-end'; may be repeated.")
]
Reason = Annotated[str, typer.Option(help="Why, for later readers of the history.")]
_RANGE = re.compile(f"{TOPIC_PARTITION}:(?P<start>{OFFSET})-(?P<end>{OFFSET})")


def plan(
    file: PipelineFile,
    offsets: Ranges = [],  # noqa: B006  # Typer copies the list
    from_time: Annotated[datetime | None, typer.Option("--from", help="Records with this time or later (UTC).")] = None,
    to_time: Annotated[datetime | None, typer.Option("--to", help="Records before this time (UTC).")] = None,
    replay: Annotated[str | None, typer.Option(help="The instant of a committed interval.")] = None,
    json: Json = False,
) -> None:
    """Show what a run would read and replace: the next interval, or the window or replay that options ask for."""
    request = _request(offsets, from_time, to_time, replay)
    here = coordinator(file)
    task, position = here.plan(request)
    of_streams = here.pipeline.source.options.streams_settings is not None
    ends = {b.topic_partition: b.log_end for b in position.state.partitions}
    rows = [
        {
            "range": number,
            **r.topic_partition._asdict(),
            "start": r.start,
            "end": r.end,
            "offsets": r.span,
            "lag_left": max(0, ends[r.topic_partition] - r.end),
        }
        for number, group in enumerate(task.plan.ranges)
        for r in group
    ]
    clusters = ["cluster"] if of_streams else []
    names = ("range", *clusters, "topic", "partition", "start", "end", "offsets")
    columns = [Column(name, right=name not in ("cluster", "topic")) for name in names]
    show(
        {"reads": rows, "replaces": dict(task.replaced_file_groups), "covered": task.plan.covered},
        "reads",
        [*columns, Column("lag_left", right=True)],
        as_json=json,
        caption=f"It {task.in_words(by_cluster=of_streams)}.",
    )


def offsets(
    file: PipelineFile,
    pass_over: Annotated[
        list[str], typer.Option(help="Offsets never to be read, as 'topic[partition]:start-end'; commits that.")
    ] = [],  # noqa: B006
    reason: Reason = "",
    json: Json = False,
) -> None:
    """Show each partition's offsets in the table; or pass over offsets, which is a separate commit with a reason."""
    correction = _asked(kind="correction", offsets=_offsets(pass_over), reason=reason) if pass_over else None
    here = coordinator(file)
    if correction is not None:
        say(_correct(file, correction), err=json)
    position = here.position()
    rows = []
    for bounds in sorted(position.state.partitions, key=lambda b: b.topic_partition):
        tp = bounds.topic_partition
        committed = position.checkpoint.next_offset(tp)
        topic = position.checkpoint.topic(tp.cluster, tp.topic)
        rows.append(
            {
                "cluster": tp.cluster,
                "topic": tp.topic,
                "partition": tp.partition,
                "next": committed,
                "log_start": bounds.log_start,
                "log_end": bounds.log_end,
                "lag": bounds.log_end - (bounds.log_start if committed is None else committed),
                "covered": position.checkpoint.covered(tp),
                "passed_over": topic.passed_over.get(tp.partition, ()) if topic else (),
            }
        )
    numbers = [Column(name, right=True) for name in ("partition", "next", "log_start", "log_end", "lag")]
    clusters = [Column("cluster")] if here.pipeline.source.options.streams_settings is not None else []
    show(
        {"offsets": rows},
        "offsets",
        [*clusters, Column("topic"), *numbers, Column("covered", form=spans), Column("passed_over", form=spans)],
        as_json=json,
    )


def doctor(
    file: PipelineFile,
    reader: Annotated[str | None, typer.Option(help="One reader, by the name that the command shows.")] = None,
    json: Json = False,
) -> None:
    """Show which engines can read the table as it is now, and what would have to change for the others."""
    sink = load_pipeline(file).sink
    found = readers_of(sink.place, sink.options)
    wanted = [one for one in found if reader in (None, one.reader)]
    if not wanted:
        names = ", ".join(one.reader for one in found)
        raise ActionRequiredError(f"No reader is known as {reader}.", next_step=f"name one of {names}.")
    columns = [
        Column("reader"),
        Column("title"),
        Column("sees"),
        Column("tried", form=lambda tried: "yes" if tried else "no"),
    ]
    show({"readers": [asdict(one) for one in wanted]}, "readers", columns, as_json=json)
    if not json:
        for one in wanted:
            for need in one.needed:
                say(f"{one.reader}: {need}.")
    if reader is not None and wanted[0].sees != "all rows":
        raise typer.Exit(1)


def transactions(
    file: PipelineFile,
    last: Annotated[int, typer.Option(min=1, help="How many of the last.")] = 20,
    json: Json = False,
) -> None:
    """List the table's last transactions, as recorded in its control topic."""
    told = history(file)
    newest = [t for t, _ in zip(told.newest(), range(last), strict=False)]
    counts = ("read", "written", "quarantined")
    names = ("instant", "kind", "state", "started", "seconds", *counts, "offsets", "run_id", "what")
    right = ("seconds", *counts)
    show(
        {"transactions": [_in_short(t, by_cluster=told.streams is not None) for t in reversed(newest)]},
        "transactions",
        [Column(name, right=name in right) for name in names],
        as_json=json,
        caption=None if newest else f"The control topic has no transaction of {told.table}.",
    )


def verify(
    file: PipelineFile,
    master: Master = "local[*]",
    json: Json = False,
) -> None:
    """Compare topics and table: every record of the committed offsets, by count and checksum of each interval."""
    from sluice.coordinator.verification.verify import require_comparable, verify_tables

    pipeline = load_pipeline(file)
    require_comparable(pipeline)
    here = coordinator(file)
    clusters = (*settings(pipeline), connections(pipeline))
    same = (pipeline, here.position(), here.rows(), history(file), *clusters)
    found = verify_tables(*same, master=master, named=partial(_named, file))
    names = ("instant", "in_topic", "in_table", "same")
    show(
        asdict(found),
        "intervals",
        [Column(name, right=name.startswith("in_")) for name in names],
        as_json=json,
        caption=found.in_words(),
    )
    if not found.same:
        raise typer.Exit(1)


def replay(
    file: PipelineFile,
    instant: Annotated[str, typer.Argument(help="Of the committed interval.")],
    master: Master = "local[*]",
    reason: Reason = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be read and replaced.")] = False,
) -> None:
    """Read a committed interval again; its rows replace the rows of the first reading, in one commit."""
    request = _asked(kind="replay", instant=instant, reason=reason or None, dry_run=dry_run)
    say(run_interval(file, request, master))


def _request(ranges: list[str], from_time: datetime | None, to_time: datetime | None, instant: str | None) -> Request:
    if instant:
        return _asked(kind="replay", instant=instant)
    if ranges:
        return _asked(kind="range", offsets=_offsets(ranges))
    if from_time or to_time:
        times = {"from_time": from_time, "to_time": to_time}
        aware = {k: v if v is None or v.tzinfo else v.replace(tzinfo=UTC) for k, v in times.items()}
        return _asked(kind="range", **aware)
    return Request()


def _asked(**fields: Any) -> Request:
    """What the arguments ask for.

    Raises:
        ActionRequiredError: they don't fit together.
    """
    try:
        return Request.model_validate(fields)
    except ValidationError as error:
        reasons = "; ".join(words_of(one) for one in error.errors(include_url=False))
        raise ActionRequiredError(f"This can't be asked for: {reasons}.", next_step="correct the arguments.") from None


def _offsets(ranges: list[str]) -> dict[str, dict[int, tuple[int, int]]]:
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for text in ranges:
        match = _RANGE.fullmatch(text)
        if match is None or int(match["start"]) >= int(match["end"]):
            raise ActionRequiredError(
                f"'{text}' is no range of offsets.", next_step="write topic[partition]:start-end; the end isn't read."
            )
        found.setdefault(match["topic"], {})[int(match["partition"])] = (int(match["start"]), int(match["end"]))
    return found


def _correct(file: Path, request: Request) -> str:
    """A correction reads nothing, so its interval is its START and its commit."""
    return run_interval(file, request, "local[1]")


def history(file: Path) -> TableHistory:
    """The table's transactions, as recorded in the control topic."""
    from sluice.protocol.history import TableHistory

    pipeline = load_pipeline(file)
    told = TableHistory(pipeline.table_id)
    for batch in _messages(pipeline):
        told.extend(batch)
    return told


def _named(file: Path, instant: str) -> str | None:
    """The table by the name that an instant's START-COMMIT gives it."""
    from sluice.protocol.messages import StartCommit

    messages = (message for batch in _messages(load_pipeline(file)) for _, message in batch)
    starts = (one for one in messages if isinstance(one, StartCommit) and one.transaction == instant)
    return next((one.table for one in starts), None)


def _messages(pipeline: Pipeline) -> Iterator[list[tuple[int, ControlMessage]]]:
    """All tables' messages in the pipeline's control topic, in batches."""
    from sluice.control.reader import ControlReader

    reader = ControlReader(settings(pipeline)[1], pipeline.control_topic)
    bounds = reader.bounds()
    if bounds.end == 0 and pipeline.control.topic is None:  # a table that hasn't moved yet to its pipeline's own topic
        reader = ControlReader(settings(pipeline)[1], SHARED_CONTROL_TOPIC)
        bounds = reader.bounds()
    if bounds.first < bounds.end:
        yield from reader.read(bounds.first, bounds.end)
    if reader.unreadable:
        print(f"{reader.unreadable} messages of the control topic aren't Sluice's.", file=sys.stderr)  # noqa: T201


def _in_short(t: TransactionSummary, *, by_cluster: bool) -> dict[str, Any]:
    ended = t.ended
    planned = [(f"{p.cluster}/" if by_cluster else "", p) for r in t.ranges for p in r.planned]
    what = t.abort_reason or (f"replays {t.replays}" if t.replays else None) or t.service or t.reason or ""
    return {
        "instant": t.instant,
        "kind": t.kind,
        "state": t.state.value,
        "started": t.started.isoformat(timespec="seconds"),
        "seconds": round((ended - t.started).total_seconds(), 1) if ended else None,
        "read": t.total("records_read"),
        "written": t.total("records_written"),
        "quarantined": t.total("records_quarantined"),
        "offsets": ", ".join(f"{of}{p.topic}[{p.partition}] {p.start}-{p.end}" for of, p in planned),
        "run_id": t.run_id,
        "what": what.partition("\n")[0],
    }
