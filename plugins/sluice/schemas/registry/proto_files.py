"""Protobuf schemas as files of descriptors: from a registry's text by protoc, or from a descriptor set."""

from __future__ import annotations

import base64
import binascii
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.errors import ActionRequiredError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto


_ROOT, _IMPORTS = "sluice_root.proto", "sluice_imports.proto"
_PART = r"(?!\.{1,2}(?:/|$))[^/\\\x00-\x1f\x7f\"']+"
_NAME = re.compile(rf"(?![-@]){_PART}(?:/{_PART})*")
_LONGEST_NAME = 250  # characters; a file's name may have 255
_COMPILE_TIMEOUT = 60.0


class ProtobufSchemaError(ValueError):
    """A schema that can't be used; the message says why."""


def descriptor_pb2() -> Any:
    """Protobuf's own description of itself, which comes with an optional extra.

    Raises:
        ActionRequiredError: it isn't installed.
    """
    try:
        from google.protobuf import descriptor_pb2 as found
    except ImportError:
        raise ActionRequiredError(
            "The converter protobuf needs Python's protobuf package, which is not installed.",
            next_step="install Sluice's extra `protobuf` where the coordinator runs.",
        ) from None
    return found


def registered_files(text: str, references: Sequence[tuple[str, str]]) -> list[FileDescriptorProto]:
    """The files of a registered schema, the schema's own last.

    Args:
        text: a .proto file, or a serialized FileDescriptorProto in base64.
        references: the files that it imports, as (name of the import, text), each after its own imports.

    Raises:
        ProtobufSchemaError: one of them can't be read.
    """
    known: dict[str, FileDescriptorProto] = {}
    for name, imported in references:
        _require_name(name)
        _add(known, name, imported)
    if any("confluent/" in one for one in (text, *(imported for _, imported in references))):
        known = {**_confluents(), **known}
    _add(known, _ROOT, text)
    root = known.pop(_ROOT)
    return [*known.values(), root]


def files_of_descriptors(content: bytes, message: str | None) -> list[FileDescriptorProto]:
    """The files of a descriptor set, as `protoc --include_imports --descriptor_set_out` writes it.

    The message's file is last; without a name that is the file for which protoc wrote the set.

    Raises:
        ProtobufSchemaError: it is none, or was written without its imports.
    """
    pb = descriptor_pb2()
    from google.protobuf.message import DecodeError

    try:
        found = list(pb.FileDescriptorSet.FromString(content).file)
    except DecodeError:
        raise ProtobufSchemaError("the file is not a descriptor set, as protoc writes it") from None
    names = {file.name for file in found}
    missing = sorted({dependency for file in found for dependency in file.dependency} - names)
    if missing or not found:
        raise ProtobufSchemaError(
            f"the descriptor set lacks {', '.join(missing) or 'everything'}; write it with protoc --include_imports"
        )
    if message is not None:
        found.sort(key=lambda file: _declares(file, message))
    return found


def _declares(file: FileDescriptorProto, message: str) -> bool:
    prefix = f"{file.package}." if file.package else ""
    outermost = message.removeprefix(prefix).partition(".")[0]
    return message.startswith(prefix) and any(declared.name == outermost for declared in file.message_type)


def _require_name(name: str) -> None:
    """Check that a name from a registry can be nothing but a file's below the folder of a compilation.

    An absolute one or `..` would be written elsewhere on this machine, `-` and `@` begin options of protoc, and a quote
    would end the import that it is put into.

    Raises:
        ProtobufSchemaError: it may be something else.
    """
    if _NAME.fullmatch(name) is None or len(name) > _LONGEST_NAME or name in (_ROOT, _IMPORTS):
        raise ProtobufSchemaError(
            f"{name[:_LONGEST_NAME]!r} is no name of a file to import, such as com/shop/order.proto"
        )


def _confluents() -> dict[str, FileDescriptorProto]:
    """The files that registries know without a reference, and protoc doesn't come with."""
    from confluent_kafka.schema_registry.confluent import meta_pb2
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2
    from google.protobuf import descriptor_pb2 as own

    found = {}
    for module in (own, meta_pb2, decimal_pb2):
        file = descriptor_pb2().FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        found[file.name] = file
    return found


def _add(known: dict[str, FileDescriptorProto], name: str, text: str) -> None:
    serialized = _from_base64(text)
    if serialized is None:
        for file in _compile(name, text, list(known.values())):
            known.setdefault(file.name, file)
        return
    imports = [dependency for dependency in serialized.dependency if dependency not in known]
    if imports:
        for dependency in imports:
            _require_name(dependency)
        source = 'syntax = "proto3";\n' + "".join(f'import "{dependency}";\n' for dependency in imports)
        for file in _compile(_IMPORTS, source, list(known.values()))[:-1]:
            known.setdefault(file.name, file)
    serialized.name = name
    known[name] = serialized


def _from_base64(text: str) -> FileDescriptorProto | None:
    try:
        found: FileDescriptorProto = descriptor_pb2().FileDescriptorProto.FromString(
            base64.b64decode(text.strip(), validate=True)
        )
    except (ValueError, binascii.Error):
        return None
    except Exception:  # google.protobuf.message.DecodeError
        return None
    return found


def _compile(name: str, text: str, known: Sequence[FileDescriptorProto]) -> list[FileDescriptorProto]:
    """The descriptors that protoc makes of a .proto file, after those of its imports."""
    try:
        from grpc_tools import protoc
    except ImportError:
        raise ActionRequiredError(
            "The schema registry hands Protobuf schemas out as .proto text, and no compiler for it is installed.",
            next_step="install Sluice's extra `protobuf` (grpcio-tools) where the coordinator runs.",
        ) from None
    pb = descriptor_pb2()
    with tempfile.TemporaryDirectory(prefix="sluice-protobuf-") as folder:
        sources = Path(folder, "sources")  # apart from Sluice's own files, whose names a registry may use
        path = sources / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        out, log = Path(folder, "out.desc"), Path(folder, "log")
        arguments = ["protoc", f"-I{sources}", *(f"-I{place}" for place in _includes()), "--include_imports"]
        if known:
            before = Path(folder, "known.desc")
            before.write_bytes(pb.FileDescriptorSet(file=known).SerializeToString())
            arguments.append(f"--descriptor_set_in={before}")
        status = _quietly(protoc.main, [*arguments, f"--descriptor_set_out={out}", name], log)
        if status != 0:
            reason = "; ".join(log.read_text(errors="replace").split("\n")[:3]).strip("; ")
            raise ProtobufSchemaError(f"the .proto text can't be compiled: {reason}")
        return list(pb.FileDescriptorSet.FromString(out.read_bytes()).file)


def _quietly(main: Any, arguments: Sequence[str], log: Path) -> int:
    """Run protoc in a separate process: it writes its errors to the process's standard error."""
    with log.open("wb") as errors:
        command = [sys.executable, "-m", main.__module__, *arguments[1:]]
        try:
            return subprocess.run(command, stdout=errors, stderr=errors, timeout=_COMPILE_TIMEOUT).returncode
        except subprocess.TimeoutExpired:
            raise ProtobufSchemaError(f"protoc didn't end within {_COMPILE_TIMEOUT:.0f} seconds") from None


def _includes() -> Iterator[Path]:
    """Folders of .proto files that come with Python packages: Protobuf's own, and Google's common ones."""
    for package, above in (("grpc_tools._proto", 0), ("google.type", 2)):
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            yield Path(folder, *[".."] * above)
