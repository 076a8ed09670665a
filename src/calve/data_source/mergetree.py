"""The data source that Spark registers.

    from calve.data_source.mergetree import MergeTreeDataSource

    spark.dataSource.register(MergeTreeDataSource)
    events = spark.read.format("mergetree").option("source", "chdb:///data/clickhouse").load("db.events")

Spark makes these objects in processes of its own and pickles them: they hold plain values only. What is wrong
with the options, or with what they name, is said in one sentence, without the traceback of that process.

One Spark partition is some parts, or a range of one, read from the engine as Arrow batches.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from calve.clickhouse.engine.engine import worker_engine
from calve.clickhouse.reader import Piece, opened
from calve.clickhouse.sql.tokens import name as quoted
from calve.data_source.filters import condition, same_at_a_server
from calve.data_source.lookup import Lookup, look_up
from calve.data_source.options import Options
from calve.data_source.spark_types import MAPPED_AS, spark_type
from calve.destination.plan import ColumnPlan, DestinationPlan, ExportPlan
from calve.export.columns import MappedColumn, map_columns, raise_refusals
from calve.export.payload import TaskPayload
from calve.export.slices import slice_parts
from calve.model.errors import CalveError, NotFoundError, PermanentError, UsageError

ROWS_A_QUERY = 131_072  # 16 granules: what one answer, held in memory whole, may have
_SETTINGS = {
    "max_threads": "1",
    "optimize_use_projections": "0",
    "output_format_arrow_compression_method": "none",
    "output_format_arrow_string_as_string": "1",
    "output_format_arrow_low_cardinality_as_dictionary": "0",
    "output_format_arrow_fixed_string_as_fixed_byte_array": "1",
    "prefer_column_name_to_alias": "1",
    "session_timezone": "UTC",
}


def read_batches(payload: TaskPayload, where: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a partition in the columns, order and types of `schema`."""
    engine = worker_engine()
    selects = {column.name: column.select for column in payload.columns}
    columns = ", ".join(f"{selects[name]} AS {quoted(name)}" for name in schema.names)
    settings = {**_SETTINGS, **payload.settings, "max_memory_usage": str(payload.memory_mb * 1_000_000)}
    with opened(engine, payload.reader.function, payload.read) as rows:
        for pieces in _chunks(rows.pieces):
            source = rows.from_where(pieces, " AND ".join(f"({text})" for text in where))
            data = engine.arrow(f"SELECT {columns} {source}", settings, "reading rows")
            with pa.ipc.open_stream(data) as stream:
                for batch in stream:
                    if batch.num_rows:
                        yield _fitted(batch, schema)


