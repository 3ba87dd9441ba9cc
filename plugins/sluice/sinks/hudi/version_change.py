"""Changes a table's version by Hudi's upgrade and downgrade; an interrupted change is completed by the next attempt.

That each of Hudi's steps can be repeated is Hudi's own intention (`UpgradeDowngrade.run`) and was tried by killing it.
From version to version there is one step for each pair of `VERSIONS`. Before each of them the control topic is asked,
then the note itself, whether another process has taken over meanwhile: one that was suspended in between does no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sluice.errors import ActionRequiredError, IntervalError
from sluice.failpoints import reach
from sluice.jvm.gateway import HudiJvm
from sluice.logs import log
from sluice.process import identity
from sluice.protocol.messages import TableSpec
from sluice.protocol.version_change import BegunChange
from sluice.sinks.hudi.failures import hudi_errors
from sluice.sinks.hudi.metadata_table import meta_client
from sluice.sinks.hudi.options import NEWEST_VERSION, TABLE_VERSION, VERSIONS
from sluice.sinks.hudi.table import HudiTable
from sluice.sinks.hudi.versions import NOTE, begun_change, version_of
from sluice.sinks.hudi.write_config import write_config, write_options

_PAYLOAD = "hoodie.compaction.payload.class"
_PAYLOADS = {
    "COMMIT_TIME_ORDERING": "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload",
    "EVENT_TIME_ORDERING": "org.apache.hudi.common.model.DefaultHoodieRecordPayload",
}
"""By the table's merge mode, as Hudi 1.2 creates a table of version 8."""


