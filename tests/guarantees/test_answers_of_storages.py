"""What S3 and HDFS answer to real clients is an error of the right kind, with no stack trace.

S3's answers come from a server that says to each bucket what its name asks for: S3A and botocore parse them. HDFS's
come from a real name node, where it can be brought to them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from py4j.protocol import Py4JJavaError
from tests.s3 import ensure_s3

from sluice.errors import ActionRequiredError, RetryableError, SluiceError
from sluice.jvm.causes import causes
from sluice.local.process import free_port
from sluice.sinks.files.hadoop import HadoopStorage
from sluice.sinks.files.s3 import S3Storage
from sluice.sinks.hudi.failures import hudi_errors
from sluice.sinks.reading import failed
from sluice.storages import storage_error

_ACT, _PASSES = ActionRequiredError, RetryableError
# S3's code: the status with which it comes, and the error. https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
_S3 = {
    "AccessDenied": (403, _ACT, "No permission on the table's bucket"),
    "InvalidAccessKeyId": (403, _ACT, "refuses the log-in"),
    "SignatureDoesNotMatch": (403, _ACT, "refuses the log-in"),
    "RequestTimeTooSkewed": (403, _ACT, "clock"),
    "ExpiredToken": (400, _ACT, "session token"),
    "InvalidToken": (400, _ACT, "session token"),
    "NoSuchBucket": (404, _ACT, "path can't be used"),
    "PermanentRedirect": (301, _ACT, "another region"),
    "AuthorizationHeaderMalformed": (400, _ACT, "another region"),
    "InvalidRequest": (400, _ACT, "takes the request for wrong"),
    "NotImplemented": (501, _ACT, "conditional writes"),
    "QuotaExceeded": (403, _ACT, "is full"),
    "KMS.DisabledException": (400, _ACT, "key that encrypts"),
    "InvalidObjectState": (403, _ACT, "in an archive"),
    "SlowDown": (503, _PASSES, "doesn't answer"),
    "ServiceUnavailable": (503, _PASSES, "doesn't answer"),
    "InternalError": (500, _PASSES, "doesn't answer"),
    "RequestTimeout": (400, _PASSES, "doesn't answer"),
    "OperationAborted": (409, _PASSES, "doesn't answer"),
    "NobodyKnows": (418, _PASSES, "doesn't answer"),
}
# Answers to HEAD have no body, and so no code.
_BARE = {
    403: (_ACT, "No permission on the table's bucket"),
    301: (_ACT, "another region"),
    400: (_ACT, "takes the request for wrong"),
    503: (_PASSES, "doesn't answer"),
}


class _Answers(BaseHTTPRequestHandler):
    """Answers each request by its bucket's name: `answer-<number>`."""

    def _answer(self) -> None:
        number = int(self.path.split("?")[0].strip("/").split("/")[0].removeprefix("answer-"))
        code = list(_S3)[number]
        body = f"<Error><Code>{code}</Code><Message>words of {code}</Message><RequestId>1</RequestId></Error>".encode()
        self.send_response(_S3[code][0])
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - the library's names

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def answering() -> Iterator[str]:
    """The address of a server that answers as S3 may."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def s3a(s3, s3_jvm):
    """Makes the storage of a bucket at an address, with a login that nobody checks."""
    with s3_jvm() as jvm:

        def made(endpoint: str, bucket: str, **more: str) -> S3Storage:
            configuration = jvm.jvm.org.apache.hadoop.conf.Configuration(False)
            configuration.addResource("core-default.xml")
            configuration.setBoolean("fs.s3a.impl.disable.cache", True)
            given = {"endpoint": endpoint, "attempts.maximum": "1", "retry.limit": "1", "connection.timeout": "5000"}
            for name, value in {
                **s3.settings,
                **s3.login,
                **{f"fs.s3a.{k}": v for k, v in given.items()},
                **more,
            }.items():
                configuration.set(name, value)
            return S3Storage(jvm.jvm, configuration, f"s3a://{bucket}/t")

        yield made


def _in_one_line(error: SluiceError) -> SluiceError:
    assert error.next_step
    assert not any(sign in str(error) for sign in ("\n", "\tat ", "Traceback")), error
    return error


@pytest.mark.parametrize("code", list(_S3))
def test_s3_s_codes_to_s3a(s3a, answering, code):
    _, kind, says = _S3[code]
    with pytest.raises(kind, match=says) as caught:
        s3a(answering, f"answer-{list(_S3).index(code)}").read("f")
    assert code in str(_in_one_line(caught.value)) or code == "NotImplemented"


@pytest.mark.parametrize("status", list(_BARE))
def test_s3_s_answers_without_a_code(s3a, answering, status):
    kind, says = _BARE[status]
    number = next(i for i, (found, *_) in enumerate(_S3.values()) if found == status)
    with pytest.raises(kind, match=says) as caught:
        s3a(answering, f"answer-{number}").size("f")
    _in_one_line(caught.value)


def test_s3_that_is_not_there_or_not_known(s3a, s3, answering):
    wrong = {
        f"http://127.0.0.1:{free_port()}": (_PASSES, "doesn't answer"),
        "http://no-such-host.invalid": (_ACT, "path can't be used"),
        answering.replace("http:", "https:"): (_PASSES, "doesn't answer"),  # no TLS
    }
    for endpoint, (kind, says) in wrong.items():
        with pytest.raises(kind, match=says) as caught:
            s3a(endpoint, "answer-0").read("f")
        _in_one_line(caught.value)
    with pytest.raises(FileNotFoundError):
        s3a(s3.endpoint, "lake").read("no-such-key")
    nothing = {"fs.s3a.access.key": "", "fs.s3a.secret.key": "", "fs.s3a.aws.credentials.provider":
               "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"}  # fmt: skip
    with pytest.raises(_ACT, match="no AWS credentials"):
        s3a(s3.endpoint, "lake", **nothing).read("f")


_BY_BOTOCORE = """
import json, sys
import botocore.session
from botocore.config import Config

