"""One Hudi table as the coordinator sees it: its timeline, its checkpoint, and the steps of a two-phase commit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Literal

from py4j.protocol import Py4JJavaError

from sluice.connectors.sink import Completion, InstantState, Registered, WrittenInterval
from sluice.errors import ActionRequiredError
from sluice.jvm.gateway import HudiJvm
from sluice.jvm.schema import struct_of_hoodie, table_schema
from sluice.process import identity
from sluice.protocol.messages import TableWriter
from sluice.protocol.offsets import OFFSETS_KEY, TRANSACTION_KEY, Checkpoint, holds_checkpoint
from sluice.records.structs import Type
from sluice.sinks.hudi.clock import LONGEST_WAIT, TableClock, metadata_table
from sluice.sinks.hudi.completions import STATE, completions, delete, registered
from sluice.sinks.hudi.failures import hudi_errors
from sluice.sinks.hudi.replays import last_replay
from sluice.sinks.hudi.write_config import ARCHIVES_ITSELF, COLUMN_STATS, key_generator, write_config, write_options

_MARKER = ".marker."  # what comes between the name of a data file and the kind of its marker
_GLOB = re.compile(r"[*?\[\]{}\\,]")
_FILE = re.compile(r"/([^/,{}\s]+), length=\d+, isDirectory=false,")  # the name, in the words of Hudi's StoragePathInfo
_LSM_LAYOUT = 2  # the timeline layout since table version 8
_END_OF_TIME = "9" * 17  # later than any instant
_REPLACE = "replacecommit"
_PROPERTIES = ".hoodie/hoodie.properties"
_MERGE_SETTINGS = ("hoodie.table.partial.update.mode", "hoodie.record.merge.property.")


class HudiTable:
    """A table that exists. Open it with `open_table`."""

    def __init__(
        self, jvm: HudiJvm, meta: Any, writer: TableWriter, columns: Type | None, clock_wait: timedelta = LONGEST_WAIT
    ) -> None:
        self._jvm = jvm
        self._meta = meta
        self._metadata: Any = None
        self.clock_wait = clock_wait
        """How long to wait for this machine's clock to pass the table's last instant."""
        self.writer = writer
        self.columns = columns
        """Spark's type of the rows that are committed, None before the first commit."""
        self._hudi = jvm.jvm.org.apache.hudi
        self._action = "commit" if writer.table_type == "COPY_ON_WRITE" else "deltacommit"

    @property
    def process(self) -> str:
        """The process in which this table's commits are carried out."""
        return identity(self._jvm.pid)

    @property
    def name(self) -> str:
        """The table's own name."""
        return str(self._meta.getTableConfig().getTableName())

    @property
    def jvm(self) -> HudiJvm:
        """The JVM in which the table is open."""
        return self._jvm

    def written_as(self, writer: TableWriter) -> HudiTable:
        """The same table, written as an interval has pinned it."""
        return HudiTable(self._jvm, self._meta, writer, self.columns, self.clock_wait)

    # The timeline ------------------------------------------------------------------------------------------------

    def last_checkpoint(self) -> dict[str, str] | None:
        """Extra metadata of the newest commit that holds a checkpoint, walking back over other writers' commits.

        Looks through the active timeline, then the archived one. None where no commit holds any.
        """
        found = self._newest_checkpoint(self._meta.reloadActiveTimeline())
        if found is None:
            found = next(filter(None, map(self._newest_checkpoint, self._archived_stretches())), None)
        return found

    def _archived_stretches(self) -> Iterator[Any]:
        """The archived timeline in stretches, newest first: it grows for ever, and the checkpoint is near its end.

        Hudi's own limit on the number of instants takes the oldest of the newest file, so stretches are bounded by the
        times in the files' names. Tables before version 8 have another archive, which is read as a whole.
        """
        timelines = self._hudi.common.table.timeline
        if int(self._meta.getTimelineLayoutVersion().getVersion()) < _LSM_LAYOUT:
            whole = self._meta.getArchivedTimeline()
            whole.loadCompletedInstantDetailsInMemory()
            yield whole
            return
        lsm = timelines.LSMTimeline
        files = lsm.latestSnapshotManifest(self._meta, self._meta.getArchivePath()).getFiles()
        names = [str(file.getFileName()) for file in files]
        reached = _END_OF_TIME
        for name in sorted(names, key=lambda n: str(lsm.getMaxInstantTime(n)), reverse=True):
            first = str(lsm.getMinInstantTime(name))
            if first < reached:
                stretch = timelines.versioning.v2.ArchivedTimelineV2(self._meta, False)
                stretch.loadCompletedInstantDetailsInMemory(_just_before(first), reached)
                yield stretch
                reached = first

    def _newest_checkpoint(self, timeline: Any) -> dict[str, str] | None:
        instants = timeline.getCommitsTimeline().filterCompletedInstants().getInstants()
        to_json = self._hudi.common.util.JsonUtils.toString
        for i in range(instants.size() - 1, -1, -1):
            extra = timeline.readCommitMetadata(instants.get(i)).getExtraMetadata()
            found = json.loads(to_json(extra))  # one call over the bridge
            metadata = {str(k): str(v) for k, v in found.items() if v is not None}
            if holds_checkpoint(metadata):
                return metadata
        return None

    def is_empty(self) -> bool:
        """Whether the table has no completed commit at all, active or archived."""
        timeline = self._meta.reloadActiveTimeline().getCommitsTimeline().filterCompletedInstants()
        return bool(timeline.empty()) and bool(self._meta.getArchivedTimeline().getCommitsTimeline().empty())

    def state_of(self, instant: str) -> InstantState:
        """Where an instant stands on the timeline now."""
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
        """The completed commits on the active timeline as their files lie there, by instant."""
        with hudi_errors("looking at what is completed", table=self.writer.path):
            return completions(self._meta)

    def registered(self, completion: str) -> Registered:
        """What a file of the timeline's folder that completes an instant names."""
        with hudi_errors("looking at what a completion names", table=self.writer.path, completion=completion):
            return registered(self._jvm, self._meta, completion)

    def take_off(self, instant: str, files: list[str]) -> None:
        """Delete files that complete an instant, of the table; and of the metadata table what completed it twice.

        What the metadata table holds of an instant that the table has not counts for no reader.

        Args:
            instant: whose files they are.
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
        """Wait until this machine's clock is later than all that stands on the table's timelines.

        Raises:
            RetryableError: it is further behind than one may wait for.
        """
        with hudi_errors("comparing the clock with the timeline", table=self.writer.path):
            metas = filter(None, (self._meta, self._metadata_table()))
            TableClock(self._jvm.jvm, metas, self.writer.path, self.clock_wait).wait()

    def new_instant(self) -> str:
        """A new instant time, of Hudi's own generator, later than all that stands on the timeline. Nothing is written.

        The clocks of two workers may differ, and the newest checkpoint is found by the order of instants.

        Raises:
            RetryableError: this machine's clock is too far behind the table's last instant.
        """
        self.await_clock()
        return str(self._meta.createNewInstantTime(True))

    def open(self, instant: str, *, replaces: bool = False) -> None:
        """Put the instant on the timeline, requested and then inflight.

        `startCommit` is not used: it makes up the instant itself, and the control topic has to name it first. An
        instant that was left half open is opened wholly.

        Args:
            instant: the transaction's id.
            replaces: its commit will take file groups off the table, which Hudi has an action of its own for.
        """
        action = _REPLACE if replaces else self._action
        with hudi_errors("opening the instant", table=self.writer.path, instant=instant):
            timeline = self._meta.reloadActiveTimeline()
            requested = self._jvm.nested(STATE).REQUESTED
            new = self._meta.getInstantGenerator().createNewInstant(requested, action, instant)
            if not timeline.filterInflightsAndRequested().containsInstant(instant):
                timeline.createNewInstant(new)
                timeline = self._meta.reloadActiveTimeline()
            if replaces:
                timeline.transitionReplaceRequestedToInflight(new, self._jvm.Option.empty())
            elif not timeline.filterInflights().containsInstant(instant):
                timeline.transitionRequestedToInflight(action, instant)
            if not self._meta.getTableConfig().isMetadataTableAvailable():
                self._create_metadata_table(instant)

    def ensure_metadata_table(self) -> None:
        """Create the metadata table of a table into which nothing was written yet, if it has none."""
        if not self._meta.getTableConfig().isMetadataTableAvailable():
            with hudi_errors("creating the metadata table", table=self.writer.path):
                self._create_metadata_table(None)

    def _create_metadata_table(self, instant: str | None) -> None:
        """Once in a table's life, and by the coordinator: participants would each create it, and break each other's."""
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
        stats: Iterable[Mapping[str, Any]],
        extra: Mapping[str, str],
        replaced: Mapping[str, Iterable[str]] | None = None,
    ) -> None:
        """Commit the write stats with the extra metadata: data and offsets become visible together, or not at all.

        Hudi deletes files of the instant that have a marker but no stat, which is what failed attempts leave.

        Args:
            instant: the transaction's id.
            stats: Hudi's write stats of all ranges.
            extra: offsets and our own note.
            replaced: ids of the file groups that leave the table in the same commit, by table partition; not None
                where the instant was opened to replace.
        """
        kind = "HoodieWriteStat" if self._action == "commit" else "HoodieDeltaWriteStat"
        stat_class = self._jvm.jvm.java.lang.Class.forName(f"org.apache.hudi.common.model.{kind}")
        mapper = self._hudi.common.util.JsonUtils.getObjectMapper()
        java_stats = self._jvm.jvm.java.util.ArrayList()
        for stat in stats:
            java_stats.add(mapper.readValue(json.dumps(stat), stat_class))
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
                    self.serve_metadata_table(client)  # a Java client never does it by itself
            finally:
                client.close()

    def rollback(self, instant: str) -> bool:
        """Roll a pending instant back with all its files; False where it is not pending (any more).

        A process may have died between taking the instant off the timeline and completing its roll-back: that is
        finished here.
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
        """Finish roll-backs that were begun and never completed; the instants that they took off the timeline.

        Left alone, one stops the metadata table's compaction, and with it the archiving of the table's own timeline:
        Hudi looks at pending roll-backs only where it is about to roll back.
        """
        begun = self._meta.reloadActiveTimeline().filterPendingRollbackTimeline()
        if bool(begun.empty()):
            return []
        left = {str(rollback.requestedTime()) for rollback in begun.getInstants()}
        self.await_clock()
        with hudi_errors("finishing a roll-back", table=self.writer.path):
            client = self._client()
            try:
                client.rollbackFailedWrites(self._meta)  # under the policy NEVER, only what was begun
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

    def timeline(self) -> Any:
        """Hudi's active timeline as it is now."""
        return self._meta.reloadActiveTimeline()

    @contextmanager
    def service_client(self, options: dict[str, str]) -> Iterator[Any]:
        """Hudi's Java write client with the table services' options, for whoever holds the table."""
        self.await_clock()
        context = self._hudi.client.common.HoodieJavaEngineContext(self._jvm.storage)
        config = write_config(self._jvm.jvm, self.writer, options, self._hudi.common.engine.EngineType.JAVA)
        client = self._hudi.client.HoodieJavaWriteClient(context, config)
        try:
            yield client
        finally:
            client.close()

    def schedule(self, client: Any, service: Literal["COMPACT", "CLUSTER"]) -> str | None:
        """Have the client put a plan on the timeline; its instant, or None where there is nothing to do yet."""
        kind = getattr(self._hudi.common.model.TableServiceType, service)
        made = client.scheduleTableService(self._jvm.Option.empty(), kind)
        return str(made.get()) if made.isPresent() else None

    def serve_metadata_table(self, client: Any) -> None:
        """Have the client compact, clean and archive the metadata table, each if it is due."""
        client.initTable(self._operation(), self._jvm.Option.empty())

    # Replays -----------------------------------------------------------------------------------------------------

    def written_by(self, instant: str) -> WrittenInterval | None:
        """What a committed interval of ours wrote, None where the instant is no commit of ours (any more).

        Looks through the active timeline, then the archived one.
        """
        metadata = self._completed(instant)
        if metadata is None:
            return None
        note = metadata.getExtraMetadata().get(TRANSACTION_KEY)
        if note is None:
            return None
        groups: dict[str, tuple[str, ...]] = {}
        for partition, stats in dict(metadata.getPartitionToWriteStats()).items():
            groups[str(partition)] = tuple(sorted({str(stat.getFileId()) for stat in stats}))
        offsets = metadata.getExtraMetadata().get(OFFSETS_KEY)
        checkpoint = Checkpoint.model_validate_json(str(offsets)) if offsets is not None else Checkpoint()
        return WrittenInterval(instant, json.loads(str(note)), groups, checkpoint)

    def replayed_by(self, instant: str) -> str | None:
        """The committed replay that has put its rows in place of an interval's, of several the last; None if none has.

        Looks through all commits since, as far back as the archived timeline has them.
        """
        with hudi_errors("looking for replays of the interval", table=self.writer.path, instant=instant):
            return last_replay(self._meta, instant)

    def _completed(self, instant: str) -> Any | None:
        """A completed commit's metadata, of the active timeline or the archived one."""
        archived = self._meta.getArchivedTimeline()
        if self._meta.reloadActiveTimeline().isBeforeTimelineStarts(instant):
            archived.loadCompletedInstantDetailsInMemory(_just_before(instant), instant)
            timeline = archived
        else:
            timeline = self._meta.getActiveTimeline()
        found = timeline.getCommitsTimeline().filterCompletedInstants()
        instants = [i for i in found.getInstants() if str(i.requestedTime()) == instant]
        return timeline.readCommitMetadata(instants[0]) if instants else None

    def moved_file_groups(self, written: WrittenInterval) -> dict[str, str | None]:
        """File groups of an append interval that don't hold its rows any more, and the instant that took them away.

        Clustering moves rows to other file groups, a replay replaces them, an update rewrites them under its own
        instant. Only where nothing of that has happened can the interval's rows be replaced as files.
        """
        with hudi_errors("looking for the interval's files", table=self.writer.path, instant=written.instant):
            context = self._hudi.client.common.HoodieJavaEngineContext(self._jvm.storage)
            config = write_config(
                self._jvm.jvm, self.writer, write_options(self.writer), self._hudi.common.engine.EngineType.JAVA
            )
            self._meta.reloadActiveTimeline()
            view = self._hudi.table.HoodieJavaTable.create(config, context, self._meta).getFileSystemView()
            moved: dict[str, str | None] = {}
            for partition, ids in written.file_groups.items():
                for file_id in ids:
                    latest = view.getLatestBaseFile(partition, file_id)
                    if not latest.isPresent():
                        moved[file_id] = self._replaced_by(file_id)
                    elif str(latest.get().getCommitTime()) != written.instant:
                        moved[file_id] = str(latest.get().getCommitTime())
            return moved

    def _replaced_by(self, file_id: str) -> str | None:
        timeline = self._meta.getActiveTimeline()
        for instant in timeline.getCompletedReplaceTimeline().getInstants():
            replaced = dict(timeline.readReplaceCommitMetadata(instant).getPartitionToReplaceFileIds())
            if any(file_id in list(ids) for ids in replaced.values()):
                return str(instant.requestedTime())
        return None

    # Strays ------------------------------------------------------------------------------------------------------

    def sweep(self, committed: Mapping[str, set[str]], partitions: Iterable[str]) -> list[str]:
        """Delete files that a zombie finished after its interval was over, and the markers it made again.

        As long as one of an instant's marked files hasn't come up, its markers stay: a zombie may stand still between a
        file's marker and the file, and nothing else says where to look for it the next time.

        Args:
            committed: for each ended instant the paths, relative to the table, that its commit registered: none for an
                instant that was rolled back.
            partitions: the table partitions to list. A zombie computes its table partitions from the same records as
                the attempt that was committed, so those of the ended intervals are enough.

        Returns:
            What was deleted, relative to the table.
        """
        storage, path_class = self._meta.getStorage(), self._hudi.storage.StoragePath
        registered: dict[str, set[str] | None] = {}
        marked = {instant: self._marked_files(instant) for instant in committed}
        deleted, there = [], set()
        for partition in sorted(set(partitions).union(*map(_folders, marked.values()))) if committed else ():
            found = storage.globEntries(path_class(self._data_files(partition, committed)))
            for name in _FILE.findall(str(found.toString())):  # one call over the bridge, however many files there are
                relative = f"{partition}/{name}" if partition else name
                there.add(relative)
                instant = instant_in(name)
                if instant is not None and relative not in committed.get(instant, {relative}):
                    if instant not in registered:  # asked of the few that have any: it costs a read of the timeline
                        registered[instant] = self._registered_by(instant)
                    own = registered[instant]
                    if own is None or relative in own:
                        continue  # a message has lied about what was committed
                    storage.deleteFile(path_class(f"{self.writer.path}/{relative}"))
                    deleted.append(relative)
        for instant, files in marked.items():
            if files and files <= there:
                storage.deleteDirectory(path_class(self._meta.getMarkerFolderPath(instant)))
        return deleted

    def _registered_by(self, instant: str) -> set[str] | None:
        """The files that the timeline's own commit of an instant names, none of one that it doesn't have.

        None where the commit can't be read any more: any file may be one of its.
        """
        state = self.state_of(instant)
        if state == "absent":
            return set()
        found = self._completed(instant) if state == "completed" else None
        if found is None:
            return None
        stats = [s for group in dict(found.getPartitionToWriteStats()).values() for s in group]
        return {str(stat.getPath()) for stat in stats}

    def _data_files(self, partition: str, instants: Iterable[str]) -> str:
        """A pattern of the data files of those instants, so that all others are told apart inside the JVM.

        A partition holds the files of all intervals: to ask each of them over the bridge would make START grow.
        """
        folder = f"{self.writer.path}/{partition}" if partition else self.writer.path
        escaped = _GLOB.sub(r"\\\g<0>", folder)
        return f"{escaped}/*_{{{','.join(sorted(instants))}}}.*"

    def marker_partitions(self, instant: str) -> set[str]:
        """Table partitions in which files of an instant were opened; by a zombie, if the instant has ended."""
        return _folders(self._marked_files(instant))

    def _marked_files(self, instant: str) -> set[str]:
        """The data files of an instant that have a marker, relative to the table, whether they are there or not."""
        storage = self._meta.getStorage()
        folder = self._hudi.storage.StoragePath(self._meta.getMarkerFolderPath(instant))
        if not storage.exists(folder):
            return set()
        root = str(folder.toString())
        found = {str(info.getPath().toString()) for info in storage.listFiles(folder)}
        return {path.partition(root)[2].strip("/").rpartition(_MARKER)[0] for path in found if _MARKER in path}


