"""Every remedy on every kind of table, in trouble: rows that the records lead to, or a refusal that says what to do.

The cells are chosen by all pairs: each remedy meets each kind of table and each circumstance, and each kind of table
each circumstance. A square of four shifts the circumstances from remedy to remedy, so 40 cells of 160 hold all pairs;
`make remedies` tries the other three squares, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from typing import Any

import pytest
import structlog
from typer.testing import CliRunner

from sluice.cli import app
from sluice.coordinator import Outcome
from sluice.errors import ActionRequiredError, IntervalError, RetryableError, SluiceError
from sluice.logs import log

from ..thorough import some_of
from .harness import kafka_settings
from .remedies import TABLES, Trouble

CONCURRENT, RECREATED, RETAINED, OPEN = "concurrent schedule", "recreated topic", "partly retained", "open transaction"
CIRCUMSTANCES = (CONCURRENT, RECREATED, RETAINED, OPEN)
NEWER = range(4)  # ids whose rows get a newer version before a remedy is tried
FAR_PAST, FAR_FUTURE = "2000-01-01T00:00:00Z", "2100-01-01T00:00:00Z"


# The remedies ------------------------------------------------------------------------------------------------------
#
# Each is a pair of steps: what comes before the trouble, and the remedy itself.


def _asked(trouble: Trouble, **request: Any) -> None:
    """A request by hand, as a whole interval: what it refuses, it refuses before anything is opened."""
    before = trouble.flow.messages()
    try:
        started = trouble.flow.coordinator().start(trouble.flow.run(**request))
    except SluiceError:
        assert trouble.flow.messages() == before
        raise
    if not isinstance(started, Outcome):
        trouble.finish(started)


def pass_over(trouble: Trouble) -> Callable[[], None]:
    trouble.send(NEWER, "before", deletes=[6])
    bad = trouble.send_bad()
    trouble.send(NEWER, "after")
    offsets = {trouble.flow.topic: {0: (bad, bad + 1)}}
    return lambda: _asked(trouble, kind="correction", offsets=offsets, reason="it can't be loaded")


def replay(trouble: Trouble) -> Callable[[], None]:
    trouble.send(NEWER, "newer", deletes=[6])
    trouble.interval()
    return lambda: _asked(trouble, kind="replay", instant=trouble.instants[0])


def range_of_offsets(trouble: Trouble) -> Callable[[], None]:
    sent = trouble.send(NEWER, "skipped") + trouble.send(NEWER, "ahead", deletes=[6])
    ahead = {p: [c.offset for c in sent[4:] if c.partition == p] for p in (0, 1)}
    offsets = {trouble.flow.topic: {p: (min(found), 40) for p, found in ahead.items()}}
    return lambda: _asked(trouble, kind="range", offsets=offsets)


def backfill(trouble: Trouble) -> Callable[[], None]:
    trouble.send(NEWER, "newer", deletes=[6])
    return lambda: _asked(trouble, kind="backfill", from_time=FAR_PAST, to_time=FAR_FUTURE)


def _on_offset_loss(trouble: Trouble, policy: str) -> Callable[[], None]:
    trouble.send(range(8), "newer", deletes=[6])

    def remedy() -> None:
        trouble.flow.set(source__kafka__on_offset_loss=policy)
        _asked(trouble)
        trouble.flow.set(source__kafka__on_offset_loss="fail")

    return remedy


def earliest(trouble: Trouble) -> Callable[[], None]:
    return _on_offset_loss(trouble, "earliest")


def latest(trouble: Trouble) -> Callable[[], None]:
    return _on_offset_loss(trouble, "latest")


def clear(trouble: Trouble) -> Callable[[], None]:
    """All tasks of a run that has committed are cleared: they run again, under the same run's id."""
    trouble.send(NEWER, "first")
    run = trouble.flow.run()
    started = trouble.flow.start(run)
    trouble.finish(started)
    trouble.send(NEWER, "newer", deletes=[6])

    def remedy() -> None:
        assert trouble.flow.commit(started).state == "committed"
        assert trouble.flow.abort(run).state == "nothing"
        again = trouble.flow.coordinator().start(run)
        assert not isinstance(again, Outcome)
        trouble.finish(again)

    return remedy


