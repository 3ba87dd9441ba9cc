"""Whether a log was truncated below the position: by the election of a replica that lacked the last records.

Kafka's protocol has a request for that (OffsetForLeaderEpoch), which librdkafka sends before it fetches; but its error
lacks the offset at which the logs diverge, and without divergence it reports nothing. Each record's batch has the epoch
of the leader that accepted it, and epochs rise with offsets: the logs diverge at the first record of a later epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sluice.kafka.config import KafkaSettings
from sluice.protocol.offsets import TopicPartition
from sluice.protocol.window import find_all, first_past
from sluice.sources.kafka.probe import RecordHead, RecordProbe


class LogRead(NamedTuple):
    """A log's read offsets, and its present bounds.

    Attributes:
        end: the offset up to which it was read.
        leader_epoch: its leader's epoch at that time or later, so that no record read has a later one.
        log_start: where it starts now.
        log_end: where it ends now, with records of open transactions.
    """

    end: int
    leader_epoch: int
    log_start: int
    log_end: int


def truncations(settings: KafkaSettings, logs: Mapping[TopicPartition, LogRead]) -> dict[TopicPartition, int]:
    """The logs that have lost records that were read, each with the offset from which its records differ.

    Raises:
        RetryableError: the brokers don't answer in time.
    """
    found = {tp: log.log_end for tp, log in logs.items() if log.log_end < log.end}
    suspects = {tp: log for tp, log in logs.items() if log.log_start < min(log.end, log.log_end)}
    if not suspects:
        return found
    with RecordProbe(settings, "read_uncommitted") as probe:

        def ask(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, bool]:
            first = probe.first(offsets, lambda _tp, _seen: True)
            return {tp: _is_other(seen, suspects[tp]) for tp, seen in first.items()}

        last = probe.first({tp: min(log.end, log.log_end) - 1 for tp, log in suspects.items()}, lambda _tp, _seen: True)
        same = {tp for tp, seen in last.items() if seen is not None and _is_known(seen, suspects[tp])}
        searches = {
            tp: first_past(log.log_start, min(log.end, log.log_end)) for tp, log in suspects.items() if tp not in same
        }
        parted = find_all(searches, ask)
    return found | {tp: at for tp, at in parted.items() if at < suspects[tp].end}


def _is_other(seen: RecordHead | None, log: LogRead) -> bool:
    return seen is not None and seen.offset < log.end and (seen.leader_epoch or 0) > log.leader_epoch


def _is_known(seen: RecordHead, log: LogRead) -> bool:
    return seen.offset < log.end and (seen.leader_epoch or 0) <= log.leader_epoch
