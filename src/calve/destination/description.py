"""A destination as a plan keeps it, and whether it still is as the plan describes it.

Files that are written already must fit the table at the moment of the publish: a column that was
dropped or narrowed since, or another partition spec, would make them unreadable. What readers do not
mind, such as a rename or a promotion that Iceberg allows, is not a change.

Partition values have two forms: JSON in receipts, typed in manifests.
"""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
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
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from calve.destination.plan import DestinationPlan, ExportPlan, SpecField
from calve.model.errors import PermanentError
from calve.objects.uri import full_uri

if TYPE_CHECKING:  # an executor needs no table
    from pyiceberg.table.metadata import TableMetadata

_WRITING_PROPERTIES = ("write.", "schema.name-mapping.default", "commit.")


def describe_metadata(
    metadata: "TableMetadata",
    *,
    catalog: str,
    identifier: tuple[str, ...],
    form: str,
    data_location: str,
    receipts_location: str,
) -> DestinationPlan:
    spec = metadata.spec()
    head = metadata.current_snapshot()
    return DestinationPlan(
        catalog=catalog,
        identifier=identifier,
        form=form,
        uuid=str(metadata.table_uuid),
        location=full_uri(metadata.location.rstrip("/")),
        data_location=data_location,
        receipts_location=receipts_location,
        schema_id=metadata.current_schema_id,
        schema=metadata.schema().model_dump_json(),
        spec_id=spec.spec_id,
        spec=tuple(
            SpecField(
                field_id=field.field_id,
                source_id=field.source_id,
                name=field.name,
                transform=str(field.transform),
                select="",  # the exporter fills in the SQL: it knows the source's columns
            )
            for field in spec.fields
        ),
        sort_order_id=metadata.default_sort_order_id,
        base_snapshot_id=None if head is None else str(head.snapshot_id),
        properties={
            key: value for key, value in metadata.properties.items() if key.startswith(_WRITING_PROPERTIES)
        },
    )


def refuse_changes(plan: ExportPlan, metadata: "TableMetadata", name: str) -> None:
    """PermanentError, naming what changed, if the table no longer takes the plan's files."""
    destination = plan.destination
    found = str(metadata.table_uuid)
    if found != destination.uuid:
        raise PermanentError(
            f"{name} was dropped and created again: its uuid is {found}, the plan's is {destination.uuid}",
            code="destination_replaced",
            hint="export again into the new table",
        )
    changes = [*_changed_columns(plan, metadata.schema()), *_changed_spec(destination, metadata)]
    if changes:
        raise PermanentError(
            f"{name} changed since the plan was made: {'; '.join(changes)}",
            code="destination_changed",
            hint="undo the change, or export the partitions again: the new plan follows the table",
        )


def _changed_columns(plan: ExportPlan, current: Schema) -> list[str]:
    planned = Schema.model_validate_json(plan.destination.schema)
    now = {field.field_id: field for field in current.fields}
    changes = []
    written = {column.field_id for column in plan.columns}
    for field in planned.fields:
        if field.field_id in written:
            changes.extend(_changed_field(field, now.get(field.field_id), field.name))
    changes.extend(
        f"column {field.name} is required and the plan does not write it"
        for field in current.fields
        if field.required and field.field_id not in written
    )
    return changes


def _changed_field(before: NestedField, after: NestedField | None, path: str) -> list[str]:
    """A rename is not a change: files carry field ids, and readers use those."""
    if after is None:
        return [f"column {path} was dropped"]
    changes = []
    if after.required and before.optional:
        changes.append(f"column {path} was made required")
    return changes + _changed_type(before.field_type, after.field_type, path)