def mark_success(trouble: Trouble) -> Callable[[], None]:
    """`write` never ran and is marked: `commit` finds out. Then `commit` is marked: the next run takes over."""
    trouble.send(NEWER, "newer", deletes=[6])

    def remedy() -> None:
        unwritten = trouble.flow.start()
        with pytest.raises(IntervalError, match="did not report"):
            trouble.flow.commit(unwritten)
        uncommitted = trouble.flow.start()
        trouble.flow.write_all(uncommitted)
        trouble.check()
        _asked(trouble)
        with pytest.raises(IntervalError, match="can't be committed any more"):
            trouble.flow.commit(uncommitted)

    return remedy


def abort(trouble: Trouble) -> Callable[[], None]:
    trouble.send(NEWER, "newer", deletes=[6])
    run = trouble.flow.run()
    started = trouble.flow.start(run)
    trouble.flow.write_all(started)

    def remedy() -> None:
        assert trouble.flow.abort(run).state in ("aborted", "nothing")  # nothing where another run has taken over
        with pytest.raises(IntervalError, match="can't be committed any more"):
            trouble.flow.commit(started)
        trouble.check()
        _asked(trouble)

    return remedy


def redrive(trouble: Trouble) -> Callable[[], None]:
    trouble.flow.set(errors__tolerance="all", errors__max_record_bytes=2000)
    bad = trouble.send([0], "x" * 2000)[0]
    trouble.quarantined(bad)
    trouble.interval()
    trouble.send(NEWER, "newer", deletes=[6])
    trouble.interval()
    trouble.flow.set(errors__max_record_bytes=None)

    def remedy() -> None:
        end = trouble.flow.log_ends()[bad.partition]
        done = CliRunner().invoke(app, ["quarantine", "redrive", str(trouble.flow.file), "--json"])
        structlog.reset_defaults()  # the command logs to what was its own output
        vars(log).pop("bind", None)
        if done.exception is not None:
            raise done.exception
        trouble.sent_again(bad, end)
        _asked(trouble)

    return remedy


REMEDIES = (
    pass_over, replay, range_of_offsets, backfill, earliest, latest, clear, mark_success, abort, redrive,
)  # fmt: skip

# The table: where a remedy is refused, by whom and in which words. All other cells end with the rows.

_UNORDERED = (ActionRequiredError, "without an ordering field")
_ANOTHER_LOG = (ActionRequiredError, "of another log: the topic was deleted and created again")
_HELD_BACK = (RetryableError, "open Kafka transaction holds back")
_NOT_THE_TOPIC = (ActionRequiredError, "of their topic as it is now: the topic was deleted and created again")
_LOST = (ActionRequiredError, "can't be read any more: the topic was deleted and created again")
REFUSED: dict[tuple[Any, str], tuple[type[SluiceError], str]] = {
    **{(remedy, RECREATED): _ANOTHER_LOG for remedy in (pass_over, replay, range_of_offsets, backfill)},
    **{(remedy, RECREATED): _LOST for remedy in (clear, mark_success, abort)},
    (redrive, RECREATED): _NOT_THE_TOPIC,
    (replay, RETAINED): (ActionRequiredError, "the source doesn't have all of its offsets"),
    (range_of_offsets, OPEN): _HELD_BACK,
    (backfill, OPEN): _HELD_BACK,
}
REFUSED_BY_TABLE: dict[tuple[Any, str], tuple[type[SluiceError], str]] = {
    (range_of_offsets, "upsert"): _UNORDERED,
    (backfill, "upsert"): _UNORDERED,
    (redrive, "upsert"): (ActionRequiredError, "wins over all records that came after it"),
    (redrive, "tombstones"): (ActionRequiredError, "wins over all records that came after it"),
}


def refusal(remedy: Any, table: str, circumstance: str) -> tuple[type[SluiceError], str] | None:
    """Who looks first, refuses first: identity and the log before the order of an upsert."""
    by_table = REFUSED_BY_TABLE.get((remedy, table))
    if remedy is redrive and by_table:
        return by_table
    return REFUSED.get((remedy, circumstance)) or by_table


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "square" in metafunc.fixturenames:
        squares = range(len(CIRCUMSTANCES)) if metafunc.config.getoption("--all-cells") else range(1)
        metafunc.parametrize("square", squares)


