"""Each partition spec and sort order once in a table's metadata.

Iceberg's Java keeps them by id, and opens no table that has an id twice: Spark, Trino and all that are built on it fail
with "Multiple entries with same key: 0=[] and 0=[]". PyIceberg, which applies the updates of SQL, Glue and Hive
catalogs, appends what is there already; and no requirement of a commit says that a sort order is absent. So two
programs that both added the sort order 0 made such a table. Here an update adds nothing twice, and takes away what
was added twice before.
"""

from collections import Counter
from typing import Any

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSortOrderUpdate,
    AssertTableUUID,
    TableUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)


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
