"""Asks the registry for schemas: once for each version of a subject, and once more whether there are new ones."""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.common._httpx_compat import httpx
from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.redact import HIDDEN, secret_values
from sluice.schemas.registry.config import NoSubjectsError, RegistrySettings

Kind = Literal["AVRO", "PROTOBUF", "JSON"]

# https://docs.confluent.io/platform/current/schema-registry/develop/api.html#errors
_NO_SUCH_SUBJECT, _NO_SUCH_VERSION = 40401, 40402
_MAY_PASS = (408, 429, 500, 502, 503, 504)
_REFUSED = (401, 403)
_UNFIT = (409, 422)  # of a schema: incompatible, or none

_Key = tuple[str, str, int]  # of a reference: name, subject, version


@dataclass(frozen=True)
class Reference:
    """A schema that another one refers to: the name by which it does, and the text."""

    name: str
    text: str


@dataclass(frozen=True)
class Registered:
    """One schema as the registry has it.

    Attributes:
        id: its id, which is in the first five bytes of records written with it.
        kind: the schema's language.
        text: the schema. Protobuf's is a .proto file's text, or a serialized FileDescriptorProto in base64.
        subject: the subject that it was found under.
        version: its version there.
        references: the schemas that it refers to, directly or not, each after its own references.
        digest: of the registry's whole answer for this version; empty where it wasn't queried.
    """

    id: int
    kind: Kind
    text: str
    subject: str
    version: int
    references: tuple[Reference, ...] = ()
    digest: str = ""


@dataclass(frozen=True)
class KnownVersion:
    """An earlier query's result for a subject and version.

    Attributes:
        id: the schema's id.
        digest: `Registered.digest`; None where an earlier release has looked.
    """

    id: int
    digest: str | None

    def is_that(self, latest: _Raw) -> bool:
        """Whether the registry says the same of the version still."""
        return (self.id, self.digest) == (latest.id, latest.schema.digest)


