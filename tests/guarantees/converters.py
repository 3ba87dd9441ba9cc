"""What the tests of converters share: pipelines of a format, and values as they are in the wild."""

from __future__ import annotations

import math
import random
import string
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from confluent_kafka.serialization import MessageField, SerializationContext

from .harness import Flow

REGISTRY = "schema_registry_default"
ROWS = 30
MakeFlow = Callable[..., Flow]


def typed_flow(make_flow: MakeFlow, converter: str, columns: str | None = None, **value: Any) -> Flow:
    """A pipeline whose columns are those of the records' own schema, unless one is given."""
    if converter in ("avro", "protobuf", "json_schema") and "schema_file" not in value:
        value["registry"] = REGISTRY
    section = {"converter": converter, **value}
    given = {"sink__hudi__schema": columns, "sink__hudi__partition_fields": None, "source__kafka__value": section}
    flow: Flow = make_flow(partitions=1, **given)
    return flow


def write(flow: Flow, serializer: Callable[..., bytes], row: Any, part: str = MessageField.VALUE) -> bytes:
    return serializer(row, SerializationContext(flow.topic, part))


def local(moment: datetime) -> datetime:
    """As PySpark hands a TIMESTAMP to Python."""
    return moment.astimezone().replace(tzinfo=None)


def plain(value: Any) -> Any:
    """What was read, with bytes as bytes, and NaN equal to itself."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, bytearray):
        return bytes(value)
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


class Wild(random.Random):
    """Values as they are in the wild: small and huge, empty, of all of Unicode; and the same in each run."""

    def text(self) -> str:
        letters = string.printable + "äß漢🦀\u2028\u0000'\"\\`"
        return "".join(self.choice(letters) for _ in range(self.choice([0, 1, 5, 40])))

    def some_bytes(self, size: int | None = None) -> bytes:
        return self.randbytes(self.choice([0, 1, 33]) if size is None else size)

    def long(self, bits: int = 63) -> int:
        return self.choice([0, -1, 1, 2**bits - 1, -(2**bits), self.randrange(-(2**bits), 2**bits)])

    def double(self) -> float:
        return self.choice([0.0, -0.5, math.inf, -math.inf, math.nan, 5e-324, 1.7e308, self.uniform(-1e9, 1e9)])

    def single(self) -> float:
        """A number that 32 bits hold."""
        return float(struct.unpack("f", struct.pack("f", self.uniform(-1e6, 1e6)))[0])

    def decimal(self, precision: int, scale: int) -> Decimal:
        return Decimal(self.randrange(-(10**precision) + 1, 10**precision)).scaleb(-scale)

    def moment(self, unit: str = "microseconds") -> datetime:
        size = {"microseconds": 1, "milliseconds": 1000}[unit]
        micros = self.randrange(-(10**15), 4 * 10**15) // size * size  # 1938 to 2096
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)

    def day(self) -> date:
        return date(1970, 1, 1) + timedelta(days=self.randrange(-30_000, 60_000))

    def maybe(self, make: Callable[[], Any]) -> Any:
        return None if self.random() < 0.3 else make()
