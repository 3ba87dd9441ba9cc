"""Compares topics with their table: every record of the committed offsets, interval by interval where that can be.

An append's row has the instant of the interval that wrote it, so each interval is compared by itself, and those whose
records Kafka still has can be compared after retention has taken others. An upsert's rows are what the last version of
each key comes to, which takes all committed offsets.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from sluice.connectors.sink import Pinned
from sluice.coordinator import Position
from sluice.errors import ActionRequiredError, RetryableError, SluiceError, from_report
from sluice.kafka.config import Connections, KafkaSettings
from sluice.participant.launch.submit import driver_environment, spark_submit
from sluice.pipeline.model import Pipeline
from sluice.protocol import coverage
from sluice.protocol.history import TableHistory, TransactionSummary
from sluice.protocol.identity import LogId, present_names
from sluice.protocol.messages import PlannedRange, TableSpec
from sluice.protocol.offsets import Checkpoint, OffsetRange, TopicPartition
from sluice.protocol.transaction import State

APPLICATION = Path(__file__).with_name("verify_table.py")
WHOLE_TABLE = "all"


@dataclass(frozen=True)
class Compared:
    """One interval, or the whole table: how many rows either side has, and whether all are the same."""

    instant: str
    in_topic: int
    in_table: int
    same: bool


@dataclass(frozen=True)
class Verification:
    """The compared parts, and the parts that could not be compared.

    Attributes:
        intervals: the compared intervals.
        not_in_topic: intervals whose records are in no log any more that is read.
        columns_left_out: columns whose values the table's storage writes in another way than they were given.
        keys_left_out: how many keys have versions in several partitions, of which nothing says which is the last.
        not_in_table: intervals whose rows the table's storage can't show any more, or not as they would be written now.
        why_not: the reasons for that, in words.
        offsets_left_out: offsets of the table of which the control topic names no interval.
        tables_left_out: further tables that no interval has loaded yet.
        taken_back: intervals of the control topic whose offsets the table lacks, or has by a later interval.
    """

    intervals: tuple[Compared, ...]
    not_in_topic: tuple[str, ...] = ()
    columns_left_out: tuple[str, ...] = ()
    keys_left_out: int = 0
    not_in_table: tuple[str, ...] = ()
    why_not: tuple[str, ...] = ()
    offsets_left_out: int = 0
    tables_left_out: tuple[str, ...] = ()
    taken_back: tuple[str, ...] = ()

    @property
    def same(self) -> bool:
        """Something was compared, and every row that could be compared is in the table once, and no other."""
        return bool(self.intervals) and all(i.same for i in self.intervals)

    def in_words(self) -> str:
        """The verdict, as a sentence."""
        rows = sum(i.in_table for i in self.intervals)
        gone = "are not in Kafka any more, or on a cluster that isn't read now"
        left_out = f" {len(self.not_in_topic)} intervals {gone}." if self.not_in_topic else ""
        if self.columns_left_out:
            left_out += (
                f" Not compared, since the table writes them in its own way: {', '.join(self.columns_left_out)}."
            )
        if self.keys_left_out:
            left_out += f" {self.keys_left_out:,} keys were left out: they are in several partitions, without an order."
        if self.not_in_table:
            left_out += f" {len(self.not_in_table)} intervals can't be compared: {'; '.join(self.why_not)}."
        if self.offsets_left_out:
            left_out += (
                f" {self.offsets_left_out:,} offsets of the table are of no interval that the control topic names: "
                "their rows were not compared."
            )
        if self.tables_left_out:
            left_out += f" Not compared, since no interval has loaded them yet: {', '.join(self.tables_left_out)}."
        if self.taken_back:
            left_out += (
                f" {len(self.taken_back)} intervals were not compared: a restore or a roll-back took them off the "
                "table, or their log has other records now."
            )
        if not self.intervals:
            return f"Nothing was compared.{left_out}"
        if self.same:
            return f"Topic and table are the same, row for row: {rows:,} rows.{left_out}"
        wrong = [i.instant for i in self.intervals if not i.same]
        return f"Topic and table DIFFER in {len(wrong)} of {len(self.intervals)}: {', '.join(wrong[:5])}.{left_out}"


@dataclass(frozen=True)
class Interval:
    """The offsets whose rows bear an instant.

    Attributes:
        instant: the instant, or `WHOLE_TABLE`.
        ranges: the offsets, with each cluster under the name that it had then.
        cluster_ids: Kafka's own ids of these clusters, as far as they were noted.
    """

    instant: str
    ranges: tuple[OffsetRange, ...]
    cluster_ids: Mapping[str, str | None] = field(default_factory=dict)

    def of_topics(self, takes: Callable[[str], bool]) -> Interval:
        """The same, of those topics alone."""
        return replace(self, ranges=tuple(r for r in self.ranges if takes(r.topic_partition.topic)))

    def present(self, ids: Mapping[str, str | None], *, one_place: bool) -> dict[str, str]:
        """The present names of its clusters, without clusters that are gone or replaced.

        Args:
            ids: Kafka's own ids of the clusters by their present names.
            one_place: see `under_present_names`.
        """
        then = {r.topic_partition.cluster: self.cluster_ids.get(r.topic_partition.cluster) for r in self.ranges}
        names = present_names(then, ids, one_place=one_place)
        logs = {name: LogId(then[name]).other_than(LogId(ids.get(now))) for name, now in names.items()}
        return {name: now for name, now in names.items() if now in ids and logs[name] is None}


def committed_intervals(history: TableHistory) -> list[Interval]:
    """The intervals whose rows an append table has: committed ones that were not replaced by a replay."""
    return [
        Interval(t.instant, _read_by(t), t.cluster_ids)
        for t in history.transactions.values()
        if t.state is State.COMMITTED and not history.replayed_by.get(t.instant) and _read_by(t)
    ]


def standing(intervals: Sequence[Interval], position: Position) -> list[Interval]:
    """The intervals whose offsets the table has, and that no later one has read again.

    A restore takes commits off the table, but not out of the control topic. Each offset of a log is committed once: so
    an interval is gone whose offsets the table lacks, and one of which a later interval has read any.

    Args:
        intervals: of an append table, without replays, in the order of their commits.
        position: the table's.
    """
    there: dict[TopicPartition, coverage.Coverage] = {}
    found = []
    for interval in reversed(intervals):
        now = interval.present(position.state.cluster_ids, one_place=position.streams is None)
        read: dict[TopicPartition, coverage.Coverage] = {}
        for r in interval.ranges:
            cluster = now.get(r.topic_partition.cluster)
            if cluster is not None:  # else nothing of it can be compared
                tp = r.topic_partition._replace(cluster=cluster)
                read[tp] = coverage.add(read.get(tp, ()), (r.start, r.end))
        spans = [(tp, start, end) for tp, pieces in read.items() for start, end in pieces]
        lacks = any(coverage.missing(position.checkpoint.covered(tp), start, end) for tp, start, end in spans)
        again = any(coverage.missing(there.get(tp, ()), start, end) != ((start, end),) for tp, start, end in spans)
        if not lacks and not again:
            found.append(interval)
            there |= {tp: coverage.add(there.get(tp, ()), *pieces) for tp, pieces in read.items()}
    return found[::-1]


def _read_by(transaction: TransactionSummary) -> tuple[OffsetRange, ...]:
    return tuple(
        OffsetRange(p.topic_partition, p.start, p.end)
        for r in transaction.ranges
        if r.counting is not None
        for p in r.planned
    )


def require_comparable(pipeline: Pipeline) -> None:
    """Check that the sink's rows can be read for a comparison.

    Raises:
        ActionRequiredError: its section names nothing that reads them, or says why they can't be.
    """
    changing = "rows of the source change, and a query shows them as they are now" * pipeline.source.capabilities.rows
    if changing or pipeline.sink.options.not_comparable:
        raise ActionRequiredError(
            f"Topic and table can't be compared: {changing or pipeline.sink.options.not_comparable}.",
            next_step="compare the table with its source by other means; `sluice transactions` says what each interval "
            "has read and written.",
            table=pipeline.table_id,
        )
    if not pipeline.sink.options.table_rows:
        raise ActionRequiredError(
            f"Topic and table can't be compared: {pipeline.sink.place} has nothing that reads its rows for it.",
            next_step="compare the table with its source by other means; `sluice transactions` says what each interval "
            f"has read and written. The author of {pipeline.sink.place} has to add `table_rows` to its section, as "
            "CONTRIBUTING.md says under `Add a sink`.",
            table=pipeline.table_id,
        )


def verify_tables(
    pipeline: Pipeline,
    position: Position,
    pinned: Pinned,
    history: TableHistory,
    source: KafkaSettings,
    control: KafkaSettings,
    connections: Connections,
    *,
    master: str,
    named: Callable[[str], str | None],
) -> Verification:
    """Compare all tables that a pipeline loads, one by one; see `verify_table`.

    Args:
        pipeline: the tables' pipeline.
        position: the present state of the tables and their clusters.
        pinned: how records become rows of the tables, and of which columns.
        history: the transactions.
        source: the cluster that is read.
        control: the cluster that holds the control topic.
        connections: the settings of a Kafka connection by its id, for clusters of streams.
        master: Spark's.
        named: the name that the START-COMMIT of an instant gives the table; None if the control topic doesn't have it.

    Raises:
        ActionRequiredError: there is nothing to compare; and as `verify_table`.
        RetryableError: as `verify_table`.
    """
    same = (history, source, control, connections)
    taken = {topic for table in pinned.further for topic in table.topics}
    first = verify_table(pipeline, position, pinned, *same, master=master, takes=lambda topic: topic not in taken)
    if not pinned.further:
        _require_compared(first, pipeline, position, named)
        return first
    each = {pinned.writer.name: first}
    alone = {one.table_id: one for _, one in pipeline.further_tables}
    for table in pinned.further:
        of_table = Pinned(table.records, table.writer)
        each[table.writer.name] = verify_table(
            alone[table.writer.path], position, of_table, *same, master=master, takes=table.topics.__contains__
        )
    whole = Verification(
        intervals=tuple(
            replace(one, instant=f"{name} {one.instant}") for name, found in each.items() for one in found.intervals
        ),
        not_in_topic=tuple(f"{name} {instant}" for name, found in each.items() for instant in found.not_in_topic),
        columns_left_out=tuple(f"{name}.{one}" for name, found in each.items() for one in found.columns_left_out),
        keys_left_out=sum(found.keys_left_out for found in each.values()),
        not_in_table=tuple(f"{name} {instant}" for name, found in each.items() for instant in found.not_in_table),
        why_not=tuple(sorted({words for found in each.values() for words in found.why_not})),
        offsets_left_out=sum(found.offsets_left_out for found in each.values()),
        taken_back=tuple(dict.fromkeys(instant for found in each.values() for instant in found.taken_back)),
        tables_left_out=tuple(name for name, found in each.items() if found == Verification(())),
    )
    _require_compared(whole, pipeline, position, named)
    return whole


def _require_compared(
    found: Verification, pipeline: Pipeline, position: Position, named: Callable[[str], str | None]
) -> None:
    """Check that something was compared: otherwise nothing is known of the table, and least that it is right.

    Raises:
        ActionRequiredError: nothing was, and why.
    """
    elsewhere = "compare the table with the system that produced the records; `sluice transactions` says what each "
    elsewhere += "interval has read and written."
    where: dict[str, str | None] = {"table": pipeline.table_id}
    nothing = "Topic and table can't be compared: "
    if found.intervals:
        if found.keys_left_out and not any(one.in_topic or one.in_table for one in found.intervals):
            raise ActionRequiredError(
                f"{nothing}each of the {found.keys_left_out:,} keys has versions in several partitions, and nothing "
                "says which is the last.",
                next_step=elsewhere,
                **where,
            )
        return
    if found.not_in_topic:
        raise ActionRequiredError(
            f"{nothing}of none of its {len(found.not_in_topic):,} intervals all records are in Kafka still, on "
            "clusters that are read now.",
            next_step=elsewhere,
            **where,
            last_interval=found.not_in_topic[-1],
        )
    where["control_topic"] = pipeline.control_topic
    if position.instant is None and not found.offsets_left_out:
        raise ActionRequiredError(
            f"{nothing}no interval of it has been committed yet.",
            next_step="run an interval first. If the table was loaded already, compare the path in the pipeline file "
            "with that of the pipeline that loads it.",
            **where,
        )
    name = named(position.instant) if position.instant is not None else None
    if name is not None and name != pipeline.table_id:
        raise ActionRequiredError(
            f"{nothing}the control topic has its intervals under another name than the pipeline file's.",
            next_step="write the table into the pipeline file as the pipeline has it that loads the table: "
            f"{name}. Messages name a table by its spelling there, without following symbolic links.",
            **where,
            named=name,
            last_interval=position.instant,
        )
    raise ActionRequiredError(
        f"{nothing}the control topic has no committed interval of it, though the table has "
        f"{found.offsets_left_out:,} offsets.",
        next_step="compare control topic and Kafka connection in the pipeline file with those of the pipeline that "
        "loads the table. If another loader has written the table, or the control topic was lost, compare the table "
        "with the system that produced the records.",
        **where,
        last_interval=position.instant,
    )


def verify_table(
    pipeline: Pipeline,
    position: Position,
    pinned: Pinned,
    history: TableHistory,
    source: KafkaSettings,
    control: KafkaSettings,
    connections: Connections,
    *,
    master: str,
    takes: Callable[[str], bool] = lambda _topic: True,
) -> Verification:
    """Compare in a Spark job, and return its result.

    Args:
        pipeline: the table's pipeline.
        position: the present state of the table and its clusters.
        pinned: how records become rows, and of which columns.
        history: the table's transactions.
        source: the cluster that is read.
        control: the cluster that holds the control topic.
        connections: the settings of a Kafka connection by its id, for clusters of streams.
        master: Spark's.
        takes: whether a topic's records are the table's.

    Raises:
        ActionRequiredError: the sink can't be compared, or Kafka has lost records of a table that is compared as a
            whole.
        RetryableError: the Spark job failed.
    """
    require_comparable(pipeline)
    log_start = {b.topic_partition: b.log_start for b in position.state.partitions}

    ids, one_place = position.state.cluster_ids, position.streams is None

    def is_there(interval: Interval) -> bool:
        now = interval.present(ids, one_place=one_place)
        logs = [r.topic_partition._replace(cluster=now.get(r.topic_partition.cluster, "")) for r in interval.ranges]
        return all(log_start.get(tp, r.end) <= r.start for tp, r in zip(logs, interval.ranges, strict=True))

    back: tuple[str, ...] = ()
    if pipeline.sink.options.rows_are_told_apart:
        committed = committed_intervals(history)
        stand = standing(committed, position)
        names = {one.instant for one in stand}
        back = tuple(one.instant for one in committed if one.instant not in names)
        intervals = [one for one in (i.of_topics(takes) for i in stand) if one.ranges]
    else:
        whole = Interval(WHOLE_TABLE, _covered(position.checkpoint), position.checkpoint.cluster_ids)
        intervals = [one for one in (whole.of_topics(takes),) if one.ranges]
        if intervals and not is_there(intervals[0]):
            raise ActionRequiredError(
                f"{_why_whole(pinned.writer)}, so it can be compared only while Kafka has every record that it was "
                "loaded from, in topics and on clusters that are read.",
                next_step="compare it with the system that produced the records.",
                table=pipeline.table_id,
                not_read=", ".join(sorted(position.checkpoint.clusters.keys() - ids.keys())) or None,
            )
    there = [i for i in intervals if is_there(i)]
    gone = tuple(i.instant for i in intervals if not is_there(i))
    unknown = _offsets_left_out(position, intervals, takes)
    if not there:
        return Verification((), gone, offsets_left_out=unknown, taken_back=back)
    task = _task(pipeline, pinned, there, position)
    of_streams = {address["connection"] for address in task["clusters"].values()}
    environment = driver_environment(source, control, master, map(connections, of_streams))
    found = _compare(pipeline, task, environment, master, gone)
    return replace(found, offsets_left_out=unknown, taken_back=back)


def _offsets_left_out(position: Position, intervals: Sequence[Interval], takes: Callable[[str], bool]) -> int:
    """How many of the table's offsets, as far as its topics have them still, no interval has read."""
    one_place, read = position.streams is None, dict[TopicPartition, list[tuple[int, int]]]()
    for interval in intervals:
        now = interval.present(position.state.cluster_ids, one_place=one_place)
        for r in interval.ranges:
            tp = r.topic_partition
            read.setdefault(tp._replace(cluster=now.get(tp.cluster, tp.cluster)), []).append((r.start, r.end))
    log_start = {b.topic_partition: b.log_start for b in position.state.partitions}
    spans = [r for r in _covered(position.checkpoint) if takes(r.topic_partition.topic)]
    return sum(
        coverage.size(coverage.missing(coverage.add(read.get(r.topic_partition, ())), start, r.end))
        for r in spans
        if (start := max(r.start, log_start.get(r.topic_partition, 0))) < r.end
    )


