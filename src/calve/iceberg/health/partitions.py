"""Partitions as people read them and as filters that Iceberg parses; pure."""

from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.datetime import days_to_date

from calve.iceberg.health.stats import Place

Filter = dict[str, Any]  # Iceberg's JSON form of an expression
TRUE: Filter = {"type": "literal", "value": True}

_AS_TEXT = (DecimalType, UUIDType)
_TIMES = (TimeType, TimestampType, TimestamptzType, TimestampNanoType, TimestamptzNanoType)
_BYTES = (BinaryType, FixedType)


def partition_name(metadata: TableMetadata, place: Place) -> str:
    """`day=2024-01-01/bucket=3`, as Iceberg's own paths read; `all` for an unpartitioned table."""
    spec = metadata.specs().get(place.spec_id)
    if spec is None or not spec.fields:
        return "all"
    return spec.partition_to_path(Record(*place.values), metadata.schema())


def partition_filter(spec: PartitionSpec, schema: Schema, values: tuple[object, ...]) -> Filter | None:
    """The filter that selects exactly one partition of that spec, in Iceberg's JSON; None where no
    filter can (a column that is gone, a value without a literal form): then the whole table is it."""
    whole = TRUE
    for field, value in zip(spec.fields, values, strict=True):
        if isinstance(field.transform, VoidTransform):
            continue
        term = _term(field, schema)
        if term is None:
            return None
        one = _comparison(term, _result_type(field, schema), value)
        if one is None:
            return None
        whole = one if whole is TRUE else {"type": "and", "left": whole, "right": one}
    return whole


def any_of(filters: list[Filter]) -> Filter:
    """Balanced, so that a thousand partitions do not nest a thousand deep."""
    if len(filters) == 1:
        return filters[0]
    half = len(filters) // 2
    return {"type": "or", "left": any_of(filters[:half]), "right": any_of(filters[half:])}


def _term(field: PartitionField, schema: Schema) -> Any:
    name = schema.find_column_name(field.source_id)
    if name is None:
        return None
    transform = str(field.transform)
    return name if transform == "identity" else {"type": "transform", "transform": transform, "term": name}


def _result_type(field: PartitionField, schema: Schema) -> IcebergType:
    return field.transform.result_type(schema.find_type(field.source_id))


def _comparison(term: Any, kind: IcebergType, value: object) -> Filter | None:
    if value is None:
        return {"type": "is-null", "term": term}
    if isinstance(value, float) and value != value:
        return {"type": "is-nan", "term": term}
    literal = _literal(kind, value)
    return None if literal is None else {"type": "eq", "term": term, "value": literal}


def _literal(kind: IcebergType, value: Any) -> Any:
    """Iceberg's single-value JSON."""
    if isinstance(kind, DateType):
        return days_to_date(value).isoformat()
    if isinstance(kind, _AS_TEXT):
        return str(value)
    if isinstance(kind, _BYTES):
        return bytes(value).hex()
    if isinstance(kind, _TIMES):
        return None  # an identity partition by an instant: rare, and its text form differs by version
    return value
