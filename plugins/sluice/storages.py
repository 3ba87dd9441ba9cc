"""What file systems and object stores answer to Hadoop's client, Spark and fsspec, by what to do next. Pure.

S3's codes: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html; answers without a body have only a
status. HDFS's are the exceptions of its name node, and of Hadoop's client. In the next step, `{path}` is the setting of
the pipeline file that names the folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from sluice.answers import CERTIFICATE, Answer, answer_in
from sluice.errors import SluiceError
from sluice.locations import location
from sluice.spark_classes import missing_class

_OBJECTS: Final = ("s3a://", "s3://")
_LONGEST: Final = 2000  # characters of a reason
_FILE: Final = re.compile(r"s3[an]?://[^\s:()]+|(?<=FileNotFoundException: )/\S+")
_TO_READ: Final = "access=READ"  # of HDFS, for a right that a job needs for its source alone

PERMISSION: Final = Answer(
    "act",
    ("AccessControlException", "AccessDeniedException", "Permission denied", "403 Forbidden", "PermissionError"),
    "No permission on the table's folder",
    "grant the user of Airflow's workers and of Spark read and write access to it.",
)
_FULL: Final = Answer(
    "act",
    ("NSQuotaExceededException", "DSQuotaExceededException", "QuotaByStorageTypeExceededException",
     "QuotaExceededException", "MaxDirectoryItemsExceededException", "could only be written to 0 of",
     "No space left on device", "Disk quota exceeded"),
    "The table's file system is full, or a quota of it is",
    "make room. Nothing of the interval is visible, and the next interval deletes its files.",
)  # fmt: skip
_NO_ANSWER: Final = Answer(
    "retry",
    ("SafeModeException", "Name node is in safe mode", "StandbyException",
     "RetriableException", "ObserverRetryOnActiveException", "ConnectException", "ConnectTimeoutException",
     "SocketTimeoutException", "NoRouteToHostException", "SocketException", "EOFException",
     "BlockMissingException", "LeaseExpiredException", "AlreadyBeingCreatedException", "ClosedChannelException",
     "FileNotFoundException"),
    "The table's file system doesn't answer, or refuses the request",
    "the step is retried; if the error comes back, look at the reason: a name node may be in safe mode.",
)  # fmt: skip
HADOOP: Final = (
    Answer(
        "act",
        ("GSS initiate failed", "GSSException", "KerberosAuthException", "LoginException", "SaslException",
         "Client cannot authenticate via", "SIMPLE authentication is not enabled", "fall back to SIMPLE auth",
         "InvalidToken"),
        "The table's file system refuses the log-in",
        "log in to Kerberos (kinit, or a keytab) on Airflow's workers and for Spark, and see that tickets are renewed.",
    ),
    PERMISSION,
    _FULL,
    Answer(
        "retry",
        ("Temporary failure in name resolution",),
        "The host of the table's file system isn't found just now",
        "the step is retried; if the error comes back, look at the name servers of Airflow's workers and of Spark.",
    ),
    Answer(
        "act",
        ("UnknownHostException", "UnsupportedFileSystemException", "No FileSystem for scheme", "No AbstractFileSystem",
         "InvalidPathException", "Incomplete HDFS URI", "Uri without authority", "Mkdirs failed", "Not a directory",
         "ParentNotDirectoryException", "NotDirectoryException", "PathIsNotDirectoryException",
         "PathComponentTooLongException", "RPC response exceeds maximum data length", "InvalidProtocolBufferException"),
        "The table's path can't be used",
        "correct {path}, or the Hadoop settings of its file system.",
    ),
    _NO_ANSWER,
)  # fmt: skip
"""HDFS and Hadoop's other file systems; the first row that is found counts."""

