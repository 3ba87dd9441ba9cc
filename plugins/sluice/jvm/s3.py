"""A folder in an S3 bucket through the client of Hadoop's S3A, with its login, endpoint, retries and encryption."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from py4j.protocol import Py4JError, Py4JJavaError

from sluice.errors import SluiceError
from sluice.jvm.causes import causes, lost_jvm
from sluice.storages import of_storage, storage_error

PAGE: Final = 1000
"""The most objects that S3 lists at once."""
_REASON: Final = "sluice: conditional writes, whole listings"  # for using S3A's client, which S3A logs
_MISSING, _TAKEN = 404, 412


class S3Folder:
    """The objects whose keys begin with a folder's path.

    Args:
        jvm: Py4J's view of a JVM with Hadoop's S3A.
        configuration: Hadoop's configuration.
        root: the folder, as s3a://bucket/folder.
        setting: the key of a pipeline file that names it, for errors.

    Raises:
        ActionRequiredError, RetryableError: the bucket can't be reached.
    """

    def __init__(self, jvm: Any, configuration: Any, root: str, setting: str) -> None:
        self._jvm = jvm
        self._root = root
        self._setting = setting
        parts = urlsplit(root)
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")
        with self._errors(root):
            uri = jvm.java.net.URI.create(root)
            files = jvm.org.apache.hadoop.fs.FileSystem.get(uri, configuration)
            self._client = files.getAmazonS3ClientForTesting(_REASON)
            self._requests = files.getRequestFactory()

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}" if self._prefix else path

    def _head(self, path: str) -> Any:
        """An object's metadata; None if there is no such object."""
        try:
            with self._errors(path):
                return self._client.getObjectMetadata(self._requests.newGetObjectMetadataRequest(self._key(path)))
        except FileNotFoundError:
            return None

    def _pages(self, path: str, delimiter: str | None, most: int) -> Iterator[Any]:
        """The listing of all objects whose keys begin with a path, in the order of their keys."""
        request = self._requests.newListObjectsV2Request(self._key(path), delimiter, most)
        while True:
            page = self._client.listObjectsV2(request)
            yield page
            if not page.isTruncated():
                return
            request.setContinuationToken(page.getNextContinuationToken())

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as error:
            raise self._classed(error.java_exception, path) from error
        except Py4JError as error:
            raise lost_jvm(self._full(path)) from error

    def _classed(self, exception: Any, path: str) -> OSError | SluiceError:
        where, chain = self._full(path), causes(exception)
        answered = str(exception.getClass().getSimpleName()) == "AmazonS3Exception"
        status = int(exception.getStatusCode()) if answered else 0
        if status == _MISSING and of_storage(" <- ".join(chain), where).means == "retry":  # the object, not its bucket
            return FileNotFoundError(where)
        return FileExistsError(where) if status == _TAKEN else storage_error(chain, where, self._setting)

    def _full(self, path: str) -> str:
        return path if path == self._root else f"{self._root}/{path}"
