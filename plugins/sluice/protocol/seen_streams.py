"""Where streams were between two intervals, as a watcher of the metadata service has seen them. Pure.

The watcher notes each new mapping in the control topic (MAPPING-SEEN). It decides nothing: START asks the metadata
service itself, and adds what was mapped since the last commit was planned, as if that commit had known it. So a topic
that was mapped for a while is a topic that isn't mapped any more, by the rules of `protocol.streams`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sluice.errors import ActionRequiredError
from sluice.protocol.known_streams import KnownLog, KnownMove, KnownStreams
from sluice.protocol.mapping import ClusterAddress, Log, StreamMapping
from sluice.protocol.messages import ControlMessage, MappingSeen, StartCommit
from sluice.protocol.streams import OnRemoved
from sluice.protocol.transaction import State, TableLog


@dataclass(frozen=True)
class MappingChange:
    """How two mappings differ. Both are empty where only settings differ, such as an address.

    Attributes:
        came: the streams, clusters and topics of the later one alone, in words.
        went: the streams, clusters and topics of the earlier one alone.
    """

    came: tuple[str, ...]
    went: tuple[str, ...]


class WatchedStreams:
    """What a table's control messages say of where its streams are: its last commit, and the notes since.

    Args:
        table: the table's id.
    """

    def __init__(self, table: str) -> None:
        self._log = TableLog(table)
        self._committed: StartCommit | None = None
        self._notes: list[tuple[int, MappingSeen]] = []

    def extend(self, messages: Iterable[tuple[int, ControlMessage]]) -> None:
        """Fold further messages, in order, as (control-topic offset, message)."""
        self._log.extend(messages)
        for transaction in self._log.transactions.values():
            if transaction.state is State.COMMITTED and transaction.start.streams is not None:
                self._committed = transaction.start
        since = self._committed.read_position if self._committed is not None else 0
        self._notes = [(at, note) for at, note in (*self._notes, *self._log.seen) if at >= since]
        self._log.forget_ended()

    @property
    def known(self) -> KnownStreams | None:
        """The mapping that was noted last, or else that of the last commit; None before the first.

        A note before the position from which the last commit was planned is in that commit.
        """
        if self._notes:
            return self._notes[-1][1].streams
        return self._committed.streams if self._committed is not None else None


def as_seen(mapping: StreamMapping) -> KnownStreams:
    """A mapping in the form of a note."""
    noted = KnownStreams(digest=mapping.digest, clusters=dict(mapping.clusters))
    for log, mapped in sorted(mapping.logs.items(), key=lambda item: item[0]):
        noted = noted.with_log(log, KnownLog(streams=mapped.streams, starting=mapped.starting, ends=mapped.ends))
        if mapped.move is not None:
            cluster, topic = mapped.move.old
            noted = noted.with_move(log, KnownMove(cluster=cluster, topic=topic, mirrored=mapped.move.mirror != "none"))
    return noted


def starting_latest(now: KnownStreams, before: KnownStreams | None) -> tuple[Log, ...]:
    """The topics that are new in a mapping, and start at the end that their logs have now."""
    known = before.logs if before is not None else {}
    return tuple(log for log, said in now.items() if said.starting == "latest" and log[1] not in known.get(log[0], {}))


def starting_at(now: KnownStreams, offsets: Mapping[Log, Mapping[int, int]]) -> KnownStreams:
    """A mapping whose topics start at these offsets, by partition."""
    for log, said in tuple(now.items()):
        if log in offsets:
            now = now.with_log(log, said.model_copy(update={"starting": dict(offsets[log])}))
    return now


def change(before: KnownStreams, now: KnownStreams) -> MappingChange:
    """How a mapping differs from the one before."""
    then, since = _in_words(before), _in_words(now)
    return MappingChange(tuple(one for one in since if one not in then), tuple(one for one in then if one not in since))


def _in_words(known: KnownStreams) -> dict[str, None]:
    mapped = [(log, said) for log, said in known.items() if said.status == "active"]
    streams = {f"stream {stream}": None for stream in sorted({one for _, said in mapped for one in said.streams})}
    clusters = {f"cluster {name}": None for name in sorted({cluster for (cluster, _), _ in mapped})}
    return {**streams, **clusters, **{_named(log): None for log in sorted(log for log, _ in mapped)}}


def having_seen(
    known: KnownStreams | None,
    seen: Sequence[KnownStreams],
    mapping: StreamMapping,
    on_removed: OnRemoved,
    table: str,
) -> tuple[KnownStreams | None, tuple[str, ...]]:
    """The mapping of the last commit with all mapped since, and a sentence for people on each such topic.

    A topic is added that the present mapping doesn't name and of which the last commit's interval didn't read on. A
    cluster is added under the name that its address has now.

    Args:
        known: the mapping of the last commit, with each cluster under its present name; None before the first.
        seen: the mappings that were seen since, oldest first.
        mapping: the present one; empty if the metadata service doesn't answer.
        on_removed: what to do with unread records of removed topics: `drop` adds none.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: a cluster had a name that another address has now.
    """
    found = known
    remarks: list[str] = []
    for one in seen:
        logs = [(log, said) for log, said in one.items() if log[0] in one.clusters]
        for (there, topic), said in sorted(logs, key=lambda item: item[0]):
            before = found or KnownStreams()
            addresses = {**before.clusters, **mapping.clusters}
            address = one.clusters[there]
            log = _present_name(there, address, addresses), topic
            if log in mapping.logs or not _is_left(log, before):
                continue
            why = _why_not(one, (there, topic), on_removed)
            if why is not None:
                remark = f"{_named(log)} was mapped for a while; its unread records are skipped ({why})"
                remarks += [remark] if remark not in remarks else []
                continue
            if log[0] in addresses and not _is_same_place(addresses[log[0]], address):
                raise ActionRequiredError(
                    "A topic was mapped for a while on a cluster whose name has another address now, so it isn't known "
                    "where to read it.",
                    next_step="map it again, or set the source's `on_removed` to drop for one run to skip it.",
                    table=table,
                    cluster=there,
                    topic=topic,
                    connection=address.connection,
                    connection_now=addresses[log[0]].connection,
                )
            at_its_end = "; nothing of it is read that was sent before now" if said.starting == "latest" else ""
            remarks.append(f"{_named(log)} was mapped for a while since the last commit{at_its_end}")
            clusters = {log[0]: address, **before.clusters}
            found = before.with_log(log, said).model_copy(update={"clusters": clusters})
    return found, tuple(remarks)


def _named(log: Log) -> str:
    return f"{log[1]} of cluster {log[0]}"


def _present_name(name: str, address: ClusterAddress, addresses: dict[str, ClusterAddress]) -> str:
    if name in addresses and _is_same_place(addresses[name], address):
        return name
    return next((other for other, at in sorted(addresses.items()) if _is_same_place(at, address)), name)


def _is_same_place(one: ClusterAddress, other: ClusterAddress) -> bool:
    return (one.connection, one.bootstrap_servers) == (other.connection, other.bootstrap_servers)


def _is_left(log: Log, known: KnownStreams) -> bool:
    """Whether a topic isn't read on by itself: it was never read, or only up to an end that is known."""
    read = known.logs.get(log[0], {}).get(log[1])
    return (read is None or read.status == "draining") and known.mirrored_in(log) is None


def _why_not(seen: KnownStreams, log: Log, on_removed: OnRemoved) -> str | None:
    move = seen.move_of(log)
    if move is not None and move.mirrored:  # records read elsewhere may be its originals
        return "it had `moved_from` with a mirror"
    return "on_removed: drop" if on_removed == "drop" else None
