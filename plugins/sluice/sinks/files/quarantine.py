"""Bad records of a pipeline that writes files: Parquet files in a folder beside the table's, with a log of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO

from pydantic import ValidationError

from sluice.errors import ActionRequiredError, RetryableError
from sluice.protocol.messages import TableSpec
from sluice.protocol.offsets import TRANSACTION_KEY
from sluice.protocol.quarantine import INSTANT, SCHEMA, Quarantined, quarantine_path
from sluice.records.settings import Errors
from sluice.sinks.files.commits import Folder
from sluice.sinks.files.log import IntervalLog, ReadsFiles
from sluice.sinks.files.names import APART, INNER, LOG
from sluice.sinks.files.options import Files
from sluice.sinks.files.storage import Storage
from sluice.sinks.quarantined import IN_SHORT, quarantined, rows_in
from sluice.sinks.reading import failed

_DDL = f"{SCHEMA}, {INSTANT} STRING"


def quarantine_writer(table: TableSpec, errors: Errors) -> TableSpec:
    """How bad records of a table are written.

    Args:
        table: how the table's own rows are.
        errors: what the pipeline says of bad records.

    Raises:
        ActionRequiredError: errors.quarantine is no folder that files can be committed to.
    """
    path = quarantine_path(table.path, errors)
    try:
        section = Files.model_validate({"path": path, "format": "parquet", "layout": "interval", "schema": _DDL})
    except ValidationError as error:
        raise ActionRequiredError(
            f"errors.quarantine can't be used: {error.errors()[0]['msg']}.",
            next_step="name a folder on HDFS, S3 or a disk, or leave it out: then it is beside the table's.",
            quarantine=path,
        ) from error
    writer = section.writer(f"{table.name}_quarantine", None, maintained=False, schema_ddl=_DDL)
    return writer.model_copy(update={"options": {**writer.options, APART: "true"}})


def require_own(storage: Storage, path: str, table: str) -> None:
    """Check that a folder has nothing but this table's bad records.

    Raises:
        ActionRequiredError: it is another table, or has another's.
    """
    last = next((record for _, record in IntervalLog(storage).newest_first()), None)
    note = json.loads(last.extra.get(TRANSACTION_KEY, "{}")) if last is not None else {"table": table}
    if note.get("table") != table or ("instant" not in note and last is not None):
        raise ActionRequiredError(
            "The quarantine's path holds another table.",
            next_step="name a path of its own for each pipeline in errors.quarantine.",
            quarantine=path,
            holds=str(note.get("table", "a table of rows")),
        )


def bad_records(storage: Storage, paths: Sequence[str]) -> Iterator[Quarantined]:
    """The records that participants have written, by the folders that a commit has named, in their order."""
    log = IntervalLog(storage)
    for folder in paths:
        instant = folder.split("/")[1]
        found = log.find(instant)
        for one in found[1].files if found is not None else ():
            if one.staged.startswith(f"{folder}/"):
                for row in rows_in(BytesIO(storage.read(one.path)), None):
                    yield quarantined(row, instant)


class QuarantineFiles:
    """The bad records in a folder, read by fsspec; see `sluice.connectors.views.QuarantineReader`.

    Args:
        path: the folder.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def committed(self, instants: Iterable[str] = ()) -> dict[str, list[str]]:
        """The files by instant, as the folder's log names them; of all instants where none is named."""
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
        """The records of files, in their order."""
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
