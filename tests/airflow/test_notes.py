"""The sentence that a DAG run's note is."""

from __future__ import annotations

from sluice.airflow.notes import TaskNote, compose

STARTED = TaskNote("start_commit", -1, "success")


def test_committed() -> None:
    tasks = [
        TaskNote("abort", -1, "success"),
        TaskNote("commit", -1, "success", "Committed instant 7: 3 rows."),
        STARTED,
    ]
    assert compose(tasks, succeeded=True) == "Committed instant 7: 3 rows."


def test_committed_without_a_range_says_so() -> None:
    tasks = [
        STARTED,
        TaskNote("write", 0, "success"),
        TaskNote("write", 1, "failed", "A record is bad."),
        TaskNote("commit", -1, "success", "Committed instant 7: 3 rows."),
    ]
    note = compose(tasks, succeeded=True)
    assert note.startswith("Committed instant 7: 3 rows. write[1] failed, so their offsets stay")


def test_failed_names_the_first_task_that_knows_why() -> None:
    tasks = [
        STARTED,
        TaskNote("write", 0, "failed"),
        TaskNote("write", 1, "failed", "A record is bad."),
        TaskNote("commit", -1, "upstream_failed"),
        TaskNote("abort", -1, "success", "Aborted instant 7."),
    ]
    assert compose(tasks, succeeded=False) == "Failed in write[1] (1 more failed): A record is bad. Aborted instant 7."


def test_a_task_that_was_killed_left_no_reason() -> None:
    tasks = [TaskNote("start_commit", -1, "failed"), TaskNote("abort", -1, "success", "Aborted instant 7.")]
    assert compose(tasks, succeeded=False) == (
        "Failed in start_commit: no reason was recorded; read its log. Aborted instant 7."
    )


def test_fits_airflows_column() -> None:
    assert len(compose([TaskNote("commit", -1, "failed", "x" * 5000)], succeeded=False)) == 1000


def test_a_notifier_that_failed_is_named_and_is_not_what_the_run_failed_of() -> None:
    alert = TaskNote("alert", -1, "failed", "1 message could not be sent.")
    committed = [STARTED, TaskNote("commit", -1, "success", "Committed instant 7: 3 rows."), alert]
    assert compose(committed, succeeded=True) == "Committed instant 7: 3 rows. 1 message could not be sent."
    failed = [TaskNote("commit", -1, "failed", "The audit failed."), alert]
    assert compose(failed, succeeded=False) == "Failed in commit: The audit failed. 1 message could not be sent."


def test_an_error_that_quotes_others_is_no_markup() -> None:
    """Airflow shows notes as Markdown: an image would be fetched by each reader's browser."""
    quoted = "The database says: ![x](https://evil.example/p.png) [log][1] <https://evil.example> \x1b[31m A<b: INT>."
    note = compose([TaskNote("write", 0, "failed", quoted)], succeeded=False)
    assert note == (
        "Failed in write[0]: The database says: ![x] (https://evil.example/p.png) [log] [1] < https://evil.example> "
        "\\x1b[31m A<b: INT>."
    )
