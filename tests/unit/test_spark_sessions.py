"""Spark sessions of jobs: the only one of a driver, and one for each job of a long-lived application."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from sluice.participant import session as sessions
from sluice.participant.session import KeptSession, own_session, readable_error, stop


class _Application:
    """In place of an application: what is done to its sessions, job groups and pools."""

    def __init__(self) -> None:
        self.did: list[Any] = []
        active = SimpleNamespace(
            setActiveSession=lambda session: self.did.append(("active", session)),
            clearActiveSession=lambda: self.did.append("none active"),
        )
        java = SimpleNamespace(
            org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(sql=SimpleNamespace(SparkSession=active))))
        )
        self.groups: list[str] = []
        self.sparkContext = SimpleNamespace(
            _jvm=java,
            setJobGroup=self._set_group,
            setLocalProperty=lambda name, value: self.did.append((name, value)),
            cancelJobGroup=lambda group: self.did.append(("cancelled", group)),
            cancelAllJobs=lambda: self.did.append("all cancelled"),
        )

    def _set_group(self, group: str, name: str, interruptOnCancel: bool) -> None:  # noqa: N803 - Spark's own name
        assert interruptOnCancel
        self.groups.append(group)
        self.did.append(("group", name))

    def newSession(self) -> Any:  # noqa: N802 - Spark's own name
        return SimpleNamespace(_jsparkSession=f"session {len(self.groups)}")

    def stop(self) -> None:
        self.did.append("stopped")


def test_each_job_of_a_kept_application_has_its_own_session_group_and_share():
    application: Any = _Application()
    kept = KeptSession(application)
    with kept("first") as (one, cancel_one), kept("second") as (another, cancel_another):
        assert one is not another
        first, second = application.groups
        assert first != second
        cancel_another()
        cancel_one()
    pool = ("spark.scheduler.pool", threading.current_thread().name)
    assert application.did == [
        *(("active", "session 0"), ("group", "first"), pool),
        *(("active", "session 1"), ("group", "second"), pool),
        *(("cancelled", second), ("cancelled", first)),
        *("none active", "none active"),
    ]


def test_the_session_of_a_job_that_fails_is_no_longer_the_thread_s():
    application: Any = _Application()
    with pytest.raises(ValueError, match="any"), KeptSession(application)("job"):
        raise ValueError("any")
    assert application.did[-1] == "none active"
    assert "stopped" not in application.did


def test_a_driver_s_only_session_ends_with_its_job_however_that_ends(monkeypatch):
    application: Any = _Application()
    names: list[str] = []
    monkeypatch.setattr(sessions, "spark_session", lambda name: names.append(name) or application)

    def run() -> None:
        with own_session("job") as (spark, cancel):
            assert spark is application
            cancel()
            raise ValueError("any")

    with pytest.raises(ValueError, match="any"):
        run()
    assert (names, application.did) == (["job"], ["all cancelled", "stopped"])


@pytest.mark.parametrize("error", [Py4JError("gone"), OSError("refused"), TypeError("None")])
def test_a_session_whose_jvm_is_lost_is_stopped_without_an_error(error):
    def fail() -> None:
        raise error

    stop(SimpleNamespace(stop=fail))  # type: ignore[arg-type]


class _UnreadableError(Exception):
    def __init__(self, lost: Exception) -> None:
        super().__init__()
        self._lost = lost

    def __str__(self) -> str:
        raise self._lost


@pytest.mark.parametrize("lost", [Py4JError("gone"), OSError("refused")])
def test_an_error_whose_text_is_lost_with_the_jvm_is_told_by_what_reading_it_raised(lost):
    assert readable_error(_UnreadableError(lost)) is lost
    other = ValueError("Python's own")
    assert readable_error(other) is other
