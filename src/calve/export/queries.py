"""What an attempt asks of the engine: which destination partition a row belongs to, and one aggregate query over
what is about to be written (rows, NaNs, nulls, checksums, checks).

The aggregates are read by a query of their own, so that what was written can be compared with something.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestamptzType,
    UUIDType,
)

from calve.clickhouse.reader import Piece, Rows
from calve.clickhouse.sql.tokens import name as quoted
from calve.destination import checksums
from calve.destination.description import record, to_json
from calve.destination.names import placement
from calve.destination.plan import ColumnPlan, DestinationPlan
from calve.iceberg.files.physical_types import physical_sql
from calve.iceberg.files.statistics import ValueCounts
from calve.model.errors import PermanentError

UTF8 = "UTF-8"
ONE_FILE = "toInt32(0)"  # the ordinal of rows that all go to one file
_COLUMNS_A_QUERY = 200  # the engine plans 1,000 columns at once in 0.6 s more than five times 200
_SAMPLE = 60  # characters of a value, in an error


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Of the rows of one file."""

    rows: int
    counted: ValueCounts
    checksums: dict[str, int]


@dataclass(frozen=True, kw_only=True)
class _Count:
    """A conditional count of one field inside of a column."""

    field_id: int
    nan: bool  # otherwise of nulls
    expression: str


def is_bare(column: ColumnPlan) -> bool:
    """Read as it is: no cast."""
    return column.select == quoted(column.source)


@dataclass(frozen=True, kw_only=True)
class Output:
    """The columns of a data file, under names that no column and no expression has."""

    columns: tuple[ColumnPlan, ...]
    fields: tuple[NestedField, ...]  # of the table's schema, for each column
    prefix: str = field(default="")
    is_bare: bool = False  # names are those of the relation's columns

    @classmethod
    def of(cls, columns: Sequence[ColumnPlan], fields: Sequence[NestedField]) -> "Output":
        prefix = "calve"
        while any(prefix in text for column in columns for text in (column.select, column.name)):
            prefix += "_"
        return cls(columns=tuple(columns), fields=tuple(fields), prefix=prefix)

    def split(self) -> Iterator["Output"]:
        """Few columns at a time; of many, those that are read as they are by themselves."""
        pairs = list(zip(self.columns, self.fields, strict=True))
        if len(pairs) > _COLUMNS_A_QUERY:
            pairs.sort(key=lambda pair: not is_bare(pair[0]))
        for first in range(0, len(pairs), _COLUMNS_A_QUERY):
            columns, fields = zip(*pairs[first : first + _COLUMNS_A_QUERY], strict=True)
            yield replace(self, columns=columns, fields=fields)

    def bare(self) -> "Output | None":
        """The same, read straight from the relation: only if every column is read as it is."""
        return replace(self, is_bare=True) if all(map(is_bare, self.columns)) else None

    @property
    def unchanged(self) -> str:
        """The columns, if each is written as it is read and under its own name."""
        as_they_are = all(
            is_bare(column)
            and column.name == column.source
            and physical_sql(item.field_type, column.select, required=item.required) == column.select
            for column, item in zip(self.columns, self.fields, strict=True)
        )
        return ", ".join(column.select for column in self.columns) if as_they_are else ""

    def name(self, place: int) -> str:
        return self.columns[place].select if self.is_bare else f"{self.prefix}_c{place}"

    def check_name(self, place: int) -> str:
        return f"{self.prefix}_k{place}"

    @property
    def ordinal(self) -> str:
        return f"{self.prefix}_ordinal"

    @property
    def select(self) -> str:
        """The values as they are written, logically."""
        return ", ".join(
            f"{column.select} AS {self.name(place)}" for place, column in enumerate(self.columns)
        )


def measure(
    rows: Rows, pieces: Sequence[Piece], output: Output, ordinal_sql: str, settings: dict[str, str]
) -> dict[int, Measured]:
    """What each ordinal's file will hold. Raises if a value cannot be written, naming column and part."""
    measured: dict[int, Measured] = {}
    for place, some in enumerate(output.split()):
        found = _measure(rows, pieces, some, ordinal_sql, settings)
        measured = found if place == 0 else _joined(measured, found)
    return measured


def _joined(first: dict[int, Measured], second: dict[int, Measured]) -> dict[int, Measured]:
    """Of the same rows, other columns."""
    if {key: one.rows for key, one in first.items()} != {key: one.rows for key, one in second.items()}:
        raise PermanentError("the rows changed while they were measured", code="rows_differ")
    return {
        key: Measured(
            rows=one.rows,
            counted=ValueCounts(
                nans={**one.counted.nans, **second[key].counted.nans},
                nulls={**one.counted.nulls, **second[key].counted.nulls},
            ),
            checksums={**one.checksums, **second[key].checksums},
        )
        for key, one in first.items()
    }