def _chunks(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Small pieces together, large ones in ranges: none of more than `ROWS_A_QUERY` rows."""
    open_chunk: list[Piece] = []
    for piece in pieces:
        for start in range(piece.start, piece.end, ROWS_A_QUERY):
            part = Piece(path=piece.path, start=start, end=min(start + ROWS_A_QUERY, piece.end))
            if open_chunk and sum(one.rows for one in open_chunk) + part.rows > ROWS_A_QUERY:
                yield open_chunk
                open_chunk = []
            open_chunk.append(part)
    if open_chunk:
        yield open_chunk


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """In exactly the types that Spark expects; text that is not UTF-8 fails, naming its column."""
    arrays = []
    for field, column in zip(schema, batch.columns, strict=True):
        try:
            column.validate(full=True)
            arrays.append(column if column.type == field.type else column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise PermanentError(
                f"column {field.name} cannot be read as {field.type}: {error}",
                code="value_unwritable",
                hint="leave it out with the option columns",
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


NAME = "mergetree"
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
FILTER_CHARACTERS = 16_384  # of what a server is asked to filter by: it stands in the request's URL


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Spark reads from the environment whether to show a traceback. The process that plans data sources runs
    nothing else, so no other traceback is hidden."""
    os.environ.pop(_HIDE_TRACEBACK, None)
    try:
        yield
    except CalveError as error:
        os.environ[_HIDE_TRACEBACK] = "1"
        hint = f" (hint: {error.hint})" if error.hint else ""
        raise type(error)(f"{error.message}{hint}", code=error.code) from None


class MergeTreeDataSource(DataSource):  # type: ignore[misc]
    """`spark.read.format("mergetree")`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        with _one_sentence():
            given = Options.of(self.options)
            return StructType(
                [
                    StructField(column.name, spark_type(column.type), not column.required)
                    for column in _mapped(look_up(given), given).values()
                ]
            )

    def reader(self, schema: StructType) -> "MergeTreeReader":
        with _one_sentence():
            given = Options.of(self.options)
        return FilteringReader(given, schema) if given.pushdown else MergeTreeReader(given, schema)


class MergeTreePartition(InputPartition):  # type: ignore[misc]
    """What one Spark task reads."""

    def __init__(self, payload: str) -> None:
        self.payload = payload

    def __repr__(self) -> str:
        return "MergeTreePartition(…)"  # Spark's own shows the payload, which has keys and passwords (P22)


class MergeTreeReader(DataSourceReader):  # type: ignore[misc]
    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self.where: list[str] = []
        self._where_at_server = ""

    def __getstate__(self) -> dict[str, Any]:
        """Without what was looked up: the executors get their part of it in their partitions."""
        return {name: value for name, value in self.__dict__.items() if name != "found"}

    @cached_property
    def found(self) -> Lookup:
        return look_up(self._options, self._schema.fieldNames())

    def partitions(self) -> Sequence[InputPartition]:
        with _one_sentence():
            found = self.found
            plan = _plan(found, self._options, self._schema.fieldNames(), self._where_at_server)
        made = [
            MergeTreePartition(
                TaskPayload.of(
                    plan,
                    task=task,
                    attempt=1,
                    storage={},
                    reader=found.reader,
                ).to_json()
            )
            for task in range(len(plan.tasks))
        ]
        return made or [MergeTreePartition("")]  # Spark wants one at least

    def read(self, partition: InputPartition) -> Iterator[Any]:
        from calve.data_source.mergetree import read_batches

        assert isinstance(partition, MergeTreePartition)
        if not partition.payload:
            return iter(())
        payload = TaskPayload.from_json(partition.payload)
        return read_batches(payload, self.where, to_arrow_schema(self._schema))


class FilteringReader(MergeTreeReader):
    """Apart from its base: Spark refuses a reader that has this method while its setting is off."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take what ClickHouse can skip by; every filter stays Spark's too."""
        with _one_sentence():
            columns = _mapped(self.found, self._options)
        taken = [(one, text) for one in filters if (text := condition(one, columns)) is not None]
        self.where = [text for _, text in taken]
        if self.found.filters:
            self._where_at_server = _short_enough(
                [text for one, text in taken if same_at_a_server(one, columns)]
            )
        return filters


def _short_enough(conditions: Sequence[str]) -> str:
    """As many of them as a URL can carry: the engine here applies them all, so none is needed."""
    kept: list[str] = []
    for text in sorted(conditions, key=len):
        if sum(map(len, kept)) + len(text) <= FILTER_CHARACTERS:
            kept.append(f"({text})")
    return " AND ".join(kept)


def _mapped(found: Lookup, options: Options) -> dict[str, MappedColumn]:
    """The columns that were asked for, by their names in Spark; all where none were."""
    mapping = map_columns(found.columns, MAPPED_AS)
    wanted = options.columns or tuple(
        dict.fromkeys([column.name for column in mapping.columns] + [one.column for one in mapping.refusals])
    )
    refused = [replace(one, hint="name those to read in the option columns") for one in mapping.refusals]
    raise_refusals(str(options.table), [one for one in refused if one.column in wanted])
    columns = {column.name: column for column in mapping.columns}
    unknown = [name for name in wanted if name not in columns]
    if unknown:
        raise NotFoundError(
            f"table {options.table} has no column {', '.join(unknown)}",
            code="no_column",
            hint=f"it has {', '.join(columns)}",
        )
    return {name: columns[name] for name in wanted}


def _plan(found: Lookup, options: Options, names: Sequence[str], where_at_server: str) -> ExportPlan:
    """As an export would plan it, with nowhere to write to."""
    columns = _mapped(found, options)
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise UsageError(
            f"table {options.table} has no column {', '.join(unknown)} of the given schema",
            code="data_source",
            hint=f"it has {', '.join(columns)}",
        )
    relation = found.relation
    if where_at_server:
        relation = replace(relation, detail={**relation.detail, "where": where_at_server})
    return ExportPlan(
        process_id="spark",
        source="",
        source_identity="",
        table=str(options.table),
        relation=relation,
        parts=found.parts,
        tasks=slice_parts(found.parts, task_bytes_mb=options.split_mb, split=found.splits),
        columns=tuple(_column(columns[name]) for name in names),
        keys=(),
        destination=_NOWHERE,
        settings=found.settings,
    )


def _column(column: MappedColumn) -> ColumnPlan:
    return ColumnPlan(
        name=column.name,
        source=column.source,
        source_type=str(column.source_type),
        select=column.cast.sql,
        field_id=0,
        type=str(column.type),
        required=column.required,
    )


_NOWHERE = DestinationPlan(
    catalog="",
    identifier=(),
    uuid="",
    location="",
    data_location="",
    receipts_location="",
    schema_id=0,
    schema="",
    spec_id=0,
)
