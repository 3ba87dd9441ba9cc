"""A folder of a bucket, listed and looked at by the client of S3A, which Spark reads its objects by.

The listing comes in pages of a thousand objects, each page with one call into the JVM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from sluice.errors import ActionRequiredError, SluiceError
from sluice.jvm.s3 import PAGE, S3Folder
from sluice.sources.files.entries import IGNORED, Found, is_read
from sluice.sources.files.options import OBJECTS

SETTING = "source.files.path"


class _Listed(msgspec.Struct, rename="camel"):
    """An object as S3's listing shows it, and as Java's client spells that."""

    key: str
    size: int
    last_modified: int
    etag: str | None = None


_PAGE = msgspec.json.Decoder(list[_Listed])


def bucket_of(uri: str) -> str:
    """The bucket of an object or a folder."""
    return uri.removeprefix(OBJECTS).partition("/")[0]


def uri_of(bucket: str, key: str) -> str:
    """The URI of an object, as Hadoop's paths take it."""
    return f"{OBJECTS}{bucket}/{quote(key, safe='/')}"


def key_of(uri: str) -> str:
    """The key of an object, by its URI."""
    return unquote(uri.removeprefix(OBJECTS).partition("/")[2])


class Bucket(S3Folder):
    """Looks at the objects of one bucket, as `sluice.sources.files.entries.Storage`.

    Args:
        jvm: Py4J's view of a JVM with Hadoop's S3A.
        configuration: Hadoop's configuration.
        name: the bucket's name.
    """

    def __init__(self, jvm: Any, configuration: Any, name: str) -> None:
        super().__init__(jvm, configuration, f"{OBJECTS}{name}", SETTING)
        self._name = name
        self._json = jvm.com.amazonaws.thirdparty.jackson.databind.ObjectMapper()

    def listing(self, folder: str, include: tuple[str, ...], exclude: tuple[str, ...]) -> Iterator[Found]:
        """See `Storage`. A bucket has no folders: where no object is, there is an empty one.

        Raises:
            ActionRequiredError: Hadoop has no path for an object.
        """
        below = folder.removeprefix(self._root).strip("/")  # a path of a pipeline file has no escapes
        prefix = f"{below}/" if below else ""
        with self._errors(prefix):
            for page in self._pages(prefix, None, PAGE):
                for one in _PAGE.decode(self._json.writeValueAsString(page.getObjectSummaries())):
                    path = one.key.removeprefix(prefix)
                    *folders, name = path.split("/")
                    is_marker = not name and not one.size  # of a folder, as some programs make them
                    if is_marker or any(each.startswith(IGNORED) for each in folders):
                        continue
                    if is_read(name, path, include, exclude):
                        if not all((*folders, name)):
                            raise _no_path(self._name, one.key)
                        yield self._found(one.key, one.size, one.last_modified, one.etag)

    def look(self, uri: str) -> Found | None:
        """See `Storage`."""
        key = key_of(uri)
        head = self._head(key)
        if head is None:
            return None
        return self._found(key, int(head.getContentLength()), int(head.getLastModified().getTime()), head.getETag())

    def _found(self, key: str, size: int, modified: int, etag: str | None) -> Found:
        """An object, with its time in whole seconds: stores that list fractions leave them out of other answers."""
        uri = uri_of(self._name, key)
        if not etag:
            raise ActionRequiredError(
                "The object store gives an object no ETag, by which a changed one would be recognized.",
                next_step="read from a store whose objects have ETags, as S3's do.",
                file=uri,
            )
        return Found(uri, size, modified // 1000 * 1_000_000, etag)

    def _classed(self, exception: Any, path: str) -> OSError | SluiceError:
        error = super()._classed(exception, path)
        if isinstance(error, SluiceError):
            error.reword(of_source)
        return error


def of_source(text: str) -> str:
    """What `sluice.storages` says of a table, of the files of a source."""
    only_read = text.replace("get, put and delete objects", "get objects (s3:GetObject)")
    only_read = only_read.replace("read and write access", "the right to read")
    return only_read.replace("table's", "source's").replace("of the table", "of the source")


def _no_path(bucket: str, key: str) -> ActionRequiredError:
    return ActionRequiredError(
        "Hadoop has no path for an object, so Spark can't read it: a name between slashes is empty.",
        next_step="copy it to a key without `//`, and without a slash at either end, and delete this one; or leave it "
        "out by the source's `exclude`, such as `*//*`.",
        bucket=bucket,
        key=key,
    )
