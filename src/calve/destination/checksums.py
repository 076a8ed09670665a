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

from collections.abc import Callable, Sequence
from functools import partial
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
HashSql = Callable[[str, int], str]  # of an expression, at a depth: the hash of its value, never NULL
ArrowHashes = Callable[[Any], Hashes]

SEED = 0x9E3779B97F4A7C15
STEP = 0xC2B2AE3D27D4EB4F
NULL_HASH = 0x2545F4914F6CDD1D
NAN_BITS = 0x7FF8000000000000
_MASK = (1 << 64) - 1
_SIGNED = frozenset({"Int8", "Int16", "Int32", "Int64"})
_SAMPLE = 1000  # values that are looked at before all are
_SALT = 0x4CF2D2BAAE6DA887  # ClickHouse's intHash64 starts with it


def text(checksum: int) -> str:
    """The form in receipts: 16 hex digits."""
    return f"{checksum & _MASK:016x}"


def add(left: int, right: int) -> int:
    """The checksum of two sets of rows together."""
    return (left + right) & _MASK


# ---- ClickHouse


def sql(kind: IcebergType, expression: str, source_type: str = "") -> str:
    """The aggregate that gives a column's checksum. `expression` is repeated: pass a column's name. `source_type` is
    ClickHouse's type of the expression, where it is known."""
    return f"sum({_short_sql(kind, expression, source_type) or hash_sql(kind, expression)})"


def _short_sql(kind: IcebergType, expression: str, source_type: str) -> str:
    """The same hash by fewer functions, of the commonest types: for a wide table the engine spends more time on planning
    than on the rows. An integer is widened by the sum with SEED, which wraps."""
    match kind:
        case IntegerType() | LongType() if source_type in _SIGNED:
            return f"intHash64({expression} + {SEED})"
        case DoubleType() if source_type == "Float64":
            return (
                f"intHash64(if(isNaN({expression}), {NAN_BITS}, reinterpretAsUInt64({expression})) + {SEED})"
            )
        case StringType() | BinaryType() if source_type == "String":
            return f"intHash64(murmurHash3_64({expression}) + {SEED})"
        case _:
            return ""


def hash_sql(kind: IcebergType, expression: str, depth: int = 0) -> str:
    """The hash of one value, a UInt64 that is never NULL."""
    match kind:
        case ListType():
            return list_sql(partial(hash_sql, kind.element_type), expression, depth)
        case MapType():
            return map_sql(
                partial(hash_sql, kind.key_type), partial(hash_sql, kind.value_type), expression, depth
            )
        case StructType():
            places = enumerate(kind.fields, start=1)
            return struct_sql(
                [
                    (item.field_id, hash_sql(item.field_type, f"tupleElement({expression}, {place})", depth))
                    for place, item in places
                ],
                expression,
            )
        case _:
            return f"ifNull({_scalar_sql(kind, expression)}, {NULL_HASH})"


def list_sql(element: HashSql, expression: str, depth: int) -> str:
    each, place = f"e{depth}", f"i{depth}"
    total = (
        f"arraySum(({each}, {place}) -> {element(each, depth + 1)} * (2 * {place} + 1),"
        f" {expression}, arrayEnumerate({expression}))"
    )
    return f"intHash64({total} + length({expression}) * {STEP} + {SEED})"


def map_sql(key: HashSql, value: HashSql, expression: str, depth: int) -> str:
    each_key, each_value = f"k{depth}", f"v{depth}"
    entry = f"intHash64({key(each_key, depth + 1)} * 3 + {value(each_value, depth + 1)})"
    total = f"arraySum(({each_key}, {each_value}) -> {entry}, mapKeys({expression}), mapValues({expression}))"
    return f"intHash64({total} + length({expression}) * {STEP} + {SEED})"


def struct_sql(fields: Sequence[tuple[int, str]], expression: str) -> str:
    """Of the ids of its fields and the hash of each."""
    terms = (f"{hashed} * {2 * field_id + 1}" for field_id, hashed in fields)
    return f"if(isNull({expression}), {NULL_HASH}, intHash64({' + '.join(terms)} + {SEED}))"


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
            return wide_sql(f"reinterpretAsInt128(toDecimal128({expression}, {kind.scale}))")
        case UUIDType():
            return wide_sql(f"toUInt128({expression})")
        case StringType() | BinaryType() | FixedType():
            return f"intHash64(murmurHash3_64({expression}) + {SEED})"
    raise _unknown(kind)


def wide_sql(wide: str) -> str:
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
    return with_nulls(plain(array), partial(_valid_hashes, kind))