def _measure(
    rows: Rows, pieces: Sequence[Piece], output: Output, ordinal_sql: str, settings: dict[str, str]
) -> dict[int, Measured]:
    bare = output.bare() if ordinal_sql == ONE_FILE else None
    output, ours = bare or output, f"{output.prefix}_"
    counts = list(_counts(output))
    inner = [f"{ordinal_sql} AS {output.ordinal}", output.select]
    facts = {"rows": "count()"}
    for place, (column, item) in enumerate(zip(output.columns, output.fields, strict=True)):
        known = column.source_type if is_bare(column) else ""
        facts[f"s{place}"] = checksums.sql(item.field_type, output.name(place), known)
        if column.check:
            inner.append(f"({column.check}) AS {output.check_name(place)}")
            facts[f"k{place}"] = f"countIf({column.check if bare else output.check_name(place)})"
    facts |= {f"n{place}": f"countIf({count.expression})" for place, count in enumerate(counts)}
    told = ", ".join(f"{expression} AS {ours}{name}" for name, expression in facts.items())
    source = rows.from_where(pieces)
    if bare:  # one level less is a fifth of the planning
        statement = f"SELECT {ONE_FILE} AS {output.ordinal}, {told} {source}"
    else:
        statement = (
            f"SELECT {output.ordinal}, {told} FROM (SELECT {', '.join(inner)} {source})"
            f" WHERE {output.ordinal} >= 0 GROUP BY {output.ordinal} ORDER BY {output.ordinal}"
        )
    answer = rows.engine.rows(statement, settings, "measuring the rows")
    found = [{name.removeprefix(ours): value for name, value in row.items()} for row in answer]
    for row in found:
        _refuse_unwritable(rows, pieces, output, row, settings)
    return {row["ordinal"]: _measured(row, output, counts) for row in found if row["rows"]}


def _measured(row: dict[str, Any], output: Output, counts: Sequence[_Count]) -> Measured:
    numbered = [(count, row[f"n{place}"]) for place, count in enumerate(counts)]
    return Measured(
        rows=row["rows"],
        counted=ValueCounts(
            nans={count.field_id: found for count, found in numbered if count.nan},
            nulls={count.field_id: found for count, found in numbered if not count.nan},
        ),
        checksums={column.name: row[f"s{place}"] for place, column in enumerate(output.columns)},
    )


def _counts(output: Output) -> Iterator[_Count]:
    for place, item in enumerate(output.fields):
        yield from _field_counts(item.field_id, item.field_type, output.name(place), nested=False)


def _field_counts(field_id: int, kind: IcebergType, expression: str, *, nested: bool) -> Iterator[_Count]:
    """Fields below lists and maps have no counts, as in Iceberg's own writer."""
    match kind:
        case StructType():
            for place, item in enumerate(kind.fields, start=1):
                inner = f"tupleElement({expression}, {place})"
                yield from _field_counts(item.field_id, item.field_type, inner, nested=True)
        case ListType() | MapType():
            return
        case _:
            if isinstance(kind, FloatType | DoubleType):
                yield _Count(field_id=field_id, nan=True, expression=f"isNaN({expression})")
            if nested:  # the engine's footer does not tell nulls of a field from those of its struct
                yield _Count(field_id=field_id, nan=False, expression=f"isNull({expression})")


def _refuse_unwritable(
    rows: Rows, pieces: Sequence[Piece], output: Output, row: dict[str, Any], settings: dict[str, str]
) -> None:
    for place, column in enumerate(output.columns):
        if column.check and row[f"k{place}"]:
            found = rows.engine.rows(
                f"SELECT _part AS part, {_sample(column)} AS sample {rows.from_where(pieces, column.check)} LIMIT 1",
                settings,
                f"finding what cannot be written of column {column.source}",
            )
            at = ""
            if found:
                at = f", such as {found[0]['sample']} in part {rows.part_name(found[0]['part'])}"
            raise PermanentError(
                f"column {column.source}: {_rows(row[f'k{place}'])} {column.check_reason}{at};"
                f" the table's column {column.name} is {column.type}",
                code="value_unwritable",
                hint=_hint(column),
            )


def _rows(count: int) -> str:
    return "1 row holds" if count == 1 else f"{count} rows hold"


def _sample(column: ColumnPlan) -> str:
    """A short, printable text of the value; flattened Nested columns have no name of their own."""
    if column.source_type.startswith(("Array(Tuple(", "Nested(")):
        return "''"
    value = quoted(column.source)
    if UTF8 in column.check_reason:
        return f"concat('0x', hex(substring(toString({value}), 1, {_SAMPLE})))"
    return f"substringUTF8(toString({value}), 1, {_SAMPLE})"


