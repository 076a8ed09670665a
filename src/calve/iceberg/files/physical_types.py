"""The form in which values lie in Parquet, where the engine's own is not Iceberg's.

Iceberg stores decimals of 9 digits or fewer as int32 and of 18 or fewer as int64; the engine
writes fixed bytes. So such decimals are written as their unscaled integers, at any depth, and
`footer` annotates them as the decimals they are.

What Iceberg's Java readers would misunderstand of a footer, taken out of it. Pages stay untouched.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

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
    TimestamptzType,
    UUIDType,
)

from calve.iceberg.files.thrift import Struct
from calve.model.errors import PermanentError

INT32_DIGITS, INT64_DIGITS = 9, 18
_PLAIN: dict[type[IcebergType], str] = {
    BooleanType: "Bool",
    IntegerType: "Int32",
    LongType: "Int64",
    FloatType: "Float32",
    DoubleType: "Float64",
    DateType: "Date32",
    TimestamptzType: "DateTime64(6, 'UTC')",
    StringType: "String",
    BinaryType: "String",
    UUIDType: "UUID",
}


def physical_sql(kind: IcebergType, expression: str, *, required: bool, depth: int = 0) -> str:
    """The SQL of what is written for a value of `kind`; mostly the value itself."""
    if not _has_small_decimal(kind):
        return expression
    match kind:
        case ListType():
            each = f"e{depth}"
            element = physical_sql(kind.element_type, each, required=kind.element_required, depth=depth + 1)
            return f"arrayMap({each} -> {element}, {expression})"
        case MapType():
            key, value = f"k{depth}", f"v{depth}"
            new_key = physical_sql(kind.key_type, key, required=True, depth=depth + 1)
            new_value = physical_sql(kind.value_type, value, required=kind.value_required, depth=depth + 1)
            return f"mapApply(({key}, {value}) -> ({new_key}, {new_value}), {expression})"
        case StructType():
            return _struct_sql(kind, expression, required=required, depth=depth)
        case DecimalType():
            return f"reinterpretAsInt{_bits(kind)}({expression})"
    raise AssertionError(kind)


def _struct_sql(kind: StructType, expression: str, *, required: bool, depth: int) -> str:
    base = expression if required else f"assumeNotNull({expression})"
    fields = (
        physical_sql(item.field_type, f"tupleElement({base}, {place})", required=item.required, depth=depth)
        for place, item in enumerate(kind.fields, start=1)
    )
    whole = _type(kind, required=required).replace("\\", "\\\\").replace("'", "\\'")
    built = f"CAST(tuple({', '.join(fields)}), '{whole}')"
    return built if required else f"if(isNull({expression}), NULL, {built})"


def _type(kind: IcebergType, *, required: bool) -> str:
    """ClickHouse's type of what is written."""
    match kind:
        case ListType():
            return f"Array({_type(kind.element_type, required=kind.element_required)})"
        case MapType():
            key = _type(kind.key_type, required=True)
            return f"Map({key}, {_type(kind.value_type, required=kind.value_required)})"
        case StructType():
            fields = (
                f"{_quoted(item.name)} {_type(item.field_type, required=item.required)}"
                for item in kind.fields
            )
            text = f"Tuple({', '.join(fields)})"
        case DecimalType():
            small = kind.precision <= INT64_DIGITS
            text = f"Int{_bits(kind)}" if small else f"Decimal({kind.precision}, {kind.scale})"
        case FixedType():
            text = f"FixedString({len(kind)})"
        case _ if type(kind) in _PLAIN:
            text = _PLAIN[type(kind)]
        case _:
            raise PermanentError(f"the type {kind} cannot be written", code="write_type")
    return text if required else f"Nullable({text})"


def _quoted(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _bits(kind: DecimalType) -> int:
    return 32 if kind.precision <= INT32_DIGITS else 64


def _has_small_decimal(kind: IcebergType) -> bool:
    match kind:
        case ListType():
            return _has_small_decimal(kind.element_type)
        case MapType():
            return _has_small_decimal(kind.key_type) or _has_small_decimal(kind.value_type)
        case StructType():
            return any(_has_small_decimal(item.field_type) for item in kind.fields)
        case DecimalType():
            return kind.precision <= INT64_DIGITS
        case _:
            return False


FILE_GROUPS, GROUP_COLUMNS = 4, 1
CHUNK_META, CHUNK_INDEX_OFFSET, CHUNK_INDEX_LENGTH = 3, 6, 7
META_STATISTICS, META_ENCODING_STATS = 12, 13
_MAXIMA, _MINIMA = (1, 5), (2, 6)  # the deprecated and today's fields
_EXACTNESS = (7, 8)


class PlacedLeaf(Protocol):
    @property
    def place(self) -> int: ...
    @property
    def type(self) -> IcebergType: ...


def strip_uuid_statistics(meta: Struct, leaves: Sequence[PlacedLeaf]) -> None:
    """Iceberg's Java compares UUIDs as signed numbers, so any bounds make it skip rows (W5)."""
    for chunk in _chunks(meta, [leaf.place for leaf in leaves if isinstance(leaf.type, UUIDType)]):
        statistics = chunk[CHUNK_META].data.get(META_STATISTICS)
        if statistics is not None:
            for number in (*_MAXIMA, *_MINIMA, *_EXACTNESS):  # counts stay
                statistics.data.pop(number, None)
        _forget_page_index(chunk)


def fix_zeros(meta: Struct, leaves: Sequence[PlacedLeaf]) -> None:
    """To Java -0.0 is below 0.0; to SQL they are equal (W3). So a maximum is never -0.0 and a minimum
    never 0.0, as Parquet asks of writers. And without encoding statistics Iceberg does not look a value
    up in a column's dictionary, where it would not find the zero of the other sign."""
    for leaf in leaves:
        if not isinstance(leaf.type, FloatType | DoubleType):
            continue
        positive = bytes(4 if isinstance(leaf.type, FloatType) else 8)
        negative = positive[:-1] + b"\x80"
        for chunk in _chunks(meta, [leaf.place]):
            chunk[CHUNK_META].data.pop(META_ENCODING_STATS, None)
            statistics = chunk[CHUNK_META].data.get(META_STATISTICS)
            if statistics is None:
                continue
            fixed = _replace(statistics.data, _MAXIMA, negative, positive)
            fixed |= _replace(statistics.data, _MINIMA, positive, negative)
            if fixed:
                _forget_page_index(chunk)


def _replace(statistics: Struct, numbers: Sequence[int], old: bytes, new: bytes) -> bool:
    found = [number for number in numbers if number in statistics and statistics[number].data == old]
    for number in found:
        statistics[number].data = new
    return bool(found)


def _chunks(meta: Struct, places: Sequence[int]) -> Iterator[Struct]:
    for group in meta[FILE_GROUPS].data.items if FILE_GROUPS in meta and places else ():
        for place in places:
            yield group[GROUP_COLUMNS].data.items[place]


def _forget_page_index(chunk: Struct) -> None:
    """The index of the pages holds min and max too; its bytes stay, unreferenced."""
    chunk.pop(CHUNK_INDEX_OFFSET, None)
    chunk.pop(CHUNK_INDEX_LENGTH, None)
