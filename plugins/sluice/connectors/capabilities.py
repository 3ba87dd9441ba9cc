"""Capabilities of sources and sinks, and a pipeline's requirements: compared once, when its file is read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sluice.protocol.services import Service


@dataclass(frozen=True)
class SourceCapabilities:
    """A source's capabilities.

    Attributes:
        replayable: the same offsets hold the same records at every reading, as long as they exist. Without it a
            repeated attempt could write other records than the attempt that it replaces.
        ordered: a partition's records are in the order in which they happened.
        windows_by_time: it can find the offset at which the records of a time begin.
        keyed: its records have keys as well as values.
        holds_control_log: its connection is a Kafka cluster, which can hold the control topic.
        rows: its records' values are already rows: structs of the columns that `SourceOptions.row_schema` returns.
        typed: its records' values are structs of typed fields, not bytes; the pipeline file names the fields.
        sparse: its offsets don't count records, such as times: the source itself limits an interval's records by
            `max_records`, and a difference of offsets is no lag.
        repeats: an interval may repeat records of earlier ones, which only an upsert merges into one row.
        snapshots: an interval has all present rows, in one range, and missing rows are to be deleted.
    """

    replayable: bool = False
    ordered: bool = False
    windows_by_time: bool = False
    keyed: bool = False
    holds_control_log: bool = False
    rows: bool = False
    typed: bool = False
    sparse: bool = False
    repeats: bool = False
    snapshots: bool = False

    @property
    def has_bytes(self) -> bool:
        """Whether its records' values are bytes, which a converter decodes."""
        return not (self.rows or self.typed)


@dataclass(frozen=True)
class SinkCapabilities:
    """A sink's capabilities for one pipeline, given its section.

    Attributes:
        atomic_with_checkpoint: rows and checkpoint become visible together or not at all, and the checkpoint can be
            read back. Exactly once depends on it.
        upsert: the last version of a key is its row; otherwise every record is a row.
        delete: a record may delete its key's row.
        truncate: a record may delete all rows.
        replaces_interval: one commit may remove an interval's rows and add others in their place.
        finds_keys_by_partition: an upsert looks for a key's row only where its source partition has written, so keys
            must not move between partitions.
        quarantine: bad records can be set aside in a separate table, under the same instant.
        services: the services that its tables have.
        catalogs: its tables can be registered in catalogs.
        keeps_newer: an upsert doesn't replace rows by older records that are read late.
        mirrors: a commit may delete the rows whose keys the interval hasn't, if `TableSpec.mirrors` is set.
        keeps_unavailable: where a change has Debezium's placeholder for a text or bytes, the row's value is kept. Such
            an event is a bad record for any other sink, unless the event itself has the value.
        keyless: records without a key are written too, beside the last record of each key.
    """

    atomic_with_checkpoint: bool = False
    upsert: bool = False
    delete: bool = False
    truncate: bool = False
    replaces_interval: bool = False
    finds_keys_by_partition: bool = False
    quarantine: bool = False
    services: frozenset[Service] = frozenset()
    catalogs: bool = False
    keeps_newer: bool = False
    mirrors: bool = False
    keeps_unavailable: bool = False
    keyless: bool = False


@dataclass(frozen=True)
class RequiredCapabilities:
    """A pipeline file's requirements of its source and its sink beyond reading and appending.

    Attributes:
        changes: records update and delete rows.
        keys: records' keys are read.
        empties: a truncate of the source's table empties this one.
        window: intervals end at a time.
        quarantine: bad records are set aside.
        services: the table services that the file names.
        catalogs: the table is registered in catalogs.
        control_connection: the control topic has its own connection.
        sizes: oversized records are bad records.
    """

    changes: bool = False
    keys: bool = False
    empties: bool = False
    window: bool = False
    quarantine: bool = False
    services: frozenset[Service] = frozenset()
    catalogs: bool = False
    control_connection: bool = False
    sizes: bool = False


@dataclass(frozen=True)
class SourceRef:
    """A pipeline's source: its section's path in the file, and its capabilities."""

    place: str
    can: SourceCapabilities