def _folders(files: Iterable[str]) -> set[str]:
    """The table partitions of some data files."""
    return {path.rpartition("/")[0] for path in files}


def _just_before(instant: str) -> str:
    """Where a range of the archived timeline has to start that is to hold the instant: Hudi leaves the start out."""
    return str(int(instant) - 1)


def instant_in(file_name: str) -> str | None:
    """The instant that a data file's name carries, None for other files.

    Base files are `<file id>_<write token>_<instant>.<extension>`, log files `.<file id>_<instant>.log.<version>_…`.
    """
    if file_name.startswith("."):
        head, found, _ = file_name.partition(".log.")
        return head.rpartition("_")[2] if found else None
    parts = file_name.partition(".")[0].split("_")
    return parts[-1] if len(parts) >= 3 and parts[-1].isdigit() else None


def open_table(jvm: HudiJvm, writer: TableWriter, clock_wait: timedelta = LONGEST_WAIT) -> HudiTable:
    """Open the pipeline's table, creating it on first use, and check that pipeline and table fit each other.

    Its `writer` has the schema of the table's last commit; an interval pins its own.

    Args:
        jvm: where Hudi works.
        writer: the pipeline's table, and how it is written.
        clock_wait: how long to wait for this machine's clock to pass the table's last instant.

    Raises:
        ActionRequiredError: the path can't be used, or the table differs from the pipeline in type or keys.
    """
    with hudi_errors("opening the table", table=writer.path):
        if not table_exists(jvm, writer):
            try:
                _create(jvm, writer)
            except Py4JJavaError:  # another run may have created it at the same moment
                if not table_exists(jvm, writer):
                    raise
        builder = jvm.jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
        meta = builder.setConf(jvm.storage).setBasePath(writer.path).build()
    _check_configuration(meta, writer)
    meta = _merging_as_written(jvm, meta, writer)
    columns = _committed_columns(jvm, meta, writer)
    writer = _as_the_table_has_it(meta, writer)
    if columns is not None:
        schema = table_schema(jvm, writer.name, columns)
        writer = writer.model_copy(update={"schema_ddl": schema.ddl, "schema_avro": schema.avro})
    return HudiTable(jvm, meta, writer, columns, clock_wait)


