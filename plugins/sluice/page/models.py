"""What the versioned read API answers, as models: its OpenAPI is made of them. Pure.

Within version 1 fields are added, and none is removed or given another meaning.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""ISO 8601 in UTC."""


class _Part(BaseModel):
    """A part of an answer; what else is in the service's stays out."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class _Whole(_Part):
    """An answer as the service has it. A field that isn't here yet still comes out, and a test says that it isn't."""

    model_config = ConfigDict(extra="allow")


class Banner(_Whole):
    """Something that can't be read, is being read, or is wrong."""

    level: str
    """info, warning or error."""
    text: str
    since: Time | None
    """The time of the data that is shown instead."""


class Run(_Whole):
    """A DAG run."""

    run_id: str
    state: str
    """Airflow's."""
    run_type: str
    started: Time | None
    ended: Time | None
    note: str | None


class RunWithoutTransaction(_Whole):
    """A DAG run that opened no transaction."""

    run_id: str
    state: str
    """empty, failed or running."""
    started: Time | None
    ended: Time | None
    note: str | None


class Recent(_Whole):
    """A transaction in short."""

    instant: str
    state: str
    records: int


class Health(_Part):
    """How one pipeline is."""

    key: str
    """The pipeline's name: its DAG's id, or the table's where no DAG is known."""
    dag_id: str | None
    state: str
    """ok, running, failing, late, paused, never ran or unknown."""
    why: str | None
    failures: int
    """How many runs in a row have failed."""
    last_commit: Time | None
    last_instant: str | None
    valid_through: Time | None
    """The time up to which the table is complete."""
    lag: int | None
    """Offsets that wait in Kafka; null where the logs' ends aren't known, as those of a database's tables."""


class Pipeline(Health, _Whole):
    """One pipeline."""

    table: str | None
    from_file: bool
    description: str | None
    operation: str | None
    """upsert or append; null without a file."""
    topics: list[str]
    """The topics that are read; of a database its tables."""
    positions: str
    """What offsets are: offsets of Kafka's; or of a database's table times (microseconds since 1970), numbers of a
    column, or snapshots."""
    control_topic: str | None
    schedule: str | None
    last_run: Run | None
    next_run: Time | None
    transactions_total: int
    recent: list[Recent]
    """Its latest transactions, oldest first."""


class Pipelines(_Whole):
    """All pipelines that the caller may see."""

    pipelines: list[Pipeline]
    banners: list[Banner]
    at: Time


class Healths(_Part):
    """How all pipelines are that the caller may see."""

    pipelines: list[Health]
    banners: list[Banner]
    at: Time


class Bar(_Whole):
    """One attempt at a range, in short."""

    began: Time | None
    ended: Time | None
    failed: bool
    counts: bool
    """Whether its files are the committed ones."""


class Transaction(_Whole):
    """One transaction interval. Counts are those of the attempts that are committed."""

    instant: str
    """Its id, by which it is ordered."""
    kind: str
    """continue, backfill, range, replay, correction or service."""
    state: str
    """open, decided, committed, aborted, superseded or void."""
    epoch: int
    dag_id: str
    run_id: str
    reason: str | None
    replays: str | None
    """The instant that it reads again."""
    replayed_by: list[str]
    superseded_by: str | None
    service: str | None
    started: Time
    decided: Time | None
    ended: Time | None
    valid_through: Time | None
    abort_reason: str | None
    missing: list[int]
    """Ranges that it was committed without."""
    losses: list[str]
    remarks: list[str]
    replaced_file_groups: int
    takeovers: int
    offsets_planned: int
    lag_left: int | None
    timeline: str | None
    """Its state on the table's own timeline: completed, pending, archived or absent; null where no timeline is read."""
    ranges: list[list[Bar]]
    records_read: int
    records_written: int
    records_deleted: int
    records_quarantined: int
    records_filtered: int
    records_skipped: int
    bytes_read: int
    bytes_written: int
    gaps: int
    files: int
    file_groups: int


class LagLine(_Whole):
    """The lag that each of the transactions left in one partition, oldest first."""

    name: str
    lags: list[int | None]


class Offset(_Whole):
    """The position of one partition."""

    cluster: str
    """The Kafka connection's id, or the cluster's name."""
    topic: str
    partition: int
    committed: int | None
    """The offset that is read next."""
    instant: str | None
    """The transaction that moved it there."""
    log_end: int | None
    lag: int | None
    last_record: Time | None
    """The time of the last record read, where that is looked for."""


class Offsets(_Whole):
    """The positions of all partitions of one pipeline, the largest lag first."""

    key: str
    offsets: list[Offset]
    banners: list[Banner]
    at: Time