@dataclass(frozen=True)
class SinkRef:
    """A pipeline's sink.

    Attributes:
        place: its section's path in the file: `sink.` and its name.
        can: its capabilities.
        needs: by capability or service, the setting that it needs, such as `operation upsert`.
    """

    place: str
    can: SinkCapabilities
    needs: Mapping[str, str] = field(default_factory=dict)

    def without(self, capability: str) -> str:
        """The setting that a capability needs, or that no setting provides it."""
        needed = self.needs.get(capability)
        return f"need {self.place}.{needed}" if needed else f"are more than {self.place} can do"


def misfits(source: SourceRef, sink: SinkRef, required: RequiredCapabilities) -> Iterator[str]:
    """A sentence for each requirement that the source or the sink can't meet."""
    yield from _not_exactly_once(source, sink)
    if required.control_connection is False and not source.can.holds_control_log:
        yield f"{source.place} is no Kafka cluster that could hold the control topic: name one in control.connection"
    if source.can.repeats and not sink.can.upsert:
        yield (
            f"{source.place} reads rows again that earlier intervals have read, and {sink.place} would have them "
            f"twice: they {sink.without('upsert')}"
        )
    yield from _no_mirror(source, sink, required)
    if not source.can.has_bytes and required.sizes:
        yield f"`errors.max_record_bytes` is for records of bytes, and those of {source.place} are rows"
    if required.window and not source.can.windows_by_time:
        yield f"`until: data_interval_end` asks for records by their times, which {source.place} doesn't know"
    if required.keys and not source.can.keyed:
        yield f"{source.place}.key says how keys are read, and these records have none"
    yield from _changes_misfit(source, sink, required)
    if required.quarantine and not sink.can.quarantine:
        yield f"`errors.tolerance: all` sets bad records aside, and {sink.place} has nowhere to put them"
    if required.catalogs and not sink.can.catalogs:
        needed = sink.needs.get("catalogs")
        why = f"which need {sink.place}.{needed}" if needed else f"that {sink.place} doesn't write"
        yield f"`catalog_sync` registers tables in catalogs{',' if needed else ''} {why}"
    for service in sorted(required.services - sink.can.services):
        needed = sink.needs.get(service)
        yield f"`table_services.{service}` is for {needed}" if needed else f"{sink.place} has no {service}"


def _not_exactly_once(source: SourceRef, sink: SinkRef) -> Iterator[str]:
    if not source.can.replayable:
        yield (
            f"{source.place} can't read the same offsets again as the same records, so a task that is retried could "
            "lose or double some: exactly once needs a source that is replayable"
        )
    if not sink.can.atomic_with_checkpoint:
        yield (
            f"{sink.place} can't store rows and their checkpoint together, so a crash between the two would lose or "
            "double rows: exactly once needs a sink that is atomic with its checkpoint"
        )


def _no_mirror(source: SourceRef, sink: SinkRef, required: RequiredCapabilities) -> Iterator[str]:
    if not source.can.snapshots:
        return
    if not sink.can.mirrors:
        yield (
            f"{source.place}.deletes takes away what a snapshot hasn't any more, in the commit: such deletes "
            f"{sink.without('mirrors')}. Leave it out, and those rows stay; or have Debezium read the database's log"
        )
    if required.quarantine:
        yield (
            f"{source.place}.deletes would take the rows of bad records for rows that are gone, and `errors.tolerance: "
            "all` sets these aside: leave one of them out"
        )


def _changes_misfit(source: SourceRef, sink: SinkRef, required: RequiredCapabilities) -> Iterator[str]:
    if not required.changes:
        return
    if not (sink.can.upsert and sink.can.delete):
        yield f"`changes` update and delete rows: they {sink.without('upsert')}"
    elif required.empties and not sink.can.truncate:
        yield f"`truncate: apply` takes all rows away: such changes {sink.without('truncate')}"
    if not source.can.ordered:
        yield f"`changes` are applied in their order, and {source.place} has none"
