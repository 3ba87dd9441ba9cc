"""The tables of other systems' answers: the page has the code's, no row hides another, the default is a retry."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from sluice.answers import answer_in
from sluice.databases.dialect import STATES, kind_of_state
from sluice.databases.kinds import KINDS
from sluice.errors import ActionRequiredError, RetryableError
from sluice.kafka.failures import ANSWERS as KAFKA
from sluice.sinks.kafka.failures import ANSWERS as KAFKA_SINK
from sluice.sinks.reading import failed
from sluice.storages import HADOOP, S3, of_job, storage_error

TOOL = Path(__file__).parents[2] / "tools" / "answers.py"
_ROWS = [
    pytest.param(path, row, id=row.signs[0]) for path, of in (("s3a://b/t", S3), ("hdfs://n/t", HADOOP)) for row in of
]


def test_the_page_has_the_tables_of_the_code(monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("answers", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", [str(TOOL)])
    assert module.main() == 0, capsys.readouterr().err


@pytest.mark.parametrize(("path", "row"), _ROWS)
def test_each_answer_of_a_storage_is_of_its_row(path, row):
    for sign in row.signs:
        chain = ["IOException: it failed", f"{sign}: words"]
        assert answer_in(" <- ".join(chain), S3 if path.startswith("s3a") else HADOOP) is row, sign
        error = storage_error(chain, path, "sink.x.path", "writing", instant="i")
        assert type(error) is (RetryableError if row.means == "retry" else ActionRequiredError)
        assert str(error).startswith(f"{row.what} (writing). [instant=i, reason=")
        assert "{" not in error.next_step


def test_what_no_table_has_is_retried_with_its_causes():
    chain = ["IOException: it failed", "NewException: in a new way"]
    for path in ("hdfs://n/t", "s3a://b/t"):
        error = storage_error(chain, path, "sink.x.path")
        assert type(error) is RetryableError
        assert error.where == {"path": path, "reason": "IOException: it failed <- NewException: in a new way"}


def test_a_sign_is_a_word_of_its_own():
    assert answer_in("ReconnectExceptionHandler: x", HADOOP) is None
    assert answer_in("MyAccessDeniedException2: x", HADOOP) is None


@pytest.mark.parametrize(
    ("path", "line", "is_of_storage"),
    [
        ("s3a://b/t", "IllegalArgumentException: spark.x is wrong", False),
        ("s3a://b/t", "SslAuthenticationException <- SSLHandshakeException: of Kafka's", False),
        ("hdfs://n/t", "SaslException: of Kafka's", False),
        ("hdfs://n/t", "UnknownHostException: of Kafka's", False),
        ("hdfs://n/t", "DSQuotaExceededException: full", True),
        ("hdfs://n/t", 'AccessControlException: Permission denied: user=u, access=WRITE, inode="/t":r:g:---', True),
        ("hdfs://n/t", 'AccessControlException: Permission denied: user=u, access=READ, inode="/in/a":r:g:---', False),
        ("s3a://b/t", "AccessDeniedException: AmazonS3Exception: no (Error Code: InvalidAccessKeyId)", True),
        ("s3a://b/t", "AWSServiceIOException: AmazonS3Exception: no (Error Code: SlowDown)", False),
        ("s3a://b/t", "AccessDeniedException: s3a://b/t/x: PUT on s3a://b/t/x: AmazonS3Exception: AccessDenied", True),
        ("s3a://b/t", "AccessDeniedException: s3a://b/: stat on s3a://b/: AmazonS3Exception: AccessDenied", True),
        ("s3a://b/t", "AccessDeniedException: s3a://in/a: open s3a://in/a: AmazonS3Exception: AccessDenied", False),
        ("s3a://b/t", "AccessDeniedException: s3a://b/t2/a: open s3a://b/t2/a: AmazonS3Exception: AccessDenied", False),
        ("file:///lake/t", "FileNotFoundException: /lake/t/.x (Permission denied)", True),
        ("file:///lake/t", "FileNotFoundException: /in/a.json (Permission denied)", False),
    ],
)
def test_a_job_that_fails_over_its_source_is_not_blamed_on_its_storage(path, line, is_of_storage):
    assert (of_job([f"SparkException: Job aborted: {line}"], path, "sink.x.path") is not None) == is_of_storage


def _of_s3fs(code: str, kind: type[OSError]) -> OSError:
    """As s3fs raises it: botocore's error, which has S3's code, is the cause."""
    client_error = type("ClientError", (Exception,), {})
    error = kind("words, and https://user:secretvalue@host/")
    error.__cause__ = client_error(f"An error occurred ({code}) when calling the ListObjectsV2 operation: words")
    return error


@pytest.mark.parametrize(
    ("code", "kind", "expected", "says"),
    [
        ("AccessDenied", PermissionError, ActionRequiredError, "No permission on the table's bucket"),
        ("403", PermissionError, ActionRequiredError, "No permission on the table's bucket"),
        ("InvalidAccessKeyId", PermissionError, ActionRequiredError, "refuses the log-in"),
        ("ExpiredToken", PermissionError, ActionRequiredError, "session token"),
        ("RequestTimeTooSkewed", PermissionError, ActionRequiredError, "clock"),
        ("NoSuchBucket", FileNotFoundError, ActionRequiredError, "path can't be used"),
        ("PermanentRedirect", OSError, ActionRequiredError, "another region"),
        ("SlowDown", OSError, RetryableError, "can't be read: OSError"),
        ("InternalError", OSError, RetryableError, "can't be read: OSError"),
        ("NobodyKnows", OSError, RetryableError, "can't be read: OSError"),
    ],
)
def test_what_s3_answers_to_python_is_of_its_kind(code, kind, expected, says):
    found = failed(_of_s3fs(code, kind), "s3a://bucket/t", "_sluice")
    assert type(found) is expected
    assert says in str(found)
    assert "secretvalue" not in str(found)
    assert "API server" in found.next_step


def test_a_disk_that_may_not_be_read_and_one_that_does_not_answer():
    assert "permission to read" in str(failed(PermissionError(13, "Permission denied"), "/lake/t", ".hoodie"))
    assert type(failed(TimeoutError("late"), "/lake/t", ".hoodie")) is RetryableError


def test_each_code_is_in_one_row():
    for table in (KAFKA, KAFKA_SINK):
        signs = [sign for row in table for sign in row.signs]
        assert len(signs) == len(set(signs))
    for one in KINDS.values():
        codes = [code for of in one.dialect.codes.values() for code in of]
        assert len(codes) == len(set(codes))
        for kind, of in one.dialect.codes.items():
            assert {one.dialect.kind_of(code) for code in of} == {kind}


def test_each_state_is_of_its_kind_and_any_other_may_pass():
    for kind, states in STATES.items():
        assert {kind_of_state(state) for state in states} == {kind}
    assert [kind_of_state(state) for state in ("", "HY000", "ZZ999", "25P02")] == ["passing"] * 4
    assert [kind_of_state(state) for state in ("42P01", "42501", "40P01", "40002", "P0001")] == [
        "other", "refused", "passing", "data", "data"
    ]  # fmt: skip