class CommitFacts(_Whole):
    """What a commit's metadata says."""

    operation: str | None
    rows: int
    bytes_written: int
    files: int
    table_partitions: int
    extra: list[str]


class OtherCommit(_Whole):
    """A commit of another writer."""

    instant: str
    action: str
    at: Time | None
    facts: CommitFacts | None = None
    error: str | None = None


class Others(_Whole):
    """What others did to the table."""

    commits: list[OtherCommit]
    more: int
    services: dict[str, int]


class Transactions(_Part):
    """A window of a pipeline's transactions, newest first; `before` of the next one is the last instant here."""

    key: str
    transactions: list[Transaction]
    total: int
    hidden: int
    """Of DAGs that the caller may not read."""
    newer: bool
    older: bool
    first_shown: int
    banners: list[Banner]
    at: Time


class WholePipeline(Transactions, Pipeline):
    """One pipeline with a window of its transactions."""

    runs_without_transaction: list[RunWithoutTransaction]
    lag_lines: list[LagLine]
    partitions: list[Offset]
    """The 200 that lag most; `offsets` has all."""
    partitions_total: int
    others: Others


class Planned(_Whole):
    """Offsets `[start, end)` of a partition, as planned."""

    cluster: str
    topic: str
    partition: int
    start: int
    end: int
    log_end: int | None
    behind: bool
    lag_left: int | None


class ReadPartition(_Whole):
    """What an attempt did with a partition."""

    cluster: str
    topic: str
    partition: int
    start: int
    next_offset: int
    records: int
    gaps: int
    bytes: int
    max_timestamp: Time | None


class Attempt(Bar):
    """One attempt at a range."""

    attempt: str
    parts: int
    parts_seen: int
    error: str | None
    recovery: str | None
    """What is to be done about the error: retry, fail_run or act."""
    records_read: int
    records_written: int
    records_deleted: int
    records_quarantined: int
    records_filtered: int
    records_skipped: int
    bytes_read: int
    bytes_written: int
    gaps: int
    files: int
    file_groups: int
    partitions: list[ReadPartition]


class Range(_Whole):
    """One range with all attempts at it."""

    number: int
    planned: list[Planned]
    planned_total: int
    attempts: list[Attempt]


class CommittedOffset(_Whole):
    """A partition's position after a transaction."""

    cluster: str
    topic: str
    partition: int
    offset: int


class Audit(_Whole):
    """Whether every record that was read is accounted for."""

    read: int
    accounted: int
    holds: bool


class WholeTransaction(Transaction):
    """One transaction with its plan, its ranges and their attempts."""

    pipeline: str
    table: str | None
    positions: str
    """What its offsets are, as of its pipeline."""
    whole_ranges: list[Range]
    idle: list[Planned]
    passed_over: list[Planned]
    others_total: int
    committed: list[CommittedOffset]
    control_offsets: list[int]
    audit: Audit
    run: Run | None
    banners: list[Banner]
    at: Time


class Message(_Whole):
    """A message of the control topic."""

    offset: int
    message: dict[str, Any]
    """As docs/protocol.md has it; secrets are hidden."""


class Messages(_Whole):
    """A transaction's messages."""

    messages: list[Message]
    left_out: int
    gone: int


class OfDag(_Whole):
    """The pipelines of one DAG."""

    pipelines: list[str]


class TransactionOfRun(_Whole):
    """A transaction of a DAG run."""

    pipeline: str
    instant: str
    state: str
    started: Time


class OfRun(_Whole):
    """What one DAG run did."""

    pipelines: list[str]
    transactions: list[TransactionOfRun]
    run: Run | None


class HeldRange(_Whole):
    """A range that a worker has claimed and not reported."""

    pipeline: str
    instant: str
    range: int
    since: Time


class Worker(_Whole):
    """A worker that stays."""

    name: str
    state: str
    """writing, idle, lost (it holds ranges and isn't there any more) or unknown (its group can't be asked for)."""
    host: str | None
    """Where it runs, as Kafka sees it; null where it isn't there."""
    began: Time | None
    """Null until it has claimed a range."""
    memory: int | None
    """MiB of its processes when it last claimed a range; null until then."""
    last_heard: Time | None
    """Its last claim, or the end of a range that it held: an idle one is idle since then."""
    holds: list[HeldRange]


class WorkerGroup(_Whole):
    """A group of workers."""

    group: str
    pipelines: list[str]
    """The pipelines with this group that the caller may see."""
    known: bool
    """Whether Kafka has named the group's members."""
    workers: list[Worker]


class Workers(_Whole):
    """All groups of workers that pipelines name which the caller may see."""

    groups: list[WorkerGroup]
    banners: list[Banner]
    at: Time


class Problem(BaseModel):
    """Why there is no answer."""

    detail: str = Field(description="A sentence.")
