"""The quarantined records that may be sent again: records of their topic's present log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sluice.errors import ActionRequiredError
from sluice.protocol.identity import LogId, LogIds, log_known_by
from sluice.protocol.mapping import Log
from sluice.protocol.offsets import Checkpoint, in_words
from sluice.protocol.quarantine import why_not_again
from sluice.protocol.redriven import Partition, Place, Places


class Origin(NamedTuple):
    """Where records come from: the interval that has set them aside, the topic, and its log as their rows have it."""

    instant: str
    topic: str
    log: LogId


@dataclass
class Unsent:
    """Records that weren't sent again yet: how many of each origin and partition, and the first of each origin."""

    numbers: dict[Origin, Counter[Partition]] = field(default_factory=dict)
    first: dict[Origin, Place] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Iterable[tuple[str, Place, LogId]], sent: Places) -> Unsent:
        """Count them.

        Args:
            rows: instant, place and log of each record.
            sent: the records that were sent again.
        """
        found = cls()
        for instant, place, log in rows:
            if not sent.has(place, log.topic):
                origin = Origin(instant, place[0], log)
                found.numbers.setdefault(origin, Counter())[place[:2]] += 1
                found.first[origin] = min(place, found.first.get(origin, place))
        return found

    @property
    def by_partition(self) -> Counter[Partition]:
        """How many records of each partition."""
        return sum(self.numbers.values(), Counter())

    @property
    def topics(self) -> list[str]:
        """The topics that they are of."""
        return sorted({origin.topic for origin in self.numbers})

    def instants(self, logs: Mapping[str, Log]) -> dict[str, set[str]]:
        """By cluster the intervals that have set them aside.

        Args:
            logs: where the topics are now, by their names in rows.
        """
        found: dict[str, set[str]] = {}
        for origin in self.numbers:
            found.setdefault(logs[origin.topic][0], set()).add(origin.instant)
        return found

    def require_read(self, logs: Mapping[str, Log | None], quarantine: str) -> dict[str, Log]:
        """The logs, all of which are still read: a record sent to another one is never loaded.

        Args:
            logs: where the topics are now, by their names in rows; None for one that isn't read any more.
            quarantine: the quarantine's path, for errors.

        Raises:
            ActionRequiredError: one isn't read.
        """
        gone = sorted(topic for topic, log in logs.items() if log is None)
        if gone:
            of_gone = [origin for origin in self.numbers if origin.topic in gone]
            raise ActionRequiredError(
                "Records to send again are of a topic that isn't read any more, so they would never be loaded.",
                next_step="nothing was sent; name with --offset or --instant those of topics that are read. Have the "
                "others' producer send them to where the stream is now.",
                quarantine=quarantine,
                topics=in_words(gone),
                first="{}[{}]@{}".format(*min(self.first[origin] for origin in of_gone)),
                records=sum(self.numbers[origin].total() for origin in of_gone),
            )
        return {topic: log for topic, log in logs.items() if log is not None}

    def require_same_logs(
        self,
        logs: Mapping[str, Log],
        now: LogIds,
        known: Callable[[Iterable[str]], Mapping[str, Checkpoint]],
        quarantine: str,
    ) -> None:
        """Check that all of them are of their topic's present log: another log has other offsets and readers.

        Args:
            logs: where the topics are now, by their names in rows.
            now: Kafka's own ids of these.
            known: what the table's commits of these instants say of the logs that they have read, with clusters under
                their present names; asked for rows of earlier releases, which don't say so themselves.
            quarantine: the quarantine's path, for errors.

        Raises:
            ActionRequiredError: some are of another log, or it isn't known of which.
        """
        unsaid = sorted({o.instant for o in self.numbers if o.log.topic is None and now.of(*logs[o.topic]).topic})
        checkpoints = known(unsaid) if unsaid else {}
        refused: dict[str, list[Origin]] = {}
        for origin in self.numbers:
            log = origin.log
            if log.topic is None and origin.instant in checkpoints:
                log = log_known_by(checkpoints[origin.instant], *logs[origin.topic])
            reason = why_not_again(log, now.of(*logs[origin.topic]))
            if reason is not None:
                refused.setdefault(reason, []).append(origin)
        for reason, origins in refused.items():
            first = min(self.first[origin] for origin in origins)
            raise ActionRequiredError(
                f"Records that are to be sent again aren't known to be of their topic as it is now: {reason}.",
                next_step="nothing was sent; name with --instant the intervals that have read the topic as it is now. "
                "What these records say can be had from the quarantine; where it still holds, have their producer send "
                "it.",
                quarantine=quarantine,
                topic=first[0],
                first="{}[{}]@{}".format(*first),
                records=sum(self.numbers[origin].total() for origin in origins),
                instants=in_words(sorted({origin.instant for origin in origins})),
            )
