"""Which messages of a control topic count: one verdict for all readers, whether they decide, follow or only show."""

from __future__ import annotations

from sluice.connectors.registry import confinement
from sluice.logs import log
from sluice.protocol.messages import ControlMessage


class Verdicts:
    """The verdicts of one reader on the messages of one topic; each that doesn't count is logged once.

    Args:
        topic: the control topic's name.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._confinement = confinement()
        self._logged: set[int] = set()  # their offsets

    def refusal(self, message: ControlMessage, table: str) -> str | None:
        """Why a message under a key doesn't count, or wouldn't; None if it does."""
        return self._confinement.refusal(message, table)

    def counting(self, offset: int, message: ControlMessage, table: str) -> ControlMessage | None:
        """The message; None if it names anything outside its table.

        Args:
            offset: where it is.
            message: the message.
            table: its key.
        """
        reason = self.refusal(message, table)
        if reason is None:
            return message
        self._log(offset, "a control message names something outside of its table; it doesn't count", reason)
        return None

    def log_unsigned(self, offset: int, reason: str) -> None:
        """Log that a message doesn't count because of its signature."""
        self._log(offset, "a control message isn't signed with the secret; it doesn't count", reason)

    def _log(self, offset: int, what: str, reason: str) -> None:
        if offset not in self._logged:
            self._logged.add(offset)
            log.error(what, control_topic=self._topic, offset=offset, reason=reason)
