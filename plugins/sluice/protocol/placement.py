"""The partition of a record's key, as its producer must have computed it, and whether one rule fits all keys.

An upsert that finds a key's rows by the Kafka partition is right only while a key stays in its partition. Producers
compute the partition of a key: Kafka's own take murmur2, librdkafka takes crc32 by default. Two producers with
different partitioners, or records without a key, put one key's versions into two partitions, and the table would hold
the row twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from sluice.errors import ActionRequiredError
from sluice.untrusted import Untrusted

Kind = Literal["checked", "trusted", "hashed"]
PARTITIONERS = ("murmur2", "crc32")
"""Known partitioners: `toPositive(murmur2(key)) % n` of Kafka's Java client, `crc32(key) % n` of librdkafka."""


class KeyPlacement(Untrusted):
    """How an upsert finds the file group of a key: pinned at START-COMMIT.

    Attributes:
        kind: `checked` and `trusted` derive it from the Kafka partition, `hashed` from the key itself.
        partitions: how many partitions each topic has.
        buckets: the number of file groups in a table partition over which `hashed` spreads the keys.
    """

    kind: Kind
    partitions: dict[str, int] = Field(default_factory=dict)
    buckets: int | None = None


class PlacementNote(Untrusted):
    """How keys of a table are placed, as the commit's note keeps it for the table's life.

    Attributes:
        kind, buckets: of the last interval's `KeyPlacement`.
        partitioners: by topic, the partitioners that explain the places of all keys so far.
    """

    kind: Kind = "checked"
    buckets: int | None = None
    partitioners: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class Misplaced(Untrusted):
    """Records whose partition a rule does not explain: how many, and the first of them."""

    records: int
    partition: int
    offset: int


class PlacedKeys(Untrusted):
    """A participant's observation of one topic's keys.

    Attributes:
        keyless: records without a key.
        misplaced: by partitioner, records that it would have put into another partition.
    """

    topic: str
    keyless: Misplaced | None = None
    misplaced: dict[str, Misplaced] = Field(default_factory=dict)


def refuse_other_placement(wanted: KeyPlacement, known: PlacementNote | None, table: str) -> None:
    """Check that the table's rows can be found by the placement that the pipeline now configures.

    Args:
        wanted: the pipeline's.
        known: the last commit's; None in notes of a release that placed keys by Kafka partition alone.
        table: the table's name, for errors.

    Raises:
        ActionRequiredError: the rows were placed by another rule.
    """
    in_table = known.buckets if known is not None else None
    if wanted.buckets == in_table:
        return
    raise ActionRequiredError(
        "The table's keys are placed by another rule than the pipeline's, so that an upsert would double rows.",
        next_step="go back to the table's own key_placement and buckets, or load the topics into a new table path.",
        table=table,
        in_table=f"hashed over {in_table} buckets" if in_table else "by Kafka partition",
        in_pipeline=f"hashed over {wanted.buckets} buckets" if wanted.buckets else "by Kafka partition",
    )


def fitting_partitioners(
    placement: KeyPlacement | None,
    seen: Iterable[PlacedKeys],
    known: PlacementNote | None,
    **where: Any,
) -> dict[str, tuple[str, ...]]:
    """By topic, the partitioners that explain every key's partition, in this and all earlier intervals.

    Args:
        placement: the interval's.
        seen: its participants' findings.
        known: the last commit's; None before the first one.
        where: table and instant, for errors.

    Raises:
        ActionRequiredError: there is none, or records have no key: a row may be in the table twice.
    """
    fitting = dict(known.partitioners) if known is not None else {}
    if placement is None or placement.kind != "checked":
        return fitting
    by_topic: dict[str, list[PlacedKeys]] = {}
    for keys in seen:
        by_topic.setdefault(keys.topic, []).append(keys)
    for topic, found in by_topic.items():
        if placement.partitions.get(topic) == 1:
            continue
        keyless = together(keys.keyless for keys in found)
        if keyless is not None:
            raise _refused("Records have no key", topic, keyless, where)
        before = fitting.get(topic, PARTITIONERS)
        wrong = {name: together(keys.misplaced.get(name) for keys in found) for name in before}
        fitting[topic] = tuple(name for name, misplaced in wrong.items() if misplaced is None)
        if not fitting[topic]:
            raise _no_partitioner(topic, before, wrong, where)
    return fitting


def together(found: Iterable[Misplaced | None]) -> Misplaced | None:
    """Combine them: the total number, and the place of the first."""
    some = [m for m in found if m is not None]
    if not some:
        return None
    first = min(some, key=lambda m: (m.offset, m.partition))
    return first.model_copy(update={"records": sum(m.records for m in some)})


def placement_note(placement: KeyPlacement | None, fitting: Mapping[str, Sequence[str]]) -> PlacementNote | None:
    """The part of the commit's note that is kept for the table's life."""
    if placement is None:
        return None
    partitioners = {topic: tuple(names) for topic, names in fitting.items()}
    return PlacementNote(kind=placement.kind, buckets=placement.buckets, partitioners=partitioners)


def _no_partitioner(
    topic: str, before: Sequence[str], wrong: Mapping[str, Misplaced | None], where: Mapping[str, Any]
) -> ActionRequiredError:
    name, misplaced = min(
        ((name, m) for name, m in wrong.items() if m is not None), key=lambda pair: (pair[1].records, pair[0])
    )
    if len(before) == 1:
        what = f"Keys are not in the partition to which {name} leads, which has placed all keys of this table before"
    else:
        what = f"Keys are not in the partition to which a known partitioner leads ({', '.join(before)})"
    return _refused(what, topic, misplaced, {**where, "nearest": name})


def _refused(what: str, topic: str, misplaced: Misplaced, where: Mapping[str, Any]) -> ActionRequiredError:
    return ActionRequiredError(
        f"{what}, so that a key's versions may be in several partitions, and an upsert by Kafka partition would double "
        "its row.",
        next_step="nothing was committed; have all producers use one partitioner. Where a key is always in the same "
        "partition by another rule, set the sink's `key_placement` to trusted; where keys move, load the topic into a "
        "new table path with key_placement hashed.",
        topic=topic,
        partition=misplaced.partition,
        offset=misplaced.offset,
        records=misplaced.records,
        **where,
    )
