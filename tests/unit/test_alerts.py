"""Which alerts a run gives rise to, in which words, and what the next run remembers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from protocol_messages import TABLE, ack, end, planned, start, status
from pydantic import ValidationError

from sluice.airflow.alerts import Failure, History, Links, Report, after, decide
from sluice.errors import IntervalError
from sluice.pipeline import Alerts, Notifier
from sluice.protocol.audit import audit
from sluice.protocol.interval_facts import interval_facts
from sluice.protocol.known_streams import KnownStreams
from sluice.protocol.messages import LostOffsets
from sluice.protocol.transaction import TableLog

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
SOMEBODY = (Notifier(notifier="a.Notifier"),)
ACT = Failure("write[0]", "A record is bad. [topic=t, partition=0, offset=3]", "mend it.", "act", "http://a/log")
RETRY = Failure("commit", "Kafka did not answer.", "see whether it is up.", "retry")


def rules(**more: Any) -> Alerts:
    return Alerts(on_failure=SOMEBODY, **more)


def facts(*messages: Any, **more: Any) -> Any:
    (transaction,) = TableLog(TABLE).extend(enumerate(messages)).transactions.values()
    return interval_facts(transaction).model_copy(update=more)


def committed(**more: Any) -> Any:
    return facts(start("7"), status("7"), end("7"), ack("7"), **more)


def report(outcome: Any = "failed", failures: tuple[Failure, ...] = (ACT,), **more: Any) -> Report:
    fields = {
        "began": NOW - timedelta(minutes=1),
        "ended": NOW,
        "links": Links("http://a/run", "http://a/plugin/sluice"),
    }
    return Report(
        "orders", TABLE, "r1", outcome, **{**fields, "failures": failures if outcome == "failed" else (), **more}
    )


def kinds(alerts: list[Any]) -> list[str]:
    return [alert.kind for alert in alerts]


def test_a_message_names_the_clusters_of_streams() -> None:
    lost = LostOffsets(cluster="kafka", topic="t", partition=0, committed=1, resumed_at=2, reason="gone")
    begun = start("7", streams=KnownStreams(), losses=(lost,))
    (alert, *_) = decide(report(facts=facts(begun)), History(), rules())
    assert "Offsets: kafka/t[0] 0-9\n" in alert.text
    assert "next offsets: kafka/t[0] 0." in alert.text
    told = report("committed", facts=facts(begun, status("7"), end("7"), ack("7")))
    assert "kafka/t[0] committed 1, resumed at 2: gone" in decide(told, History(), rules())[0].text


def test_partitions_that_wait_are_told_once_as_long_as_it_lasts() -> None:
    waits = ("orders[1]: it has no leader, so it is left out until it has one",)
    for told in (
        report("committed", facts=committed(remarks=waits)),
        report("empty", remarks=waits),
    ):
        (alert,) = decide(told, History(), rules())
        assert (alert.kind, alert.occasion, alert.act) == ("partitions", "on_warning", False)
        assert waits[0] in alert.text
        assert decide(told, after(told, History(), rules()), rules()) == []
    good = report("committed", facts=committed())
    assert after(good, after(told, History(), rules()), rules()).over == ()


def test_a_failure_is_told_with_place_remedy_and_what_stands() -> None:
    (alert,) = decide(report(facts=facts(start("7", ranges=2))), History(), rules())
    assert (alert.kind, alert.occasion, alert.severity, alert.act) == ("failure", "on_failure", "error", True)
    assert alert.subject == "[sluice] orders: an interval failed in write[0]; action required"
    for part in (
        f"Table: {TABLE}",
        "Instant: 7",
        "Offsets: t[0] 0-9, t[1] 0-9",
        "What failed: write[0]: A record is bad. [topic=t, partition=0, offset=3]",
        "Next step: mend it.",
        "nothing is lost: the next run starts where it did. The table's next offsets: t[0] 0, t[1] 0.",
        "Task log: http://a/log",
        "Run: http://a/run",
        "Page: http://a/plugin/sluice",
    ):
        assert part in alert.text


def test_two_failed_tasks_are_one_alert_and_the_one_that_asks_for_a_person_leads() -> None:
    (alert,) = decide(report(failures=(RETRY, ACT)), History(), rules())
    assert "failed in write[0]" in alert.summary
    assert alert.text.index("A record is bad") < alert.text.index("Kafka did not answer")


@pytest.mark.parametrize(
    ("recovery", "act", "says"),
    [
        ("act", True, "Fix the cause"),
        ("fail_run", False, "None yet"),
        ("retry", False, "None yet"),
        (None, True, "no reason was recorded"),
    ],
)
def test_the_recovery_class_says_whether_anybody_must_act(recovery: Any, act: bool, says: str) -> None:
    (alert,) = decide(report(failures=(Failure("commit", "x", "y", recovery),)), History(), rules())
    assert alert.act is act
    assert says in dict(alert.fields)["Action"]


def test_a_red_run_whose_commit_stands_says_so() -> None:
    one = report(failures=(RETRY,), facts=committed())
    (alert,) = decide(one, History(), rules())
    assert "the interval is committed, although" in alert.summary
    assert not alert.act
    assert "instant 7 are committed together. The table's next offsets: t[0] 10." in alert.text
    assert after(one, History(), rules()).good == NOW


def test_an_audit_that_failed_is_an_alert_of_its_own_kind() -> None:
    with pytest.raises(IntervalError) as caught:
        audit(start("7"), 0, status("7", records_written=9))
    (alert,) = decide(report(failures=(Failure("commit", caught.value.what, "x", "fail_run"),)), History(), rules())
    assert (alert.kind, alert.severity) == ("audit", "critical")


def test_the_offsets_are_left_out_where_nobody_can_tell_them() -> None:
    (alert,) = decide(report(unknown="Kafka did not answer."), History(), rules())
    assert "are unknown now: Kafka did not answer." in alert.text


def test_escalation_comes_once() -> None:
    history, told = History(), []
    for _ in range(5):
        told.append(kinds(decide(report(), history, rules(escalate_after=3))))
        history = after(report(), history, rules())
    assert told == [["failure"], ["failure"], ["escalation", "failure"], ["failure"], ["failure"]]


def test_recovery_is_told_once() -> None:
    history = History(failures=2, good=NOW - timedelta(hours=2, minutes=5))
    good = report("committed", facts=committed())
    (alert,) = decide(good, history, rules())
    assert (alert.kind, alert.severity, alert.occasion) == ("recovery", "info", "on_recovery")
    assert "recovered after 2 failed runs" in alert.summary
    assert "Since the last good run: 2 h 5 min" in alert.text
    assert decide(good, after(good, history, rules()), rules()) == []


def test_an_empty_interval_is_good_too() -> None:
    (alert,) = decide(report("empty"), History(failures=1), rules())
    assert "recovered after 1 failed run; this run found nothing new" in alert.summary


def test_the_deadline_counts_from_the_last_good_run_and_is_told_once() -> None:
    limits = rules(deadline=timedelta(minutes=15))
    early, late = (History(good=NOW - timedelta(minutes=m)) for m in (14, 15))
    assert kinds(decide(report(), early, limits)) == ["failure"]
    assert kinds(decide(report(), late, limits)) == ["failure", "deadline"]
    assert kinds(decide(report(), after(report(), late, limits), limits)) == ["failure"]


def test_a_run_that_was_late_itself_has_been_told_of_while_it_ran() -> None:
    limits = rules(deadline=timedelta(minutes=15))
    began = NOW - timedelta(minutes=20)
    assert kinds(decide(report(began=began), History(), limits)) == ["failure"]
    assert kinds(decide(report("empty", began=began), History(), limits)) == ["recovery"]


def test_limits_are_told_when_they_are_passed_and_not_with_every_interval() -> None:
    limits = rules(max_lag_records=5, max_lag=timedelta(minutes=10), max_quarantine_rate=0.1)
    over = committed(lag_records=6, valid_through=NOW - timedelta(minutes=11), records_quarantined=2)
    behind = report("committed", facts=over)
    assert kinds(decide(behind, History(), limits)) == ["lag", "lag", "quarantine"]
    history = after(behind, History(), limits)
    assert decide(behind, history, limits) == []
    fine = report("committed", facts=committed(lag_records=5, valid_through=NOW))
    assert decide(fine, history, limits) == []
    assert kinds(decide(behind, after(fine, history, limits), limits)) == ["lag", "lag", "quarantine"]


def test_what_is_held_back_is_a_lag_of_an_empty_interval_too() -> None:
    """An open Kafka transaction, or a cluster that is skipped: nothing can be read, and much may wait."""
    limits = rules(max_lag_records=5, max_lag=timedelta(minutes=10))
    held = report("empty", lag_records=6, valid_through=NOW - timedelta(minutes=11))
    assert kinds(decide(held, History(), limits)) == ["lag", "lag"]
    assert decide(held, after(held, History(), limits), limits) == []
    assert decide(report("empty", lag_records=0, valid_through=NOW), History(), limits) == []
    assert decide(report("empty"), History(), limits) == [], "it isn't known"
    known = after(report("committed", facts=committed(valid_through=NOW)), History(), limits)
    unknown = report("committed", facts=committed(valid_through=None), ended=NOW + timedelta(minutes=11))
    assert kinds(decide(unknown, known, limits)) == ["lag"], "the last known time of completeness has grown old"


def test_the_lag_is_what_the_log_held_when_the_interval_was_planned() -> None:
    first = planned(0).model_copy(update={"log_end": 25})
    assert facts(start("7", ranges=0).model_copy(update={"ranges": ((first,),)})).lag_records == 15
    assert facts(start("7")).lag_records is None


def test_offsets_that_were_given_up_are_told() -> None:
    lost = LostOffsets(cluster="kafka", topic="t", partition=0, committed=3, resumed_at=9, reason="retention")
    one = facts(start("7", losses=(lost,)), status("7"), end("7"), ack("7"))
    (alert,) = decide(report("committed", facts=one), History(), rules())
    assert (alert.kind, alert.act) == ("offset_loss", True)
    assert "t[0] committed 3, resumed at 9: retention" in alert.text


def test_html_is_escaped_and_json_holds_the_same() -> None:
    bad = Failure("write[0]", "<script>alert(1)</script> & more", "x", "act")
    (alert,) = decide(report(failures=(bad,), facts=facts(start("7"))), History(), rules())
    assert "<script>" not in alert.html
    assert "&lt;script&gt;" in alert.html
    told = json.loads(alert.json)
    assert told["offsets"] == [{"cluster": "kafka", "topic": "t", "partition": 0, "start": 0, "end": 10}]
    assert (told["kind"], told["act"], told["instant"], told["failed"][0]["recovery"]) == ("failure", True, "7", "act")


def test_what_an_error_quotes_is_no_link_and_no_mention_in_a_chat() -> None:
    bad = Failure("write[0]", "says <!channel> [a](https://evil.example) <https://evil.example|log> \x1b]52;c;x", "x")
    (alert,) = decide(report(failures=(bad,), facts=facts(start("7"))), History(), rules())
    text = alert.variables()["text"]
    assert "says < !channel> [a] (https://evil.example) < https://evil.example|log> \\x1b]52;c;x" in text
    assert json.loads(alert.json)["text"] == text
    assert alert.variables()["failed"][0]["what"] == bad.what  # for programs


def test_a_limit_that_tells_nobody_is_refused() -> None:
    for wrong in ({"deadline": timedelta(minutes=1)}, {"max_lag_records": 1}, {"max_quarantine_rate": 0.1}):
        with pytest.raises(ValidationError, match="has no notifier"):
            Alerts(**wrong)


def test_a_run_that_a_person_asked_for_tells_of_itself_only() -> None:
    history = History(failures=2, good=NOW - timedelta(hours=1), over=("max_lag",))
    limits = rules(deadline=timedelta(minutes=15))
    (alert,) = decide(report(reads_on=False, facts=facts(start("7", kind="range"))), history, limits)
    assert (alert.kind, alert.act) == ("failure", True)
    assert "Start this run again" in alert.text
    assert "nothing else is changed" in alert.text
    good = report("committed", facts=committed(kind="range"), reads_on=False)
    assert decide(good, history, limits) == []
    for one in (report(reads_on=False), good):
        assert after(one, history, limits) == history.model_copy(update={"run_id": "r1"})