_NO_ANSWER_OF_S3: Final = Answer(
    "retry",
    ("SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "RequestTimeoutException", "Throttling",
     "ThrottlingException", "RequestLimitExceeded", "BandwidthLimitExceeded", "OperationAborted",
     "ConditionalRequestConflict", "TemporaryRedirect", "NoSuchUpload", "NoSuchKey", "503 Service Unavailable",
     "Status Code: 500", "Status Code: 502", "Status Code: 503", "(500)", "(502)", "(503)",
     "Temporary failure in name resolution", "ConnectException", "HttpHostConnectException",
     "ConnectTimeoutException", "SocketTimeoutException", "SocketException", "NoHttpResponseException",
     "EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError"),
    "The table's object store doesn't answer, or refuses the request",
    "the step is retried; if the error comes back, look at the reason.",
)  # fmt: skip
_NO_S3A: Final = Answer(
    "act",
    ("S3AFileSystem not found", "NoClassDefFoundError: com/amazonaws", "UnsupportedFileSystemException"),
    "Hadoop's S3A is not on the class path",
    "add hadoop-aws 3.3.4 and aws-java-sdk-bundle 1.12.262 to it, for the coordinator and for Spark; see "
    "docs/production.md.",
)
_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"  # and nothing of the SDK, a jar of 130,000 entries
S3: Final = (
    Answer(
        "act",
        CERTIFICATE,
        "The object store's certificate isn't accepted",
        "look whether the endpoint is the right one. If it is, give it a certificate of its host's name, or add its "
        "authority to the trust store of Java, or to AWS_CA_BUNDLE for Python.",
    ),
    Answer(
        "act",
        ("RequestTimeTooSkewed", "RequestExpired"),
        "This machine's clock differs from the object store's by more than it takes",
        "set the clock, and keep it by NTP.",
    ),
    Answer(
        "act",
        ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken", "UnauthorizedSSOTokenError",
         "SSOTokenLoadError"),
        "The session token for the table's bucket has expired, or isn't valid",
        "renew it in the Airflow connection or environment that has it, or use a role or lasting keys.",
    ),
    Answer(
        "act",
        ("Not authorized to perform sts:AssumeRoleWithWebIdentity", "not authorized to perform: sts:AssumeRole",
         "InvalidIdentityToken", "InvalidIdentityTokenException"),
        "AWS refuses the role with which the table's bucket is to be read and written",
        "let the role's trust policy name who takes it: on EKS the service account of the pods, by the cluster's OIDC "
        "provider. Or correct the role, in the service account's annotation or in the connection.",
    ),
    Answer(
        "act",
        ("Unable to load AWS credentials", "NoAwsCredentialsException", "NoCredentialsError", "Unable to locate "
         "credentials"),
        "There are no AWS credentials for the table's bucket",
        "give the process some: on EKS a service account with a role (IRSA), on EC2 or ECS a role, else keys in the "
        "environment, a profile, or an Airflow connection of type aws that the pipeline file names.",
    ),
    _NO_ANSWER_OF_S3,  # STS may not answer, without which there are no credentials
    Answer(
        "act",
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidClientTokenId", "UnrecognizedClientException",
         "InvalidSecurity", "NotSignedUp", "AccountProblem", "NoAuthWithAWSException",
         "CredentialInitializationException", "PartialCredentialsError", "CredentialRetrievalError",
         "ProfileNotFound"),
        "The table's object store refuses the log-in",
        "correct access key and secret of the Airflow connection, or of the environment of Airflow's workers and of "
        "Spark.",
    ),
    Answer(
        "act",
        ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException",
         "AWSRedirectException", "Status Code: 301", "(301)"),
        "The table's path can't be used: its bucket is in another region, or at another endpoint",
        "correct {path}, or the connection's region and endpoint; without a connection Hadoop's settings of S3A.",
    ),
    Answer(
        "act",
        ("NoSuchBucket", "UnknownStoreException", "InvalidBucketName", "UnknownHostException",
         "IllegalBucketNameException", "bucket is null/empty", "Invalid bucket name", "ParamValidationError",
         "KeyTooLongError", "InvalidURI"),
        "The table's path can't be used",
        "correct {path}, or Hadoop's settings of S3A: endpoint, region, path style.",
    ),
    _NO_S3A,
    Answer(
        "act",
        ("NotImplemented", "Status Code: 501"),
        "The object store doesn't implement conditional writes",
        "use an object store with conditional writes (If-None-Match), such as Amazon S3.",
    ),
    Answer(
        "act",
        ("QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded"),
        "The table's object store is full, or a quota of it is",
        "make room. Nothing of the interval is visible, and the next interval deletes its files.",
    ),
    Answer(
        "act",
        ("KMS.DisabledException", "KMS.NotFoundException", "KMS.KMSInvalidStateException",
         "KMS.InvalidKeyUsageException"),
        "The key that encrypts the table's bucket can't be used",
        "enable the key in AWS KMS, or name another one in the bucket's encryption or in S3A's settings.",
    ),
    Answer(
        "act",
        ("InvalidObjectState",),
        "An object of the table is in an archive",
        "restore it, and exclude the table's folder from the lifecycle rule that archives objects.",
    ),
    Answer(
        "act",
        ("AccessDenied", "AllAccessDisabled", "MethodNotAllowed", "Status Code: 403", "(403)", *PERMISSION.signs),
        "No permission on the table's bucket",
        "allow the role or key of Airflow's workers and of Spark to list the bucket (s3:ListBucket), and to get, put "
        "and delete objects below the path.",
    ),
    Answer(
        "act",
        ("AWSBadRequestException", "InvalidRequest", "Status Code: 400", "(400)"),
        "The table's path can't be used: the object store takes the request for wrong",
        "look at the reason; correct {path}, or region, endpoint or token of the connection. Without a connection "
        "these are Hadoop's settings of S3A.",
    ),
)  # fmt: skip
"""S3 and stores that answer as S3 does, to S3A and to botocore; the first row that is found counts."""