def _hint(column: ColumnPlan) -> str:
    if UTF8 in column.check_reason:
        return f"--cast {column.source}=binary keeps any bytes"
    keeps = f"--cast {column.source}=string keeps every value, or --exclude {column.source}"
    if "would change" not in column.check_reason:
        return keeps
    return f"--cast '{column.source}={column.type.replace(' ', '')} lossy' lets them change; {keeps}"


MOST_PARTITIONS = 10_000  # of one task; beyond it every file would hold next to nothing


@dataclass(frozen=True, kw_only=True)
class Partition:
    """One destination partition that the task's rows belong to."""

    key: str  # hex, never NULL: what SQL compares
    values: tuple[Any, ...]  # in the spec's order, in the receipt's form
    rows: int


class PartitionSplit:
    """The destination's spec, as SQL over the relation's columns and as folders."""

    def __init__(self, destination: DestinationPlan, schema: Schema) -> None:
        self._fields = destination.spec
        self._schema = schema
        self._spec = PartitionSpec(
            *(
                PartitionField(
                    source_id=item.source_id,
                    field_id=item.field_id,
                    transform=parse_transform(item.transform),
                    name=item.name,
                )
                for item in destination.spec
            ),
            spec_id=destination.spec_id,
        )
        self._types = [field.field_type for field in self._spec.partition_type(schema).fields]
        self._placement = placement(destination, self._spec, schema)

    @property
    def key_sql(self) -> str:
        """A text that is equal for rows of one partition and for no others."""
        return _key_sql([item.select for item in self._fields])

    def ordinal_sql(self, group: Sequence[Partition]) -> str:
        """The place of a row's partition in `group`, from 0; -1 for rows of others."""
        keys = ", ".join(f"'{partition.key}'" for partition in group)
        ordinals = ", ".join(str(place) for place in range(len(group)))
        return f"toInt32(transform({self.key_sql}, [{keys}], [{ordinals}], -1))"

    def find(self, rows: Rows, settings: dict[str, str]) -> list[Partition]:
        """The distinct partitions of a task's rows; one without values where there is no spec."""
        source = rows.from_where(rows.pieces)
        what = "finding the destination partitions"
        if not self._fields:
            counted = rows.engine.rows(f"SELECT count() AS rows {source}", settings, what)[0]["rows"]
            return [Partition(key="", values=(), rows=counted)] if counted else []
        # By value first: texts are made of the distinct ones only.
        names = [f"t{place}" for place in range(len(self._fields))]
        typed = ", ".join(f"{item.select} AS {name}" for item, name in zip(self._fields, names, strict=True))
        values = ", ".join(
            f"any({_json_sql(kind, name)}) AS v{place}"
            for place, (name, kind) in enumerate(zip(names, self._types, strict=True))
        )
        found = rows.engine.rows(
            f"SELECT {_key_sql(names)} AS key, {values}, sum(counted) AS rows"
            f" FROM (SELECT {', '.join(names)}, count() AS counted FROM (SELECT {typed} {source})"
            f" GROUP BY {', '.join(names)}) GROUP BY key ORDER BY key LIMIT {MOST_PARTITIONS + 1}",
            settings,
            what,
        )
        if len(found) > MOST_PARTITIONS:
            raise PermanentError(
                f"the rows of one task belong to more than {MOST_PARTITIONS} partitions of the table",
                code="too_many_partitions",
                hint="choose a coarser spec with --partition-by, such as bucket(16, column)",
            )
        return [self._partition(row) for row in found]

    def _partition(self, row: dict[str, Any]) -> Partition:
        values = (row[f"v{place}"] for place in range(len(self._types)))
        return Partition(
            key=row["key"],
            values=tuple(
                to_json(kind, value) if isinstance(kind, FloatType | DoubleType) else value
                for kind, value in zip(self._types, values, strict=True)
            ),
            rows=row["rows"],
        )

    def location(self, partition: Partition, file_name: str) -> str:
        """The full URI of a data file, where the destination puts it."""
        if not self._fields:
            return self._placement.file(None, file_name)
        return self._placement.file(record(self._spec, self._schema, partition.values), file_name)


def _key_sql(expressions: Sequence[str]) -> str:
    """Never NULL, and no two lists of values have the same."""
    texts = [f"toString({expression})" for expression in expressions]
    parts = [f"ifNull(concat('v', toString(length({text})), ':', {text}), 'n')" for text in texts]
    return f"hex(concat({', '.join(parts)}, ''))"


def _json_sql(kind: IcebergType, select: str) -> str:
    """A partition value in the form that receipts carry; see `calve.destination.description`."""
    match kind:
        case DateType():
            return f"toInt32({select})"
        case TimestamptzType():
            return f"toUnixTimestamp64Micro({select})"
        case DecimalType():
            return f"toDecimalString({select}, {kind.scale})"
        case UUIDType():
            return f"toString({select})"
        case BinaryType() | FixedType():
            return f"lower(hex({select}))"
        case _:
            return select