def _merging_as_written(jvm: HudiJvm, meta: Any, writer: TableWriter) -> Any:
    """The table with the writer's merge settings among its own, where its readers and compaction look for them.

    Written once in a table's life, or when the setting changes; Hudi replaces the file of the table's settings whole.
    """
    wanted = {name: value for name, value in writer.options.items() if name.startswith(_MERGE_SETTINGS)}
    properties = meta.getTableConfig().getProps()
    missing = {name: value for name, value in wanted.items() if properties.getProperty(name) != value}
    if not missing:
        return meta
    changed = jvm.jvm.java.util.Properties()
    for name, value in missing.items():
        changed.setProperty(name, value)
    with hudi_errors("setting how the table merges changes", table=writer.path):
        config = jvm.jvm.org.apache.hudi.common.table.HoodieTableConfig
        config.update(meta.getStorage(), meta.getMetaPath(), changed)
        builder = jvm.jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
        return builder.setConf(jvm.storage).setBasePath(writer.path).build()


def _as_the_table_has_it(meta: Any, writer: TableWriter) -> TableWriter:
    """The writer with column statistics if another writer has begun them: a commit of ours would drop them else."""
    if not meta.getTableConfig().getMetadataPartitions().contains("column_stats"):
        return writer
    return writer.model_copy(update={"options": {COLUMN_STATS: "true", **writer.options}})


