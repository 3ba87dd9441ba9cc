"""The parsers of what users, other programs, brokers, registries and lakes hand to Sluice.

Each gives what it documents, an error of Sluice's or a bad value, and never another exception.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic import TypeAdapter, ValidationError

from sluice.airflow.timetables import timetable
from sluice.airflow.trigger_form import request_of
from sluice.cli.inspect import _offsets
from sluice.cli.set_aside import place_from
from sluice.connect import ConnectorConfig, ImportOptions, checked, configs_of, imported, properties_of, text_of
from sluice.connect.source_offsets import position_in, starting, stored
from sluice.connectors.connections import ConnectionSettings
from sluice.databases.connection import address_of
from sluice.databases.dialect import parts_of_type
from sluice.databases.mariadb.client import pymysql
from sluice.databases.postgresql.client import libpq
from sluice.errors import ActionRequiredError, IntervalError, PipelineFileError, SluiceError
from sluice.kafka.addresses import addresses, in_words, own_hosts
from sluice.kafka.config import KafkaSettings
from sluice.kafka.tokens import Token, require_jwt
from sluice.packed import unpack
from sluice.pipeline.edit import with_value
from sluice.pipeline.load import load_pipeline, load_pipelines
from sluice.protocol.committable import Committable
from sluice.protocol.mapping import Stream, mapping_of
from sluice.protocol.notes import SignedNotes, note_of
from sluice.protocol.offsets import OFFSETS_KEY, RFC32_KEY, STREAMER_V1_KEY, Checkpoint, read_checkpoint
from sluice.protocol.request import Request
from sluice.records.csv import break_outside_quotes, separator
from sluice.records.json_schema import JsonSchemaError, json_type
from sluice.records.plain import plain_ddl, plain_struct
from sluice.redact import redact, redact_text
from sluice.schemas.registry.config import RegistrySettings
from sluice.schemas.registry.proto_files import ProtobufSchemaError, files_of_descriptors
from sluice.schemas.registry.protobuf import read_message
from sluice.sections import Duration, Expanded, Options, TablePath
from sluice.sinks.files.log import IntervalLog, Record
from sluice.sinks.files.options.names import files_of
from sluice.sinks.files.options.path_format import Texts
from sluice.sinks.files.options.path_format import parse as parse_path_format
from sluice.sinks.files.takeover import next_offsets
from sluice.sinks.hudi.timeline import _decode, _facts, _parse
from sluice.sinks.kafka.log import Commit, Open, TableLog
from sluice.sinks.kafka.staged import Staged
from sluice.sources.kafka.metadata import WrittenMapping
from sluice.yaml_text import Bounds, YamlTextError, composed, constructed

from .hostile import as_json, as_yaml, changed, documents, edited, edited_bytes, texts, values
from .subject import Subject, ViolationError

PROJECT = Path(__file__).parents[2]
PASSWORD = "hunter2-never-to-be-seen"
"""Where a configuration has a secret; no text that is made of one may hold it."""


def _only(
    *expected: type[Exception], never: str = PASSWORD
) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """A check that may raise these errors, whose texts hold no secret."""

    def wrap(check: Callable[[Any], None]) -> Callable[[Any], None]:
        def judged(example: Any) -> None:
            try:
                check(example)
            except expected as error:
                if never in str(error):
                    raise ViolationError(f"the error holds a secret: {error}") from error
                if isinstance(error, SluiceError) and not (error.what and error.next_step):
                    raise ViolationError(f"the error says nothing of what or of the next step: {error}") from error

        return judged

    return wrap


# Pipeline files ------------------------------------------------------------------------------------

_SCHEMA = json.loads((PROJECT / "docs" / "pipeline.schema.json").read_text())


def _names(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_names, schema), set())
    if not isinstance(schema, dict):
        return set()
    own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return own.union(*map(_names, schema.values()), set())


_KEYS = tuple(sorted(_names(_SCHEMA)))
PIPELINES: tuple[Any, ...] = (
    *(yaml.safe_load(file.read_text()) for file in sorted((PROJECT / "dags" / "pipelines").glob("*.yaml"))),
    {
        "name": "orders",
        "schedule": "5 minutes",
        "timezone": "Europe/Berlin",
        "start_date": "2026-01-01",
        "description": "d",
        "source": {
            "kafka": {
                "connection": "kafka_default",
                "topics_pattern": "orders-.*",
                "starting_offsets": {"orders-1": {0: 5}},
                "value": {"converter": "avro", "schema_file": "x.avsc"},
                "key": {"converter": "string", "as": "id"},
                "columns": {"at": "offset"},
                "max_records": 1000,
                "until": "latest",
            }
        },
        "sink": {
            "jdbc": {
                "connection": "warehouse",
                "table": "shop.orders",
                "schema": "id BIGINT, t TIMESTAMP",
                "insert_mode": "upsert",
                "pk_fields": "id",
            }
        },
        "errors": {"tolerance": "all", "quarantine": "jdbc://warehouse/bad"},
        "control": {"topic": "control"},
        "alerts": {"on_failure": [{"notifier": "a.b:C", "arguments": {"url": "https://x/y"}}], "max_lag": "1 hour"},
    },
    {
        "name": "visits",
        "source": {
            "jdbc": {
                "connection": "shop",
                "tables": ["public.a", "public.b"],
                "mode": "timestamp",
                "timestamp_column": "changed",
            }
        },
        "sink": {"kafka": {"connection": "kafka_default", "topic": "t", "staging": "/staging", "key_fields": "id"}},
    },
    {
        "name": "files",
        "source": {
            "kafka": {
                "topics": ["a"],
                "value": {"converter": "json", "schema": "id BIGINT, d STRING"},
                "transforms": [{"select": ["id"]}, {"filter": "id > 0"}],
            }
        },
        "sink": {
            "files": {
                "path": "s3a://bucket/x",
                "format": "parquet",
                "schema": "id BIGINT",
                "layout": "connect",
                "path_format": "'year'=YYYY/'month'=MM",
                "partition_duration": "1 hour",
            }
        },
    },
    {
        "name": "several",
        "source": {"kafka": {"topics": "a", "value": {"converter": "json", "schema": "kind STRING, id BIGINT"}}},
        "routes": {
            "by": "kind",
            "tables": {
                "x": {"sink": {"hudi": {"path": "/x", "schema": "id BIGINT"}}},
                "y": {"sink": {"hudi": {"path": "/y", "schema": "id BIGINT"}}},
            },
        },
        "sink": {"hudi": {"table_type": "MERGE_ON_READ", "options": {"hoodie.x": 1}}},
    },
    {
        "name": "streams",
        "source": {
            "kafka": {"streams": ["s"], "metadata": {"service": "file", "path": "/x.yaml"}, "mapped_connections": ["k"]}
        },
        "sink": {
            "hudi": {
                "path": "/x",
                "schema": "id BIGINT",
                "partition_fields": ["id"],
                "operation": "upsert",
                "record_key": "id",
            }
        },
        "write": {"ranges": 4, "workers": "default", "conf": {"spark.x": "1"}},
        "table_services": {"clustering": {"every": 3}},
    },
)
"""Real pipeline files' contents, with all kinds of sources and sinks."""


