"""Protobuf schemas of a registry: text or descriptors, what they import, and which message a record says it is."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2

from sluice.records.structs import in_words
from sluice.schemas.registry.proto_files import ProtobufSchemaError, files_of_descriptors, registered_files
from sluice.schemas.registry.protobuf import message_prefixes, read_message

INNER = 'syntax = "proto3"; package com.inner; message Inner { uint32 u = 1; fixed64 f = 2; }'
OUTER = """
syntax = "proto3";
package com.outer;
import "inner.proto";
import "google/type/date.proto";
message First { message Deep { bytes b = 1; } }
message Outer { com.inner.Inner inner = 1; repeated google.type.Date days = 2; map<int32, com.inner.Inner> all = 3; }
"""
STRUCT = "google/protobuf/struct.proto"


def files(outer: str = OUTER, inner: str = INNER) -> list[descriptor_pb2.FileDescriptorProto]:
    return registered_files(outer, [("inner.proto", inner)])


def as_base64(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def test_text_and_descriptors_in_any_mixture_are_the_same_message():
    compiled = {file.name: file for file in files()}
    inner, outer = as_base64(compiled["inner.proto"]), as_base64(list(compiled.values())[-1])
    found = [read_message(files(o, i), "com.outer.Outer") for o in (OUTER, outer) for i in (INNER, inner)]
    assert len({message.indexes for message in found}) == 1
    expected = (
        "STRUCT<inner: STRUCT<u: BIGINT, f: decimal(20,0)>, days: ARRAY<STRUCT<year: INT, month: INT, day: INT>>, "
        "all: MAP<INT, STRUCT<u: BIGINT, f: decimal(20,0)>>>"
    )
    assert {in_words(message.logical).replace("DECIMAL", "decimal") for message in found} == {expected}


def test_a_message_is_named_or_the_first():
    assert read_message(files(), None).name == "com.outer.First"
    deep = read_message(files(), "com.outer.First.Deep")
    assert (deep.indexes, message_prefixes(deep.indexes)) == ((0, 0), [b"\x04\x00\x00"])
    assert message_prefixes([0]) == [b"\x00", b"\x02\x00"]
    assert message_prefixes([64]) == [b"\x02\x80\x01"]
    with pytest.raises(
        ProtobufSchemaError, match=r"no message com.outer.None; there are com.outer.First, com.outer.Outer"
    ):
        read_message(files(), "com.outer.None")


def test_a_descriptor_set_needs_its_imports():
    everything = descriptor_pb2.FileDescriptorSet(file=files())
    found = files_of_descriptors(everything.SerializeToString(), "com.inner.Inner")
    assert found[-1].name == "inner.proto"
    alone = descriptor_pb2.FileDescriptorSet(file=everything.file[-1:])
    with pytest.raises(ProtobufSchemaError, match=r"lacks google/type/date.proto, inner.proto; .*--include_imports"):
        files_of_descriptors(alone.SerializeToString(), None)
    with pytest.raises(ProtobufSchemaError, match="not a descriptor set"):
        files_of_descriptors(b"syntax", None)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('syntax = "proto3"; message A { B b = 1; }', '"B" is not defined'),
        ('syntax = "proto3"; message A { repeated A a = 1; }', "the message A holds itself"),
        (f'syntax = "proto3"; import "{STRUCT}"; message A {{ google.protobuf.Struct s = 1; }}', "holds itself"),
        ('syntax = "proto3"; enum E { Z = 0; }', "no message"),
        ('edition = "2023"; message A { int32 a = 1; }', "editions"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_says_why(text, says):
    with pytest.raises(ProtobufSchemaError, match=says):
        read_message(registered_files(text, []), None)


def test_a_name_that_is_not_utf_8_is_refused():
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p", syntax="proto3")
    file.message_type.add(name="A").field.add(name="i", number=1, label=1, type=5)
    content = file.SerializeToString().replace(b"a.proto", b"\xe1.proto")
    with pytest.raises(ProtobufSchemaError, match="a name in the schema is not UTF-8"):
        read_message([descriptor_pb2.FileDescriptorProto.FromString(content)], None)
