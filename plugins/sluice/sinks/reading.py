"""Reads tables' files without a JVM, through fsspec, with the credentials of the process's environment.

The credentials for a bucket may also come from the Airflow connection that the table's section names.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import fsspec
from fsspec.registry import known_implementations
from fsspec.registry import registry as loaded

from sluice.connectors.aws import s3fs_options
from sluice.errors import ActionRequiredError, RetryableError
from sluice.storages import of_storage, storage_error

# Hadoop's schemes, and fsspec's for each. All others are refused: fsspec knows dozens, and some fetch from any address,
# start programs, or wrap other schemes. A table's path may come from a message written by an unknown program.
_SCHEMES = {
    **{name: name for name in ("file", "s3", "gs", "gcs", "abfs", "abfss", "az", "adl", "hdfs", "oss", "oci", "obs")},
    "s3a": "s3",
    "s3n": "s3",
    "wasb": "abfs",
    "wasbs": "abfs",
}
_HDFS_LIBRARIES = ("libhdfs", "libjvm")
_CAUSES = 8


def file_url(path: str) -> str:
    """A table's path as a URL for fsspec.

    Raises:
        ActionRequiredError: it isn't a path on a file system that tables can be on.
    """
    scheme, _, rest = path.partition("://") if "://" in path else ("file", "", path)
    plain = not ("::" in path or ".." in rest.split("/") or any(ord(c) < 32 for c in path))
    if scheme not in _SCHEMES or not plain or (scheme == "file" and not rest.startswith("/")):
        raise ActionRequiredError(
            "This is no path of a table that can be read here.",
            next_step=f"tables are at absolute paths, or on {', '.join(sorted(_SCHEMES))}; if no pipeline has this "
            "path, find out which other program writes to the control topic.",
            table=path,
        )
    return f"{_SCHEMES[scheme]}://{rest}"


def file_system(path: str) -> tuple[Any, str]:
    """The file system of a table's path, and the path on it.

    Raises:
        ActionRequiredError: as for `file_url`; or the connection for its bucket can't be used.
        Exception: any error of the file system's package.
    """
    url = file_url(path)
    found = fsspec.core.url_to_fs(url, **s3fs_options(url))
    return found[0], str(found[1])


def require_reader(path: str, purpose: str) -> None:
    """Check that the file system of a path has its package here, without loading it.

    Args:
        path: a table's.
        purpose: what is to be read there, as the beginning of a sentence.

    Raises:
        ActionRequiredError: as for `file_url`; or the package isn't installed.
    """
    scheme = file_url(path).partition("://")[0]
    if scheme in loaded:
        return
    package = str(known_implementations.get(scheme, {}).get("class", "")).partition(".")[0]
    if not package or importlib.util.find_spec(package) is None:
        raise ActionRequiredError(
            f"{purpose} by Python, which has no package for this file system here.",
            next_step=f"{_install(path)} on every Airflow worker.",
            path=path,
        )


def require_readable(path: str, setting: str, purpose: str) -> None:
    """Check that this process's login for Python may list a table's folder, which need not exist.

    Args:
        path: the table's.
        setting: the setting that names it, for errors.
        purpose: what is to be read there, for errors.

    Raises:
        ActionRequiredError, RetryableError: it can't be listed.
    """
    try:
        files, root = file_system(path)
        files.invalidate_cache()
        files.ls(root)
    except FileNotFoundError:
        return
    except (ActionRequiredError, RetryableError):
        raise
    except Exception as error:  # each file system has its own kinds
        if _lacks_hdfs(error):
            raise ActionRequiredError(
                f"Python has no reader for HDFS here ({purpose}): it lacks Hadoop's libhdfs, or Java.",
                next_step="install both on every Airflow worker, with JAVA_HOME, ARROW_LIBHDFS_DIR and CLASSPATH "
                "(`hadoop classpath --glob`) in its environment, or take the dead-letter topic out.",
                path=path,
            ) from error
        raise storage_error(_chain(error), path, setting, purpose) from error


def _install(path: str) -> str:
    if file_url(path).startswith("s3://"):
        return "install s3fs (Sluice's extra s3: pip install 'sluice[s3]', or requirements-aws.lock)"
    return "install the fsspec package for it (gcsfs, adlfs, ...)"


def modified(entry: Mapping[str, Any]) -> datetime | None:
    """A file's modification time, from its file system's listing; None if the listing has none."""
    found = next((entry[k] for k in ("mtime", "LastModified", "last_modified", "updated") if entry.get(k)), None)
    if isinstance(found, int | float):
        return datetime.fromtimestamp(found, UTC)
    return found if isinstance(found, datetime) else None


def failed(error: Exception, table: str, folder: str) -> ActionRequiredError | RetryableError:
    """The error for a table whose commits can't be read.

    It names only the kind of error: a file system's message may contain an address with a password.

    Args:
        error: the exception that fsspec raised.
        table: the table's path.
        folder: the folder below the table's path that holds its commits.
    """
    if isinstance(error, ActionRequiredError | RetryableError):
        return error
    if isinstance(error, ImportError | ValueError):
        return ActionRequiredError(
            f"This process has no reader for the table's file system: {type(error).__name__}.",
            next_step=f"{_install(table)} beside Airflow's API server.",
            table=table,
        )
    if isinstance(error, PermissionError) and error.__cause__ is None:
        return ActionRequiredError(
            "This process has no permission to read the table's timeline.",
            next_step=f"give the API server's user or environment permission to read the table's {folder} folder.",
            table=table,
        )
    known = of_storage(" <- ".join(_chain(error)), table)
    if known.means != "retry":
        return ActionRequiredError(
            f"This process can't read the table's timeline: {known.what}.",
            next_step=f"{known.next_step.format(path='the path')} It is Airflow's API server that reads the table's "
            f"{folder} folder here.",
            table=table,
        )
    if _lacks_hdfs(error):
        return ActionRequiredError(
            "This process has no reader for HDFS: it lacks Hadoop's libhdfs, or Java.",
            next_step="install both where Airflow's API server runs, with JAVA_HOME, ARROW_LIBHDFS_DIR and CLASSPATH "
            "(`hadoop classpath --glob`) in its environment; until then look at the control topic's transactions.",
            table=table,
        )
    return RetryableError(
        f"The table's timeline can't be read: {type(error).__name__}.",
        next_step="check that the file system can be reached from the API server, and its credentials there.",
        table=table,
    )


def _lacks_hdfs(error: Exception) -> bool:
    return isinstance(error, OSError) and any(name in str(error) for name in _HDFS_LIBRARIES)


def _chain(error: BaseException) -> list[str]:
    """An exception and its causes; s3fs hides botocore's, with S3's code, behind one of Python's."""
    found: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(found) < _CAUSES:
        found.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    return found
