"""Files that Hadoop's clients reach, in a JVM: of a bucket, or of HDFS."""

from __future__ import annotations

from typing import Any

from sluice.sources.files.entries import Storage, root_of
from sluice.sources.files.hdfs import Hdfs
from sluice.sources.files.options import HDFS
from sluice.sources.files.s3 import Bucket, bucket_of


def storage_of(jvm: Any, configuration: Any, uri: str) -> Storage:
    """What looks at the files of the bucket or HDFS that a URI is of.

    Args:
        jvm: Py4J's view of a JVM with Hadoop's clients.
        configuration: Hadoop's configuration.
        uri: of a file or folder.

    Raises:
        ActionRequiredError, RetryableError: it can't be reached.
    """
    if uri.startswith(HDFS):
        return Hdfs(jvm, configuration, root_of(uri))
    return Bucket(jvm, configuration, bucket_of(uri))
