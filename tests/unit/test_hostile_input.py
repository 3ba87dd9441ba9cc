"""What others hand us is no way in: a registry's names are no paths, a packed text no bomb, a path no address."""

from __future__ import annotations

import base64
import lzma

import pytest
from google.protobuf import descriptor_pb2
from pydantic import ValidationError

from sluice.errors import ActionRequiredError
from sluice.records.plan import Format
from sluice.schemas.registry.proto_files import ProtobufSchemaError, registered_files
from sluice.sections import expand
from sluice.sinks.hudi.timeline import TimelineFiles
from sluice.sinks.reading import file_url

PROTO = 'syntax = "proto3"; message A { int32 a = 1; }'


@pytest.mark.parametrize(
    "name",
    [
        "/tmp/evil.proto", "../../evil.proto", "a/../../evil.proto", "./evil.proto", "a//evil.proto", "", "a/",
        "--plugin=protoc-gen-x=/tmp/x", "-I/", "@/tmp/arguments", "a\\..\\evil.proto", "a\n.proto", 'a"; option x = "',
        "sluice_root.proto", "sluice_imports.proto", "x" * 600,
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["reference", "dependency"])
def test_a_registrys_name_is_no_path_and_no_option(name, kind, tmp_path):
    outer = f'syntax = "proto3"; import "{name}"; message B {{ A a = 1; }}'
    if kind == "dependency":
        file = descriptor_pb2.FileDescriptorProto(name="outer.proto", syntax="proto3", dependency=[name])
        outer = base64.b64encode(file.SerializeToString()).decode()
    with pytest.raises(ProtobufSchemaError, match="is no name of a file to import"):
        registered_files(outer, [(name, PROTO)] if kind == "reference" else [])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["inner.proto", "com/outer v2/inner-1.proto", "google/type/own.proto", "A.b$c.proto"])
def test_a_registrys_plain_names_are_taken(name):
    files = registered_files(f'syntax = "proto3"; import "{name}"; message B {{ A a = 1; }}', [(name, PROTO)])
    assert [file.name for file in files] == [name, "sluice_root.proto"]


def test_packed_schemas_are_no_bomb():
    bomb = lzma.compress(b"[" + b" " * (128 * 1024 * 1024) + b"]")
    assert len(bomb) < 50_000
    with pytest.raises(ValidationError, match="more than 32 MiB"):
        Format.model_validate({"schemas": {"xz": base64.b64encode(bomb).decode()}})


@pytest.mark.parametrize("packed", ["bm90IHh6", "%", base64.b64encode(lzma.compress(b"[]")[:-8]).decode()])
def test_what_is_not_packed_as_it_says_is_no_message(packed):
    with pytest.raises(ValidationError):
        Format.model_validate({"schemas": {"xz": packed}})


@pytest.mark.parametrize(
    "name", ["AIRFLOW__API_AUTH__JWT_SECRET", "HOME", "SLUICE_KAFKA_SOURCE", "SLUICE_SCHEMA_REGISTRY"]
)
def test_a_path_names_no_variable_that_may_be_a_secret(name, monkeypatch):
    monkeypatch.setenv(name, "hunter2")
    for text in (f"${{{name}}}/t", f"${{{name}:-/lake}}/t"):
        with pytest.raises(ValueError, match=rf"{name} .*SLUICE_") as caught:
            expand(text)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "http://169.254.169.254/latest", "simplecache::http://host/x", "ftp://host/x", "github://a:b@main", "jar://x",
        "zip://x::file:///y", "file://host::s3://x/y", "relative/path", "", "s3a://bucket/../other", "file:///lake/../etc",
        "sftp://host/x", "data://x", "reference://x",
    ],
)  # fmt: skip
def test_a_tables_path_leads_to_no_other_place(path):
    with pytest.raises(ActionRequiredError, match="no path of a table"):
        TimelineFiles(path).read()


@pytest.mark.parametrize(
    "path", ["file:///lake/t", "/lake/t", "s3a://b/t", "s3://b/t", "gs://b/t", "hdfs:///t", "abfss://c@a.dfs.core.windows.net/t"]
)  # fmt: skip
def test_a_tables_path_is_on_a_known_file_system(path):
    assert file_url(path).partition("://")[0] in ("file", "s3", "gs", "hdfs", "abfss")
