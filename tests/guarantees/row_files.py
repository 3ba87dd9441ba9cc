"""Files of rows, made by programs that share no code with Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from .typed_values import Array, Fields, Kind, Mapped, Row, numbers_of
from .value_producers import avro_of

ID: Mapping[str, Kind] = {"id": "BIGINT"}
_ARROW = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(),
    "FLOAT": pa.float32(), "DOUBLE": pa.float64(), "STRING": pa.string(), "BINARY": pa.binary(), "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"), "TIMESTAMP_NTZ": pa.timestamp("us"),
}  # fmt: skip


def arrow_of(kind: Kind) -> pa.DataType:
    """A type as Arrow has it."""
    if isinstance(kind, Array):
        return pa.list_(arrow_of(kind.of))
    if isinstance(kind, Mapped):
        return pa.map_(pa.string(), arrow_of(kind.of))
    if isinstance(kind, Fields):
        return pa.struct([(name, arrow_of(one)) for name, one in kind.of.items()])
    return pa.decimal128(*numbers_of(kind)) if kind.startswith("DECIMAL") else _ARROW[kind]


def _for_arrow(kind: Kind, value: Any) -> Any:
    """Arrow's maps are lists of pairs."""
    if isinstance(kind, Array) and value is not None:
        return [_for_arrow(kind.of, one) for one in value]
    if isinstance(kind, Mapped) and value is not None:
        return [(key, _for_arrow(kind.of, one)) for key, one in value.items()]
    if isinstance(kind, Fields) and value is not None:
        return {name: _for_arrow(one, value[name]) for name, one in kind.of.items()}
    return value


def parquet(columns: Mapping[str, Kind], rows: Sequence[Row], **options: Any) -> bytes:
    """A file by Arrow; `row_group_size` and other options are Arrow's."""
    made = {
        name: pa.array([_for_arrow(kind, row[name]) for row in rows], arrow_of(kind)) for name, kind in columns.items()
    }
    out = BytesIO()
    pq.write_table(pa.table(made), out, **options)
    return out.getvalue()


def avro(columns: Mapping[str, Kind], rows: Sequence[Row], **options: Any) -> bytes:
    """A file by fastavro; `sync_interval` and other options are its own."""
    out = BytesIO()
    fastavro.writer(out, avro_of(Fields(columns), "row")[1], rows, **{"codec": "deflate", **options})
    return out.getvalue()


FORMATS = {"parquet": parquet, "avro": avro}
