"""Connect's configurations as pipeline files: nothing goes unnamed, no secret shows, and what is made loads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from sluice.cli import app
from sluice.cli.connect_import import as_data
from sluice.connect import ConnectorConfig, ImportOptions, checked, configs_of, imported, text_of
from sluice.connect.properties import properties
from sluice.connect.tables import CONNECTORS, REFUSED
from sluice.errors import ActionRequiredError
from sluice.pipeline import load_pipelines

from .connectors_of_connect import AVRO, DEBEZIUM, FOLDER, HUDI, JDBC, JSON, KAFKAS, S3, SMT, TABLE, one, said, verdicts

# Files


@pytest.mark.parametrize(
    ("text", "is_"),
    [
        ("a=1\nb: 2\nc 3\n  d = 4 ", {"a": "1", "b": "2", "c": "3", "d": "4 "}),
        ("# c\n! c\n\n a=1", {"a": "1"}),
        ("a=1,\\\n    2,\\\n\t3", {"a": "1,2,3"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        (r"path.format='year'\=YYYY/'day'\=dd", {"path.format": "'year'=YYYY/'day'=dd"}),
        (r"a\ b\:c=\u00e4\t\u20ac", {"a b:c": "ä\t€"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a=x\\", {"a": "x"}),
        ("a=\\\n#b", {"a": "#b"}),
        ("a\r\nb=1\rc=2", {"a": "", "b": "1", "c": "2"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text, is_):
    assert properties(text) == is_


def test_an_escape_that_is_none_shows_no_value():
    with pytest.raises(ActionRequiredError, match=r"no \.properties file") as caught:
        configs_of("password=s3cr3t\\u00zz", "a.properties")
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize(
    "shape",
    [
        lambda c: c,
        lambda c: {"name": "p", "config": c},
        lambda c: {"name": "p", "config": c, "tasks": [], "type": "sink"},
        lambda c: [{"name": "p", "config": c}],
        lambda c: {"p": {"info": {"name": "p", "config": c, "tasks": [], "type": "sink"}}},
        lambda c: {"p": {"info": {"config": c}, "status": {"name": "p"}}},
    ],
)
def test_each_shape_of_the_rest_api_is_read(shape):
    (found,) = configs_of(json.dumps(shape({"connector.class": JDBC, "tasks.max": 2, "auto.create": True})), "p.json")
    assert (found.name, found.config) == ("p", {"connector.class": JDBC, "tasks.max": "2", "auto.create": "true"})


@pytest.mark.parametrize("text", ["{", "[]", "{}", '"x"', '{"config": {"a": []}}'])
def test_what_is_no_configuration_is_refused(text):
    with pytest.raises(ActionRequiredError):
        configs_of(text, "x.json")


# Connectors


def test_a_jdbc_sink_with_upserts_and_deletes():
    made = one(
        {
            **TABLE,
            "connection.url": "jdbc:postgresql://db/lake?ssl=true&password=s3cr3t-1",
            "tasks.max": "4",
            "insert.mode": "upsert",
            "pk.mode": "record_key",
            "pk.fields": "id",
            "delete.enabled": "true",
            "auto.create": "true",
            "table.name.format": "shop.${topic}",
            "key.converter": f"{KAFKAS}.storage.StringConverter",
            "quote.sql.identifiers": "ALWAYS",
            "max.retries": "5",
            "retry.backoff.ms": "3000",
        }
    )
    assert made.pipeline is not None
    assert made.pipeline["sink"]["jdbc"] == {
        "connection": "p",
        "table": "shop.orders",
        "insert_mode": "upsert",
        "pk_mode": "record_key",
        "pk_fields": ["id"],
        "delete_enabled": True,
        "auto_create": True,
    }
    assert made.pipeline["changes"] == {"format": "tombstones"}
    assert made.pipeline["source"]["kafka"]["key"] == {"converter": "string", "as": "id"}
    assert (made.pipeline["retries"], made.pipeline["retry_delay"]) == (5, "3 seconds")
    assert (made.status, made.missing) == (0, ())
    (database,) = (c for c in made.connections if c.type == "postgres")
    assert database.command(json.dumps) == (
        "airflow connections add p --conn-type postgres --conn-login loader --conn-password … --conn-host db "
        """--conn-port 5432 --conn-schema lake --conn-extra '{"properties": {"ssl": "true"}}'"""
    )


@pytest.mark.parametrize(
    ("url", "fields"),
    [
        ("jdbc:mariadb://u:s3cr3t@h1:3306,h2/lake?password=s3cr3t", {"host": "jdbc:mariadb://h1:3306,h2/lake"}),
        ("jdbc:postgresql://u:s3cr3t@h1,h2:5433/lake", {"host": "jdbc:postgresql://h1,h2:5433/lake"}),
        ("jdbc:postgresql://u:s3cr3t@h1:5433/lake", {"host": "h1", "port": "5433", "schema": "lake"}),
        ("jdbc:sqlite:/lake.db?password=s3cr3t", {"host": "/lake.db"}),
        ("${file:/secrets:url}", {"host": "…"}),
    ],
)
def test_a_databases_address_without_its_login(url, fields):
    made = one({**TABLE, "connection.url": url})
    (database,) = (c for c in made.connections if c.id == "p")
    assert {name: database.fields[name] for name in fields} == fields
    assert "s3cr3t" not in json.dumps(as_data(made, None)) + repr(made)


def test_a_jdbc_sink_of_several_topics_is_a_pipeline_for_each():
    config = ConnectorConfig("p", {**TABLE, "topics": "a, b"})
    made = [checked(found) for found in imported(config, ImportOptions())]
    assert [(m.name, m.pipeline["sink"]["jdbc"]["table"], m.group) for m in made if m.pipeline] == [
        ("p.a", "a", "connect-p"),
        ("p.b", "b", "connect-p"),
    ]
    assert one({**TABLE, "topics": "a,b", "table.name.format": "both"}).name == "p"


@pytest.mark.parametrize(
    ("more", "table"),
    [
        ({"topics": "orders-eu"}, "orders-eu"),
        ({"topics": "orders-eu", "table.name.normalize": "true"}, "orders_eu"),
        ({"topics": "a", "table.name.format": 'public."${topic}.eu"'}, 'public."a.eu"'),
        ({"topics": "a", "table.name.format": "Order Lines"}, "Order Lines"),
    ],
)
def test_a_table_keeps_its_name_whatever_is_in_it(more, table):
    assert one({**TABLE, **more}).pipeline["sink"]["jdbc"]["table"] == table


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"connection.url": "jdbc:oracle:thin:scott/s3cr3t@db:1521:x"}, "oracle"),
        ({"pk.mode": "record_value"}, "name them in pk.fields"),
        ({"topics": "a.b-c.d"}, "would be called a.b-c.d"),
        ({"topics": "", "topics.regex": "a.*"}, "Each topic"),
        ({"insert.mode": "upsert"}, "needs pk_mode"),
        ({"value.converter": "x.Y"}, "no converter here"),
        ({"value.converter": ""}, "by --worker"),
        ({"topics": "${file:/etc/kafka:topics}"}, "config provider"),
        ({"topics": ""}, "names no topics"),
    ],
)
def test_what_no_table_can_be_made_of_says_why(more, why):
    made = one({**TABLE, **more})
    assert made.status == 1
    assert why in made.refused
    assert set(verdicts(made)) == {*TABLE, *more}
    assert "s3cr3t" not in json.dumps(as_data(made, None))


def test_hdfs_files_by_time():
    made = one(
        {
            **FOLDER,
            "format.class": "io.confluent.connect.hdfs3.parquet.ParquetFormat",
            "parquet.codec": "gzip",
            "partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
            "path.format": "'year'=YYYY/'month'=MM",
            "partition.duration.ms": "3600000",
            "locale": "en-US",
            "timezone": "Europe/Berlin",
            "timestamp.extractor": "RecordField",
            "timestamp.field": "at",
            "rotate.interval.ms": "-1",
            "rotate.schedule.interval.ms": "600000",
            "hive.integration": "true",
            "hive.metastore.uris": "thrift://m:9083",
            "hive.database": "x",
            "schema.compatibility": "BACKWARD",
        }
    )
    assert made.pipeline is not None
    assert made.pipeline["schedule"] == "10 minutes"
    assert made.pipeline["sink"]["files"] == {
        "path": "hdfs://namenode:8020/p",
        "topics_dir": "topics",
        "layout": "connect",
        "format": "parquet",
        "partitioner": "time",
        "path_format": "'year'=YYYY/'month'=MM",
        "partition_duration": "1 hour",
        "timezone": "Europe/Berlin",
        "locale": "en-US",
        "timestamp_extractor": "record_field",
        "timestamp_field": "at",
        "codec": "gzip",
        "schema_compatibility": "backward",
        "max_rows_per_file": 1000,
    }
    assert made.missing == (("sink", "files", "schema"),)
    assert any("sluice infer p.yaml --write" in step for step in made.steps)
    assert made.pipeline["catalog_sync"] == {"hive": {"uris": "thrift://m:9083", "database": "x", "table": "flights"}}
    assert {key for key, verdict in verdicts(made).items() if verdict == "differs"} == {"hdfs.url", "hive.integration"}
    assert "not honoured" not in verdicts(made).values()
    assert made.status == 2


def test_a_path_format_that_would_mix_times_up_is_refused_by_the_file_itself():
    made = one(
        {
            **FOLDER,
            "partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
            "path.format": "YYYY/ww",
            "partition.duration.ms": "3600000",
        }
    )
    assert made.status == 1
    assert "path_format" in made.refused or "xxxx" in made.refused


def test_s3_is_files_in_the_bucket_or_elsewhere():
    config = {
        "connector.class": S3,
        "topics": "a",
        "s3.bucket.name": "lake",
        "flush.size": "10",
        "storage.class": "S3Storage",
        "format.class": "io.confluent.connect.s3.format.json.JsonFormat",
        "s3.compression.type": "gzip",
        "aws.secret.access.key": "s3cr3t",
        "aws.access.key.id": "s3cr3t",
        **JSON,
    }
    made = one(config, path="hdfs:///lake")
    assert made.pipeline is not None
    assert made.pipeline["sink"]["files"]["codec"] == "gzip"
    assert made.pipeline["sink"]["files"]["path"] == "hdfs:///lake/p"
    assert "s3cr3t" not in json.dumps(as_data(made, None))
    on_s3 = one(config)
    assert on_s3.pipeline is not None
    assert on_s3.pipeline["sink"]["files"]["path"] == "s3a://lake/p"
    assert one({k: v for k, v in config.items() if k != "format.class"}, path="/lake").status == 1


def test_hudis_own_sink_goes_on_where_rows_are_only_added():
    config = {
        "connector.class": HUDI,
        "topics": "t",
        "hoodie.table.name": "t",
        "hoodie.base.path": "file:///lake/t",
        "hoodie.datasource.write.recordkey.field": "volume",
        "hoodie.datasource.write.partitionpath.field": "date",
        "hoodie.kafka.commit.interval.secs": "60",
        "hoodie.table.type": "COPY_ON_WRITE",
        "value.converter": f"{KAFKAS}.storage.StringConverter",
    }
    made = one(config)
    assert made.pipeline is not None
    assert made.pipeline["sink"]["hudi"] == {
        "path": "file:///lake/t",
        "operation": "append",
        "table": "t",
        "partition_fields": ["date"],
    }
    assert (made.pipeline["schedule"], made.status) == ("1 minute", 0)
    assert made.pipeline["source"]["kafka"]["value"] == {"converter": "json"}
    upsert = one({**config, "hoodie.table.type": "MERGE_ON_READ"})
    assert upsert.pipeline is not None
    assert upsert.pipeline["sink"]["hudi"]["path"] == "file:///lake/t_sluice"
    assert said(upsert, "hoodie.base.path").verdict == "differs"


def test_debeziums_sink_takes_events_as_they_are():
    config = {
        "connector.class": DEBEZIUM,
        "topics": "shop.public.orders",
        "connection.url": "jdbc:postgresql://db/lake",
        "connection.username": "x",
        "connection.password": "s3cr3t",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "primary.key.fields": "id",
        "schema.evolution": "basic",
        "key.converter": AVRO["value.converter"],
        "key.converter.schema.registry.url": "http://registry:8081",
        **AVRO,
    }
    made = one(config)
    assert made.pipeline is not None
    assert made.pipeline["changes"] == {"format": "debezium"}
    assert made.pipeline["sink"]["jdbc"]["table"] == "shop_public_orders"
    assert made.pipeline["sink"]["jdbc"]["auto_evolve"] is True
    assert one({**config, "delete.enabled": "false"}).status == 1


@pytest.mark.parametrize("name", [*REFUSED, "com.example.Sink", ""])
def test_other_connectors_are_refused_by_name_with_all_of_their_keys(name):
    made = one({"connector.class": name, "topics": "a", "some.key": "s3cr3t"})
    assert made.status == 1
    assert set(verdicts(made)) == {"connector.class", "topics", "some.key"}
    assert "s3cr3t" not in json.dumps(as_data(made, None))


def test_what_connect_does_with_bad_records_is_honoured_where_the_sink_can():
    errors = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dlq"}
    for config in (TABLE, FOLDER):
        made = one({**config, **errors})
        assert made.pipeline is not None
        assert made.pipeline["errors"] == {"tolerance": "all", "dead_letter_topic": "dlq"}
    on_s3 = one({**FOLDER, "store.url": "s3a://lake", **errors})
    assert on_s3.pipeline is not None
    assert on_s3.pipeline["errors"] == {"tolerance": "all", "dead_letter_topic": "dlq"}
    hudi = one({"connector.class": HUDI, "topics": "t", "hoodie.base.path": "/lake/t", **AVRO, **errors})
    assert hudi.pipeline is not None
    assert hudi.pipeline["errors"] == {"tolerance": "all", "dead_letter_topic": "dlq"}


# Converters and clients


def test_the_workers_converters_count_where_the_connector_names_none():
    worker = {
        "bootstrap.servers": "b:9092",
        "group.id": "workers",
        "value.converter": f"{KAFKAS}.json.JsonConverter",
        "consumer.isolation.level": "read_committed",
        "consumer.max.poll.records": "10",
        "plugin.path": "/x",
    }
    bare = {key: value for key, value in TABLE.items() if not key.startswith("value.converter")}
    made = one(bare, worker=worker)
    assert made.pipeline is not None
    kafka = made.pipeline["source"]["kafka"]
    envelope = {"schemas.enable": True, "replace.null.with.default": True}  # Connect's own defaults
    assert kafka["value"] == {"converter": "json", "options": envelope}
    assert kafka["isolation_level"] == "read_committed"
    assert made.pipeline["write"]["kafka_options"] == {"max.poll.records": "10"}
    assert {found.key for found in made.findings if found.of == "worker"} == set(worker)
    assert made.connections[-1].extra == {"bootstrap.servers": "b:9092"}
    own = one(TABLE, worker=worker)
    assert own.pipeline is not None
    assert own.pipeline["source"]["kafka"]["value"]["converter"] == "avro"


def test_consumers_read_uncommitted_unless_they_are_told_otherwise():
    made = one(TABLE)
    assert made.pipeline is not None
    assert made.pipeline["source"]["kafka"]["isolation_level"] == "read_uncommitted"


def test_the_group_is_connects_unless_it_is_overridden():
    assert one(TABLE, name="x y").group == "connect-x y"
    assert one({**TABLE, "consumer.override.group.id": "own"}).group == "own"


def test_settings_without_their_converter_are_ignored_as_connect_does_it():
    bare = {key: value for key, value in FOLDER.items() if key != "value.converter"}
    made = one(bare, worker={"value.converter": JSON["value.converter"]})
    assert made.pipeline is not None
    envelope = {"schemas.enable": True, "replace.null.with.default": True}
    assert made.pipeline["source"]["kafka"]["value"]["options"] == envelope
    assert verdicts(made)["value.converter.schemas.enable"] == "harmless"


def test_a_name_leads_out_of_no_folder():
    made = one(FOLDER, name="../..")
    assert made.pipeline is not None
    assert made.pipeline["sink"]["files"]["path"] == "hdfs://namenode:8020/_"


# Whatever the configuration

_VALUES = (
    "",
    "true",
    "false",
    "all",
    "0",
    "-1",
    "7",
    "a",
    "a,b",
    "a:b",
    "a,b,id",
    "${file:/x:y}",
    "[",
    "(",
    "x.Y",
    "record_key",
    "upsert",
    "kafka",
    "hdfs://h/x",
    "s3a://b",
    "file:///x",
    "http://[",
    "topic: &x",
    "2\n- 3",
    f"{SMT}.Cast$Value",
    f"{SMT}.Filter",
    f"{SMT}.ValueToKey",
    f"{SMT}.ExtractField$Key",
    f"{SMT}.MaskField$Value",
    "FieldPartitioner",
    "TimeBasedPartitioner",
    "JsonFormat",
    f"{KAFKAS}.json.JsonConverter",
    f"{KAFKAS}.storage.StringConverter",
    AVRO["value.converter"],
)
_POOL = st.dictionaries(
    st.sampled_from(
        sorted(
            {key.replace("*", "x") for known in CONNECTORS.values() for key in known.keys}
            | {
                *TABLE,
                *FOLDER,
                "predicates",
                "predicates.p.type",
                "key.converter",
                "key.converter.schemas.enable",
                "x.y",
            }
            | {
                "transforms.a.type",
                "transforms.b.type",
                "transforms.a.field",
                "transforms.a.predicate",
                "pk.mode",
                "pk.fields",
            }
            | {
                "delete.enabled",
                "format.class",
                "partitioner.class",
                "table.name.format",
                "topics.regex",
                "errors.tolerance",
            }
            | {
                "schema.compatibility",
                "timestamp.extractor",
                "path.format",
                "s3.bucket.name",
                "store.url",
                "hoodie.base.path",
            }
            | {
                "iceberg.tables",
                "iceberg.tables.route-field",
                "iceberg.tables.default-id-columns",
                "iceberg.tables.default-partition-by",
                "iceberg.tables.upsert-mode-enabled",
                "iceberg.table.x.id-columns",
            }
            | {
                "consumer.override.ssl.truststore.location",
                "consumer.override.foo",
                "consumer.override.auto.offset.reset",
            }
        )
    ),
    st.sampled_from(_VALUES),
    max_size=8,
)
_WHOLE = {
    **TABLE,
    **FOLDER,
    "s3.bucket.name": "lake",
    "hoodie.base.path": "/lake/t",
    "format.class": "x.JsonFormat",
    "insert.mode": "upsert",
    "delete.enabled": "true",
    "pk.mode": "record_key",
    "pk.fields": "id",
    "primary.key.mode": "record_key",
    "primary.key.fields": "id",
    "key.converter": JSON["value.converter"],
    "iceberg.tables": "db.a,db.b",
    "iceberg.catalog.warehouse": "s3://lake/warehouse",
}
_SECRETS = (
    "iceberg.catalog.credential",
    "iceberg.catalog.s3.secret-access-key",
    "iceberg.kafka.sasl.jaas.config",
    "connection.password",
    "value.converter.basic.auth.user.info",
    "value.converter.schema.registry.basic.auth.user.info",
    "aws.secret.access.key",
    "aws.access.key.id",
    "confluent.license",
    "consumer.override.sasl.jaas.config",
    "consumer.override.ssl.keystore.password",
    "consumer.override.ssl.keystore.key",
    "producer.override.sasl.jaas.config",
    "value.converter.bearer.auth.token",
    "s3.sse.customer.key",
    "consumer.override.sasl.oauthbearer.client.secret",
    "value.converter.schema.registry.ssl.key.password",
    "connection.oracle.wallet",
    "something.unknown",
)
_WORKER = {
    "bootstrap.servers": "b:1",
    "value.converter": f"{KAFKAS}.json.JsonConverter",
    "offset.storage.topic": "x",
    "consumer.sasl.jaas.config": "s3cr3t",
    "ssl.keystore.password": "s3cr3t",
}


@given(
    st.sampled_from([*CONNECTORS, *REFUSED, "x.Y"]),
    st.booleans(),
    _POOL,
    st.sets(st.sampled_from(_SECRETS)),
    st.booleans(),
    st.sampled_from(["", "a", "a,b"]),
)
@settings(max_examples=200, deadline=None)
def test_no_key_goes_unnamed_no_secret_shows_and_what_is_made_loads(name, whole, more, secrets, has_worker, steps):
    config = {
        **(_WHOLE if whole else {}),
        **more,
        "connector.class": name,
        **dict.fromkeys(secrets, "s3cr3t-9"),
        "transforms": steps,
    }
    config["connection.url"] = "jdbc:postgresql://u:s3cr3t-1@db/lake?password=s3cr3t-2&sslpassword=s3cr3t-3"
    config["value.converter.schema.registry.url"] = "http://u:s3cr3t-4@registry:8081"
    worker = _WORKER if has_worker else {}
    for made in map(checked, imported(ConnectorConfig("p", config), ImportOptions(worker))):
        assert {found.key for found in made.findings if found.of == "connector"} == set(config)
        if made.pipeline is not None:
            assert {found.key for found in made.findings if found.of == "worker"} == set(worker)
        assert all(found.what and (found.next_step or found.verdict != "differs") for found in made.findings)
        assert bool(made.refused) == (made.pipeline is None) == (made.status == 1)
        shown = json.dumps(as_data(made, None)) + repr(made)
        assert "s3cr3t" not in shown


@pytest.mark.parametrize("base", [TABLE, FOLDER, {**FOLDER, "connector.class": S3, "s3.bucket.name": "b"}])
def test_every_secret_of_a_connector_that_becomes_a_file_is_left_out(base):
    config = {**base, "format.class": "x.AvroFormat", **AVRO, **dict.fromkeys(_SECRETS, "s3cr3t-9")}
    config["value.converter.schema.registry.url"] = "http://u:s3cr3t-4@registry:8081"
    worker = {"consumer.sasl.jaas.config": "s3cr3t", "consumer.ssl.truststore.password": "s3cr3t"}
    made = one(config, worker=worker)
    assert made.pipeline is not None
    assert set(verdicts(made)) == set(config)
    assert "s3cr3t" not in json.dumps(as_data(made, None)) + repr(made)


# The command


def test_the_command_writes_files_that_load_and_its_status_says_how_much_is_honoured(tmp_path):
    def run(config, *options):
        file = tmp_path / "c.json"
        file.write_text(json.dumps({"name": "orders", "config": config}))
        return CliRunner().invoke(app, ["import-connect", str(file), *options])

    out = tmp_path / "out"
    done = run(TABLE, "--out", str(out))
    assert done.exit_code == 0, done.output
    (pipeline,) = load_pipelines(out / "orders.yaml")
    assert pipeline.sink.place == "sink.jdbc"
    again = run(TABLE, "--out", str(out))
    assert isinstance(again.exception, ActionRequiredError)  # nobody's work is written over
    assert run({**TABLE, "unknown": "1"}).exit_code == 2
    assert run({**TABLE, "connector.class": "x"}).exit_code == 1
    printed = run(TABLE)
    assert yaml.safe_load(printed.stdout)["name"] == "orders"
    told = json.loads(run({**TABLE, "unknown": "1"}, "--json").stdout)["connectors"][0]
    assert (told["status"], told["pipeline"]) == (2, "orders")
    assert next(k for k in told["keys"] if k["key"] == "unknown")["verdict"] == "not honoured"


def test_a_name_of_several_lines_stays_in_the_comment():
    made = one(TABLE, name="a\nsink: {}")
    assert yaml.safe_load(text_of(made))["name"] == "a_sink_"


def test_a_file_that_is_not_there_is_one_clear_error(tmp_path: Path):
    done = CliRunner().invoke(app, ["import-connect", str(tmp_path / "none.json")])
    assert isinstance(done.exception, ActionRequiredError)
