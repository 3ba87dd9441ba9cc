"""A `write` task that waits for workers in the triggerer, without occupying a process.

It begins there, too (`start_from_trigger`), and where a worker has written the range, it ends there. The trigger has no
arguments: the awaited range is in an XCom of `start_commit`, which names a connection and holds no secret.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from sluice.airflow.connections import kafka_settings
from sluice.airflow.notes import START_COMMIT
from sluice.airflow.tasks import WORKERS_KEY
from sluice.control.waiters import Awaited, Waiters
from sluice.errors import SluiceError
from sluice.kafka.config import KafkaSettings
from sluice.logs import log
from sluice.protocol.claims import Verdict


class _AllWaiters:
    """This process's waiters, by the connections of their clusters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_connection: dict[str, tuple[KafkaSettings, Waiters]] = {}

    def of(self, connection: str) -> Waiters:
        """The waiters of a connection as it is now: this calls Airflow, so it may not run in the event loop.

        Raises:
            ActionRequiredError: the connection is missing or wrong.
        """
        settings = kafka_settings(connection)
        with self._lock:
            known = self._by_connection.get(connection)
            if known is None or known[0] != settings:  # tasks that wait with the old ones keep waiting
                known = self._by_connection[connection] = settings, Waiters(settings)
            return known[1]


_ALL = _AllWaiters()


class RangeTrigger(BaseTrigger):
    """Waits until a range is written by a worker, or has to be written by a Spark job of its task's own."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """It has no arguments."""
        return f"{type(self).__module__}.{type(self).__qualname__}", {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """End the task, or resume it in a process, with the verdict."""
        try:
            verdict = await self._verdict()
        except SluiceError as error:  # its process will meet the same, and report it as every task does
            log.warning("the range can't be waited for", reason=str(error))
            verdict = Verdict.SUBMIT
        if verdict is Verdict.WRITTEN:
            yield TaskSuccessEvent()
        else:
            yield TriggerEvent(verdict.value)  # type: ignore[no-untyped-call]

    async def _verdict(self) -> Verdict:
        found = await asyncio.to_thread(self._awaited)
        if found is None:  # an earlier release started the run
            return Verdict.SUBMIT
        awaited, connection = found
        waiters = await asyncio.to_thread(_ALL.of, connection)
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Verdict | SluiceError] = loop.create_future()

        def tell(what: Verdict | SluiceError) -> None:
            if not done.done():
                done.set_result(what)

        def told(what: Verdict | SluiceError) -> None:
            loop.call_soon_threadsafe(tell, what)

        with waiters.waiting(awaited, told):
            what = await done
        if isinstance(what, SluiceError):
            raise what
        return what

    def _awaited(self) -> tuple[Awaited, str] | None:
        """The range, and the connection of its control topic."""
        ti: Any = self.task_instance
        told = ti.xcom_pull(task_ids=START_COMMIT, key=WORKERS_KEY, map_indexes=-1)
        if told is None:
            return None
        named = dict(told)
        connection = named.pop("connection")
        return Awaited(number=ti.map_index, **named), connection  # ranges are mapped in the order of their numbers
