"""The staging path on a local disk: a folder of this account, in which other accounts can't put records."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import Final

from sluice.errors import ActionRequiredError
from sluice.logs import log
from sluice.sinks.files.storage import LocalStorage, Storage

_PIECE: Final = 1 << 20
_ROOT: Final = 0


def local_staging(folder: Path) -> LocalStorage:
    """The staging path as a storage.

    A missing folder is created for this account alone. An existing folder must belong to this account, to root, or to
    a group of this account that may write to it: the owner of a folder can read all files in it.

    Raises:
        ActionRequiredError: the path belongs to another account, or isn't a folder.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise ActionRequiredError(
            "The staging path can't be used.",
            next_step="give the sink a `staging` that this account may write to.",
            path=str(folder),
            reason=error.strerror,
        ) from error
    shared = bool(found.st_mode & stat.S_IWGRP) and found.st_gid in {os.getegid(), *os.getgroups()}
    if found.st_uid not in (os.geteuid(), _ROOT) and not shared:
        raise ActionRequiredError(
            "The staging path is a folder of another account, which could read the records and change them.",
            next_step="give the sink a `staging` of this account's, or of a group that it shares with Spark's.",
            path=str(folder),
            owner=found.st_uid,
        )
    if found.st_mode & stat.S_IWOTH:
        log.warning("any account may write to the staging path; take that right away (chmod o-rwx)", path=str(folder))
    return LocalStorage(folder)


def checksum(storage: Storage, path: str) -> str:
    """A staged file's checksum, prefixed with its kind and a colon: SHA-256 on a local disk, else the storage's own."""
    if not isinstance(storage, LocalStorage):
        return storage.checksum(path)
    found = hashlib.sha256()
    with storage.on_disk(path).open("rb") as file:
        while piece := file.read(_PIECE):
            found.update(piece)
    return f"sha256:{found.hexdigest()}"
