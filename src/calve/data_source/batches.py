"""One Spark partition: some parts, or a range of one, out of the engine as Arrow batches."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from calve.clickhouse.engine.engine import worker_engine
from calve.clickhouse.reader import Piece, opened
from calve.clickhouse.sql.tokens import name as quoted
from calve.export.payload import TaskPayload
from calve.model.errors import PermanentError

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
