"""A folder in an S3 bucket, accessed through the client of Hadoop's S3A, with its credentials, endpoint and encryption.

To create an object only if none exists, S3A checks first, and then writes. Requests of the underlying client carry a
condition (`If-None-Match: *`), which S3 checks as it creates the object: of two simultaneous requests one is refused.
https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from sluice.errors import ActionRequiredError
from sluice.jvm.s3 import PAGE, S3Folder
from sluice.sinks.files.hadoop import SETTING
from sluice.sinks.files.storage import is_data

_TAG: Final = "sluice-transaction"
_CONDITION: Final = ("If-None-Match", "*")
_COPIED_WHOLE: Final = 1 << 30  # bytes; S3 copies at most 5 GiB in one request, and each GiB takes some seconds
_COPIED_PART: Final = 1 << 28


class S3Storage(S3Folder):
    """One table's folder; see `sluice.sinks.files.storage.Objects`.

    Args:
        jvm: Py4J's view of a JVM with Hadoop's S3A.
        configuration: Hadoop's configuration.
        root: the folder, as s3a://bucket/folder.
    """

    def __init__(self, jvm: Any, configuration: Any, root: str) -> None:
        super().__init__(jvm, configuration, root, SETTING)

    def require_conditions(self, path: str) -> None:
        """Check that the server refuses to create an existing object: some S3-compatible stores ignore the condition.

        Args:
            path: the probe object's path; the object is created once.

        Raises:
            ActionRequiredError: the server ignores the condition, so that two commits could both succeed.
        """
        if self._make(path, b"first") and self._make(path, b"second"):
            raise ActionRequiredError(
                "The object store overwrites an object that exists, though it was asked not to.",
                next_step="use an object store with conditional writes (If-None-Match), such as Amazon S3: without "
                "them two simultaneous commits could load rows twice.",
                path=self._full(path),
            )

    def exists(self, path: str) -> bool:
        """See `Storage`. A folder exists as long as there is an object in it."""
        return self.size(path) is not None or any(self._list(f"{path}/", 1))

    def size(self, path: str) -> int | None:
        """See `Storage`."""
        found = self._head(path)
        return None if found is None else int(found.getContentLength())

    def read(self, path: str) -> bytes:
        """See `Storage`."""
        with self._errors(path):
            content = self._client.getObject(self._requests.newGetObjectRequest(self._key(path))).getObjectContent()
            try:
                return bytes(content.readAllBytes())
            finally:
                content.close()

    def names(self, path: str) -> list[str]:
        """See `Storage`."""
        below = f"{path}/" if path else ""
        folder = self._key(below)
        found: set[str] = set()
        with self._errors(path):
            for page in self._pages(below, "/", PAGE):
                keys = [str(one.getKey()) for one in page.getObjectSummaries()]
                found |= {key.removeprefix(folder).rstrip("/") for key in (*keys, *map(str, page.getCommonPrefixes()))}
        return sorted(found - {""})

    def files(self, path: str) -> dict[str, int]:
        """See `Storage`."""
        folder = self._key(f"{path}/")
        found = {key.removeprefix(folder): size for key, size in self._list(f"{path}/")}
        return {name: size for name, size in found.items() if name and is_data(name.rpartition("/")[2] or "_")}

    def make_folder(self, path: str) -> None:
        """See `Storage`. Creates an object whose name ends with a slash, like S3A and others."""
        self._make(f"{path}/", b"")

    def create(self, path: str, content: bytes) -> None:
        """See `Storage`. Other processes see the object whole or not at all; of two simultaneous calls one is refused.

        The client repeats a request whose answer was lost, and may then find the object that the first one created.
        """
        if not self._make(path, content) and self.read(path) != content:
            raise FileExistsError(self._full(path))

    def copy(self, files: Iterable[tuple[str, str, int]], tag: str) -> None:
        """See `Objects`. S3 copies by itself, some at once, and whole objects appear."""
        transfer = self._jvm.com.amazonaws.services.s3.transfer
        builder = transfer.TransferManagerBuilder.standard().withS3Client(self._client)
        builder = builder.withMultipartCopyThreshold(_COPIED_WHOLE).withMultipartCopyPartSize(_COPIED_PART)
        manager = builder.build()
        try:
            copies = [(source, self._copy(manager, source, target, size, tag)) for source, target, size in files]
            for source, one in copies:
                with self._errors(source):
                    one.waitForCompletion()
        finally:
            manager.shutdownNow(False)

    def _copy(self, manager: Any, source: str, target: str, size: int, tag: str) -> Any:
        with self._errors(source):
            data = self._requests.newObjectMetadata(size)
            data.addUserMetadata(_TAG, tag)
            return manager.copy(self._requests.newCopyObjectRequest(self._key(source), self._key(target), data))

    def is_copy(self, path: str, size: int, tag: str) -> bool | None:
        """See `Objects`."""
        found = self._head(path)
        if found is None:
            return None
        return int(found.getContentLength()) == size and found.getUserMetaDataOf(_TAG) == tag

    def delete(self, path: str) -> bool:
        """See `Storage`."""
        found = [key for key, _ in self._list(f"{path}/")]
        if self.size(path) is not None:
            found.append(self._key(path))
        for key in found:
            with self._errors(path):
                self._client.deleteObject(self._requests.newDeleteObjectRequest(key))
        return bool(found)

    def checksum(self, path: str) -> str:
        """See `Storage`. S3's entity tag."""
        found = self._head(path)
        if found is None:
            raise FileNotFoundError(self._full(path))
        return f"etag:{found.getETag()}"

    # How

    def _put(self, path: str, content: bytes) -> Any:
        data = self._requests.newObjectMetadata(len(content))
        return self._requests.newPutObjectRequest(
            self._key(path), data, self._jvm.java.io.ByteArrayInputStream(content)
        )

    def _make(self, path: str, content: bytes) -> bool:
        """Create an object; False if one of that name exists."""
        try:
            with self._errors(path):
                request = self._put(path, content)
                request.putCustomRequestHeader(*_CONDITION)
                self._client.putObject(request)
        except FileExistsError:
            return False
        return True

    def _list(self, path: str, most: int = PAGE) -> Iterator[tuple[str, int]]:
        """Keys and sizes of all objects whose names begin with a path."""
        with self._errors(path):
            for page in self._pages(path, None, most):
                yield from ((str(one.getKey()), int(one.getSize())) for one in page.getObjectSummaries())