@_only(PipelineFileError)
def _pipeline_file(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "p.yaml"
        file.write_bytes(content)
        with suppress(PipelineFileError):
            load_pipeline(file)
        for pipeline in load_pipelines(file):
            timetable(pipeline)


@_only(YamlTextError)
def _yaml(content: bytes) -> None:
    with suppress(UnicodeDecodeError):
        constructed(composed(content.decode(), Bounds(1024 * 1024, 50_000)))


@_only(ValueError, yaml.YAMLError)
def _edited_file(example: tuple[bytes, list[str], str]) -> None:
    content, keys, value = example
    text = content.decode(errors="replace")
    with_value(text, keys, value)


# What the lake and the topics keep -----------------------------------------------------------------


def _checkpoints() -> list[dict[str, str]]:
    whole = {
        "clusters": {
            "kafka": {
                "cluster_id": "c1",
                "topics": {
                    "t": {"topic_id": "i", "partitions": {"0": 5, "1": 9}, "covered": {"0": [[0, 5]]}, "era": 1}
                },
            }
        }
    }
    return [
        {OFFSETS_KEY: json.dumps(whole)},
        {RFC32_KEY: "0=5,1=7"},
        {STREAMER_V1_KEY: "t,0:5,1:7"},
        {OFFSETS_KEY: Checkpoint().model_dump_json()},
    ]


@_only(ActionRequiredError)
def _checkpoint(metadata: Any) -> None:
    found = read_checkpoint({str(k): v for k, v in metadata.items()}, "kafka", ["t"])
    found.to_metadata()


@st.composite
def _kept_texts(draw: st.DrawFn) -> dict[str, str]:
    metadata = dict(draw(st.sampled_from(_checkpoints())))
    for name, text in metadata.items():
        how = draw(st.sampled_from(["edit", "json", "text"]))
        if how == "json" and text.startswith("{"):
            metadata[name] = as_json(draw(changed([json.loads(text)]))).decode()
        elif how == "text":
            metadata[name] = draw(texts)
        else:
            metadata[name] = draw(edited(text))
    return metadata


_ENTRY = {
    "version": 1,
    "transaction": "20260101000000000",
    "layout": "connect",
    "format": "parquet",
    "schema": "id BIGINT",
    "rows": 5,
    "extra": {"sluice.offsets": "{}", "sluice.transaction": "{}"},
    "files": [{"staged": "_sluice/20260101000000000/a/x", "path": "topics/t/x", "bytes": 10, "checksum": "crc:1"}],
}
_LOGS = ("_sluice/log/0000000001.json", "_sluice/log/0000000002.json")


class _Folder:
    """A table's folder with some entries of its log."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def size(self, path: str) -> int | None:
        return len(self._files[path]) if path in self._files else None

    def read(self, path: str) -> bytes:
        return self._files[path]


@_only(ActionRequiredError)
def _file_log(entries: list[bytes]) -> None:
    log = IntervalLog(_Folder(dict(zip(_LOGS, entries, strict=False))))
    for _, record in log.newest_first():
        with suppress(ActionRequiredError):
            read_checkpoint(record.extra, "kafka", ["t"])
        Record.of_json(record.to_json(), "x")
    log.find("20260101000000000")


@_only(IntervalError)
def _committables(example: tuple[Any, str]) -> None:
    sent, layout = example
    try:
        found = Committable.of_wire(sent)
    except ValueError:  # which readers of messages take for no message
        return
    if layout == "topic":
        staged = Staged(Path(), "20260101000000000", [found], "_sluice.t")  # type: ignore[arg-type]
        assert staged.way is not None
        assert staged.smallest is not None
    else:
        files_of([found], "20260101000000000", "topics", layout)  # type: ignore[arg-type]


_LAYOUTS = ["connect", "interval", "topic"]  # of files, and a topic's
_PAYLOADS = (
    {
        "numWrites": 5,
        "numDeletes": 0,
        "totalWriteErrors": 0,
        "totalWriteBytes": 10,
        "path": "x",
        "partitionPath": "",
        "payload": {
            "layout": "connect",
            "files": [
                {"staged": "_sluice/20260101000000000/a/x", "path": "topics/t/x", "bytes": 10, "checksum": "crc:1"}
            ],
        },
    },
    {
        "numWrites": 5,
        "path": "20260101000000000/a",
        "payload": {"files": [["part-0.parquet", 10, "crc:1"]], "way": "w", "smallest": 1000},
    },
    {"fileId": "x-0", "path": "p/x-0_0-0-0_20260101000000000.parquet", "partitionPath": "p", "numWrites": 5},
)


@_only(ActionRequiredError)
def _left_files(names: list[str]) -> None:
    next_offsets(names, "t", "/folder")


_SECRETS = {"sluice.control.secret": f"{PASSWORD}-control"}
_OPEN_NOTE = {"version": 1, "instant": "20260101000000000", "rests_on": None}
_COMMIT_NOTE = {
    "version": 1,
    "number": 1,
    "instant": "20260101000000000",
    "completed": "20260101000000500",
    "records": 5,
    "tombstones": 0,
    "bytes": 50,
    "extra": {OFFSETS_KEY: "{}"},
    "topics": {"t": 5},
    "spans": {"t": [[0, 0, 5]]},
    "written": "w",
    "since": 1,
    "targets": {"t": ["id", 3]},
}
assert Open("i", None)
assert Commit(1, "i", "c", 0, 0, 0, {})


@_only(ActionRequiredError)
def _topic_log(example: tuple[bool, list[tuple[bytes, bytes | None]]]) -> None:
    signed, records = example
    settings = KafkaSettings("kafka", {"bootstrap.servers": "localhost:1", **(_SECRETS if signed else {})})
    log = TableLog(settings, "_sluice.t")
    log._notes = SignedNotes("_sluice.t", settings.control_secrets, log._tell, lambda _: "id")  # no broker is asked
    for offset, (key, value) in enumerate(records):
        with suppress(ActionRequiredError):
            log._take(offset, key, value, ())
    if log.last is not None:
        with suppress(ActionRequiredError):
            read_checkpoint(log.last.extra, "kafka", ["t"])
    for one in log.commits:
        log.find(one.instant)
        log.record_of_commit(one)
        for found in one.spans.get("t", ()):
            _, start, end = found
            max(start, end)
    log.since("w")
    log.is_open("20260101000000000")
    log._require_last_commit()


_log_records = st.lists(
    st.tuples(
        st.one_of(
            st.sampled_from([b"open:20260101000000000", b"commit:1", b"commit:2", b"commit:", b"", b"\xff"]),
            st.binary(max_size=10),
        ),
        st.one_of(st.none(), documents([_OPEN_NOTE, _COMMIT_NOTE], as_json)),
    ),
    min_size=1,
    max_size=4,
)


@_only()
def _notes(content: bytes) -> None:
    from sluice.kafka.sent_letters import _Note as Letters
    from sluice.sources.kafka.redriven import _Note as Places

    for kind in (Letters, Places):
        note_of(kind, content)


@_only(ValueError)
def _packed(content: bytes) -> None:
    unpack(content)


def _timeline_names(names: list[str]) -> None:
    for name in names:
        _parse({"name": f"x/{name}", "mtime": 1.0})


@_only(ActionRequiredError)
def _commit_metadata(content: bytes) -> None:
    _facts(_decode(content, "x.commit"))


_METADATA = {
    "operationType": "INSERT",
    "extraMetadata": {"sluice.offsets": "{}", "schema": "{}"},
    "partitionToWriteStats": {"p": [{"path": "p/x.parquet", "numWrites": 5, "totalWriteBytes": 10}]},
}

# Streams and moves ---------------------------------------------------------------------------------


class _Mapping(WrittenMapping):
    def __init__(self, content: str) -> None:
        super().__init__({"file": "/x.yaml"})
        self._content = content

    def text(self) -> str:
        return self._content


_MAPPINGS = (
    {
        "streams": {
            "orders": {
                "clusters": {
                    "east": {
                        "topics": ["orders"],
                        "connection": "k",
                        "bootstrap_servers": "h:1",
                        "starting_offsets": {"orders": {0: 5}},
                        "moved_from": {"cluster": "west", "topics": {"orders": "old"}, "drain_for": "1 hour"},
                    }
                },
                "registry": "r",
                "starting_offsets": "earliest",
            }
        },
        "inactive": ["east"],
    },
    [{"streamId": "s", "clusterMetadataList": [{"clusterId": "c", "bootstrapServers": "h:1", "topics": ["t"]}]}],
)


@_only(ActionRequiredError)
def _mapping(content: bytes) -> None:
    service = _Mapping(content.decode(errors="replace"))
    found: Mapping[str, Stream] = service.all_streams()
    service.is_cluster_active("east")
    service.describe_streams(["orders"])
    digest = mapping_of(found, connection="k", starting="earliest", table="t").digest
    if len(digest) != 64:
        raise ViolationError("no digest")


@_only(ActionRequiredError)
def _connect_offsets(records: list[tuple[bytes | None, bytes | None]]) -> None:
    found = stored("c", records)
    for table in ("shop.orders", None):
        at = position_in(found, table)
        if at is not None:
            for mode in ("bulk", "incrementing", "timestamp", "timestamp+incrementing"):
                starting(mode, "t", "id", at, 1000)


_OFFSET_KEYS = (
    ["c", {"table": "orders"}],
    ["c", {"protocol": "1", "table": "shop.public.orders"}],
    ["c", {"query": "query"}],
)
_OFFSET_VALUES = ({"incrementing": 5, "timestamp": 1700000000000, "timestamp_nanos": 5000},)


@_only(ValueError, TypeError)  # which its caller takes for no pair of offsets
def _mirror(example: tuple[bytes, bytes]) -> None:
    import struct

    from sluice.sources.kafka.mirror import _parsed

    class _Record:
        def key(self) -> bytes:
            return example[0]

        def value(self) -> bytes:
            return example[1]

    with suppress(struct.error):
        _parsed(_Record())  # type: ignore[arg-type]


# Schemas -------------------------------------------------------------------------------------------

_JSON_SCHEMAS = (
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "connect.type": "int64", "connect.index": 0},
            "d": {
                "type": "string",
                "title": "org.apache.kafka.connect.data.Decimal",
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
            },
            "l": {"type": "array", "items": {"$ref": "#/definitions/x"}},
            "m": {"type": "object", "additionalProperties": {"type": "number"}},
            "o": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}]},
            "a": {"allOf": [{"$ref": "other.json#/definitions/y"}, {"properties": {"z": {"const": 5}}}]},
        },
        "definitions": {"x": {"type": "object", "properties": {"n": {"type": ["null", "integer"]}}}},
    },
    {"$ref": "#/definitions/x", "definitions": {"x": {"$ref": "#/definitions/y"}, "y": {"enum": [1, "a", None]}}},
)
_OTHER_SCHEMA = '{"definitions": {"y": {"type": "object", "properties": {"q": {"type": "boolean"}}}}}'


def ladder(steps: int, width: int) -> bytes:
    """A JSON Schema each of whose types refers to the next several times: its columns are a power of its length."""
    types = {
        f"t{i}": {"type": "object", "properties": {f"f{j}": {"$ref": f"#/definitions/t{i + 1}"} for j in range(width)}}
        for i in range(steps)
    }
    return as_json({"$ref": "#/definitions/t0", "definitions": {**types, f"t{steps}": {"type": "integer"}}})


@_only(JsonSchemaError)
def _json_schema(content: bytes) -> None:
    json_type(content.decode(errors="replace"), {"other.json": _OTHER_SCHEMA})


def _descriptor_set() -> bytes:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="id", number=1, type=kinds.TYPE_UINT64, label=kinds.LABEL_OPTIONAL)
    message.field.add(
        name="line", number=2, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.Line", label=kinds.LABEL_REPEATED
    )
    message.field.add(name="kind", number=3, type=kinds.TYPE_ENUM, type_name=".shop.Kind", label=kinds.LABEL_OPTIONAL)
    message.nested_type.add(name="Line").field.add(
        name="n", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL
    )
    file.enum_type.add(name="Kind").value.add(name="A", number=0)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def proto_ladder(steps: int, width: int) -> bytes:
    """A descriptor set each of whose messages holds the next several times."""
    from google.protobuf import descriptor_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    for i in range(steps):
        message = file.message_type.add(name=f"M{i}")
        for j in range(width):
            message.field.add(
                name=f"f{j}", number=j + 1, type=kinds.TYPE_MESSAGE, type_name=f".M{i + 1}", label=kinds.LABEL_OPTIONAL
            )
    file.message_type.add(name=f"M{steps}").field.add(
        name="n", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL
    )
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


@_only(ProtobufSchemaError)
def _descriptors(content: bytes) -> None:
    read_message(files_of_descriptors(content, None), None)


@_only(ValueError)
def _ddl(text: str) -> None:
    found = plain_struct(text)
    if found is not None:
        plain_ddl(found)
    parts_of_type(text)


# Texts and addresses -------------------------------------------------------------------------------

_SECTIONS = tuple(TypeAdapter(kind) for kind in (Duration, Expanded, TablePath, Options))


@_only()
def _sections(value: Any) -> None:
    for one in _SECTIONS:
        with suppress(ValidationError):
            one.validate_python(value)


@_only(ActionRequiredError)
def _kafka(example: tuple[Any, str, str]) -> None:
    extra, servers, host = example
    found = addresses(servers)
    if found is not None and addresses(in_words(found)) != found:
        raise ViolationError("the list that clients are given is another one than was checked")
    own_hosts(servers)
    settings = KafkaSettings("kafka", extra)
    settings.at("east", servers).client()
    settings.at("east", host)
    with suppress(ActionRequiredError):
        settings.java({})
    for text in (repr(settings), str(settings)):
        if PASSWORD in text:
            raise ViolationError("its text holds a secret")
    _ = settings.control_secrets


_EXTRAS = (
    {
        "bootstrap.servers": "a:9092,[::1]:9093",
        "sasl.username": "u",
        "sasl.password": PASSWORD,
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "PLAIN",
        "sluice.bootstrap.hosts": ".example.com",
        "sluice.control.secret": f"{PASSWORD}-control",
    },
    {
        "bootstrap.servers": "a:9092",
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----",
        "java": {"client.rack": "y"},
    },
)


@_only(ActionRequiredError)
def _database(example: tuple[str, str, Any, Any, str, str]) -> None:
    kind, host, port, extra, database, login = example
    connection = ConnectionSettings("warehouse", kind, host, port, database, login, PASSWORD, extra)
    address = address_of(connection)
    for text in (repr(address), repr(connection), address.hidden(f"could not log in with {PASSWORD} at {address.url}")):
        if PASSWORD in text:
            raise ViolationError("its text holds a secret")
    if address.url.startswith("jdbc:postgresql:"):
        libpq(address)
    if address.url.startswith("jdbc:mariadb:"):
        pymysql(address)


_URLS = (
    "jdbc:postgresql://h:5432/d?ssl=true&currentSchema=x",
    "jdbc:postgresql://a:1,b:2/d",
    "jdbc:mariadb://h:3306/d?sslMode=verify-full",
    "jdbc:sqlite:/x.db",
    "h",
    "[::1]",
    "jdbc:mariadb://h:x/d",
)


@_only(ActionRequiredError)
def _registry_settings(example: tuple[Any, str]) -> None:
    settings, url = example
    for given in (settings, {"url": url}, {**settings, "url": url}):
        with suppress(ActionRequiredError):
            found = RegistrySettings("registry", given)
            found.client()
            if PASSWORD in repr(found) + found.url:
                raise ViolationError("its text holds a secret")
    RegistrySettings("registry", settings)


_REGISTRIES = (
    {"url": f"https://u:{PASSWORD}@registry:8081/x", "timeout": 5},
    {"url": "http://a,http://b:1", "basic.auth.user.info": f"u:{PASSWORD}", "max.retries": 1},
)


@_only(ActionRequiredError)
def _tokens(text: str) -> None:
    require_jwt(Token(text, 1.0), "a.b", "kafka")


@_only(ActionRequiredError)
def _ranges(list_of_texts: list[str]) -> None:
    for text in list_of_texts:
        with suppress(ActionRequiredError):
            place_from(text)
    _offsets(list_of_texts)


class _Run:
    run_type = "manual"


@_only(ActionRequiredError)
def _form(params: Any) -> None:
    pipeline = _loaded(PIPELINES[0])
    context = {
        "params": params,
        "dag_run": _Run(),
        "run_id": "r",
        "data_interval_start": None,
        "data_interval_end": None,
    }
    request_of(context, pipeline)  # type: ignore[arg-type]


@_only(ValidationError)
def _requests(fields: Any) -> None:
    from sluice.protocol.offsets import TopicPartition

    Request.model_validate(fields).wants(TopicPartition("kafka", "t", 0))


_FORMS = (
    {"mode": "range by offsets", "offsets": {"t": {"0": [1, 5]}}, "reason": "r", "dry_run": True},
    {
        "mode": "range by times",
        "from_time": "2026-01-01T00:00:00Z",
        "to_time": "2026-01-02T00:00:00Z",
        "partitions": ["t[0]", "t"],
    },
    {"mode": "replay", "instant": "20260101000000000"},
)
_REQUESTS = (
    {"kind": "range", "offsets": {"t": {0: [1, 5]}}},
    {"kind": "range", "from_time": "2026-01-01T00:00:00Z", "to_time": "2026-01-02T00:00:00Z", "partitions": "t[0], t"},
    {"kind": "correction", "offsets": {"t": {0: [1, 5]}}, "reason": "r"},
)


def _loaded(data: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "p.yaml"
        file.write_text(yaml.safe_dump(data))
        return load_pipeline(file)


@_only(ValueError)
def _path_formats(pattern: str) -> None:
    found = parse_path_format(pattern)
    for at in (0, 1_700_000_000_123, -62_135_596_800_000, 2**53, -(2**53)):
        found.folders(found.granularity.begin(at), Texts())


@_only(ValueError)
def _csv_options(options: Any) -> None:
    import re

    given = {str(name): str(value) for name, value in options.items()}
    separator(given)
    re.compile(break_outside_quotes(given))


@_only()
def _redacted(example: tuple[Any, str]) -> None:
    value, around = example
    redact(value)
    first = f'{around} {{"sasl.password": "{PASSWORD}"}} {around} password={PASSWORD}'
    text = f"{first}\n{around} https://u:{PASSWORD}@h/x {around}"
    redact_text(text)
    if PASSWORD in redact_text(f"{{'password': '{PASSWORD}', 'a': {around!r}}}"):
        raise ViolationError("a secret shows")


# Kafka Connect -------------------------------------------------------------------------------------

_JSON_CONVERTER = {
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
_SMT = "org.apache.kafka.connect.transforms"
CONNECTORS: tuple[dict[str, str], ...] = (
    {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": "orders,lines",
        "connection.url": "jdbc:postgresql://db:5432/lake",
        "connection.user": "loader",
        "connection.password": PASSWORD,
        "insert.mode": "upsert",
        "pk.mode": "record_key",
        "pk.fields": "id",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://registry:8081",
        "table.name.format": "t_${topic}",
        "delete.enabled": "true",
        "tasks.max": "3",
    },
    {
        "connector.class": "io.confluent.connect.hdfs3.Hdfs3SinkConnector",
        "topics.regex": "flights-(.*)",
        "hdfs.url": "hdfs://namenode:8020",
        "flush.size": "1000",
        "rotate.interval.ms": "60000",
        "path.format": "'year'=YYYY",
        "partition.duration.ms": "3600000",
        "locale": "en-US",
        "timezone": "UTC",
        "partitioner.class": "io.confluent.connect.storage.partitioner.TimeBasedPartitioner",
        **_JSON_CONVERTER,
    },
    {
        "connector.class": "io.confluent.connect.s3.S3SinkConnector",
        "topics": "a",
        "s3.bucket.name": "b",
        "s3.region": "eu-west-1",
        "aws.secret.access.key": PASSWORD,
        "format.class": "io.confluent.connect.s3.format.parquet.ParquetFormat",
        **_JSON_CONVERTER,
    },
    {
        "connector.class": "org.apache.hudi.connect.HoodieSinkConnector",
        "topics": "a",
        "hoodie.base.path": "s3a://x/y",
        "hoodie.table.name": "t",
        "hoodie.kafka.commit.interval.secs": "60",
        **_JSON_CONVERTER,
    },
    {
        "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
        "connection.url": "jdbc:postgresql://db/shop",
        "mode": "timestamp+incrementing",
        "timestamp.column.name": "changed",
        "incrementing.column.name": "id",
        "table.whitelist": "a,b",
        "topic.prefix": "p-",
        "connection.password": PASSWORD,
        "poll.interval.ms": "5000",
        **_JSON_CONVERTER,
    },
    {
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics": "orders",
        "connection.url": "jdbc:postgresql://db/lake",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        **_JSON_CONVERTER,
    },
    {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": "a",
        "iceberg.tables": "db.t",
        "iceberg.catalog.type": "hive",
        "iceberg.catalog.uri": "thrift://h:9083",
        **_JSON_CONVERTER,
    },
    {
        "connector.class": "io.confluent.connect.jdbc.JdbcSinkConnector",
        "topics": "orders",
        "connection.url": "jdbc:postgresql://db/lake",
        "transforms": "a,b,c,d,e",
        "transforms.a.type": f"{_SMT}.ReplaceField$Value",
        "transforms.a.exclude": "x",
        "transforms.b.type": f"{_SMT}.RegexRouter",
        "transforms.b.regex": "(.*)-(.*)",
        "transforms.b.replacement": "$1_$2",
        "transforms.c.type": f"{_SMT}.TimestampConverter$Value",
        "transforms.c.field": "t",
        "transforms.c.target.type": "Timestamp",
        "transforms.c.format": "yyyy-MM-dd",
        "transforms.d.type": f"{_SMT}.MaskField$Value",
        "transforms.d.fields": "p",
        "transforms.d.replacement": "x",
        "transforms.e.type": f"{_SMT}.Cast$Value",
        "transforms.e.spec": "a:int32,b:string",
        "predicates": "p",
        "predicates.p.type": f"{_SMT}.predicates.TopicNameMatches",
        "predicates.p.pattern": "a.*",
        "transforms.e.predicate": "p",
        "transforms.e.negate": "true",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dlq",
        **_JSON_CONVERTER,
    },
    {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "h",
        "database.password": PASSWORD,
    },
)
"""Configurations of all connectors that are known, and of one that isn't."""
_CONNECT_KEYS = tuple(
    sorted(
        {key for one in CONNECTORS for key in one} | {"name", "transforms.a.b", "config", "info", "consumer.override.x"}
    )
)


def _import(connector: ConnectorConfig, given: ImportOptions) -> None:
    from sluice.cli.connect_import import as_data

    is_secret = all(
        PASSWORD not in value or re.search("password|secret", key) for key, value in connector.config.items()
    )
    is_secret &= PASSWORD not in connector.name + "".join(connector.config)
    for number, one in enumerate(imported(connector, given)):
        if number >= 5:
            break
        found = checked(one)
        text = text_of(found) if found.pipeline is not None else ""
        told = json.dumps(as_data(found, None), default=str)
        if is_secret and PASSWORD in text + told:
            raise ViolationError("what is made of a connector holds a secret")
        if text:
            yaml.safe_load(text)


@_only(ActionRequiredError)
def _connect_file(example: tuple[bytes, str]) -> None:
    content, name = example
    text = content.decode(errors="replace")
    for connector in configs_of(text, name):
        _import(connector, ImportOptions())
    with suppress(ActionRequiredError):
        properties_of(text, name)


@_only(ActionRequiredError)
def _connect_config(config: Any) -> None:
    given = {_whole(str(key)): _whole(str(value)) for key, value in config.items()}
    _import(
        ConnectorConfig(str(given.get("name", "p")), given),
        ImportOptions(worker={"bootstrap.servers": "k:1"}, path="/lake"),
    )


def _whole(text: str) -> str:
    """The text as a file or a request could hold it."""
    return text.encode(errors="replace").decode()


def _as_properties(value: Any) -> bytes:
    given = value.items() if isinstance(value, dict) else enumerate([value])
    return "".join(f"{key}={inner}\n" for key, inner in given).encode(errors="surrogatepass")


@st.composite
def _flat_changed(draw: st.DrawFn) -> dict[str, str]:
    config: dict[str, Any] = dict(draw(st.sampled_from(CONNECTORS)))
    for _ in range(draw(st.integers(0, 5))):
        key = draw(st.sampled_from([*config, *_CONNECT_KEYS]))
        how = draw(st.sampled_from(["text", "edit", "remove", "of another"]))
        if how == "remove":
            config.pop(key, None)
        elif how == "edit" and key in config:
            config[key] = draw(edited(str(config[key])))
        elif how == "of another":
            config.update(draw(st.sampled_from(CONNECTORS)))
        else:
            config[key] = draw(texts)
    return config


_bytes_texts: SearchStrategy[bytes] = texts.map(lambda t: t.encode(errors="surrogatepass"))

PARSERS: tuple[Subject, ...] = (
    Subject("pipeline_file", documents(PIPELINES, as_yaml, _KEYS), _pipeline_file, share=3),
    Subject("yaml", documents(PIPELINES, as_yaml), _yaml),
    Subject(
        "edited_file",
        st.tuples(documents(PIPELINES, as_yaml), st.lists(st.sampled_from(_KEYS) | texts, max_size=4), texts),
        _edited_file,
    ),
    Subject("checkpoint", _kept_texts(), _checkpoint),
    Subject("file_log", st.lists(documents([_ENTRY], as_json), min_size=1, max_size=2), _file_log),
    Subject("committables", st.tuples(changed(_PAYLOADS), st.sampled_from(_LAYOUTS)), _committables),
    Subject("left_files", st.lists(edited("t+0+0000000000+0000000009.avro") | texts, max_size=4), _left_files),
    Subject("topic_log", st.tuples(st.booleans(), _log_records), _topic_log),
    Subject(
        "notes",
        documents(
            [{"instant": "i", "letters": 5, "clusters": ["a"], "places": [["t", 0, 5]], "topic_ids": {"t": None}}],
            as_json,
        ),
        _notes,
    ),
    Subject("packed", edited_bytes([__import__("lzma").compress(b"x" * 1000)]) | st.binary(max_size=300), _packed),
    Subject(
        "timeline_names",
        st.lists(edited("20260101000000000_20260101000000500.commit") | texts, max_size=3),
        _timeline_names,
    ),
    Subject("commit_metadata", documents([_METADATA], as_json), _commit_metadata),
    Subject(
        "mapping",
        documents(_MAPPINGS, as_yaml, ("registry", "topics", "moved_from", "starting_offsets", "stopping_offsets")),
        _mapping,
        seconds=6,
    ),
    Subject(
        "connect_offsets",
        st.lists(
            st.tuples(documents(_OFFSET_KEYS, as_json) | st.none(), documents(_OFFSET_VALUES, as_json) | st.none()),
            min_size=1,
            max_size=3,
        ),
        _connect_offsets,
    ),
    Subject("mirror", st.tuples(edited_bytes([b"\x00\x01t\x00\x00\x00\x00"]), edited_bytes([b"\x00" * 16])), _mirror),
    Subject(
        "json_schema",
        documents(
            _JSON_SCHEMAS,
            as_json,
            ("$ref", "allOf", "oneOf", "items", "additionalProperties", "connect.parameters", "title"),
        )
        | st.builds(ladder, st.integers(1, 30), st.integers(1, 6)),
        _json_schema,
        share=2,
    ),
    Subject(
        "descriptors",
        edited_bytes([_descriptor_set()]) | st.builds(proto_ladder, st.integers(1, 30), st.integers(1, 6)),
        _descriptors,
    ),
    Subject("ddl", edited("id BIGINT, name STRING NOT NULL, d DECIMAL(10,2)") | texts, _ddl),
    Subject("sections", values | edited("5 minutes") | edited("${SLUICE_X:-/lake}/t") | edited("s3a://b/t"), _sections),
    Subject(
        "kafka_connection",
        st.tuples(
            changed(_EXTRAS).filter(lambda v: isinstance(v, dict)), edited("a:1,[::1]:2,b.example.com") | texts, texts
        ),
        _kafka,
    ),
    Subject(
        "database_connection",
        st.tuples(
            st.sampled_from(["postgres", "mysql", "jdbc", "sqlite", "http", ""]),
            st.sampled_from(_URLS) | st.sampled_from(_URLS).flatmap(edited) | texts,
            st.none() | st.integers(),
            changed([{"sslmode": "require", "properties": {"sslmode": "x"}}]).filter(lambda v: isinstance(v, dict)),
            texts,
            texts,
        ),
        _database,
    ),
    Subject(
        "registry_connection",
        st.tuples(changed(_REGISTRIES).filter(lambda v: isinstance(v, dict)), edited("https://h:8081/x") | texts),
        _registry_settings,
    ),
    Subject("tokens", edited("eyJhIjoxfQ.eyJleHAiOjF9.x") | texts, _tokens),
    Subject(
        "ranges", st.lists(edited("orders[0]:5-10") | edited("orders[0]@5") | texts, min_size=1, max_size=3), _ranges
    ),
    Subject("trigger_form", changed(_FORMS).filter(lambda v: isinstance(v, dict)), _form),
    Subject("requests", changed(_REQUESTS), _requests),
    Subject("path_formats", edited("'year'=YYYY/'month'=MM/dd/HH") | texts, _path_formats),
    Subject(
        "csv_options",
        changed([{"sep": ",", "quote": '"', "escape": "\\", "header": "true"}]).filter(lambda v: isinstance(v, dict)),
        _csv_options,
    ),
    Subject("redacted", st.tuples(values, texts), _redacted),
    Subject(
        "connect_file",
        st.tuples(
            st.one_of(
                documents(CONNECTORS, as_json),
                documents([{"name": "c", "config": one} for one in CONNECTORS], as_json),
                documents(CONNECTORS, _as_properties),
            ),
            st.sampled_from(["c.json", "c.properties", "c"]),
        ),
        _connect_file,
        share=2,
    ),
    Subject("connect_config", _flat_changed(), _connect_config, share=3),
)
"""All of them."""
assert replace
