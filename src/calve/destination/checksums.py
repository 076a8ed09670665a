"""One 64-bit checksum for each column: the sum, modulo 2^64, of a hash of every value.

The sum does not depend on the order of rows nor on how they are split over files, tasks and
batches. It is defined by the Iceberg type and has two implementations that must agree: `sql`
for ClickHouse, which computes it of what was read, and `of_arrow`, which computes it of what
another engine reads back.

    H(null)            a constant of its own
    H(integer, date, timestamp, boolean)   mix(bits + SEED), of the value as a 64-bit integer
    H(float, double)   the same of the double's bits; every NaN is one NaN
    H(decimal, uuid)   mix(low + mix(high + SEED)), of the 128-bit two's complement
    H(string, binary, fixed)   mix(murmur3_x64(bytes) + SEED), both halves of the hash xor-ed
    H(list)            mix(sum of H(element) * (2 * position + 1) + length * STEP + SEED)
    H(map)             mix(sum of mix(H(key) * 3 + H(value)) + length * STEP + SEED): no order
    H(struct)          mix(sum of H(field) * (2 * field id + 1) + SEED)

Promotions that Iceberg allows (int to long, float to double, more digits) change no value and
so no checksum. `mix` is ClickHouse's `intHash64`, murmur's salted 64-bit finalizer.
"""

from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
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
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from calve.model.errors import PermanentError

Hashes = NDArray[np.uint64]

SEED = 0x9E3779B97F4A7C15
STEP = 0xC2B2AE3D27D4EB4F
NULL_HASH = 0x2545F4914F6CDD1D
NAN_BITS = 0x7FF8000000000000
_MASK = (1 << 64) - 1
_SALT = 0x4CF2D2BAAE6DA887  # ClickHouse's intHash64 starts with it


def text(checksum: int) -> str:
    """The form in receipts: 16 hex digits."""
    return f"{checksum & _MASK:016x}"


def add(left: int, right: int) -> int:
    """The checksum of two sets of rows together."""
    return (left + right) & _MASK


# ---- ClickHouse


def sql(kind: IcebergType, expression: str) -> str:
    """The aggregate that gives a column's checksum. `expression` is repeated: pass a column's name."""
    return f"sum({hash_sql(kind, expression)})"


def hash_sql(kind: IcebergType, expression: str, depth: int = 0) -> str:
    """The hash of one value, a UInt64 that is never NULL."""
    match kind:
        case ListType():
            element, place = f"e{depth}", f"i{depth}"
            inner = hash_sql(kind.element_type, element, depth + 1)
            total = (
                f"arraySum(({element}, {place}) -> {inner} * (2 * {place} + 1),"
                f" {expression}, arrayEnumerate({expression}))"
            )
            return f"intHash64({total} + length({expression}) * {STEP} + {SEED})"
        case MapType():
            key, value = f"k{depth}", f"v{depth}"
            entry = (
                f"intHash64({hash_sql(kind.key_type, key, depth + 1)} * 3"
                f" + {hash_sql(kind.value_type, value, depth + 1)})"
            )
            total = f"arraySum(({key}, {value}) -> {entry}, mapKeys({expression}), mapValues({expression}))"
            return f"intHash64({total} + length({expression}) * {STEP} + {SEED})"
        case StructType():
            terms = (
                f"{hash_sql(item.field_type, f'tupleElement({expression}, {place})', depth)}"
                f" * {2 * item.field_id + 1}"
                for place, item in enumerate(kind.fields, start=1)
            )
            mixed = f"intHash64({' + '.join(terms)} + {SEED})"
            return f"if(isNull({expression}), {NULL_HASH}, {mixed})"
        case _:
            return f"ifNull({_scalar_sql(kind, expression)}, {NULL_HASH})"


def _scalar_sql(kind: IcebergType, expression: str) -> str:
    match kind:
        case BooleanType():
            return f"intHash64(toUInt64({expression}) + {SEED})"
        case IntegerType() | LongType() | DateType():
            return f"intHash64(toUInt64(toInt64({expression})) + {SEED})"
        case TimestampType() | TimestamptzType():
            return f"intHash64(toUInt64(toUnixTimestamp64Micro({expression})) + {SEED})"
        case FloatType() | DoubleType():
            bits = f"if(isNaN({expression}), {NAN_BITS}, reinterpretAsUInt64(toFloat64({expression})))"
            return f"intHash64({bits} + {SEED})"
        case DecimalType():
            return _wide_sql(f"reinterpretAsInt128(toDecimal128({expression}, {kind.scale}))")
        case UUIDType():
            return _wide_sql(f"toUInt128({expression})")
        case StringType() | BinaryType() | FixedType():
            return f"intHash64(murmurHash3_64({expression}) + {SEED})"
    raise _unknown(kind)


def _wide_sql(wide: str) -> str:
    return f"intHash64(toUInt64({wide}) + intHash64(toUInt64(bitShiftRight({wide}, 64)) + {SEED}))"


# ---- Arrow


