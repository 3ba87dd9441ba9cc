"""Committed offsets from which reading can't continue, and where the pipeline's `on_offset_loss` resumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sluice.errors import ActionRequiredError
from sluice.protocol import coverage
from sluice.protocol.coverage import Coverage
from sluice.protocol.identity import Topic
from sluice.protocol.offsets import Checkpoint, TopicPartition
from sluice.protocol.state import ClusterState, PartitionBounds

OnOffsetLoss = Literal["fail", "earliest", "latest"]


@dataclass(frozen=True)
class OffsetLoss:
    """Offsets that can't be read any more, and where the pipeline's `on_offset_loss` resumes.

    With `another_log` the table's offsets refer to a log that is gone, and mean nothing in this one. `truncated_at` is
    the offset from which they mean nothing because an election has truncated the log there.
    """

    topic_partition: TopicPartition
    committed: int
    resumed_at: int
    reason: str
    another_log: bool = False
    truncated_at: int | None = None

    def __str__(self) -> str:
        return f"{self.topic_partition} committed {self.committed}, resumed at {self.resumed_at}: {self.reason}"


def losses_of_replaced_logs(
    checkpoint: Checkpoint, state: ClusterState, others: Mapping[Topic, str], policy: OnOffsetLoss, table: str
) -> list[OffsetLoss]:
    """The losses of partitions that the present log doesn't have."""
    there = {b.topic_partition for b in state.partitions}
    losses = []
    for (cluster, topic), reason in others.items():
        for tp in checkpoint.known_partitions(cluster, topic):
            if tp in there:
                continue
            if policy == "fail":
                raise _loss(tp, checkpoint.end_of_known(tp), reason, table)
            losses.append(OffsetLoss(tp, checkpoint.end_of_known(tp), 0, reason, another_log=True))
    return losses


class Lost(NamedTuple):
    """Why reading can't continue from a committed offset."""

    reason: str
    another_log: bool = False
    truncated_at: int | None = None
    identity_unknown: bool = False


def find_lost(bounds: PartitionBounds, committed: int, checkpoint: Checkpoint, state: ClusterState) -> Lost | None:
    """Why reading a partition can't continue from its committed offset; None if it can."""
    tp = bounds.topic_partition
    at, known = state.truncated.get(tp), checkpoint.topic(tp.cluster, tp.topic)
    past_the_end = checkpoint.end_of_settled(tp) > bounds.end_of_records
    if at is None and past_the_end and known and known.topic_id and state.topic_ids.get((tp.cluster, tp.topic)):
        at = bounds.end_of_records  # the same topic: `other_logs` has checked that
    reasons = []
    if committed < bounds.log_start:
        reasons.append(f"retention or a delete has removed the records up to {bounds.log_start}")
    if at is not None:
        reasons.append(f"the log was truncated at {at}, by an election of a replica that lacked what came after it")
    if reasons:
        return Lost("; ".join(reasons), truncated_at=at)
    if past_the_end:
        return Lost(f"the committed offset is past the log's end {bounds.end_of_records}", True, identity_unknown=True)
    return None


def resume(bounds: PartitionBounds, committed: int, lost: Lost, policy: OnOffsetLoss, table: str) -> OffsetLoss:
    """Where to resume after a loss, by the policy.

    Raises:
        ActionRequiredError: the policy is `fail`, or it might load records again.
    """
    tp = bounds.topic_partition
    at = lost.truncated_at
    if lost.identity_unknown and policy == "earliest":
        raise ActionRequiredError(
            f"It is unknown whether the log is another one: {lost.reason}, and the topic's id isn't known. If it is "
            "the same log, truncated, its records are in the table.",
            next_step="set the source's `on_offset_loss` to latest for one run, or load the topic into a new table.",
            table=table,
            **tp._asdict(),
            committed_offset=committed,
        )
    if policy == "fail":
        raise _loss(tp, committed, lost.reason, table, log_start=bounds.log_start, log_end=bounds.log_end)
    retained = committed < bounds.log_start
    if at is not None and at >= committed and not retained:  # the lost records were read ahead of the position
        resumed = committed
    elif policy == "latest":
        resumed = bounds.log_end
    elif at is None or retained:
        resumed = bounds.log_start
    else:  # the rest of a truncated log was read already
        resumed = max(at, bounds.log_start)
    return OffsetLoss(tp, committed, resumed, lost.reason, lost.another_log, at)


def still_valid(offsets: Coverage, loss: OffsetLoss | None) -> Coverage:
    """The part of a partition's offsets that still refers to the present log."""
    if loss is None:
        return offsets
    if loss.another_log:
        return ()
    return offsets if loss.truncated_at is None else coverage.before(offsets, loss.truncated_at)


def _loss(tp: TopicPartition, committed: int, reason: str, table: str, **bounds: int) -> ActionRequiredError:
    return ActionRequiredError(
        f"Committed offsets can't be read any more: {reason}.",
        next_step="find out what was lost; then set the source's `on_offset_loss` to earliest (continue with the "
        "remaining records) or latest (continue from now) for one run, and back to fail.",
        table=table,
        **tp._asdict(),
        committed_offset=committed,
        **bounds,
    )
