"""One transform of a connector, and the step of a pipeline file that does the same. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from sluice.connect.draft import Draft, RefusedError
from sluice.untrusted import compiled

BY_HAND: Final = "do it by a step of `transforms`, or by a function of yours (docs/shaping.md)"
"""The next step where a transform has no counterpart."""


class PatternNotRunError(Exception):
    """A caller's pattern isn't run: on the caller's text it may take hours, and block all other requests."""


@dataclass(frozen=True)
class Transform:
    """One transform of a connector.

    Attributes:
        draft: the pipeline in the making.
        alias: its name among the connector's transforms.
        kind: its class without package and without `$Key` or `$Value`.
        on_key: whether it works on the key.
    """

    draft: Draft
    alias: str
    kind: str
    on_key: bool

    def key(self, name: str) -> str:
        """The name of a setting in the configuration."""
        return f"transforms.{self.alias}.{name}"

    def get(self, name: str, default: str = "") -> str:
        """A setting's value."""
        return self.draft.get(self.key(name), default)

    def list(self, *names: str) -> tuple[str, ...]:
        """A setting's value as a list; of several names, old ones of the same, the first that is set."""
        return next((found for name in names if (found := self.draft.list(self.key(name)))), ())

    def done(self, what: str, *names: str, differs: bool = False) -> None:
        """Report the transform's counterpart here, for it and these settings."""
        for name in ("type", *names):
            if differs:
                self.draft.differs(self.key(name), what, "look whether that is right")
            else:
                self.draft.honoured(self.key(name), what)

    def routed(self, topic: str) -> str | None:
        """The name that a RegexRouter gives a topic; None where Python doesn't read its pattern as Java does.

        Raises:
            PatternNotRunError: the caller's patterns aren't run in this process.
        """
        if not self.draft.runs_patterns:
            raise PatternNotRunError
        try:
            pattern = compiled(self.get("regex"))
            replacement = re.sub(r"\$(\d)", r"\\g<\1>", self.get("replacement").replace("\\", ""))
            return pattern.sub(replacement, topic, count=1) if topic and pattern.fullmatch(topic) else topic
        except (ValueError, re.error):  # of the pattern; of the replacement
            return None

    def not_routed(self) -> None:
        """Report that a pattern changes the topic's name, which isn't run in this process."""
        self.draft.destination = "routed"  # placeholder of that name
        what = "the pattern isn't run here; `sluice import-connect` says what it makes of the topic's name"
        self.done(what, "regex", "replacement", differs=True)

    def step(self, **step: Any) -> str:
        """Add a step, and return it in words."""
        made = {name.rstrip("_"): value for name, value in step.items()}
        self.draft.steps_of_rows.append(made)
        return f"transforms[{len(self.draft.steps_of_rows)}]: {next(iter(made))}"

    @property
    def of_key(self) -> tuple[str, ...]:
        """Columns of the record's key, which no transform of its value changes or removes.

        Connect's JDBC sinks take a column that key and value both have from the key. Before `ValueToKey` there is no
        such key yet, and a field is the value's alone.
        """
        draft = self.draft
        if not draft.key_wanted:
            return ()
        listed = draft.list("pk.fields") or draft.list("primary.key.fields")
        if draft.keyed_by_value:
            return tuple(name for name in draft.key_from_value if name in listed or not listed)
        return listed

    def fields_of_value(self, fields: Iterable[str]) -> tuple[str, ...]:
        """Those fields that the transform changes in the row: all but columns of the key.

        Raises:
            RefusedError: a topic's record would have another key than Connect's, which is taken before this transform.
        """
        fields = tuple(fields)
        keys = [name for name in fields if name in self.of_key]
        if keys and self.draft.sink == "kafka":
            raise RefusedError(
                f"The record's key has {keys[0]} as it is before {self.alias} changes it, and a pipeline takes the key"
                " from the row behind all transforms.",
                f"leave {keys[0]} as it is, or make a second column of it by hand: one for the key, one for the value.",
                self.key("type"),
            )
        return tuple(name for name in fields if name not in keys)

    def not_here(self, why: str, next_step: str = BY_HAND) -> None:
        """Report all settings as not honoured."""
        for key in self.draft.given.config:
            if key.startswith(f"transforms.{self.alias}."):
                self.draft.lost(key, why, next_step)
