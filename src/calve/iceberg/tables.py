"""Iceberg tables: load, create, describe for a plan, and compare with a plan.

Finding a table by its uuid, whatever its name is now.

Each partition spec and sort order is in a table's metadata once. Iceberg's Java keeps them by id, and opens no table
that has an id twice: Spark, Trino and all that are built on it fail with "Multiple entries with same key: 0=[] and
0=[]". PyIceberg, which applies the updates of SQL, Glue and Hive catalogs, appends what is there already; and no
requirement of a commit says that a sort order is absent. So two programs that both added the sort order 0 made such a
table. Here an update adds nothing twice, and removes what was added twice before.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, UNSORTED_SORT_ORDER_ID, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSortOrderUpdate,
    AssertTableUUID,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)

from calve.destination import names
from calve.destination.description import describe_metadata, refuse_changes
from calve.destination.names import ICEBERG, RECEIPTS_PROPERTY, SORT_ORDER_IDS
from calve.destination.plan import DestinationPlan, ExportPlan
from calve.iceberg.errors import catalog_call
from calve.model.errors import (
    CalveError,
    NotFoundError,
    PermanentError,
    RefusedError,
    UnavailableError,
    UnknownOutcomeError,
)
from calve.objects.uri import full_uri

WRITABLE_FORMATS = (1, 2)
READABLE_FORMATS = (*WRITABLE_FORMATS, 3)
_COMMIT_TRIES = 5


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
            made = catalog.create_table(
                identifier,
                schema,
                location=location,
                partition_spec=spec,
                sort_order=sort_order,
                properties=properties or {},
            )
        except TableAlreadyExistsError:
            made = catalog.load_table(identifier)
    return with_unsorted(catalog, made)


def with_unsorted(catalog: Catalog, table: Table) -> Table:
    """The table with the sort order 0, "unsorted", in its metadata. Iceberg's Java looks it up for files
    that are sorted otherwise than the table, and fails where a table was made with an order of its own."""
    for _ in range(_COMMIT_TRIES):
        if any(order.order_id == UNSORTED_SORT_ORDER_ID for order in table.metadata.sort_orders):
            return table
        with catalog_call(catalog.name, f"adding the sort order 0 to table {'.'.join(table.name())}"):
            # If we die here, it is there or not: optimize asks again.
            with contextlib.suppress(CommitFailedException):
                catalog.commit_table(
                    table,
                    (AssertTableUUID(uuid=table.metadata.table_uuid),),
                    (AddSortOrderUpdate(sort_order=UNSORTED_SORT_ORDER),),  # type: ignore[call-arg]
                )
            table = catalog.load_table(tuple(table.name()))
    return table


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
    if elsewhere := str(catalog.properties.get(RECEIPTS_PROPERTY, "")):
        return f"{full_uri(elsewhere.rstrip('/'))}/{table.metadata.table_uuid}"
    return f"{full_uri(table.metadata.location.rstrip('/'))}/{names.RECEIPTS}"


def tells_sort_orders(catalog: Catalog) -> bool:
    """Whether sorted files say so; only where the catalog's entry asks for it. ClickHouse's reader takes
    files that do for one sorted stream, though each is sorted by itself: its ORDER BY … LIMIT is then wrong."""
    return str(catalog.properties.get(SORT_ORDER_IDS, "false")).lower() == "true"


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
    name = f"table {'.'.join(table.name())}"
    refuse_changes(plan, table.metadata, name)
    _check_format(table.metadata, name, PermanentError)


MOST_TABLES = 2_000  # each is loaded: a catalog's listing has names only


def find_by_uuid(catalog: Catalog, identifier: tuple[str, ...], uuid: str) -> Table | None:
    """The table, under its own name or another one; None if the catalog lists no table with the uuid.

    UnavailableError while the catalog does not answer; UnknownOutcomeError where it cannot be
    listed, so that nobody can tell a table that was renamed from one that was dropped.
    """
    try:
        table = load(catalog, identifier)
        if str(table.metadata.table_uuid) == uuid:
            return table
    except NotFoundError:
        pass
    name = ".".join(identifier)
    try:
        with catalog_call(catalog.name, f"looking for table {name} under another name"):
            return _listed(catalog, identifier[:-1], uuid)
    except UnavailableError:
        raise
    except CalveError as cause:
        raise UnknownOutcomeError(
            f"table {name} is gone from its name, and whether it was renamed is not known: {cause.message}",
            code="table_unknown",
            hint="nothing is deleted; give the table its name back, or allow the catalog to be listed",
            service=cause.service,
        ) from cause


def _listed(catalog: Catalog, first: tuple[str, ...], uuid: str) -> Table | None:
    for number, identifier in enumerate(_identifiers(catalog, first)):
        if number >= MOST_TABLES:
            raise UnknownOutcomeError(f"the catalog has more than {MOST_TABLES} tables", code="too_many")
        try:
            table = catalog.load_table(identifier)
        except NoSuchTableError:
            continue  # dropped or renamed since it was listed
        if str(table.metadata.table_uuid) == uuid:
            return table
    return None


def _identifiers(catalog: Catalog, first: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every table; those of the namespace it was in before all others. Twice: a table that is renamed
    while the namespaces are listed is in a name that was passed already."""
    for _ in range(2):
        yield from _tables_in(catalog, first)
        for namespace in _namespaces(catalog, ()):
            if namespace != first:
                yield from _tables_in(catalog, namespace)


def _namespaces(catalog: Catalog, above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    try:
        below = catalog.list_namespaces(above)
    except NoSuchNamespaceError:
        return  # dropped since it was listed
    for namespace in below:
        if len(namespace) > len(above):
            yield tuple(namespace)
            yield from _namespaces(catalog, tuple(namespace))


def _tables_in(catalog: Catalog, namespace: tuple[str, ...]) -> list[tuple[str, ...]]:
    try:
        return [tuple(name) for name in catalog.list_tables(namespace)]
    except NoSuchNamespaceError:
        return []


def _add_once(update_type: type[TableUpdate], field: str) -> None:
    """In place of PyIceberg's: the same, and then each equal one (id and fields) once."""
    theirs = _apply_table_update.dispatch(update_type)

    def apply(update: Any, base: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
        made = theirs(update, base, context)
        kept: list[Any] = []
        for one in getattr(made, field):
            if one not in kept:
                kept.append(one)
        return made.model_copy(update={field: kept})

    _apply_table_update.register(update_type, apply)


_add_once(AddPartitionSpecUpdate, "partition_specs")
_add_once(AddSortOrderUpdate, "sort_orders")


def repeated_ids(metadata: TableMetadata) -> tuple[str, ...]:
    """What the metadata has more than once, for people."""
    found = Counter(f"partition spec {spec.spec_id}" for spec in metadata.partition_specs)
    found.update(f"sort order {order.order_id}" for order in metadata.sort_orders)
    return tuple(name for name, count in found.items() if count > 1)


def make_unique(catalog: Catalog, table: Table) -> Table:
    """The table, readable for Java again. A REST catalog applies updates by itself, and is left alone."""
    metadata = table.metadata
    if not repeated_ids(metadata) or not isinstance(catalog, MetastoreCatalog):
        return table
    # If we die here, the ids are there once, or as they were: the next optimize asks again.
    catalog.commit_table(
        table,
        (AssertTableUUID(uuid=metadata.table_uuid),),
        (
            *(AddPartitionSpecUpdate(spec=spec) for spec in metadata.partition_specs),
            *(AddSortOrderUpdate(sort_order=order) for order in metadata.sort_orders),  # type: ignore[call-arg]
        ),
    )
    return catalog.load_table(tuple(table.name()))
