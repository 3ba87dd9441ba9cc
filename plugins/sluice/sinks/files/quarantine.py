"""Bad records of a pipeline that writes files: Parquet files in a folder beside the table's, with a separate log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO

from pydantic import ValidationError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.commit_note import read_note
from sluice.protocol.messages import TableSpec
from sluice.protocol.quarantine import INSTANT, SCHEMA, Quarantined, quarantine_path
from sluice.records.settings import Errors
from sluice.sinks.files.commits import Folder
from sluice.sinks.files.log import IntervalLog, ReadsFiles
from sluice.sinks.files.options import Files
from sluice.sinks.files.options.names import INNER, LOG
from sluice.sinks.files.options.pinned import PinnedFiles
from sluice.sinks.files.storage import Storage
from sluice.sinks.quarantined import IN_SHORT, quarantined, rows_in
from sluice.sinks.reading import failed

_DDL = f"{SCHEMA}, {INSTANT} STRING"


def quarantine_writer(table: TableSpec, errors: Errors) -> TableSpec:
    """The settings for writing a table's bad records.

    Args:
        table: the settings for the table's rows.
        errors: the pipeline's `errors` section.

    Raises:
        ActionRequiredError: files can't be committed to the folder that errors.quarantine names.
    """
    path = quarantine_path(table.path, errors)
    try:
        section = Files.model_validate({"path": path, "format": "parquet", "layout": "interval", "schema": _DDL})
    except ValidationError as error:
        raise ActionRequiredError(
            f"errors.quarantine can't be used: {error.errors()[0]['msg']}.",
            next_step="name a folder on HDFS, S3 or a disk, or leave errors.quarantine out: bad records are then "
            "beside the table.",
            quarantine=path,
        ) from error
    writer = section.writer(f"{table.name}_quarantine", None, maintained=False, schema_ddl=_DDL)
    return PinnedFiles.of(writer).model_copy(update={"apart": True}).pinned_in(writer)


def require_own(storage: Storage, path: str, table: str) -> None:
    """Check that a folder holds only this table's bad records.

    Raises:
        ActionRequiredError: it holds a table of rows, or another table's bad records.
    """
    last = next((record for _, record in IntervalLog(storage).newest_first()), None)
    note = read_note(last.extra) if last is not None else None
    if note is not None and (note.table != table or note.instant is None):
        raise ActionRequiredError(
            "The quarantine's path holds another table.",
            next_step="give each pipeline a separate path in errors.quarantine.",
            quarantine=path,
            holds=note.table or "a table of rows",
        )


def bad_records(storage: Storage, paths: Sequence[str]) -> Iterator[Quarantined]:
    """The records in the participants' folders that a commit names, in order."""
    log = IntervalLog(storage)
    for folder in paths:
        instant = folder.split("/")[1]
        found = log.find(instant)
        for one in found[1].files if found is not None else ():
            if one.staged.startswith(f"{folder}/"):
                for row in rows_in(BytesIO(storage.read(one.path)), None):
                    yield quarantined(row, instant)


class QuarantineFiles:
    """The bad records in a folder, read through fsspec; see `sluice.connectors.views.QuarantineReader`.

    Args:
        path: the folder.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def committed(self, instants: Iterable[str] = ()) -> dict[str, list[str]]:
        """The files in the folder's log, by instant; of all instants if none is given."""
        wanted = frozenset(instants)
        try:
            folder = Folder(self.path)
            if not folder.exists(LOG):
                return {}
            found = self._records(folder)
            return {i: paths for i, paths in found if not wanted or i in wanted}
        except Exception as error:  # each file system has its own kinds
            raise self._failed(error) from error

    @staticmethod
    def _records(folder: ReadsFiles) -> list[tuple[str, list[str]]]:
        records = [record for _, record in IntervalLog(folder).newest_first()][::-1]
        return [(record.instant, [one.path for one in record.files]) for record in records]

    def records(self, paths: Sequence[str], *, whole: bool = True) -> Iterator[Quarantined]:
        """The records of files, in order."""
        try:
            folder = Folder(self.path)
            for path in paths:
                with folder.opened(path) as file:
                    for row in rows_in(file, None if whole else (INSTANT, *IN_SHORT)):
                        yield quarantined(row, row[INSTANT])
        except (OSError, ValueError) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> ActionRequiredError | RetryableError:
        return failed(error, self.path, INNER)
