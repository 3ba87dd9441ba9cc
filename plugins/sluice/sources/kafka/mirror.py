"""Offset syncs of Kafka's MirrorMaker 2: its topic of pairs, about one per hundred records and one for the last.

A record's key is the topic's name (a length of two bytes, then UTF-8) and the partition (four bytes), its value the
source cluster's offset and the copy's offset, eight bytes each: Kafka's class `OffsetSync`.
"""

from __future__ import annotations

import struct

from confluent_kafka import Message

from sluice.connectors.source import OffsetSyncs
from sluice.errors import ActionRequiredError
from sluice.kafka.config import KafkaSettings
from sluice.kafka.transactional import read_all, topic_exists
from sluice.protocol.offsets import OffsetSync

_LENGTH, _PARTITION, _PAIR = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">qq")


def offset_syncs(settings: KafkaSettings, topic: str) -> OffsetSyncs:
    """All pairs that the topic has; see `sluice.connectors.source.MirrorReader`."""
    where = {"connection": settings.name, "topic": topic}
    if not topic_exists(settings, topic):
        raise ActionRequiredError(
            "The cluster has no topic of MirrorMaker's offset syncs.",
            next_step="name it in `moved_from.offset_syncs`, and its cluster in `offset_syncs_location`: MirrorMaker "
            "calls it mm2-offset-syncs.<target>.internal on the source, or mm2-offset-syncs.<source>.internal on the "
            "target. A mirror with `emit.offset-syncs.enabled: false` has none.",
            **where,
        )
    found: dict[str, dict[int, list[OffsetSync]]] = {}
    for record in read_all(settings, topic):
        if record.value() is None:
            continue
        try:
            name, partition, sync = _parsed(record)
        except (struct.error, UnicodeDecodeError, TypeError) as error:
            raise ActionRequiredError(
                "A record isn't one of MirrorMaker's pairs of offsets.",
                next_step="correct `moved_from.offset_syncs`.",
                offset=record.offset(),
                reason=str(error),
                **where,
            ) from error
        found.setdefault(name, {}).setdefault(partition, []).append(sync)
    return found


def _parsed(record: Message) -> tuple[str, int, OffsetSync]:
    key, value = bytes(record.key() or b""), bytes(record.value() or b"")
    (length,) = _LENGTH.unpack_from(key)
    name = key[_LENGTH.size : _LENGTH.size + length].decode()
    (partition,) = _PARTITION.unpack(key[_LENGTH.size + length :])
    return name, partition, OffsetSync(*_PAIR.unpack(value))
