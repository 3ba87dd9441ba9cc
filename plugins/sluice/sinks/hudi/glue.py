"""Looks into AWS Glue's catalog with the process's own login, before a table's first interval."""

from __future__ import annotations

from typing import Any, Final

from sluice.answers import Answer, answer_in
from sluice.errors import ActionRequiredError

_RIGHTS: Final = (
    "glue:GetDatabase, CreateDatabase, GetTable, CreateTable, UpdateTable, GetPartitions, BatchCreatePartition, "
    "BatchUpdatePartition and BatchDeletePartition"
)
_ABSENT: Final = "EntityNotFoundException"  # it is made by the first sync
ANSWERS: Final = (
    Answer(
        "act",
        ("AccessDeniedException", "AccessDenied", "GlueEncryptionException"),
        "No permission to look for the table in Glue's catalog",
        f"allow the role of Airflow's workers {_RIGHTS}, on the catalog, the database and its tables.",
    ),
    Answer(
        "act",
        ("NoRegionError", "InvalidRegionError"),
        "Nothing says in which region Glue's catalog is",
        "name it in catalog_sync.glue.region, or in AWS_REGION and AWS_DEFAULT_REGION.",
    ),
    Answer(
        "act",
        ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound",
         "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException", "InvalidIdentityToken",
         "InvalidIdentityTokenException", "MissingAuthenticationToken", "InvalidClientTokenId"),
        "Glue's catalog refuses the log-in, or there is none",
        "give Airflow's workers AWS credentials: on EKS a service account with a role (IRSA), else a role of the "
        "machine, keys in the environment, or a profile.",
    ),
    Answer(
        "act",
        ("InvalidInputException", "ParamValidationError"),
        "Glue's catalog can't have a database or table of this name",
        "correct database and table in catalog_sync.glue: small letters, digits and underscores.",
    ),
    Answer(
        "retry",
        ("ThrottlingException", "InternalServiceException", "OperationTimeoutException", "EndpointConnectionError",
         "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError", "ProxyConnectionError"),
        "Glue's catalog doesn't answer",
        "the step is retried; if the error comes back, look at the reason, and at catalog_sync.glue.region.",
    ),
)  # fmt: skip
"""What Glue answers, by botocore; other answers are retried. https://docs.aws.amazon.com/glue/latest/webapi/"""


def require_glue(database: str, table: str, region: str | None) -> None:
    """Check that this process may look for a table in Glue's catalog, whether it is there yet or not.

    Rights to write there can't be tried without writing: the first sync says if one is missing.

    Raises:
        ActionRequiredError: the extra isn't installed, the login is refused, or a right is missing.
        RetryableError: Glue doesn't answer.
    """
    try:
        import boto3
    except ImportError:
        raise ActionRequiredError(
            "A table's catalog in Glue is looked at by boto3, which isn't installed.",
            next_step="install Sluice's extra glue on every Airflow worker: pip install 'sluice[glue]', or the "
            "packages of requirements-aws.lock.",
            database=database,
        ) from None
    where = {"catalog": "glue", "database": database, "table": table}
    try:
        client = boto3.client("glue", region_name=region)
        if _is_there(client.get_database, Name=database):
            _is_there(client.get_table, DatabaseName=database, Name=table)
    except Exception as error:  # botocore has a class for each answer, made when it is asked
        reason = f"{type(error).__name__}: {error}"
        row = answer_in(reason, ANSWERS) or ANSWERS[-1]
        raise row.error("before the first interval", None, **where, reason=reason) from error


def _is_there(ask: Any, **what: str) -> bool:
    try:
        ask(**what)
    except Exception as error:  # as above
        if _ABSENT not in f"{type(error).__name__}: {error}":
            raise
        return False
    return True