def client(endpoint):
    options = Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}, connect_timeout=5)
    return botocore.session.get_session().create_client(
        "s3", "us-east-1", endpoint_url=endpoint, aws_access_key_id="k", aws_secret_access_key="s", config=options
    )

def said(endpoint, bucket):
    try:
        client(endpoint).get_object(Bucket=bucket, Key="f")
    except Exception as error:
        return type(error).__name__, str(error)

answering, closed, codes = json.loads(sys.argv[1])
found = {code: said(answering, f"answer-{i}") for i, code in enumerate(codes)}
print(json.dumps({**found, "closed": said(closed, "answer-0")}))
"""


def test_s3_s_codes_to_botocore(home, answering):
    """As the page reads tables, by s3fs: it hides botocore's error behind one of Python's, as its cause."""
    asked = json.dumps([answering, f"http://127.0.0.1:{free_port()}", list(_S3)])
    environment = {**os.environ, "PYTHONPATH": str(ensure_s3(home))}
    command = [sys.executable, "-c", _BY_BOTOCORE, asked]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    said = json.loads(done.stdout)
    del said["PermanentRedirect"]  # which botocore follows by itself, here for ever
    for code, (name, text) in said.items():
        error = OSError("words")
        error.__cause__ = type(name, (Exception,), {})(text)
        kind, says = (_PASSES, "can't be read: OSError") if code == "closed" else _S3[code][1:]
        found = failed(error, "s3a://bucket/t", "_sluice")
        assert type(found) is kind, (code, text)
        assert says in str(_in_one_line(found)) or kind is _PASSES, (code, found)


# HDFS


def test_hdfs_answers_for_real(hdfs, shared_jvm):
    with shared_jvm() as jvm:
        fs, conf = jvm.jvm.org.apache.hadoop.fs, jvm.storage.unwrap()
        uri = jvm.jvm.java.net.URI.create(hdfs.uri)
        admin = fs.FileSystem.get(uri, conf)
        storage = HadoopStorage(jvm.jvm, conf, f"{hdfs.uri}/answers")
        storage.make_folder("log")
        safe_mode = jvm.nested("org.apache.hadoop.hdfs.protocol.HdfsConstants$SafeModeAction")
        admin.setSafeMode(safe_mode.SAFEMODE_ENTER)
        with pytest.raises(_PASSES, match="safe mode"):
            storage.create("log/1", b"one")
        admin.setSafeMode(safe_mode.SAFEMODE_LEAVE)
        storage.create("log/1", b"one")
        admin.setQuota(fs.Path("/answers"), 1, 9223372036854775807)
        with pytest.raises(_ACT, match=r"is full.+NSQuotaExceededException") as caught:
            storage.create("log/2", b"two")
        _in_one_line(caught.value)
        admin.setQuota(fs.Path("/answers"), -1, 1)
        with pytest.raises(_ACT, match=r"is full.+DSQuotaExceededException"):
            storage.create("log/2", b"two")
        admin.setQuota(fs.Path("/answers"), -1, -1)
        with pytest.raises(FileNotFoundError):
            storage.read("log/none")
        with pytest.raises(_ACT, match="a file of its name"):
            storage.make_folder("log/1/below")
        other = fs.FileSystem.get(uri, conf, "somebody")
        with pytest.raises(Py4JJavaError) as refused:
            other.mkdirs(fs.Path("/answers/theirs"))
        found = storage_error(causes(refused.value.java_exception), f"{hdfs.uri}/answers", "sink.x.path")
        assert type(_in_one_line(found)) is _ACT
        assert "No permission on the table's folder" in str(found)
        other.close()


def test_hdfs_that_is_not_there_or_something_else(s3, answering, shared_jvm):
    with shared_jvm() as jvm:
        conf = jvm.jvm.org.apache.hadoop.conf.Configuration(jvm.storage.unwrap())
        conf.setInt("ipc.client.connect.max.retries", 0)
        wrong = {
            f"hdfs://127.0.0.1:{free_port()}": (_PASSES, "doesn't answer.+ConnectException"),
            "hdfs://no-such-host.invalid:1": (_ACT, "path can't be used"),
            "hdfs:": (_ACT, "path can't be used"),
            "nosuch://n": (_ACT, "path can't be used"),
            answering.replace("http:", "hdfs:"): (_ACT, "path can't be used"),  # no name node's port
        }
        for uri, (kind, says) in wrong.items():
            with pytest.raises(kind, match=says) as caught:
                HadoopStorage(jvm.jvm, conf, f"{uri}/lake").exists("log")
            _in_one_line(caught.value)


_WRAPPED = [  # the class that a name node names in its answer, which the client leaves as a RemoteException
    ("org.apache.hadoop.ipc.StandbyException", _PASSES, "doesn't answer"),
    ("org.apache.hadoop.ipc.RetriableException", _PASSES, "doesn't answer"),
    ("org.apache.hadoop.hdfs.server.namenode.SafeModeException", _PASSES, "doesn't answer"),
    ("org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException", _PASSES, "doesn't answer"),
    ("org.apache.hadoop.security.AccessControlException", _ACT, "No permission"),
    ("org.apache.hadoop.hdfs.protocol.NSQuotaExceededException", _ACT, "is full"),
    ("org.apache.hadoop.security.token.SecretManager$InvalidToken", _ACT, "refuses the log-in"),
    ("org.apache.hadoop.hdfs.protocol.NewException", _PASSES, "doesn't answer"),
]


def test_what_hdfs_answers_within_a_remote_exception(shared_jvm):
    with shared_jvm() as jvm:
        for name, kind, says in _WRAPPED:
            remote = jvm.jvm.org.apache.hadoop.ipc.RemoteException(name, "words\n\tat a.stack.Trace(Trace.java:1)")
            found = storage_error(causes(jvm.jvm.java.io.IOException("it failed", remote)), "hdfs://n/t", "sink.x.path")
            assert type(_in_one_line(found)) is kind, (name, found)
            assert says in str(found)


def test_kerberos_without_a_ticket(shared_jvm):
    """Constructed: no test has a KDC."""
    with shared_jvm() as jvm:
        java, hadoop = jvm.jvm.java, jvm.jvm.org.apache.hadoop
        gss = jvm.jvm.javax.security.sasl.SaslException(
            "GSS initiate failed [Caused by GSSException: No valid credentials]"
        )
        for exception in (
            java.io.IOException("DestHost:destPort n:8020", gss),
            hadoop.security.AccessControlException("SIMPLE authentication is not enabled. Available:[TOKEN, KERBEROS]"),
            hadoop.security.AccessControlException("Client cannot authenticate via:[TOKEN, KERBEROS]"),
            hadoop.security.KerberosAuthException("failure to login"),
        ):
            found = storage_error(causes(exception), "hdfs://n/t", "sink.x.path")
            assert type(_in_one_line(found)) is _ACT
            assert "refuses the log-in" in str(found)


def test_hudi_s_wrappers_hide_nothing(shared_jvm):
    """What a table of Hudi's is on fails within exceptions of Hudi's."""
    with shared_jvm() as jvm:
        hudi = jvm.jvm.org.apache.hudi.exception
        denied = jvm.jvm.java.nio.file.AccessDeniedException("s3a://b/t", None, "InvalidAccessKeyId")
        late = jvm.jvm.java.net.ConnectException("Connection refused")
        for table, cause, kind, says in (
            ("s3a://b/t", denied, _ACT, r"refuses the log-in \(committing\).+connection"),
            ("hdfs://n/t", denied, _ACT, r"No permission on the table's folder \(committing\)"),
            ("hdfs://n/t", late, _PASSES, r"Hudi failed \(committing\).+ConnectException"),
        ):
            with pytest.raises(kind, match=says) as caught, hudi_errors("committing", table=table):
                raise Py4JJavaError("words", hudi.HoodieIOException("it failed", cause)) from None
            _in_one_line(caught.value)