def cells(table: str, circumstance: str, square: int = 0) -> list[Any]:
    """The remedies that are tried in a circumstance on a kind of table."""
    shift = (CIRCUMSTANCES.index(circumstance) - list(TABLES).index(table) + square) % len(CIRCUMSTANCES)
    return [remedy for i, remedy in enumerate(REMEDIES) if i % len(CIRCUMSTANCES) == shift]


def test_the_cells_hold_all_pairs():
    chosen = [(r, t, c) for t in TABLES for c in CIRCUMSTANCES for r in cells(t, c)]
    assert len(chosen) == len(REMEDIES) * len(TABLES)
    assert {(r, t) for r, t, _ in chosen} == {(r, t) for r in REMEDIES for t in TABLES}
    assert {(r, c) for r, _, c in chosen} == {(r, c) for r in REMEDIES for c in CIRCUMSTANCES}
    assert {(t, c) for _, t, c in chosen} == {(t, c) for t in TABLES for c in CIRCUMSTANCES}
    every = [(r, t, c) for s in range(4) for t in TABLES for c in CIRCUMSTANCES for r in cells(t, c, s)]
    assert len(every) == len(set(every)) == 160


def _refused_of_another_log(trouble: Trouble) -> None:
    """Whatever the cells are: no kind of request but the schedule's own may go on in another log."""
    somewhere = {trouble.flow.topic: {0: (30, 31)}}
    asked: list[dict[str, Any]] = [
        {"kind": "replay", "instant": trouble.instants[-1]},
        {"kind": "range", "offsets": somewhere},
        {"kind": "backfill", "from_time": FAR_PAST, "to_time": FAR_FUTURE},
        {"kind": "correction", "offsets": somewhere, "reason": "it can't be loaded"},
    ]
    for request in asked:
        with pytest.raises(ActionRequiredError, match=re.escape(_ANOTHER_LOG[1])):
            _asked(trouble, **request)


def _try(trouble: Trouble, remedy: Any, circumstance: str) -> None:
    flow = trouble.flow
    act = remedy(trouble)
    other = None
    if circumstance == CONCURRENT:
        other = flow.coordinator().start(flow.run())
    elif circumstance == RECREATED:
        trouble.recreate()
        _refused_of_another_log(trouble)
    elif circumstance == RETAINED and remedy in (earliest, latest):
        trouble.lose(2)
    elif circumstance == RETAINED:
        flow.delete_records({0: 2})  # which the table has
    with trouble.open_transaction() if circumstance == OPEN else nullcontext():
        expected = refusal(remedy, trouble.table, circumstance)
        if expected is None:
            act()
        else:
            with pytest.raises(expected[0], match=re.escape(expected[1])) as caught:
                act()
            assert caught.value.next_step
        trouble.check()
    if other is not None and not isinstance(other, Outcome) and expected is None and remedy is not redrive:
        with pytest.raises(IntervalError, match="can't be committed any more"):
            flow.commit(other)
    if circumstance == RECREATED:
        flow.set(source__kafka__on_offset_loss="earliest")
    trouble.catch_up()
    flow.set(source__kafka__on_offset_loss="fail")
    trouble.check(complete=True)


_PAIRS = list(product(TABLES, CIRCUMSTANCES))
_TRIED = [(t, c) for t, c in _PAIRS if (list(TABLES).index(t) - CIRCUMSTANCES.index(c)) % len(TABLES) == 0]
"""Each table and each circumstance at least once."""


@pytest.mark.parametrize(("table", "circumstance"), some_of(_PAIRS, _TRIED))
def test_a_remedy_leads_to_the_rows_or_is_refused(make_flow, monkeypatch, table, circumstance, square):
    flow = make_flow(**TABLES[table])
    settings = kafka_settings(flow.bootstrap).to_environment("source")
    monkeypatch.setenv("SLUICE_KAFKA_SOURCE", settings["SLUICE_KAFKA_SOURCE"])
    trouble = Trouble(flow, table)
    for remedy in cells(table, circumstance, square):
        _try(trouble, remedy, circumstance)
