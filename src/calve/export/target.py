"""The table an export goes to, as a person is shown it: as it is, or as it will be made."""

from dataclasses import dataclass

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder

from calve.destination.port import FoundTable
from calve.export.destination import Layout
from calve.export.mapping import Match


@dataclass(frozen=True, kw_only=True)
class TargetColumn:
    name: str
    source: str
    source_type: str
    type: str
    required: bool
    added: bool = False  # to a table that exists, by --evolve
    check: str = ""  # what a value must not be for it to be written


@dataclass(frozen=True, kw_only=True)
class Target:
    """The table that the rows go into, as it is or as it will be made."""

    columns: tuple[TargetColumn, ...]
    schema: Schema
    spec: PartitionSpec
    sort_order: SortOrder


def made(layout: Layout) -> Target:
    """A table that does not exist yet."""
    columns = tuple(
        TargetColumn(
            name=column.name,
            source=column.source,
            source_type=str(column.source_type),
            type=str(column.type),
            required=column.required,
            check=" or ".join(dict.fromkeys(check.reason for check in column.cast.checks)),
        )
        for column in layout.mapping.columns
    )
    return Target(columns=columns, schema=layout.schema, spec=layout.spec, sort_order=layout.sort_order)


def fitted(table: FoundTable, match: Match) -> Target:
    """A table that exists, with what `--evolve` adds to it."""
    columns = [
        TargetColumn(
            name=column.name,
            source=column.source,
            source_type=column.source_type,
            type=column.type,
            required=column.required,
            check=column.check_reason,
        )
        for column in match.columns
    ]
    columns += [
        TargetColumn(
            name=column.name,
            source=column.source,
            source_type=str(column.source_type),
            type=str(column.type),
            required=False,
            added=True,
        )
        for column in match.lacking
    ]
    return Target(columns=tuple(columns), schema=table.schema, spec=table.spec, sort_order=table.sort_order)
