"""The note in a table's settings that its version is being changed: a table with it can't be read until that is done.

It names the START-COMMIT under which that is done, since the timeline, which otherwise says where to begin in the
control topic, may look empty meanwhile. Pure.
"""

from __future__ import annotations

from pydantic import Field

from sluice.protocol.signing import Signed
from sluice.untrusted import Untrusted


class BegunChange(Untrusted):
    """A change of a table's version that has begun and not ended.

    Attributes:
        to: the version to come.
        schema_avro: the rows' schema, which can't be read from the timeline meanwhile.
        known_as: the table's name in the control topic.
        control_topic: the control topic of the last attempt.
        control_topic_id: Kafka's own id of it; None where brokers give none.
        control_offset: the offset of the last attempt's START-COMMIT.
        epoch: that of the last attempt.
        signed_from: the control topic's offsets after which the table's messages have to be signed, by how.
    """

    to: int
    schema_avro: str
    known_as: str
    control_topic: str
    control_topic_id: str | None = None
    control_offset: int
    epoch: int
    signed_from: dict[Signed, int] = Field(default_factory=dict)
