"""Where Java's clients look for a process's own AWS credentials: where those for Python do, in the same order. Pure.

S3A 3.3.4 by itself knows the settings' own keys, the environment's, and the role of the container or the machine. A pod
of EKS has a web identity (IRSA): its S3A would take the node's role, and s3fs in the same process the pod's.
https://hadoop.apache.org/docs/r3.3.4/hadoop-aws/tools/hadoop-aws/index.html#Authenticating_with_S3
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_ENVIRONMENT: Final = "com.amazonaws.auth.EnvironmentVariableCredentialsProvider"
_WEB_IDENTITY: Final = "com.amazonaws.auth.WebIdentityTokenCredentialsProvider"
_ANY: Final = "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"


def own_login(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The classes of AWS's SDK for Java that find the credentials.

    They look into the environment, then for a web identity, a profile, and the role of the container or the machine. A
    process that has a web identity gets no other role if AWS refuses it: Java's own chain would take the machine's.
    """
    return (_ENVIRONMENT, _WEB_IDENTITY) if environment.get("AWS_WEB_IDENTITY_TOKEN_FILE") else (_ANY,)
