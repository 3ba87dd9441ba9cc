"""The topics with notes of records that were sent again, as a table's commits name them. Pure.

The notes are in `<control.topic>.redriven`, a name that changes with the pipeline file. A command that looked only
there would send records again whose notes are in an earlier topic. So each commit names all topics that the table has
had, with the ids of their logs: whatever the file says now, all of them are read, and a lost one is noticed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from sluice.errors import ActionRequiredError
from sluice.protocol.offsets import in_words
from sluice.untrusted import Untrusted

GivenUp = tuple[str, str | None]
"""Notes that a person has given up: the topic, and the id of its log where that is known."""
There = Mapping[str, str | None]
"""Topics that are there now, each with the id of its log; None from a broker without ids."""


class NotesTopic(Untrusted):
    """One of them, as a commit names it.

    Attributes:
        topic: its name.
        since: the first interval of which the notes are there; None for those of all intervals before.
        logs: by cluster the ids of the logs that were found under that name, oldest first.
    """

    topic: str
    since: str | None = None
    logs: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    def found(self, there: Mapping[str, There]) -> NotesTopic:
        """The same topic with the ids of its present logs, by cluster."""
        logs = dict(self.logs)
        for cluster, topics in there.items():
            log = topics.get(self.topic)
            if log is not None and log not in logs.get(cluster, ()):
                logs[cluster] = (*logs.get(cluster, ()), log)
        return self.model_copy(update={"logs": logs})


@dataclass(frozen=True)
class LostNotes:
    """Notes that can't be read any more.

    Attributes:
        topic: their topic.
        log: the id of its log, None if it was never known.
        before: the first interval whose notes are elsewhere; None if all may be among them.
    """

    topic: str
    log: str | None
    before: str | None

    @property
    def given_up(self) -> GivenUp:
        """How a note says that they were given up."""
        return self.topic, self.log

    def concern(self, instant: str) -> bool:
        """Whether a record of that interval may be among them."""
        return self.before is None or instant < self.before


@dataclass(frozen=True)
class NotesTopics:
    """All topics of one table's notes.

    Attributes:
        noted: the topics in its last commit, oldest first. The last one takes new notes, until a commit names
            another: so commands with different pipeline files write to the same topic.
        of_file: the one that the pipeline file names now.
    """

    noted: tuple[NotesTopic, ...]
    of_file: str

    @classmethod
    def known_by(cls, noted: Sequence[NotesTopic], left: Sequence[str], of_file: str) -> NotesTopics:
        """The topics of a table.

        Args:
            noted: the topics in its last commit; empty before the first, and of an earlier release.
            left: those of the last commit's control topic if that isn't the pipeline's, and names none.
            of_file: see the class.
        """
        return cls(tuple(noted) or tuple(NotesTopic(topic=topic) for topic in left or (of_file,)), of_file)

    @property
    def current(self) -> str:
        """The topic that takes new notes."""
        return self.noted[-1].topic

    @property
    def others(self) -> tuple[str, ...]:
        """The others, which are read as well. After a restore the file's may have notes, and no commit names it."""
        names = dict.fromkeys((*(one.topic for one in self.noted), self.of_file))
        return tuple(name for name in names if name != self.current)

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return *self.others, self.current

    def of_interval(self, instant: str, there: Mapping[str, There]) -> tuple[NotesTopic, ...]:
        """What an interval's commit is to name: its notes are in the file's topic.

        Args:
            instant: the interval.
            there: the topics that are there now, by cluster; empty where nothing was asked.
        """
        noted = self.noted
        if self.current != self.of_file:
            earlier = next((one for one in noted if one.topic == self.of_file), None)
            own = NotesTopic(topic=self.of_file, since=instant)
            if earlier is not None:  # it has notes of earlier intervals, too
                own = earlier.model_copy(update={"since": None})
            noted = (*(one for one in noted if one is not earlier), own)
        return tuple(one.found(there) for one in noted)

    def lost(self, cluster: str, there: There, given_up: Collection[GivenUp]) -> tuple[LostNotes, ...]:
        """The notes that can't be read any more, and that no person has given up.

        The current topic may be one that nothing was written to yet; whether that held for an earlier one isn't known.

        Args:
            cluster: the cluster that is looked at.
            there: which of `names` are there.
            given_up: lost notes that were given up, as other notes say.
        """
        return tuple(one for one in self._lost(cluster, there) if one.given_up not in given_up)

    def _lost(self, cluster: str, there: There) -> Iterator[LostNotes]:
        for number, one in enumerate(self.noted, 1):
            is_last = number == len(self.noted)
            before = None if is_last else self.noted[number].since
            known = one.logs.get(cluster, ())
            present = there.get(one.topic)
            if one.topic in there:
                gone: Sequence[str | None] = [log for log in known if present is not None and log != present]
            else:
                gone = known or (() if is_last else (None,))
            yield from (LostNotes(one.topic, log, before) for log in gone)


def refuse_lost(lost: Iterable[LostNotes], instants: Iterable[str], next_step: str, **where: object) -> None:
    """Check that nothing of these intervals can have been noted where it can't be read any more.

    Raises:
        ActionRequiredError: something can.
    """
    intervals = sorted(set(instants))
    of_these = [one for one in lost if any(map(one.concern, intervals))]
    if of_these:
        raise ActionRequiredError(
            "Which of these records were sent again isn't known any more: a topic of such notes is gone, or another "
            "one has its name.",
            next_step=next_step,
            **where,
            notes=in_words(sorted({one.topic for one in of_these})),
            notes_ids=in_words(sorted({one.log for one in of_these if one.log})) or None,
            first_instant=intervals[0],
        )
