"""The login of S3A where neither a setting nor a file of the user's names one."""

from __future__ import annotations

from typing import Any, Final

from sluice.aws_login import own_login

_PROVIDER: Final = "fs.s3a.aws.credentials.provider"
_HADOOPS_OWN: Final = ["core-default.xml"]
_OF_SETTINGS: Final = (  # keys in settings, with a session token or without
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
)


def look_where_aws_does(configuration: Any) -> None:
    """Have S3A look for credentials where AWS's clients do, unless a user's setting names its providers.

    Args:
        configuration: Hadoop's configuration, which is changed.
    """
    if list(configuration.getPropertySources(_PROVIDER) or ()) == _HADOOPS_OWN:
        configuration.set(_PROVIDER, ",".join((*_OF_SETTINGS, *own_login())))
