"""One Hudi table as the coordinator sees it: its timeline, its checkpoint, and the steps of a two-phase commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal

from sluice import __version__
from sluice.connectors.sink import Completion, Ended, InstantState, Registered, WrittenInterval
from sluice.errors import IntervalError, RetryableError
from sluice.jvm.gateway import HudiJvm
from sluice.pipeline.services import TableServices
from sluice.process import identity
from sluice.protocol.committable import Committable
from sluice.protocol.messages import TableSpec
from sluice.records.structs import Type
from sluice.sinks.hudi.clock import LONGEST_WAIT, TableClock
from sluice.sinks.hudi.commits import completed_commit, last_checkpoint
from sluice.sinks.hudi.completions import STATE, completions, delete, registered
from sluice.sinks.hudi.failures import hudi_errors
from sluice.sinks.hudi.metadata_table import forget_missing_partitions, meta_client, metadata_table
from sluice.sinks.hudi.options import TABLE_VERSION
from sluice.sinks.hudi.plans import PLANNED_BY, own_clusterings, planned_by_others
from sluice.sinks.hudi.replays import last_replay, moved_file_groups, written_by
from sluice.sinks.hudi.services import ServiceClient
from sluice.sinks.hudi.strays import Strays
from sluice.sinks.hudi.versions import require_no_change, version_of
from sluice.sinks.hudi.write_config import ARCHIVES_ITSELF, write_config, write_options

_REPLACE = "replacecommit"
_WRITES = ("commit", "deltacommit")


class HudiTable:
    """A table that exists. Open it with `opening.open_table`."""

    def __init__(
        self,
        jvm: HudiJvm,
        meta: Any,
        writer: TableSpec,
        columns: Type | None,
        clock_wait: timedelta = LONGEST_WAIT,
        services: TableServices | None = None,
    ) -> None:
        self._jvm = jvm
        self._meta = meta
        self._metadata: Any = None
        self.clock_wait = clock_wait
        """How long to wait for this machine's clock to pass the table's last instant."""
        self.writer = writer
        self.columns = columns
        """Spark's type of the committed rows; None before the first commit."""
        self._services = services or TableServices()
        self._hudi = jvm.jvm.org.apache.hudi
        self._action = "commit" if writer.table_type == "COPY_ON_WRITE" else "deltacommit"

    @property
    def process(self) -> str:
        """The process that carries out this table's commits."""
        return identity(self._jvm.pid)

    @property
    def name(self) -> str:
        """The table's name in its settings."""
        return str(self._meta.getTableConfig().getTableName())

    @property
    def jvm(self) -> HudiJvm:
        """The JVM in which the table is open."""
        return self._jvm

    def written_as(self, writer: TableSpec, further: Sequence[TableSpec] = ()) -> HudiTable:  # noqa: ARG002 - it has none
        """The same table, written with the settings that an interval pinned.

        Raises:
            IntervalError: the table has another version than START has pinned.
        """
        pinned, found = writer.options.get(TABLE_VERSION), self.writer.options.get(TABLE_VERSION)
        if pinned is not None and pinned != found:
            raise IntervalError(
                "Another program has changed the table's version since this interval was planned.",
                next_step="nothing was committed; the next interval reads the same offsets, and writes the present "
                "version.",
                table=writer.path,
                planned_for=pinned,
                now=found,
            )
        return HudiTable(self._jvm, self._meta, writer, self.columns, self.clock_wait, self._services)

    # The timeline ------------------------------------------------------------------------------------------------

    def last_checkpoint(self) -> dict[str, str] | None:
        """Extra metadata of the newest commit with a checkpoint, walking back over other writers' commits.

        Raises:
            VersionChangingError: the table's version is being changed since the table was opened.
            RetryableError: it has been changed since then.
        """
        self._require_same_version()
        return last_checkpoint(self._hudi, self._meta)

    def _require_same_version(self) -> None:
        """Look at the settings again: the timeline of another version would seem empty."""
        with hudi_errors("reading the table's settings", table=self.writer.path):
            meta = meta_client(self._jvm.jvm, self._jvm.storage, self.writer.path)
        require_no_change(meta, self.writer.path)
        now, opened = version_of(meta), version_of(self._meta)
        if now != opened:
            raise RetryableError(
                "The table's version has changed since this step opened the table.",
                next_step="the step is retried, and opens it as it is now.",
                table=self.writer.path,
                opened_as=opened,
                now=now,
            )

    def is_empty(self) -> bool:
        """Whether the table has no completed commit at all, active or archived."""
        timeline = self._meta.reloadActiveTimeline().getCommitsTimeline().filterCompletedInstants()
        return bool(timeline.empty()) and bool(self._meta.getArchivedTimeline().getCommitsTimeline().empty())

    def state_of(self, instant: str) -> InstantState:
        """An instant's present state on the timeline."""
        timeline = self._meta.reloadActiveTimeline()
        if timeline.getCommitsTimeline().filterCompletedInstants().containsInstant(instant):
            return "completed"
        if timeline.filterInflightsAndRequested().containsInstant(instant):
            return "pending"
        if timeline.isBeforeTimelineStarts(instant):
            archived = self._meta.getArchivedTimeline().getCommitsTimeline().filterCompletedInstants()
            return "completed" if archived.containsInstant(instant) else "absent"
        return "absent"

    def completions(self) -> dict[str, Completion]:
        """The completed commits on the active timeline, by instant, with the files that complete them."""
        with hudi_errors("looking at what is completed", table=self.writer.path):
            return completions(self._meta)

    def registered(self, completion: str) -> Registered:
        """The data files named by a timeline file that completes an instant."""
        with hudi_errors("looking at what a completion names", table=self.writer.path, completion=completion):
            return registered(self._jvm, self._meta, completion)

    def take_off(self, instant: str, files: list[str]) -> None:
        """Delete files that complete an instant; in the metadata table, only the files of a second completion.

        Readers ignore the metadata table's entries for instants that the table doesn't have.

        Args:
            instant: the instant.
            files: their names in the timeline's folder.
        """
        with hudi_errors("taking a completion off the timeline", table=self.writer.path, instant=instant):
            path_class = self._hudi.storage.StoragePath
            delete(self._meta, path_class, files)
            metadata = self._metadata_table()
            if metadata is not None:
                found = completions(metadata).get(instant)
                if found is not None:
                    delete(metadata, path_class, found.files[1:] if found.requested else found.files)

    def _metadata_table(self) -> Any:
        if self._metadata is None:
            self._metadata = metadata_table(self._jvm.jvm, self._jvm.storage, self._meta)
        return self._metadata

    # The two phases ----------------------------------------------------------------------------------------------

    def await_clock(self) -> None:
        """Wait until this machine's clock is later than every instant on the table's timelines.

        Raises:
            RetryableError: the clock is too far behind to wait for.
        """
        with hudi_errors("comparing the clock with the timeline", table=self.writer.path):
            metas = filter(None, (self._meta, self._metadata_table()))
            TableClock(self._jvm.jvm, metas, self.writer.path, self.clock_wait).wait()

    def new_instant(self) -> str:
        """A new instant from Hudi's generator, later than every other on the timeline. Nothing is written.

        The clocks of two workers may differ, and the newest checkpoint is found by the order of instants.

        Raises:
            RetryableError: this machine's clock is too far behind the table's last instant.
        """
        self.await_clock()
        return str(self._meta.createNewInstantTime(True))

    def open(self, instant: str) -> None:
        """Put the instant on the timeline, requested and then inflight."""
        self._open(instant, self._action)

    def open_replacing(self, instant: str) -> None:
        """As `open`, with the separate action that Hudi has for a commit that removes file groups."""
        self._open(instant, _REPLACE)

    def _open(self, instant: str, action: str) -> None:
        """Put the instant on the timeline.

        `startCommit` is not used: it generates the instant itself, but the control topic has to name it first. An
        instant that was left half open is opened completely.
        """
        with hudi_errors("opening the instant", table=self.writer.path, instant=instant):
            timeline = self._meta.reloadActiveTimeline()
            requested = self._jvm.nested(STATE).REQUESTED
            new = self._meta.getInstantGenerator().createNewInstant(requested, action, instant)
            if not timeline.filterInflightsAndRequested().containsInstant(instant):
                timeline.createNewInstant(new)
                timeline = self._meta.reloadActiveTimeline()
            if action == _REPLACE:
                timeline.transitionReplaceRequestedToInflight(new, self._jvm.Option.empty())
            elif not timeline.filterInflights().containsInstant(instant):
                timeline.transitionRequestedToInflight(action, instant)
            if not self._meta.getTableConfig().isMetadataTableAvailable():
                self._create_metadata_table(instant)

    def mend(self) -> list[str]:
        """See `SharedTimeline`. Prepares missing parts of the metadata table for being created again.

        Hudi creates them by listing the table, in `open` or in the next other write.
        """
        with hudi_errors("comparing the metadata table with the table's settings", table=self.writer.path):
            missing = forget_missing_partitions(self._jvm, self._meta)
        if missing:
            self._metadata = None
        return [f"metadata table: {partition}" for partition in missing]

    def ensure_metadata_table(self) -> None:
        """Create the metadata table, unless it exists; where the table has data, Hudi lists its files."""
        if not self._meta.getTableConfig().isMetadataTableAvailable():
            with hudi_errors("creating the metadata table", table=self.writer.path):
                self._create_metadata_table(None)

    def _create_metadata_table(self, instant: str | None) -> None:
        """Create the metadata table, once in a table's life, in the coordinator: participants would interfere."""
        client = self._client()
        try:
            client.initTable(self._operation(), self._jvm.Option.ofNullable(instant))
        finally:
            client.close()

    def _operation(self, *, replaces: bool = False) -> Any:
        operations = self._hudi.common.model.WriteOperationType
        if replaces:
            return operations.INSERT_OVERWRITE
        return operations.UPSERT_PREPPED if self.writer.operation == "upsert" else operations.BULK_INSERT

    def commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
    ) -> list[str]:
        """Commit the write stats with the extra metadata: data and offsets become visible together or not at all.

        Hudi deletes the instant's files that have a marker but no stat, which failed attempts leave behind.

        Args:
            instant: the transaction's id.
            committables: Hudi's write stats of all ranges.
            extra: offsets and Sluice's note.
        """
        return self._commit(instant, committables, extra, None)

    def commit_replacing(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
        replaced: Mapping[str, Iterable[str]],
    ) -> list[str]:
        """As `commit`; the same commit removes file groups, whose ids are given by table partition."""
        return self._commit(instant, committables, extra, replaced)

    def _commit(
        self,
        instant: str,
        committables: Iterable[Committable],
        extra: Mapping[str, str],
        replaced: Mapping[str, Iterable[str]] | None,
    ) -> list[str]:
        kind = "HoodieWriteStat" if self._action == "commit" else "HoodieDeltaWriteStat"
        stat_class = self._jvm.jvm.java.lang.Class.forName(f"org.apache.hudi.common.model.{kind}")
        mapper = self._hudi.common.util.JsonUtils.getObjectMapper()
        java_stats = self._jvm.jvm.java.util.ArrayList()
        for one in committables:
            java_stats.add(mapper.readValue(json.dumps(one.whole()), stat_class))
        metadata = self._jvm.jvm.java.util.HashMap()
        for name, value in extra.items():
            metadata.put(name, value)
        self.await_clock()
        with hudi_errors("committing", table=self.writer.path, instant=instant):
            client = self._client()
            try:
                client.setOperationType(self._operation(replaces=replaced is not None))
                option = self._jvm.Option
                if replaced is None:
                    client.commitStats(instant, java_stats, option.of(metadata), self._action)
                else:
                    gone = {partition: list(ids) for partition, ids in replaced.items()}
                    client.commitStats(instant, java_stats, option.of(metadata), _REPLACE, gone, option.empty())
                if write_options(self.writer)[ARCHIVES_ITSELF] == "true":
                    self.serve_metadata_table(client)  # a Java client never does this by itself
            finally:
                client.close()
        return []

    def rollback(self, instant: str) -> bool:
        """Roll a pending instant back with all its files; False if it is not, or no longer, pending.

        If a process died between taking the instant off the timeline and completing its roll-back, this finishes it.
        """
        if self.state_of(instant) != "pending":
            return instant in self.finish_rollbacks()
        self.await_clock()
        with hudi_errors("rolling back", table=self.writer.path, instant=instant):
            client = self._client()
            try:
                client.rollback(instant)
            finally:
                client.close()
        return True

    def finish_rollbacks(self) -> list[str]:
        """Finish roll-backs that were begun but never completed; returns the instants that they removed.

        An unfinished roll-back would block the metadata table's compaction, and with it the archiving of the table's
        timeline: Hudi looks at pending roll-backs only when it is about to roll back.
        """
        begun = self._meta.reloadActiveTimeline().filterPendingRollbackTimeline()
        if bool(begun.empty()):
            return []
        left = {str(rollback.requestedTime()) for rollback in begun.getInstants()}
        self.await_clock()
        with hudi_errors("finishing a roll-back", table=self.writer.path):
            client = self._client()
            try:
                client.rollbackFailedWrites(self._meta)  # with policy NEVER, it only finishes roll-backs already begun
            finally:
                client.close()
            timeline = self._meta.reloadActiveTimeline()
            done = [r for r in timeline.getRollbackTimeline().filterCompletedInstants().getInstants()
                    if str(r.requestedTime()) in left]  # fmt: skip
            return [str(taken) for r in done for taken in timeline.readRollbackMetadata(r).getCommitsRollback()]

    def _client(self) -> Any:
        context = self._hudi.client.common.HoodieJavaEngineContext(self._jvm.storage)
        engine = self._hudi.common.engine.EngineType.JAVA
        config = write_config(self._jvm.jvm, self.writer, write_options(self.writer), engine)
        return self._hudi.client.HoodieJavaWriteClient(context, config)

    # Table services ----------------------------------------------------------------------------------------------

    def maintenance(self) -> ServiceClient:
        """The table's services, for the process that holds the table."""
        return ServiceClient(self, self._services)

    def timeline(self) -> Any:
        """Hudi's active timeline, reloaded."""
        return self._meta.reloadActiveTimeline()

    @contextmanager
    def service_client(self, options: dict[str, str]) -> Iterator[Any]:
        """Hudi's Java write client with the table services' options, for the process that holds the table."""
        self.await_clock()
        context = self._hudi.client.common.HoodieJavaEngineContext(self._jvm.storage)
        config = write_config(self._jvm.jvm, self.writer, options, self._hudi.common.engine.EngineType.JAVA)
        client = self._hudi.client.HoodieJavaWriteClient(context, config)
        try:
            yield client
        finally:
            client.close()

    def schedule(self, client: Any, service: Literal["COMPACT", "CLUSTER"]) -> str | None:
        """Have the client put a plan on the timeline; returns its instant, or None if nothing is due."""
        kind = getattr(self._hudi.common.model.TableServiceType, service)
        note = self._jvm.jvm.java.util.HashMap()
        note.put(PLANNED_BY, __version__)
        made = client.scheduleTableService(self._jvm.Option.of(note), kind)
        return str(made.get()) if made.isPresent() else None

    def serve_metadata_table(self, client: Any) -> None:
        """Have the client compact, clean and archive the metadata table, each if it is due."""
        client.initTable(self._operation(), self._jvm.Option.empty())

    # Replays -----------------------------------------------------------------------------------------------------

    def written_by(self, instant: str) -> WrittenInterval | None:
        """The result of a committed interval; None if the instant is not, or no longer, a commit of Sluice's.

        Searches the active timeline, then the archived one.
        """
        return written_by(self._meta, instant)

    def replayed_by(self, instant: str) -> str | None:
        """The last committed replay that replaced an interval's rows; None if there is none.

        Searches all commits since the interval, including the archived timeline.
        """
        with hudi_errors("looking for replays of the interval", table=self.writer.path, instant=instant):
            return last_replay(self._meta, instant)

    def moved_file_groups(self, written: WrittenInterval) -> dict[str, str | None]:
        """File groups of an append interval that no longer hold its rows, each with the instant that moved these.

        Clustering moves rows to other file groups, a replay replaces them, and an update rewrites them under its
        instant. Only if none of this has happened can the interval's rows be replaced as files.
        """
        with hudi_errors("looking for the interval's files", table=self.writer.path, instant=written.instant):
            return moved_file_groups(self._jvm, self._meta, self.writer, written)

    def pending_writes(self) -> list[str]:
        """Instants of pending commits, oldest first, without plans of table services."""
        with hudi_errors("looking for pending instants", table=self.writer.path):
            pending = self._meta.reloadActiveTimeline().filterInflightsAndRequested().getInstants()
            return sorted({str(i.requestedTime()) for i in pending if str(i.getAction()) in _WRITES})

    def leftovers(self) -> set[str]:
        """See `Table`. Lists the timeline and the markers' folders once each."""
        with hudi_errors("looking for what intervals have left", table=self.writer.path):
            pending = self._meta.reloadActiveTimeline().filterInflightsAndRequested().getInstants()
            return {str(i.requestedTime()) for i in pending} | self._strays().marked()

    def planned_by_others(self, written: WrittenInterval) -> dict[str, str]:
        """File groups of an interval that another writer has planned to cluster, each with the plan's instant."""
        with hudi_errors("looking for pending clusterings", table=self.writer.path, instant=written.instant):
            return planned_by_others(self._jvm, self._meta, written)

    def own_clusterings(self) -> list[str]:
        """Instants of pending clusterings that `schedule` planned, oldest first."""
        return own_clusterings(self._jvm, self._meta)

    # Strays ------------------------------------------------------------------------------------------------------

    def sweep(self, ended: Ended) -> list[str]:
        """Delete files that a zombie finished after its interval had ended; see `Strays.sweep`."""
        with hudi_errors("looking for files of ended intervals", table=self.writer.path):
            return self._strays().sweep(ended)

    def marker_partitions(self, instant: str) -> set[str]:
        """Table partitions in which files of an instant were opened; by a zombie, if the instant has ended."""
        return self._strays().marker_partitions(instant)

    def _strays(self) -> Strays:
        return Strays(self._hudi, self._meta, self.writer.path, self._registered_by)

    def _registered_by(self, instant: str) -> set[str] | None:
        """The files named by an instant's commit on the timeline; empty if it has none.

        None if the commit can no longer be read, so that any file may belong to it.
        """
        state = self.state_of(instant)
        if state == "absent":
            return set()
        found = completed_commit(self._meta, instant) if state == "completed" else None
        if found is None:
            return None
        stats = [s for group in dict(found.getPartitionToWriteStats()).values() for s in group]
        return {str(stat.getPath()) for stat in stats}
