"""An Airflow connection of type `aws` as settings of S3's clients: Hadoop's S3A for a bucket, and s3fs. Pure.

Fields with a counterpart in S3A are converted. Others are refused by name, since another login, or another endpoint,
would be used silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from sluice.aws_login import own_login
from sluice.connectors.connections import ConnectionSettings, connections
from sluice.errors import ActionRequiredError

TYPE: Final = "aws"
SCHEME: Final = "s3a"
_AUTH: Final = "org.apache.hadoop.fs.s3a"
_KEYS: Final = f"{_AUTH}.SimpleAWSCredentialsProvider"
_TEMPORARY: Final = f"{_AUTH}.TemporaryAWSCredentialsProvider"
_ROLE: Final = f"{_AUTH}.auth.AssumedRoleCredentialProvider"
_KNOWN: Final = frozenset(
    {
        *("aws_access_key_id", "aws_secret_access_key", "aws_session_token"),
        *("region_name", "endpoint_url", "host", "role_arn", "assume_role_method", "assume_role_kwargs"),
        *("config_kwargs", "service_config"),
    }
)
_ROLE_ARGUMENTS: Final = frozenset({"RoleSessionName", "DurationSeconds"})
_OF_S3: Final = frozenset({"endpoint_url", "region_name"})
_STYLES: Final = ("path", "virtual", "auto")


def buckets_of(paths: Iterable[str]) -> list[str]:
    """The buckets that paths are in, each once; none for paths elsewhere."""
    parts = map(urlsplit, paths)
    return list(dict.fromkeys(one.netloc for one in parts if one.scheme == SCHEME))


def require_bucket(connection: str | None, path: str) -> None:
    """Check that a section which names a connection has its path in a bucket.

    Raises:
        ValueError: it is elsewhere.
    """
    if connection is not None and not buckets_of([path]):
        raise ValueError(f"`connection` is of type {TYPE}, for a path on {SCHEME}://; path is {path}")


class _Login:
    """A connection's fields, by their names in Airflow's Amazon provider."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._of = settings
        self._extra: Mapping[str, Any] = settings.extra
        if settings.type != TYPE:
            raise self._wrong(f"is of type {settings.type or '(none)'}, not {TYPE}", "name another one")
        self._refuse(self._extra, _KNOWN, "")
        self.key = settings.login or self._text("aws_access_key_id")
        self.secret = settings.password or self._text("aws_secret_access_key")
        self.token = self._text("aws_session_token")
        if bool(self.key) != bool(self.secret) or (self.token and not self.key):
            raise self._wrong("has an access key without its secret, or one without the other", "give both, or none")
        s3, sts = (self._section("service_config", name) for name in ("s3", "sts"))
        for name in self._section("service_config"):
            if name not in ("s3", "sts"):
                raise self._unknown(f"service_config.{name}")
        self._refuse(s3, _OF_S3, "service_config.s3.")
        self._refuse(sts, _OF_S3, "service_config.sts.")
        everywhere = self._text("endpoint_url") or self._text("host")
        self.endpoint = str(s3.get("endpoint_url") or everywhere)
        self.region = str(s3.get("region_name") or self._text("region_name"))
        self.sts_endpoint = str(sts.get("endpoint_url") or everywhere)
        self.sts_region = str(sts.get("region_name") or self._text("region_name"))
        self._refuse(self._section("config_kwargs"), frozenset({"s3"}), "config_kwargs.")
        addressing = self._section("config_kwargs", "s3")
        self._refuse(addressing, frozenset({"addressing_style"}), "config_kwargs.s3.")
        self.style = str(addressing.get("addressing_style", "auto"))
        if self.style not in _STYLES:
            raise self._wrong(f"has an addressing_style {self.style}", f"say one of {', '.join(_STYLES)}")
        self.role = self._text("role_arn")
        if self._text("assume_role_method") not in ("", "assume_role"):
            raise self._unknown("assume_role_method")
        self.role_arguments = self._section("assume_role_kwargs")
        self._refuse(self.role_arguments, _ROLE_ARGUMENTS, "assume_role_kwargs.")

    def _text(self, name: str) -> str:
        return str(self._extra.get(name) or "")

    def _section(self, *names: str) -> Mapping[str, Any]:
        found: Any = self._extra
        for name in names:
            found = found.get(name) or {}
            if not isinstance(found, Mapping):
                raise self._wrong(f"has no JSON object in {'.'.join(names)}", "correct its extra field")
        return dict(found)

    def _refuse(self, given: Mapping[str, Any], known: frozenset[str], where: str) -> None:
        unknown = sorted(name for name in given if name not in known)
        if unknown:
            raise self._unknown(*(f"{where}{name}" for name in unknown))

    def _unknown(self, *names: str) -> ActionRequiredError:
        return self._wrong(
            f"has fields without a counterpart in Hadoop's S3A: {', '.join(names)}",
            "take that out; or leave `connection` out, and use Hadoop's settings (docs/production.md)",
        )

    def _wrong(self, what: str, next_step: str) -> ActionRequiredError:
        return ActionRequiredError(
            f"The Airflow connection {self._of.id} {what}.", next_step=f"{next_step}.", connection=self._of.id
        )


def s3a_settings(connection: ConnectionSettings, bucket: str) -> dict[str, str]:
    """Hadoop's settings of one bucket, with the login.

    Args:
        connection: Airflow's, of type `aws`.
        bucket: whose settings they are; those of others stay as they are.

    Raises:
        ActionRequiredError: it is of another type, or has fields without a setting in S3A.
    """
    login = _Login(connection)
    keys = _TEMPORARY if login.token else _KEYS
    found = {
        "access.key": login.key,
        "secret.key": login.secret,
        "session.token": login.token,
        "endpoint": login.endpoint,
        "endpoint.region": login.region,
        "path.style.access": "true" if login.style == "path" else "",
        "aws.credentials.provider": _ROLE if login.role else keys if login.key else "",
    }
    if login.role:
        duration = login.role_arguments.get("DurationSeconds")
        found |= {
            "assumed.role.arn": login.role,
            "assumed.role.credentials.provider": keys if login.key else ",".join(own_login()),
            "assumed.role.session.name": str(login.role_arguments.get("RoleSessionName") or "sluice"),
            "assumed.role.session.duration": f"{int(duration)}s" if duration else "",
            "assumed.role.sts.endpoint": login.sts_endpoint,
            "assumed.role.sts.endpoint.region": login.sts_region if login.sts_endpoint else "",
        }
    return {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in found.items() if value}


def s3fs_options(url: str) -> dict[str, Any]:
    """Options of fsspec's file system for a URL, by the connection that this process was given.

    A role isn't assumed: a process that reads for people then uses its own credentials.

    Args:
        url: as fsspec spells it.

    Raises:
        ActionRequiredError: as of `s3a_settings`.
    """
    known = [one for one in connections().values() if one.type == TYPE] if url.startswith("s3://") else []
    if not known:
        return {}
    login = _Login(known[-1])  # the sink's comes after those of a source
    client = {"endpoint_url": login.endpoint, "region_name": login.region}
    options: dict[str, Any] = {"client_kwargs": {name: value for name, value in client.items() if value}}
    if login.key and not login.role:
        options |= {"key": login.key, "secret": login.secret}
        options |= {"token": login.token} if login.token else {}
    if login.style != "auto":
        options["config_kwargs"] = {"s3": {"addressing_style": login.style}}
    return options