def _why_whole(table: TableSpec) -> str:
    if table.upserts:
        return "An upsert table's rows are what all records come to"
    return "The table's rows don't say which records they are of"


def _covered(checkpoint: Checkpoint) -> tuple[OffsetRange, ...]:
    """All offsets of the table, of all clusters and topics."""
    logs = [(name, topic) for name, cluster in checkpoint.clusters.items() for topic in cluster.topics]
    partitions = [tp for log in logs for tp in checkpoint.known_partitions(*log)]
    return tuple(OffsetRange(tp, *span) for tp in partitions for span in checkpoint.covered(tp))


def _task(pipeline: Pipeline, pinned: Pinned, intervals: Sequence[Interval], position: Position) -> dict[str, Any]:
    """The Spark job's arguments."""
    ids, streams = position.state.cluster_ids, position.streams
    one_place = streams is None
    present = {i.instant: i.present(ids, one_place=one_place) for i in intervals}
    return {
        "source": pipeline.source.name,
        "sink": pipeline.sink.name,
        "records": pinned.records.model_dump(mode="json", exclude_none=True),
        "writer": pinned.writer.model_dump(mode="json"),
        "record_key": pinned.writer.record_key if pinned.writer.upserts else (),
        "whole": not pipeline.sink.options.rows_are_told_apart,
        "keys_stay": pipeline.sink.capabilities.finds_keys_by_partition,
        "isolation_level": pipeline.source.options.read_isolation,
        "of_streams": streams is not None,
        "clusters": {name: streams.clusters[name].model_dump() for name in ids} if streams is not None else {},
        "intervals": [
            {
                "instant": i.instant,
                "ranges": [_named(r, present[i.instant], position).model_dump() for r in i.ranges],
                "clusters": {name: now for name, now in present[i.instant].items() if now != name},
            }
            for i in intervals
        ],
    }