def table_exists(jvm: HudiJvm, writer: TableWriter) -> bool:
    """Whether there is a Hudi table at the path."""
    storage = jvm.jvm.org.apache.hudi.storage.HoodieStorageUtils.getStorage(writer.path, jvm.storage)
    return bool(storage.exists(jvm.jvm.org.apache.hudi.storage.StoragePath(f"{writer.path}/{_PROPERTIES}")))


def _create(jvm: HudiJvm, writer: TableWriter) -> None:
    builder = jvm.jvm.org.apache.hudi.common.table.HoodieTableMetaClient.newTableBuilder()
    builder.setTableType(writer.table_type).setTableName(writer.name).setPopulateMetaFields(True)
    builder.setKeyGeneratorClassProp(key_generator(writer))
    if writer.record_key:
        builder.setRecordKeyFields(",".join(writer.record_key))
    if writer.partition_fields:
        builder.setPartitionFields(",".join(writer.partition_fields))
    if writer.ordering_fields:
        builder.setOrderingFields(",".join(writer.ordering_fields))
    builder.setCommitTimezone(jvm.jvm.org.apache.hudi.common.model.HoodieTimelineTimeZone.UTC)
    hive_style = writer.options.get("hoodie.datasource.write.hive_style_partitioning", "false")
    builder.setHiveStylePartitioningEnable(hive_style.lower() == "true")
    version = writer.options.get("hoodie.write.table.version")
    if version:
        builder.setTableVersion(int(version))
    builder.initTable(jvm.storage, writer.path)