def of_arrow(kind: IcebergType, column: Any) -> int:
    """The checksum of an Arrow array or chunked array. An empty one has 0."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    total = 0
    for chunk in chunks:
        total = add(total, int(np.sum(hashes(kind, chunk), dtype=np.uint64)))
    return total


def hashes(kind: IcebergType, array: Any) -> Hashes:
    """The hash of every value."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    result = _valid_hashes(kind, array)
    if array.null_count:
        result[np.asarray(array.is_null())] = np.uint64(NULL_HASH)
    return result


def _valid_hashes(kind: IcebergType, array: Any) -> Hashes:
    """As `hashes`, where values at nulls may be anything."""
    match kind:
        case ListType():
            return _list_hashes(kind, array)
        case MapType():
            return _map_hashes(kind, array)
        case StructType():
            total = np.full(len(array), SEED, dtype=np.uint64)
            for item in kind.fields:
                child = array.field(item.name)
                total += hashes(item.field_type, child) * np.uint64(2 * item.field_id + 1)
            return _mix(total)
        case StringType() | BinaryType() | FixedType():
            return _bytes_hashes(array)
        case DecimalType():
            return _decimal_hashes(kind, array)
        case UUIDType():
            return _uuid_hashes(array)
        case _:
            return _mix(_bits(kind, array) + np.uint64(SEED))


def _list_hashes(kind: ListType, array: Any) -> Hashes:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    positions = np.arange(1, int(ends[-1]) + 1 if len(ends) else 1) - np.repeat(starts, lengths)
    weights = (2 * positions + 1).astype(np.uint64)
    # flatten() leaves out what lies under nulls and outside of a slice
    weighted = hashes(kind.element_type, array.flatten()) * weights
    return _mix(_sums(weighted, starts, ends) + lengths.astype(np.uint64) * np.uint64(STEP) + np.uint64(SEED))


def _map_hashes(kind: MapType, array: Any) -> Hashes:
    offsets = np.asarray(array.offsets).astype(np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    lengths = (ends - starts).astype(np.uint64)
    entries = _mix(hashes(kind.key_type, array.keys) * np.uint64(3) + hashes(kind.value_type, array.items))
    return _mix(_sums(entries, starts, ends) + lengths * np.uint64(STEP) + np.uint64(SEED))


def _sums(values: Hashes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Hashes:
    running = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values, out=running[1:])
    return running[ends] - running[starts]


def _bytes_hashes(array: Any) -> Hashes:
    """Python hashes one string at a time, so each distinct string only once."""
    encoded = array.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    halves = np.array([mmh3.hash64(value, signed=False) for value in distinct], dtype=np.uint64)
    if not len(halves):
        return np.zeros(len(array), dtype=np.uint64)
    by_code = _mix((halves[:, 0] ^ halves[:, 1]) + np.uint64(SEED))
    codes: NDArray[Any] = np.asarray(pc.fill_null(encoded.indices, 0))
    result: Hashes = by_code[codes]
    return result


def _decimal_hashes(kind: DecimalType, array: Any) -> Hashes:
    wide = array.cast(pa.decimal128(38, kind.scale))
    return _wide_hashes(_fixed_buffer(wide, np.dtype("<u8")), low=0, high=1)


def _uuid_hashes(array: Any) -> Hashes:
    return _wide_hashes(_fixed_buffer(array.cast(pa.binary(16)), np.dtype(">u8")), low=1, high=0)


def _fixed_buffer(array: Any, order: np.dtype[Any]) -> Hashes:
    """The two 64-bit halves of every 16-byte value, in the order they lie."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros((len(array), 2), dtype=np.uint64)
    pairs = np.frombuffer(buffer, dtype=order, count=2 * (array.offset + len(array))).reshape(-1, 2)
    return pairs[array.offset :].astype(np.uint64)


def _wide_hashes(pairs: Hashes, *, low: int, high: int) -> Hashes:
    return _mix(pairs[:, low] + _mix(pairs[:, high] + np.uint64(SEED)))


def _bits(kind: IcebergType, array: Any) -> Hashes:
    match kind:
        case BooleanType():
            return _numbers(array.cast(pa.uint8()), np.uint64)
        case IntegerType() | LongType():
            return _numbers(array.cast(pa.int64()), np.int64).view(np.uint64)
        case DateType():
            return _numbers(array.cast(pa.int32()), np.int64).view(np.uint64)
        case TimestampType() | TimestamptzType():
            zone = "UTC" if isinstance(kind, TimestamptzType) else None
            micros = array.cast(pa.timestamp("us", zone)).cast(pa.int64())
            return _numbers(micros, np.int64).view(np.uint64)
        case FloatType() | DoubleType():
            doubles = _numbers(array.cast(pa.float64()), np.float64)
            bits = doubles.view(np.uint64).copy()
            bits[np.isnan(doubles)] = np.uint64(NAN_BITS)
            return bits
    raise _unknown(kind)


def _numbers(array: Any, kind: Any) -> NDArray[Any]:
    numbers: NDArray[Any] = np.asarray(pc.fill_null(array, 0)).astype(kind)
    return numbers


def _mix(values: Hashes) -> Hashes:
    mixed = values ^ np.uint64(_SALT)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    mixed ^= mixed >> np.uint64(33)
    return mixed


def _unknown(kind: IcebergType) -> PermanentError:
    return PermanentError(f"no checksum is defined for the type {kind}", code="checksum_type")
