"""What is secret by its name doesn't show on the page, nor in what processes report of each other's errors."""

from __future__ import annotations

import time

import pytest

from sluice.redact import redact


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
        "fs.s3a.secret.key=hunter2, and more",
        "https://u:hunter2@registry:8081/subjects",
        "https://u:hun/ter2@registry:8081/subjects",
        "https://hunter2@registry:8081/subjects",
        "aws_secret_access_key=hunter2",
        r'{"error": "password=\"hunter2\""}',
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
    ],
)
def test_what_is_no_secret_stays(text):
    assert redact(text) == text


def test_a_text_of_any_length_is_looked_through_in_its_time():
    began = time.process_time()
    for text in ("password" * 3000, "a" * 30_000, "a.jaas" * 3000, "://" * 5000, "x=" * 15_000):
        redact(text)
    assert time.process_time() - began < 5