def _check_configuration(meta: Any, writer: TableWriter) -> None:
    config = meta.getTableConfig()

    def fields(option: Any) -> tuple[str, ...]:
        return tuple(str(f) for f in option.get()) if option.isPresent() else ()

    pairs = {
        "table type": (str(config.getTableType().name()), writer.table_type),
        "record key": (fields(config.getRecordKeyFields()), writer.record_key),
        "partition fields": (fields(config.getPartitionFields()), writer.partition_fields),
    }
    if writer.operation == "upsert":
        pairs["ordering fields"] = (tuple(map(str, config.getOrderingFields())), writer.ordering_fields)
    for name, (in_table, in_pipeline) in pairs.items():
        if in_table != in_pipeline:
            raise ActionRequiredError(
                f"The table's {name} differs from the pipeline's.",
                next_step="correct the pipeline file, or write to another path: a table keeps these for life.",
                table=writer.path,
                in_table=in_table,
                in_pipeline=in_pipeline,
            )


def _committed_columns(jvm: HudiJvm, meta: Any, writer: TableWriter) -> Type | None:
    resolver = jvm.jvm.org.apache.hudi.common.table.TableSchemaResolver(meta)
    with hudi_errors("reading the table's schema", table=writer.path):
        found = resolver.getTableSchemaIfPresent(False)
    if not found.isPresent():
        return None
    try:
        return struct_of_hoodie(jvm, found.get())
    except Py4JJavaError as error:
        raise ActionRequiredError(
            "The table's own schema can't be read.", next_step="look at the table's last commit.", table=writer.path
        ) from error