def plain(array: Any) -> Any:
    """The values themselves, without an extension or a dictionary around them."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    return array


def with_nulls(array: Any, valid: ArrowHashes) -> Hashes:
    """What `valid` makes of the values, whatever it makes of those under nulls."""
    result = valid(array)
    if array.null_count:
        result[np.asarray(array.is_null())] = np.uint64(NULL_HASH)
    return result


def _valid_hashes(kind: IcebergType, array: Any) -> Hashes:
    """As `hashes`, where values at nulls may be anything."""
    match kind:
        case ListType():
            return list_hashes(partial(hashes, kind.element_type), array)
        case MapType():
            return map_hashes(partial(hashes, kind.key_type), partial(hashes, kind.value_type), array)
        case StructType():
            fields = kind.fields
            return struct_hashes(
                [(item.field_id, hashes(item.field_type, array.field(item.name))) for item in fields],
                len(array),
            )
        case StringType() | BinaryType() | FixedType():
            return _bytes_hashes(array)
        case DecimalType():
            return decimal_hashes(kind.scale, array)
        case UUIDType():
            return _uuid_hashes(array)
        case _:
            return number_hashes(_bits(kind, array))


def number_hashes(bits: Hashes) -> Hashes:
    return mix(bits + np.uint64(SEED))


def struct_hashes(fields: Sequence[tuple[int, Hashes]], length: int) -> Hashes:
    total = np.full(length, SEED, dtype=np.uint64)
    for field_id, hashed in fields:
        total += hashed * np.uint64(2 * field_id + 1)
    return mix(total)


def list_hashes(element: ArrowHashes, array: Any) -> Hashes:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
    ends = np.cumsum(lengths)
    starts = ends - lengths
    positions = np.arange(1, int(ends[-1]) + 1 if len(ends) else 1) - np.repeat(starts, lengths)
    weights = (2 * positions + 1).astype(np.uint64)
    # flatten() leaves out what lies under nulls and outside of a slice
    weighted = element(array.flatten()) * weights
    return mix(_sums(weighted, starts, ends) + lengths.astype(np.uint64) * np.uint64(STEP) + np.uint64(SEED))


def map_hashes(key: ArrowHashes, value: ArrowHashes, array: Any) -> Hashes:
    offsets = np.asarray(array.offsets).astype(np.int64)
    starts, ends = offsets[:-1], offsets[1:]
    lengths = (ends - starts).astype(np.uint64)
    entries = mix(key(array.keys) * np.uint64(3) + value(array.items))
    return mix(_sums(entries, starts, ends) + lengths * np.uint64(STEP) + np.uint64(SEED))


def _sums(values: Hashes, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Hashes:
    running = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values, out=running[1:])
    return running[ends] - running[starts]


def _bytes_hashes(array: Any) -> Hashes:
    """Python hashes one string at a time: each distinct one only once, where few are distinct."""
    array = _as_bytes(array)
    sample = array.slice(0, _SAMPLE)
    if pc.count_distinct(sample).as_py() * 2 > len(sample):
        return _digests(array)
    encoded = array.dictionary_encode()
    by_code = _digests(encoded.dictionary)
    if not len(by_code):
        return np.zeros(len(array), dtype=np.uint64)
    codes: NDArray[Any] = np.asarray(pc.fill_null(encoded.indices, 0))
    result: Hashes = by_code[codes]
    return result


def _digests(array: Any) -> Hashes:
    values = (b"" if value is None else value for value in array.to_pylist())
    halves = np.frombuffer(b"".join(map(mmh3.mmh3_x64_128_digest, values)), dtype="<u8").reshape(-1, 2)
    return mix((halves[:, 0] ^ halves[:, 1]) + np.uint64(SEED))


def _as_bytes(array: Any) -> Any:
    """Text as its bytes: no text is decoded and encoded again."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    return array.cast(pa.large_binary() if large else pa.binary())


def decimal_hashes(scale: int, array: Any) -> Hashes:
    wide = array.cast(pa.decimal128(38, scale))
    return wide_hashes(_fixed_buffer(wide, np.dtype("<u8")), low=0, high=1)


def _uuid_hashes(array: Any) -> Hashes:
    return wide_hashes(_fixed_buffer(array.cast(pa.binary(16)), np.dtype(">u8")), low=1, high=0)


def _fixed_buffer(array: Any, order: np.dtype[Any]) -> Hashes:
    """The two 64-bit halves of every 16-byte value, in the order they lie."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros((len(array), 2), dtype=np.uint64)
    pairs = np.frombuffer(buffer, dtype=order, count=2 * (array.offset + len(array))).reshape(-1, 2)
    return pairs[array.offset :].astype(np.uint64)


def wide_hashes(pairs: Hashes, *, low: int, high: int) -> Hashes:
    return mix(pairs[:, low] + mix(pairs[:, high] + np.uint64(SEED)))


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


def mix(values: Hashes) -> Hashes:
    mixed = values ^ np.uint64(_SALT)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(33)
    mixed *= np.uint64(0xC4CEB9FE1A85EC53)
    mixed ^= mixed >> np.uint64(33)
    return mixed


def _unknown(kind: IcebergType) -> PermanentError:
    return PermanentError(f"no checksum is defined for the type {kind}", code="checksum_type")
