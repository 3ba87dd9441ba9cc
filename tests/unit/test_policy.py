"""Each kind of request has its policy, and nobody decides by a kind's name elsewhere."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

import sluice
from sluice.errors import ActionRequiredError
from sluice.protocol.identity import LogIds, refuse_other_logs
from sluice.protocol.offsets import Checkpoint, ClusterCheckpoint, TopicCheckpoint
from sluice.protocol.policy import POLICIES, IntervalKind, policy_of

KINDS = get_args(IntervalKind)
NOW = LogIds({"kafka": "c"}, {("kafka", "t"): "new", ("kafka", "u"): "same"})


def test_each_kind_has_a_policy():
    assert set(POLICIES) == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_is_safe(kind):
    policy = policy_of(kind)
    if policy.commits_in_part:  # what is left out has to be read by somebody
        assert policy.moves_positions == "planned"
    if policy.may_resume_losses:
        assert policy.moves_positions == "planned"
    elif policy.rests_on_offsets:
        assert policy.instead.endswith(".")
    if policy.claims_completeness:
        assert policy.reads == "onward"
    assert policy.records_as_before == (policy.reads == "again")
    assert policy.needs_ordering == (policy.reads == "window")  # a window's records may be older than the table's


def test_nobody_but_the_policy_asks_for_a_kinds_name():
    """Else the next kind is forgotten there. A request's own form is of its kind, so `request.py` may ask."""
    root = Path(sluice.__file__).parent
    found = []
    for folder in ("protocol", "coordinator", "participant", "rows", "sinks", "sources", "kafka"):
        assert (root / folder).is_dir()
        for file in (root / folder).rglob("*.py"):
            if file.name in ("policy.py", "request.py"):
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Compare) and "kind" in ast.dump(node.left):
                    constants = {c.value for n in node.comparators for c in ast.walk(n) if isinstance(c, ast.Constant)}
                    if constants & set(KINDS):
                        found.append(f"{file.name}:{node.lineno}")
    assert found == []


def _known(topic: str, topic_id: str | None, cluster_id: str | None = "c") -> Checkpoint:
    topics = {topic: TopicCheckpoint(topic_id=topic_id, partitions={0: 7})}
    return Checkpoint(clusters={"kafka": ClusterCheckpoint(cluster_id=cluster_id, topics=topics)})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "known",
    [_known("t", "old"), _known("u", "same", "other cluster")],
    ids=["a recreated topic", "another cluster"],
)
def test_only_what_may_resume_a_loss_goes_on_with_another_log(kind, known):
    if policy_of(kind).may_resume_losses or not policy_of(kind).rests_on_offsets:
        refuse_other_logs(kind, known, NOW, "table")
        return
    with pytest.raises(ActionRequiredError, match="of another log") as caught:
        refuse_other_logs(kind, known, NOW, "table")
    assert caught.value.next_step == policy_of(kind).instead


@pytest.mark.parametrize("kind", KINDS)
def test_a_log_that_is_the_same_or_that_nobody_can_tell_is_no_reason(kind):
    for known in (
        _known("u", "same"),
        _known("t", None),
        _known("t", "new", None),
        _known("gone", "old"),
        Checkpoint(),
    ):
        refuse_other_logs(kind, known, NOW, "table")
    refuse_other_logs(kind, _known("t", "old"), NOW, "table", topics={("kafka", "u")})
