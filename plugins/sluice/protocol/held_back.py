"""Refuses windows that overlap an open Kafka transaction, whose records can't be read yet and would go missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sluice.errors import RetryableError
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.state import PartitionBounds


def refuse_held_back(
    windows: Mapping[TopicPartition, tuple[int, int]],
    partitions: Sequence[PartitionBounds],
    *,
    by_times: bool,
    table: str,
) -> None:
    """Refuse a window if an open transaction holds back some of its records.

    The run would succeed, and all of the window's records would be believed to be loaded. The schedule reads such
    records later, but a window may lie before the offset at which the schedule begins.

    Args:
        windows: `[start, end)` for each requested partition.
        partitions: the partitions' present bounds.
        by_times: whether record times bound the windows, which then end at the last stable offset if they reach it.
        table: the table's name, for errors.

    Raises:
        RetryableError: the window's end lies in or past an open transaction.
    """
    bounds = {b.topic_partition: b for b in partitions}
    for tp, (start, end) in sorted(windows.items()):
        here = bounds.get(tp)
        if here is None or here.high_watermark <= here.log_end:
            continue
        if start < here.high_watermark and (end > here.log_end or (by_times and end == here.log_end)):
            raise RetryableError(
                "An open Kafka transaction holds back records that this window may have.",
                next_step="the step is retried; if the transaction hangs, end it (kafka-transactions.sh), or end the "
                "window before it.",
                table=table,
                **tp._asdict(),
                last_stable_offset=here.log_end,
                log_end=here.high_watermark,
            )
