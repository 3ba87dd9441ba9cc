"""What Airflow's triggerer asks again and again: an asset whose events start a pipeline's runs.

Triggers' arguments name connections and hold no secret.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Generic, TypeVar

from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from sluice.logs import log

Found = TypeVar("Found")


class PollingTrigger(BaseEventTrigger, ABC, Generic[Found]):
    """Sends an event for each find; it never ends."""

    failed: ClassVar[str]
    """What is logged of a look that fails."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @abstractmethod
    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Its arguments: where one changes, Airflow replaces the trigger.

        None may be a dictionary: Airflow 3.2 gives its own encoding of one back. See `as_text`.
        """

    @property
    @abstractmethod
    def pause(self) -> float:
        """Seconds between two looks."""

    @property
    @abstractmethod
    def where(self) -> dict[str, Any]:
        """What is looked at, for the log."""

    @abstractmethod
    def look(self) -> Found | None:
        """What starts a run; None for nothing. It calls Airflow, Kafka and other services, in a thread."""

    @abstractmethod
    def payload(self, found: Found) -> dict[str, Any]:
        """The event of a find."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look again and again; whatever goes wrong is logged, since a trigger that fails isn't started again."""
        while True:
            found = None
            try:
                found = await asyncio.to_thread(self.look)
            except Exception as error:
                log.warning(f"{self.failed}; it is tried again", reason=str(error), **self.where)
            if found is not None:
                yield TriggerEvent(self.payload(found))  # type: ignore[no-untyped-call]
            await asyncio.sleep(self.pause)

    def path(self) -> str:
        """Where its class is, for `serialize`."""
        return f"{type(self).__module__}.{type(self).__qualname__}"


def as_text(argument: Any) -> Any:
    """An argument for `PollingTrigger.serialize`: a dictionary as JSON, anything else as it is."""
    return json.dumps(argument, sort_keys=True) if isinstance(argument, dict) else argument


def of_text(argument: Any) -> Any:
    """What `as_text` was given. Keys that were numbers are texts; earlier releases handed over dictionaries."""
    return json.loads(argument) if isinstance(argument, str) and argument.startswith("{") else argument


def watched(name: str, trigger: PollingTrigger[Any]) -> Asset:
    """An asset of that name that only the trigger's events update."""
    return Asset(name, watchers=[AssetWatcher(name=name, trigger=trigger)])
