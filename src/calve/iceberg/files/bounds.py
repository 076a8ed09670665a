"""Bounds of a column: decoded from Parquet statistics, truncated and encoded as Iceberg does.

A bound that might be wrong is left out: readers then prune less, which is never wrong.
"""

import math
import struct
from typing import Any

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestamptzType,
)

from calve.iceberg.files.footer import BYTE_ARRAY, FIXED

_LAST_BEFORE_SURROGATES, _FIRST_AFTER_SURROGATES, _LAST = 0xD7FF, 0xE000, 0x10FFFF


def decode(kind: IcebergType, physical: int, data: bytes) -> Any:
    """A statistic's value, comparable with others of its column; None if it bounds nothing."""
    match kind:
        case BooleanType():
            return data != b"\x00"
        case IntegerType() | LongType() | DateType() | TimestamptzType():
            return int.from_bytes(data, "little", signed=True)
        case FloatType() | DoubleType():
            number = struct.unpack("<f" if isinstance(kind, FloatType) else "<d", data)[0]
            return None if math.isnan(number) else number
        case DecimalType():
            big = physical in (BYTE_ARRAY, FIXED)
            return int.from_bytes(data, "big" if big else "little", signed=True)
        case StringType() | BinaryType() | FixedType():
            return data
        case _:
            return None


def lower(kind: IcebergType, value: Any, length: int | None) -> bytes | None:
    """Iceberg's single-value form of a lower bound; `length` is what text is truncated to."""
    match kind:
        case StringType():
            text = _text(value)
            return None if text is None else text[:length].encode()
        case BinaryType() | FixedType():
            return bytes(value[:length])
        case FloatType() | DoubleType():
            return _float(kind, -0.0 if value == 0 else value)
        case _:
            return _exact(kind, value)


def upper(kind: IcebergType, value: Any, length: int | None) -> bytes | None:
    """As `lower`; what is cut off is made good by rounding up, None where that cannot be."""
    match kind:
        case StringType():
            text = _text(value)
            return None if text is None else _upper_text(text, length)
        case BinaryType() | FixedType():
            return _upper_bytes(value, length)
        case FloatType() | DoubleType():
            return _float(kind, 0.0 if value == 0 else value)
        case _:
            return _exact(kind, value)


def _exact(kind: IcebergType, value: Any) -> bytes:
    match kind:
        case BooleanType():
            return b"\x01" if value else b"\x00"
        case IntegerType() | DateType():
            return int(value).to_bytes(4, "little", signed=True)
        case LongType() | TimestamptzType():
            return int(value).to_bytes(8, "little", signed=True)
        case DecimalType():
            # the fewest bytes that hold the sign too
            length = ((value + 1 if value < 0 else value).bit_length() // 8) + 1
            return int(value).to_bytes(length, "big", signed=True)
    raise AssertionError(kind)


def _float(kind: IcebergType, value: float) -> bytes:
    return struct.pack("<f" if isinstance(kind, FloatType) else "<d", value)


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _upper_text(text: str, length: int | None) -> bytes | None:
    if length is None or len(text) <= length:
        return text.encode()
    for place in range(length - 1, -1, -1):
        point = ord(text[place])
        if point < _LAST:
            following = _FIRST_AFTER_SURROGATES if point == _LAST_BEFORE_SURROGATES else point + 1
            return (text[:place] + chr(following)).encode()
    return None


def _upper_bytes(value: bytes, length: int | None) -> bytes | None:
    if length is None or len(value) <= length:
        return bytes(value)
    for place in range(length - 1, -1, -1):
        if value[place] < 0xFF:
            return bytes(value[:place]) + bytes([value[place] + 1])
    return None