def require_in_spark(path: str, conf: Mapping[str, str]) -> None:
    """Check that Spark can reach a table's bucket too, and not the coordinator alone: it has separate jars.

    Args:
        path: the table's.
        conf: the pipeline's settings of Spark.

    Raises:
        ActionRequiredError: a jar of S3A's is missing.
    """
    missing = missing_class([_S3A], conf, "hadoop-aws") if path.startswith("s3a://") else None
    if missing is not None:
        raise _NO_S3A.error("in Spark", None, path=path, reason=f"no class {missing}")


def of_storage(text: str, path: str) -> Answer:
    """The row for an exception; for one that no table has, the row of answers that are retried.

    Args:
        text: the names and messages of the exception and its causes.
        path: the path of the table, with its scheme.
    """
    on_s3 = path.startswith(_OBJECTS)
    return answer_in(text, (*S3, *HADOOP) if on_s3 else HADOOP) or (_NO_ANSWER_OF_S3 if on_s3 else _NO_ANSWER)


def storage_error(chain: list[str], path: str, setting: str, doing: str = "", **where: str) -> SluiceError:
    """The error for an exception of a table's file system.

    Args:
        chain: the exception and its causes, one line each, as `sluice.jvm.causes` returns them.
        path: the path at which it happened.
        setting: the setting that names the table's folder.
        doing: what was being done.
        where: the place, if it isn't the path.
    """
    text = " <- ".join(chain)
    row = of_storage(text, path)
    reason = (text if row.means == "retry" else chain[-1])[:_LONGEST]
    return row.error(doing, {"path": setting}, **(where or {"path": path}), reason=reason)


def of_job(chain: list[str], path: str, setting: str) -> SluiceError | None:
    """As `storage_error`, for a Spark job that writes there: only answers of the file system alone that don't pass.

    The job may as well have failed over its source or a row, whose exceptions have names that file systems use, too.
    """
    text = " <- ".join(chain)
    if _TO_READ in text or _is_elsewhere(text, path):
        return None
    row = answer_in(text, (*(S3 if "AmazonS3Exception" in text else ()), PERMISSION, _FULL))
    return None if row is None or row.means == "retry" else storage_error(chain, path, setting)


def _is_elsewhere(text: str, path: str) -> bool:
    """Whether an exception names files, and none of them is below a table's path or above it."""
    ours = f"{location(path)}/"
    named = [f"{location(found if '://' in found else f'file://{found}')}/" for found in _FILE.findall(text)]
    return bool(named) and not any(ours.startswith(one) or one.startswith(ours) for one in named)