def _named(r: OffsetRange, present: Mapping[str, str], position: Position) -> PlannedRange:
    """A range with the name that its topic has in rows."""
    planned = PlannedRange.of(r)
    if position.streams is None:
        return planned
    now = present[planned.cluster]
    row_topic = position.streams.row_topic(planned.topic, now, position.state.cluster_ids[now])
    return planned.model_copy(update={"row_topic": row_topic})


def _compare(
    pipeline: Pipeline, task: Mapping[str, Any], environment: Mapping[str, str], master: str, gone: tuple[str, ...]
) -> Verification:
    with tempfile.TemporaryDirectory(prefix="sluice-verify-") as folder:
        given, answer = Path(folder) / "task.json", Path(folder) / "answer.json"
        given.write_text(json.dumps(task))
        command = spark_submit(pipeline, master, APPLICATION, [str(given), str(answer)])
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0 or not answer.exists():
            raise RetryableError(
                "The Spark job that compares topic and table failed.",
                next_step="read the end of its log here, and try again.",
                table=pipeline.table_id,
                log="\n".join((done.stdout + done.stderr).strip().splitlines()[-15:]),
            )
        found = json.loads(answer.read_text())
    if "error" in found:
        raise from_report(found["recovery"], found["error"])
    intervals, not_in_table, why_not = (tuple(found[name]) for name in ("intervals", "not_in_table", "why_not"))
    if not_in_table and not intervals:
        raise ActionRequiredError(
            f"Topic and table can't be compared: {'; '.join(why_not)}.",
            next_step="compare the table with the system that produced the records; `sluice transactions` says what "
            "each interval has read and written.",
            table=pipeline.table_id,
        )
    left_out = (tuple(found["columns_left_out"]), found["keys_left_out"])
    return Verification(tuple(Compared(**one) for one in intervals), gone, *left_out, not_in_table, why_not)


def as_json(found: Verification | SluiceError) -> str:
    """The answer of the Spark job."""
    if isinstance(found, SluiceError):
        return json.dumps({"error": str(found), "recovery": found.recovery})
    return json.dumps(asdict(found))
