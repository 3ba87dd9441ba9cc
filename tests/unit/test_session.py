"""One pipeline's clusters, topics and control topic, as the steps of the coordinator ask for them."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from protocol_messages import INSTANT, TABLE, TIME, start

from sluice.coordinator.session import Committed, Run, Session
from sluice.coordinator.sources import Sources
from sluice.errors import ActionRequiredError
from sluice.pipeline.model import SHARED_CONTROL_TOPIC
from sluice.protocol.commit_note import NO_NOTE, CommitNote
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.mapping import ClusterAddress, ClusterTopics
from sluice.protocol.offsets import Checkpoint
from sluice.protocol.streams import Followed
from sluice.protocol.transaction import TableLog

# Clusters whose records are decoded by a schema registry


def _pins(*, value: str | None, key: str | None = None, registries: dict[str, str | None] | None) -> list[Any]:
    """What the sink is told of the clusters: `old` is drained, so that the mapping has it no more."""
    followed = None
    if registries is not None:
        addresses = {name: ClusterAddress(connection="k", registry=one) for name, one in registries.items()}
        followed = Followed(KnownStreams(clusters=addresses), {})
    told: list[Any] = []
    session: Any = SimpleNamespace(
        pipeline=SimpleNamespace(
            source=SimpleNamespace(
                options=SimpleNamespace(
                    value=SimpleNamespace(registry=value), key=SimpleNamespace(registry=key) if key else None
                )
            )
        ),
        followed=followed,
        sources=Sources(dict.fromkeys(("east", "old", "west")), lambda name: (f"of_{name}",)),  # type: ignore[arg-type]
        sink=SimpleNamespace(pin=lambda *given: told.append(given)),
    )
    session._clusters = lambda: Session._clusters(session)
    Session.pin(session, "table", None)  # type: ignore[arg-type]
    ((_, _, clusters),) = told
    return clusters


PLAIN = [ClusterTopics(name, (f"of_{name}",)) for name in ("east", "old", "west")]


@pytest.mark.parametrize(
    "case",
    [
        {"value": "r", "registries": None},
        {"value": "r", "registries": {"east": None, "west": None}},
        {"value": None, "registries": {"east": "own", "west": None}},
    ],
    ids=["no streams", "no cluster has its own", "records without a registry"],
)
def test_without_registries_of_their_own_all_clusters_are_decoded_by_the_pipeline_s(case):
    assert _pins(**case) == PLAIN


@pytest.mark.parametrize("case", [{"value": "r"}, {"value": None, "key": "r"}], ids=["by the value", "by the key"])
def test_clusters_with_a_registry_of_their_own_are_told_apart_and_drained_ones_left_out(case):
    """A drained cluster has no address any more, and no records."""
    assert _pins(**case, registries={"east": "own", "west": None}) == [
        ClusterTopics("east", ("of_east",), "own"),
        ClusterTopics("west", ("of_west",)),
    ]


def test_the_last_interval_s_schemas_of_all_of_its_tables_are_what_the_next_one_adds_to():
    told: list[Any] = []
    last = start(INSTANT)
    session: Any = SimpleNamespace(sink=SimpleNamespace(pin=lambda *given: told.append(given)), _clusters=list)
    Session.pin(session, "table", last)  # type: ignore[arg-type]
    ((table, known, _),) = told
    assert (table, known.records, known.writer, known.further) == ("table", last.records, last.writer, last.tables)


# Topics


@pytest.mark.parametrize(("letters", "kept_out"), [(None, 2), ("dead", 4)])
def test_topics_that_match_a_pattern_are_asked_for_once_and_are_none_of_sluice_s_own(letters, kept_out):
    asked: list[Any] = []

    def topics_like(pattern: str, own: tuple[str | None, ...]) -> tuple[str, ...]:
        asked.append((pattern, {one for one in own if one is not None and "None" not in one}))
        return ("a", "b")

    session: Any = SimpleNamespace(
        pipeline=SimpleNamespace(
            source=SimpleNamespace(options=SimpleNamespace(topics_pattern=".*", topics=())),
            errors=SimpleNamespace(dead_letter_topic=letters),
            control_topic="control",
        ),
        parts=SimpleNamespace(source=SimpleNamespace(topics_like=topics_like)),
        _topics=None,
    )
    assert [Session._topics_of(session, "k") for _ in range(2)] == [("a", "b")] * 2
    ((pattern, own),) = asked
    assert (pattern, len(own)) == (".*", kept_out)
    assert {"control", SHARED_CONTROL_TOPIC} <= own
    assert letters is None or letters in own


def test_topics_by_name_are_read_as_they_are():
    options = SimpleNamespace(topics_pattern=None, topics=("t",))
    session: Any = SimpleNamespace(pipeline=SimpleNamespace(source=SimpleNamespace(options=options)))
    assert Session._topics_of(session, "k") == ("t",)


# The control topic of the last commit


@pytest.mark.parametrize(
    ("noted", "own", "present", "elsewhere"),
    [
        ("control", None, "control", None),
        ("other", None, "control", "other"),
        (None, "control", "control", None),
        (None, None, SHARED_CONTROL_TOPIC, None),
        (None, None, "control", SHARED_CONTROL_TOPIC),
        (None, "old", "control", "old"),
    ],
    ids=["here", "there", "an earlier release", "the shared one", "once the shared one", "by the file"],
)
def test_a_commit_is_elsewhere_where_its_control_topic_isn_t_the_pipeline_s(noted, own, present, elsewhere):
    session: Any = SimpleNamespace(
        pipeline=SimpleNamespace(control=SimpleNamespace(topic=own)), control=SimpleNamespace(topic=present)
    )
    assert Session._elsewhere(session, CommitNote(control_topic=noted)) == elsewhere


@pytest.mark.parametrize(
    ("more", "offset", "recent"),
    [({}, 7, (3, 7)), ({"elsewhere": "other"}, 0, (0,)), ({"is_lost": True}, 0, (0,))],
    ids=["here", "elsewhere", "made again"],
)
def test_offsets_of_another_control_topic_mean_nothing_in_this_one(more, offset, recent):
    note = CommitNote(instant=INSTANT, control_offset=7, recent_control_offsets=(3, 7))
    committed = Committed(Checkpoint(), note, **more)
    assert (committed.control_offset, committed.recent_control_offsets) == (offset, recent)
    assert Committed(Checkpoint(), NO_NOTE).control_offset == 0


# Tables that were loaded from streams


@pytest.mark.parametrize(
    ("prefixes", "upsert", "is_refused"),
    [({"E": "", "W": "west/"}, True, True), ({"E": "", "W": "west/"}, False, False), ({"E": ""}, True, False)],
    ids=["an upsert with two names", "an append", "one cluster"],
)
def test_an_upsert_of_several_clusters_stays_with_its_streams(prefixes, upsert, is_refused):
    session: Any = SimpleNamespace(
        pipeline=SimpleNamespace(sink=SimpleNamespace(capabilities=SimpleNamespace(upsert=upsert))), table_id=TABLE
    )
    refused = pytest.raises(ActionRequiredError, match="loaded from streams") if is_refused else nullcontext()
    with refused:
        Session._refuse_without_streams(session, KnownStreams(prefixes=prefixes))
    Session._refuse_without_streams(session, None)


# Messages


def test_a_message_of_a_transaction_has_the_run_and_the_epoch_that_began_it():
    session: Any = SimpleNamespace(table_id=TABLE, machine=SimpleNamespace(now=lambda: TIME))
    session.envelope = lambda *given: Session.envelope(session, *given)
    log = TableLog(TABLE).extend([(0, start(INSTANT).model_copy(update={"epoch": 4}))])
    said = Session.envelope_of(session, log.transactions[INSTANT])
    assert said == {
        **Session.envelope(session, INSTANT, 4, Run("dag", "run")),
        "sender": "coordinator",
        "table": TABLE,
        "time": TIME,
    }
