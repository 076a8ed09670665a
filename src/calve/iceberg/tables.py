"""Iceberg tables: load, create, describe for a plan, and compare with a plan."""

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from calve.destination import names
from calve.destination.address import ICEBERG
from calve.destination.plan import DestinationPlan, ExportPlan, SpecField
from calve.iceberg.catalogs.entry import RECEIPTS, SORT_ORDER_IDS
from calve.iceberg.errors import catalog_call
from calve.model.errors import NotFoundError, PermanentError, RefusedError
from calve.objects.uri import full_uri

WRITABLE_FORMATS = (1, 2)
_WRITING_PROPERTIES = ("write.", "schema.name-mapping.default", "commit.")


def load(catalog: Catalog, identifier: tuple[str, ...]) -> Table:
    """The table as it is now. NotFoundError if there is none, UnavailableError on an outage."""
    name = ".".join(identifier)
    with catalog_call(catalog.name, f"loading table {name}"):
        try:
            return catalog.load_table(identifier)
        except NoSuchTableError as cause:
            raise NotFoundError(
                f"catalog {catalog.name} has no table {name}",
                code="no_such_table",
                hint="it was dropped, renamed or never created: check the name, and the catalog with `calve doctor`",
            ) from cause


def exists(catalog: Catalog, identifier: tuple[str, ...]) -> bool:
    try:
        load(catalog, identifier)
    except NotFoundError:
        return False
    return True


def create(
    catalog: Catalog,
    identifier: tuple[str, ...],
    schema: Schema,
    *,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    sort_order: SortOrder = UNSORTED_SORT_ORDER,
    properties: dict[str, str] | None = None,
    location: str | None = None,
) -> Table:
    """The table, made with its namespace where it is missing. Twice gives the first one's table:
    the caller compares it with what it needs, as with any table it found."""
    name = ".".join(identifier)
    with catalog_call(catalog.name, f"creating table {name}"):
        _create_namespaces(catalog, identifier[:-1])
        try:
            # If we die here, an empty table is left, which the next try finds and uses.
            return catalog.create_table(
                identifier,
                schema,
                location=location,
                partition_spec=spec,
                sort_order=sort_order,
                properties=properties or {},
            )
        except TableAlreadyExistsError:
            pass
    return load(catalog, identifier)


def _create_namespaces(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    """A nested namespace needs its parents in most catalogs."""
    for depth in range(1, len(namespace) + 1):
        level = namespace[:depth]
        if catalog.namespace_exists(level):
            continue
        try:
            # If we die here, an empty namespace is left, which the next try finds.
            catalog.create_namespace(level)
        except Exception:
            # A race lost looks different in each catalog (SQL: a broken constraint). What counts
            # is whether the namespace is there.
            if not catalog.namespace_exists(level):
                raise


def receipts_location(catalog: Catalog, table: Table) -> str:
    """Beside the table's metadata, or where the catalog's entry says: table buckets take nothing but
    tables. There each table has a folder of its own."""
    if elsewhere := str(catalog.properties.get(RECEIPTS, "")):
        return f"{full_uri(elsewhere.rstrip('/'))}/{table.metadata.table_uuid}"
    return f"{full_uri(table.metadata.location.rstrip('/'))}/{names.RECEIPTS}"


def tells_sort_orders(catalog: Catalog) -> bool:
    """Whether sorted files are to say so. ClickHouse's reader takes files that do for one sorted stream,
    though each is sorted by itself: its ORDER BY then answers in another order."""
    return str(catalog.properties.get(SORT_ORDER_IDS, "true")).lower() == "true"


def describe(catalog: Catalog, table: Table) -> DestinationPlan:
    """The table as a plan keeps it. RefusedError for a format that cannot be written."""
    _check_format(table.metadata, f"table {'.'.join(table.name())}", RefusedError)
    return describe_metadata(
        table.metadata,
        catalog=catalog.name,
        identifier=tuple(table.name()),
        form=ICEBERG,
        data_location=full_uri(table.location_provider().data_path),
        receipts_location=receipts_location(catalog, table),
    )


def describe_metadata(
    metadata: TableMetadata,
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


def _check_format(
    metadata: TableMetadata, name: str, kind: type[RefusedError] | type[PermanentError]
) -> None:
    version = metadata.format_version
    if version not in WRITABLE_FORMATS:
        raise kind(
            f"{name} has Iceberg format version {version}; only versions 1 and 2 can be written",
            code="format_not_supported",
            hint="export into a table of format version 2",
        )


def check(plan: ExportPlan, table: Table) -> None:
    """PermanentError, naming what changed, if the table no longer takes the plan's files."""
    refuse_changes(plan, table.metadata, f"table {'.'.join(table.name())}")


def refuse_changes(plan: ExportPlan, metadata: TableMetadata, name: str) -> None:
    destination = plan.destination
    found = str(metadata.table_uuid)
    if found != destination.uuid:
        raise PermanentError(
            f"{name} was dropped and created again: its uuid is {found}, the plan's is {destination.uuid}",
            code="destination_replaced",
            hint="export again into the new table",
        )
    _check_format(metadata, name, PermanentError)
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


def _changed_spec(destination: DestinationPlan, metadata: TableMetadata) -> list[str]:
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
