"""What is secret by its name doesn't show on the page, nor in what processes report of each other's errors."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.redact import is_secret_option, redact, redact_text, remember


def test_options_that_are_secret_by_their_name_are_hidden():
    options = {
        "hoodie.datasource.hive_sync.password": "hunter2",
        "fs.s3a.access.key": "AKIA",
        "fs.s3a.secret.key": "hunter2",
        "basic.auth.user.info": "svc:hunter2",
        "hoodie.datasource.write.recordkey.field": "id",
    }
    writer = {"options": options, "record_key": ["id"]}
    shown = redact({"type": "START-COMMIT", "writer": writer, "ranges": [[{"start": 1}]]})
    assert "hunter2" not in str(shown)
    assert "AKIA" not in str(shown)
    assert shown["writer"]["options"]["hoodie.datasource.write.recordkey.field"] == "id"
    assert (shown["writer"]["record_key"], shown["ranges"]) == (["id"], [[{"start": 1}]])


PRIVATE_KEY = "-----BEGIN PRIVATE KEY-----\nMIIEvQhunter2\nhunter2==\n-----END PRIVATE KEY-----"


def test_a_private_key_is_hidden_by_its_name_and_by_its_form():
    settings = {"ssl.keystore.key": "hunter2", "ssl.key.pem": "hunter2", "ssl.keystore.type": "PEM"}
    assert redact(settings) == {"ssl.keystore.key": "***", "ssl.key.pem": "***", "ssl.keystore.type": "PEM"}
    assert redact_text(f"no such file: {PRIVATE_KEY} (it's PEM)") == "no such file: *** (it's PEM)"
    inside = json.dumps({"reason": f"{PRIVATE_KEY.replace('PRIVATE', 'RSA PRIVATE')}, twice: {PRIVATE_KEY[:-30]}"})
    assert "hunter2" not in redact_text(inside)


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("ssl.keyPassword", True),
        ("fs.azure.account.key.lake.dfs.core.windows.net", True),
        ("ssl.key.pem", True),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("hoodie.datasource.write.recordkey.field", False),
    ],
)
def test_an_option_is_secret_by_the_end_of_its_name(name, secret):
    assert is_secret_option(name) is secret


def test_a_log_in_is_taken_out_of_an_address():
    assert redact({"table": "hdfs://user:hunter2@host/lake"}) == {"table": "hdfs://***@host/lake"}
    assert redact("s3a://lake/orders") == "s3a://lake/orders"


@pytest.mark.parametrize(
    "text",
    [
        "jdbc:postgresql://db/x?user=u&password=hunter2 refused",
        "jdbc:sqlserver://db;user=u;password=hunter2;encrypt=true",
        'sasl.jaas.config=org.apache.kafka.ScramLoginModule required username="u" password="hunter2";',
        "sasl.jaas.config = a.b.C required clientSecret='hunter2' ;",
        "{'sasl.password': 'hunter2', 'a': 1}",
        '{"basic.auth.user.info": "svc:hunter2"}',
        "basic.auth.user.info=svc:hunter2",
        'password = "hunter2 with blanks"',
        "Authorization: Bearer hunter2",
        "the server said 401 to Bearer eyJhbGciOi.hunter2-hunter2_x==, and no more",
        "['bearer  hunter2hunter2']",
        "fs.s3a.secret.key=hunter2, and more",
        "https://u:hunter2@registry:8081/subjects",
        "https://u:hun/ter2@registry:8081/subjects",
        "https://hunter2@registry:8081/subjects",
        "aws_secret_access_key=hunter2",
        r'{"error": "password=\"hunter2\""}',
        "password=ab,cd;hunter2",
        "password=abc)hunter2",
        "password=abc&hunter2",
        r'{"password": "a\"b hunter2", "a": 1}',
        r'{"error": "{\"password\": \"a\\\"b hunter2\"}"}',
        'password="never closed hunter2',
        "https://u:p@hunter2@registry:8081/subjects",
        "https://u:" + "x" * 5000 + "hunter2@registry:8081/subjects",
        "https://a/b,https://hunter2@registry:8081/subjects",
        "pass=hunter2",
        "?sv=1&sig=hunter2",
        "dsn=hunter2",
        "Authorization: Digest username=a, response=hunter2",
        'sasl.jaas.config=a.b.C required password="a;hunter2";',
        "https://hooks.slack.com/services/T0/B0/hunter2 answers 404",
        "https://discord.com/api/webhooks/1/hunter2",
        "https://a.webhook.office.com/hunter2",
    ],
)
def test_a_secret_is_taken_out_of_a_text(text):
    shown = redact({"error": text})["error"]
    assert "hunter2" not in shown
    assert "ter2" not in shown
    assert "***" in shown


@pytest.mark.parametrize(
    "text",
    [
        "A record can't be loaded [topic=flights, partition=1, offset=105] Next step: correct the producer.",
        "file:///lake/orders at flights[1]@105",
        "the schema id 7 is unknown to http://registry:8081",
        "record_key=id, keys=3",
        "abfss://container@account.dfs.core.windows.net/lake",
        "https://host/a@b, it passes, and nothing is compassed: dsnx=1",
        "file:///lake/orders[1]@105",
        "a Bearer token is missing",
        "the standard-bearer standardization",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redact(text) == text


@given(
    secret=st.text(min_size=1, max_size=12).filter(lambda s: not s.isspace()).map(lambda s: f"<{s}>"),
    write=st.sampled_from(
        [
            lambda s: json.dumps({"sasl.password": s, "a": 1}),
            lambda s: json.dumps({"error": json.dumps({"sasl.password": s})}),
            lambda s: json.dumps([json.dumps({"error": json.dumps({"sasl.password": s})})]),
            lambda s: repr({"sasl.password": s}),
            lambda s: f"password={''.join(s.split())} x",
            lambda s: f"s3a://u:{''.join(s.split())}@host/x",
        ]
    ),
)
def test_however_a_secret_is_quoted_nothing_of_it_is_left(secret, write):
    assert not {"<", ">"} & set(redact_text(write(secret)))


def test_a_connection_s_secret_is_hidden_wherever_it_is():
    remember(["hunter2hunter2", "short", None, " " * 9])
    assert redact({"error": "FATAL: no user hunter2hunter2, short"}) == {"error": "FATAL: no user ***, short"}
    assert redact_text(" " * 9) == " " * 9


def test_of_secrets_that_have_others_in_them_all_is_hidden():
    remember(["hunter3hunter3", "hunter3hunter3-and-more", "at hunter3hunter3-and-more"])
    assert redact_text("look at hunter3hunter3-and-more") == "look ***"
    assert redact_text("hunter3hunter3-and-more, hunter3hunter3") == "***, ***"


def test_a_text_of_any_length_is_looked_through_in_its_time():
    began = time.process_time()
    for text in (
        "password" * 3000,
        "a" * 30_000,
        "a.jaas" * 3000,
        "://" * 5000,
        "x=" * 15_000,
        'pwd="' * 9000,
        "pwd='\\" * 9000,
        "a://b@" * 9000,
        "https://hooks." * 5000,
        "http://a/" * 9000 + "@",
        "Bearer " * 9000,
        "Bearer" + " " * 50_000,
    ):
        redact(text)
    assert time.process_time() - began < 5
