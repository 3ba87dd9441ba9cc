"""A pipeline file in the making, and the findings on the keys that it is made from. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from sluice.connect.configs import ConnectorConfig

Verdict = Literal["honoured", "harmless", "differs", "not honoured"]
"""honoured: it means the same here. harmless: it has no meaning here, and rows are the same. differs: mapped to the
nearest setting. not honoured: it has no effect, and that changes how records are written."""
Of = Literal["connector", "worker", "default"]
HIDDEN = "…"
"""The placeholder of a secret."""
_PROVIDED = re.compile(r"\$\{[^}:]{1,100}:[^}]{0,1000}\}")  # bounded, so that a long text doesn't take quadratic time


class RefusedError(Exception):
    """A connector can't be imported; the message says why.

    Args:
        why: a sentence.
        next_step: what its user can do.
        key: the key at fault, if it is a single one.
    """

    def __init__(self, why: str, next_step: str, key: str = "") -> None:
        super().__init__(why)
        self.why, self.next_step, self.key = why, next_step, key


class UnfitError(ValueError):
    """A value that can't be honoured; the message says why."""

    def __init__(self, why: str, next_step: str = "") -> None:
        super().__init__(why)
        self.next_step = next_step


@dataclass(frozen=True)
class Finding:
    """The verdict on one key.

    Attributes:
        key: the key.
        verdict: see `Verdict`.
        what: how it is honoured, or why it isn't; never a secret's value.
        next_step: what its user can do; empty if nothing is left to do.
        of: its owner: the connector, the worker, or Connect's default for a key that isn't set.
    """

    key: str
    verdict: Verdict
    what: str
    next_step: str = ""
    of: Of = "connector"


@dataclass
class AirflowConnection:
    """An Airflow connection that the pipeline needs; secrets in it are `HIDDEN`."""

    id: str
    type: str
    fields: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)

    def command(self, dumps: Callable[[Any], str]) -> str:
        """The command that creates it.

        Args:
            dumps: writes JSON.
        """
        words = ["airflow", "connections", "add", self.id, "--conn-type", self.type]
        for name, value in self.fields.items():
            words += [f"--conn-{name}", value]
        if self.extra:
            words += ["--conn-extra", dumps(self.extra)]
        return " ".join(word if word == HIDDEN else shlex.quote(word) for word in words)