class HudiVersionChange:
    """One table whose version is to be changed; see `sluice.connectors.sink.VersionChange`.

    Args:
        jvm: the JVM with Hudi.
        meta: the table's meta client.
        writer: the table, with the schema of its rows if it can be read.
        to: the version that the pipeline names.
        table: the table; None where a change has begun.
    """

    def __init__(self, jvm: HudiJvm, meta: Any, writer: TableSpec, to: int, table: HudiTable | None) -> None:
        self._jvm = jvm
        self._meta = meta
        self.writer = writer
        self.to = to
        self.table = table

    @property
    def process(self) -> str:
        """The JVM's process."""
        return identity(self._jvm.pid)

    def begun(self) -> BegunChange | None:
        """The change that has begun, by the settings as they are now."""
        with hudi_errors("reading the table's settings", table=self.writer.path):
            self._reload()
        return begun_change(self._meta)

    def new_instant(self) -> str:
        """A new instant by Hudi's generator, which the timeline isn't asked for."""
        with hudi_errors("making an instant", table=self.writer.path):
            return str(self._meta.createNewInstantTime(True))

    def carry_out(self, note: BegunChange, fence: Callable[[], None]) -> str:
        """Change the version, or complete a change that was begun.

        The log files of an upsert table are compacted first, here in the coordinator's JVM.

        Raises:
            RetryableError: Hudi or the storage failed; the next attempt completes the change.
            ActionRequiredError: others have begun something, which Hudi would roll back.
            IntervalError: another process has taken the table over.
        """
        path, is_new = self.writer.path, self.table is not None
        with hudi_errors("changing the table's version", table=path, version=str(note.to)):
            self._reload()
            found = version_of(self._meta)
            if self.table is not None:
                if found == note.to:
                    return f"The table has version {found}."
                self._refuse_pending()
                self.table.await_clock()
            fence()
            reach("table_version.before_begin")
            self._begin(note, fence, is_new=is_new)
            reach("table_version.after_begin")
            writer = self.writer.model_copy(update={"schema_avro": note.schema_avro})
            if not is_new and found == note.to == VERSIONS[0]:
                # After a downgrade Hudi adds to the metadata table, and may not have done so. It is made anew instead.
                self._make_metadata_table_anew(writer, note, fence)
            for step in _steps(found, note.to):
                reach(f"table_version.before_{step}")
                self._run(writer, step, note, fence)
            reach("table_version.before_end")
            self._require(note, fence)
            if writer.operation == "upsert" and note.to < NEWEST_VERSION:
                self._name_payload()
            self._forget()
        log.info("changed the table's version", table=path, version=note.to)
        done = f"was {found}" if is_new else "was being changed"
        return f"The table's version {done}, and is {note.to} now."

    def _begin(self, note: BegunChange, fence: Callable[[], None], *, is_new: bool) -> None:
        """Note the change; a process that was suspended just before takes the note away again."""
        self._set({NOTE: note.model_dump_json()})
        try:
            self._require(note, fence)
        except IntervalError:
            self._reload()
            if is_new and begun_change(self._meta) == note:
                self._forget()
            raise

    def _refuse_pending(self) -> None:
        pending = [str(i) for i in self._meta.reloadActiveTimeline().filterInflightsAndRequested().getInstants()]
        if pending:
            raise ActionRequiredError(
                "The timeline has instants that are not completed: to change the table's version, Hudi would roll them "
                "back.",
                next_step="run the table's own services, or end what other writers have begun; then run the service "
                "again. Nothing was changed.",
                table=self.writer.path,
                pending=", ".join(pending),
            )

    def _require(self, note: BegunChange, fence: Callable[[], None]) -> None:
        """Check that no other process has taken the change over: by the control topic, then by the table itself."""
        fence()
        reach("table_version.after_fence")
        self._reload()
        if begun_change(self._meta) != note:
            raise IntervalError(
                "Another process has taken over the change of the table's version.",
                next_step="none: that process completes it.",
                table=self.writer.path,
            )

    def _run(self, writer: TableSpec, to: int, note: BegunChange, fence: Callable[[], None]) -> None:
        hudi = self._jvm.jvm.org.apache.hudi
        options = {**write_options(writer), TABLE_VERSION: str(to), "hoodie.write.auto.upgrade": "true"}
        config = write_config(self._jvm.jvm, writer, options, hudi.common.engine.EngineType.JAVA)
        context = hudi.client.common.HoodieJavaEngineContext(self._jvm.storage)
        upgrade = hudi.table.upgrade
        helper = upgrade.JavaUpgradeDowngradeHelper.getInstance()
        version = hudi.common.table.HoodieTableVersion.fromVersionCode(to)
        self._require(note, fence)
        upgrade.UpgradeDowngrade(self._meta, config, context, helper).run(version, None)

    def _name_payload(self) -> None:
        """Name the payload class, as a new table of an earlier version does.

        Hudi's downgrade leaves a table without one that was created with version 9. Hudi 1.0.2 then reads no log file.
        """
        config = self._meta.getTableConfig()
        name = _PAYLOADS.get(str(config.getRecordMergeMode().name()))
        if name is not None and config.getProps().getProperty(_PAYLOAD) is None:
            self._set({_PAYLOAD: name})

    def _make_metadata_table_anew(self, writer: TableSpec, note: BegunChange, fence: Callable[[], None]) -> None:
        hudi = self._jvm.jvm.org.apache.hudi
        context = hudi.client.common.HoodieJavaEngineContext(self._jvm.storage)
        self._require(note, fence)
        hudi.metadata.HoodieTableMetadataUtil.deleteMetadataTable(self._meta, context, False)
        self._reload()
        reach("table_version.without_metadata_table")
        HudiTable(self._jvm, self._meta, writer, None).ensure_metadata_table()

    def _reload(self) -> None:
        self._meta = meta_client(self._jvm.jvm, self._jvm.storage, self.writer.path)

    def _set(self, settings: dict[str, str]) -> None:
        config = self._jvm.jvm.org.apache.hudi.common.table.HoodieTableConfig
        properties = self._jvm.properties(settings)
        config.update(self._meta.getStorage(), self._meta.getMetaPath(), properties)

    def _forget(self) -> None:
        config = self._jvm.jvm.org.apache.hudi.common.table.HoodieTableConfig
        names = self._jvm.jvm.java.util.HashSet()
        names.add(NOTE)
        config.delete(self._meta.getStorage(), self._meta.getMetaPath(), names)


def _steps(found: int, to: int) -> tuple[int, ...]:
    """The versions on the way from one to another, the last one included; `(8, 9)` from 6 to 9."""
    if found <= to:
        return tuple(version for version in VERSIONS if found < version <= to)
    return tuple(version for version in reversed(VERSIONS) if to <= version < found)
