"""`sluice streams`: where a pipeline's streams are, how far each topic is read, and what has changed since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from sluice.cli.output import Column, show
from sluice.cli.places import PipelineFile, coordinator
from sluice.errors import ActionRequiredError

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def streams(file: PipelineFile, json: Json = False) -> None:
    """Show where the streams are by the metadata service, each topic's state and lag, and what has changed."""
    here = coordinator(file)
    if here.pipeline.source.options.streams_settings is None:
        raise ActionRequiredError(
            "The pipeline names its topics itself, and reads no streams.",
            next_step="look at its partitions with `sluice offsets`.",
        )
    followed, position = here.streams()
    known = followed.known
    lag: dict[tuple[str, str], int] = {}
    for bounds in position.state.partitions:
        tp = bounds.topic_partition
        committed = position.checkpoint.next_offset(tp)
        start = bounds.log_start if committed is None else committed
        lag[tp.cluster, tp.topic] = lag.get((tp.cluster, tp.topic), 0) + max(0, bounds.window_end - start)
    rows = [
        {
            "cluster": cluster,
            "connection": known.clusters[cluster].connection,
            "registry": known.clusters[cluster].registry,
            "cluster_id": known.ids.get(cluster),
            "topic": topic,
            "streams": list(log.streams),
            "state": "skipped" if cluster in known.skipped else log.status,
            "moved_from": " of cluster ".join(reversed(move.old))
            if (move := known.move_of((cluster, topic)))
            else None,
            "begins": move.begins if move else {},
            "ends": log.ends,
            "unread": lag.get((cluster, topic)),
        }
        for (cluster, topic), log in sorted(known.items(), key=lambda item: item[0])
    ]
    columns = [Column(name) for name in ("cluster", "connection", "topic", "state")]
    same = "Nothing has changed since the last commit." if position.checkpoint.clusters else "Nothing is committed yet."
    show(
        {"streams": rows, "changes": list(followed.remarks)},
        "streams",
        [*columns, Column("begins", form=_offsets), Column("ends", form=_offsets), Column("unread", right=True)],
        as_json=json,
        caption="; ".join(followed.remarks) or same,
    )


def _offsets(offsets: Mapping[int, Any]) -> str:
    return ", ".join(f"[{partition}] {offset}" for partition, offset in sorted(offsets.items()))