class Draft:
    """The pipeline so far.

    Args:
        given: the connector.
        worker: keys and values of the worker's file.
        sink: the name of the sink's section.
        source: the name of the source's section.
        ids: ids of Airflow connections by their purpose: `kafka`, `registry`, `database`.
        runs_patterns: whether the configuration's patterns are run on its texts: right for the configuration's author,
            but not for a server's callers.
    """

    def __init__(
        self,
        given: ConnectorConfig,
        worker: Mapping[str, str],
        sink: str,
        ids: Mapping[str, str] | None = None,
        source: str = "kafka",
        *,
        runs_patterns: bool = True,
    ) -> None:
        self.given, self.worker, self.sink, self.source, self.ids = given, worker, sink, source, dict(ids or {})
        self.runs_patterns = runs_patterns
        self.data: dict[str, Any] = {}
        self.findings: dict[tuple[Of, str], Finding] = {}
        self.connections: dict[str, AirflowConnection] = {}
        self.steps: list[str] = []
        self.steps_of_rows: list[dict[str, Any]] = []
        self.key_wanted = False
        self.keyed_by_value = False
        self.key_from_value: tuple[str, ...] = ()
        self.record_names: dict[str, tuple[str, str]] = {}
        self.name_of_rows = ""
        self.key_hoisted = ""
        self.key_extracted = ""
        self.destination = ""
        self.default_topic = ""
        self.unwraps = False
        self.folder = ""
        self.loads_anew = False

    @property
    def said_later(self) -> set[str]:
        """Keys of transforms whose findings the encoder reports."""
        return {key for key, _ in self.record_names.values()}

    # The configuration

    def has(self, key: str) -> bool:
        """Whether the connector's configuration has the key, with a value."""
        return bool(self.given.config.get(key, "").strip())

    def get(self, key: str, default: str = "") -> str:
        """A key's value, or Connect's default.

        Raises:
            RefusedError: its value is with one of Connect's config providers, which can't be read from here.
        """
        value = self.given.config.get(key, "").strip() or default
        if is_provided(value):
            raise RefusedError(
                f"The value of {key} is with a config provider of Connect's.",
                "put the value itself into a copy of the configuration.",
                key,
            )
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """A key's value as true or false."""
        return self.get(key, str(default)).lower() == "true"

    def list(self, key: str) -> tuple[str, ...]:
        """A key's value as a list."""
        return tuple(one.strip() for one in self.get(key).split(",") if one.strip())

    def is_provided(self, key: str) -> bool:
        """Whether the value is with a config provider."""
        return is_provided(self.given.config.get(key, ""))

    # The pipeline file

    def place(self, path: str) -> tuple[str, ...]:
        """The path of a source's or sink's key in the file: `sink.table` is in the section named after the sink."""
        first, *rest = path.split(".")
        section = {"source": (self.source,), "sink": (self.sink,)}.get(first, ())
        return (first, *section, *rest)

    def put(self, path: str, value: Any) -> str:
        """Set a key of the file, and return it in words."""
        *sections, last = self.place(path)
        here = self.data
        for name in sections:
            here = here.setdefault(name, {})
        here[last] = value
        return f"{'.'.join((*sections, last))}: {in_words(value)}"

    def value_of(self, path: str) -> Any:
        """The value of a key of the file; None if it isn't set yet."""
        here: Any = self.data
        for name in self.place(path):
            here = here.get(name) if isinstance(here, dict) else None
        return here

    def connection(self, kind: str, conn_type: str) -> AirflowConnection:
        """The Airflow connection of that kind, made on first use."""
        return self.connections.setdefault(kind, AirflowConnection(self.ids[kind], conn_type))

    # Findings

    def say(self, key: str, verdict: Verdict, what: str, next_step: str = "", of: Of = "connector") -> None:
        """Report a key, if it was set; the first finding stays."""
        known = {"connector": self.given.config, "worker": self.worker}.get(of)
        if known is None or key in known:
            self.findings.setdefault((of, key), Finding(key, verdict, what, next_step, of))

    def honoured(self, key: str, what: str, next_step: str = "") -> None:
        """A key means the same here."""
        self.say(key, "honoured", what, next_step)

    def harmless(self, key: str, why: str) -> None:
        """A key has no meaning here, and rows are the same without it."""
        self.say(key, "harmless", why)

    def differs(self, key: str, what: str, next_step: str = "") -> None:
        """A key is mapped to the nearest setting."""
        self.say(key, "differs", what, next_step)

    def lost(self, key: str, why: str, next_step: str = "") -> None:
        """A key has no effect."""
        self.say(key, "not honoured", why, next_step)


def in_words(value: Any) -> str:
    """A value of the file on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {in_words(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(in_words, value)) + "]"
    return str(value)


def is_provided(value: str) -> bool:
    """Whether a value is with one of Connect's config providers, as `${file:/secrets:password}`."""
    return _PROVIDED.search(value) is not None


def is_placeholder(value: str) -> bool:
    """Whether a value is with a config provider as a whole, so that nothing of it is the value itself."""
    return _PROVIDED.fullmatch(value.strip()) is not None


def without_login(text: str, key: str) -> str:
    """An address without a login.

    Raises:
        RefusedError: it has a login, or can't be read.
    """
    if address(text, key).username:
        raise RefusedError("The address has a login in it.", "write it without.", key)
    return text


def address(text: str, key: str) -> SplitResult:
    """An address in its parts.

    Raises:
        RefusedError: it can't be read; it isn't quoted, since it may hold a login.
    """
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise RefusedError("The address can't be read.", f"correct {key}.", key) from None
    return parts