def _changed_type(before: IcebergType, after: IcebergType, path: str) -> list[str]:
    """Nested fields may be added if they are optional, and types promoted as Iceberg allows: readers
    promote the values of older files. Nothing else may differ."""
    match before, after:
        case StructType(), StructType():
            now = {field.field_id: field for field in after.fields}
            changes = [
                change
                for field in before.fields
                for change in _changed_field(field, now.pop(field.field_id, None), f"{path}.{field.name}")
            ]
            return changes + [
                f"column {path}.{field.name} was added as required"
                for field in now.values()
                if field.required
            ]
        case ListType(), ListType():
            return _changed_field(before.element_field, after.element_field, f"{path}.element")
        case MapType(), MapType():
            return [
                *_changed_field(before.key_field, after.key_field, f"{path}.key"),
                *_changed_field(before.value_field, after.value_field, f"{path}.value"),
            ]
        case PrimitiveType(), PrimitiveType() if before == after or _is_promoted(before, after):
            return []
        case _:
            return [f"column {path} was {before} and is {after}"]


def _is_promoted(before: PrimitiveType, after: PrimitiveType) -> bool:
    """The promotions of format versions 1 and 2."""
    match before, after:
        case (IntegerType(), LongType()) | (FloatType(), DoubleType()):
            return True
        case DecimalType(), DecimalType():
            return before.scale == after.scale and before.precision <= after.precision
        case _:
            return False


def _changed_spec(destination: DestinationPlan, metadata: "TableMetadata") -> list[str]:
    """Files are written under the plan's spec id, which Iceberg allows as long as the spec exists
    as it was: a new default spec alone does not matter."""
    schema = metadata.schema()
    spec = metadata.specs().get(destination.spec_id)
    if spec is None:
        return [f"partition spec {destination.spec_id} was removed"]
    planned = [(item.field_id, item.source_id, item.name, item.transform) for item in destination.spec]
    found = [(item.field_id, item.source_id, item.name, str(item.transform)) for item in spec.fields]
    if planned != found:
        return [f"partition spec {destination.spec_id} is another one than planned"]
    columns = {field.field_id for field in schema.fields}
    return [
        f"the source column of partition field {item.name} was dropped"
        for item in spec.fields
        if item.source_id not in columns and schema.find_column_name(item.source_id) is None
    ]


def to_json(kind: IcebergType, value: Any) -> Any:
    """The receipt's form of a typed value."""
    if value is None:
        return None
    match kind:
        case FloatType() | DoubleType():
            number = float(value)
            if number != number:
                return "NaN"
            return {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(number, number)
        case DecimalType() | UUIDType():
            return str(value)
        case FixedType() | BinaryType():
            return bytes(value).hex()
        case _:
            return value


def from_json(kind: IcebergType, value: Any) -> Any:
    """The typed value of a receipt's form; PermanentError if it is not of that type."""
    if value is None:
        return None
    try:
        return _typed(kind, value)
    except (TypeError, ValueError, InvalidOperation) as cause:
        raise PermanentError(
            f"a receipt has the partition value {value!r}, which is not a valid {kind}",
            code="receipt_invalid",
            hint="export the partition again; the receipt was not written by a compatible version",
        ) from cause


def _typed(kind: IcebergType, value: Any) -> Any:
    match kind:
        case BooleanType() if isinstance(value, bool):
            return value
        case IntegerType() | LongType() | DateType() | TimeType() | TimestampType() | TimestamptzType():
            if isinstance(value, int) and not isinstance(value, bool):
                return value
        case FloatType() | DoubleType() if not isinstance(value, bool):
            return float(value)
        case DecimalType() if isinstance(value, str):
            return Decimal(value)
        case UUIDType() if isinstance(value, str):
            return UUID(value)
        case FixedType() | BinaryType() if isinstance(value, str):
            return bytes.fromhex(value)
        case StringType() if isinstance(value, str):
            return value
        case _:
            pass
    raise TypeError(f"{value!r} is not a {kind}")


def record(spec: PartitionSpec, schema: Schema, values: Sequence[Any]) -> Record:
    """A data file's partition, typed, from a receipt's values in the spec's field order."""
    fields = spec.partition_type(schema).fields
    if len(fields) != len(values):
        raise PermanentError(
            f"a receipt has {len(values)} partition values where spec {spec.spec_id} has {len(fields)} fields",
            code="receipt_invalid",
            hint="export the partition again; the receipt was written for another partition spec",
        )
    return Record(*(from_json(field.field_type, value) for field, value in zip(fields, values, strict=True)))