class Registry:
    """A registry's client, which raises Sluice's errors."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        try:
            self._client = SchemaRegistryClient(settings.client())
        except (ValueError, TypeError, OSError) as error:  # OSError: a certificate's file
            raise ActionRequiredError(
                "The schema registry's settings can't be used.",
                next_step="correct the connection's extra field.",
                connection=settings.name,
                reason=_without_secrets(str(error), settings),
            ) from None

    def new_versions(self, subjects: Sequence[str], known: Mapping[tuple[str, int], KnownVersion]) -> list[Registered]:
        """The schemas of these subjects that aren't known yet, by subject and version.

        For each subject the latest version and the numbers of all versions are queried. Versions deleted in the
        registry count too, even if they were created and deleted since the last query: records with their ids may still
        be in the topic. A known latest version is among the answers only if the registry's answer for it has changed.

        Args:
            subjects: their names. A subject missing in the registry is skipped: its topic may still be empty.
            known: the results of earlier calls, by subject and version.

        Raises:
            RetryableError: the registry doesn't answer, or had an internal error.
            NoSubjectsError: it has none of the subjects.
            ActionRequiredError: it refuses the log-in, or is none.
        """
        found = [schema for subject in dict.fromkeys(subjects) for schema in self._new(subject, known)]
        if not found and not any(subject in subjects for subject, _ in known):
            raise NoSubjectsError(
                "The schema registry has none of the subjects.",
                next_step="name the subject in the source's `value.subject` (or `key.subject`), "
                "or let the producer register its schema first.",
                subjects=", ".join(subjects),
                **self._place(),
            )
        return found

    def written_as(self, subject: str, kind: Kind, text: str, *, register: bool) -> Registered | None:
        """The schema by which records are written.

        Args:
            subject: its subject.
            kind: its language.
            text: the schema.
            register: whether it is registered if the subject doesn't have it; else the subject's latest schema is used,
                and the result is None if there is none.

        Raises:
            RetryableError: the registry doesn't answer, or had an internal error.
            ActionRequiredError: it refuses the schema or the log-in, or is none.
        """
        if not register:
            raw = self._version(subject, "latest")
            return self._with_references(raw) if raw is not None and raw.schema.kind == kind else None
        with self._errors(f"registering a schema under subject {subject}"):
            try:
                number = self._client.register_schema(subject, Schema(text, kind))
            except SchemaRegistryError as error:
                if error.http_status_code not in _UNFIT:
                    raise
                raise ActionRequiredError(
                    "The schema registry refuses the columns' schema.",
                    next_step="change the columns so that the schema is compatible with the subject's last one, or the "
                    "subject's compatibility level. Nothing was written.",
                    subject=subject,
                    **self._place(),
                    reason=_without_secrets(str(error.error_message), self._settings)[:500],
                ) from None
        return Registered(number, kind, text, subject, 0)

    def _new(self, subject: str, known: Mapping[tuple[str, int], KnownVersion]) -> list[Registered]:
        latest = self._version(subject, "latest")
        numbers = set(self._numbers(subject))
        seen = {version for name, version in known if name == subject}
        again = latest is not None and latest.version in seen and not known[subject, latest.version].is_that(latest)
        if again and latest is not None and known[subject, latest.version].id != latest.id:
            seen = set()  # the subject was deleted for good and made again: its versions have started anew
        wanted = numbers - seen
        if latest is not None and (again or latest.version not in seen):
            wanted.add(latest.version)
        found = []
        for number in sorted(wanted):
            schema = latest if latest is not None and latest.version == number else self._version(subject, number)
            if schema is not None:
                found.append(self._with_references(schema))
        return found

    def _numbers(self, subject: str) -> list[int]:
        with self._errors(f"the versions of subject {subject}"):
            try:
                numbers: list[int] = self._client.get_versions(subject, deleted=True)
            except SchemaRegistryError as error:
                if error.error_code != _NO_SUCH_SUBJECT:
                    raise
                numbers = []
        return numbers

    def _version(self, subject: str, version: int | Literal["latest"]) -> _Raw | None:
        with self._errors(f"version {version} of subject {subject}"):
            try:
                answer = self._client.get_version(subject, version, deleted=version != "latest")
            except SchemaRegistryError as error:
                if error.error_code not in (_NO_SUCH_SUBJECT, _NO_SUCH_VERSION):
                    raise
                return None
        schema = answer.schema
        references = tuple((r.name, r.subject, r.version) for r in schema.references or ())
        kind: Any = schema.schema_type or "AVRO"
        said = json.dumps([kind, schema.schema_str, references]).encode()
        digest = hashlib.sha256(said).hexdigest()[:32]
        found = Registered(answer.schema_id, kind, schema.schema_str, subject, answer.version, digest=digest)
        return _Raw(found, references)

    def _with_references(self, raw: _Raw) -> Registered:
        collected: dict[_Key, Reference] = {}
        self._collect(raw, collected, ())
        return replace(raw.schema, references=tuple(collected.values()))

    def _collect(self, raw: _Raw, collected: dict[_Key, Reference], path: tuple[_Key, ...]) -> None:
        for key in raw.references:
            name, subject, version = key
            if key in collected or key in path:
                continue
            referred = self._version(subject, version)
            if referred is None:
                raise ActionRequiredError(
                    "A schema refers to one that the registry doesn't have.",
                    next_step="register it again, or correct the reference.",
                    subject=raw.schema.subject,
                    version=raw.schema.version,
                    reference=f"{subject} version {version}",
                    **self._place(),
                )
            self._collect(referred, collected, (*path, key))
            collected[key] = Reference(name, referred.schema.text)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _place(self) -> dict[str, str]:
        return {"connection": self._settings.name, "registry": self._settings.url}

    @contextmanager
    def _errors(self, asked: str) -> Iterator[None]:
        try:
            yield
        except SchemaRegistryError as error:
            raise self._answered(error, asked) from None
        except OAuthTokenError:
            raise RetryableError(
                f"No token could be had for the schema registry ({asked}).",
                next_step="the task is retried; if it comes back, look at bearer.auth.* in the connection.",
                **self._place(),
            ) from None
        except httpx.TransportError as error:
            raise self._unanswered(error, asked) from None
        except ValueError:  # a page that isn't JSON
            raise self._no_registry(asked) from None

    def _answered(self, error: SchemaRegistryError, asked: str) -> SluiceError:
        status = error.http_status_code
        reason = _without_secrets(str(error.error_message), self._settings)[:500]
        where = {"status": status, **self._place(), "reason": reason}
        if status in _MAY_PASS or status >= 500:
            return RetryableError(
                f"The schema registry had an internal error ({asked}).",
                next_step="the task is retried; if it comes back, look at the registry.",
                **where,
            )
        if status in _REFUSED:
            return ActionRequiredError(
                f"The schema registry refuses the connection's log-in ({asked}).",
                next_step="correct login and password or token, or grant the right to read the subject.",
                **where,
            )
        if error.error_code == -1 or status == 404:
            return self._no_registry(asked)
        return ActionRequiredError(
            f"The schema registry refuses the request ({asked}).", next_step="correct the subject's name.", **where
        )

    def _unanswered(self, error: Exception, asked: str) -> SluiceError:
        if _certificate(error):
            return ActionRequiredError(
                f"The schema registry's certificate is not trusted ({asked}).",
                next_step="name the authority's file in `ssl.ca.location` in the connection's extra field.",
                **self._place(),
            )
        return RetryableError(
            f"The schema registry does not answer ({asked}).",
            next_step="the task is retried; if it comes back, look whether the registry runs at this address.",
            **self._place(),
            reason=type(error).__name__,
        )

    def _no_registry(self, asked: str) -> ActionRequiredError:
        return ActionRequiredError(
            f"What answers at this address is not a schema registry ({asked}).",
            next_step="correct the URL; a registry other than Confluent's has its compatible API under a path, "
            "Apicurio's under /apis/ccompat/v7.",
            **self._place(),
        )


@dataclass(frozen=True)
class _Raw:
    """A schema whose references are named, not fetched."""

    schema: Registered
    references: tuple[_Key, ...]

    @property
    def id(self) -> int:
        return self.schema.id

    @property
    def version(self) -> int:
        return self.schema.version


def _certificate(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _without_secrets(text: str, settings: RegistrySettings) -> str:
    for value in secret_values(settings.settings):
        for secret in (value, value.partition(":")[2]):
            if len(secret) > 2:
                text = text.replace(secret, HIDDEN)
    return text
