"""What is secret by its name doesn't show on the page."""

from __future__ import annotations

from sluice.page.redact import redact


def test_options_that_are_secret_by_their_name_are_hidden():
    options = {
        "hoodie.datasource.hive_sync.password": "hunter2",
        "fs.s3a.access.key": "AKIA",
        "fs.s3a.secret.key": "hunter2",
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
