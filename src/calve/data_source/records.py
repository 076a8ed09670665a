"""What Calve knows of its own work, as a data source of Spark: the tables of `calve sql`, with their columns.

    from calve.data_source.records import CalveDataSource

    spark.dataSource.register(CalveDataSource)
    done = spark.read.format("calve").option("url", "http://127.0.0.1:8180").option("table", "processes").load()

The driver reads it from a server, page by page, and hands the rows to the tasks: no executor sees the token or
needs to reach the server. All rows are read, whatever `limits.select_rows` is.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from calve.client.transport import Transport, given_token
from calve.model.errors import UsageError
from calve.sql.reader import DeskReader, SqlTable
from calve.sql.tables import TABLES

_ROWS = 10_000  # of a Spark task
_OPTIONS = ("url", "table", "token", "token_file", "ca_file")
_OURS = {name.removeprefix("calve."): table for name, table in TABLES.items() if name.startswith("calve.")}
_TYPES = {"String": "STRING", "UInt64": "BIGINT", "Bool": "BOOLEAN", "DateTime": "TIMESTAMP"}
_WRAPPED = re.compile(r"(?:LowCardinality|Nullable)\((.*)\)")
Row = tuple[Any, ...]


class RecordsPartition(InputPartition):  # type: ignore[misc]
    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)


class CalveDataSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "calve"

    def schema(self) -> str:
        columns = _OURS[self._table].schema.columns
        return ", ".join(f"{name} {spark_type(kind)}" for name, kind in columns)

    def reader(self, schema: Any) -> "Records":
        return Records(self._table, dict(self.options))

    @property
    def _table(self) -> str:
        given = {name.lower() for name in self.options} - set(_OPTIONS)
        table = str(self.options.get("table", ""))
        # Spark shows the message, and not the hint.
        if given:
            raise UsageError(
                f"unknown option {min(given)!r}: options are {', '.join(_OPTIONS)}", code="bad_option"
            )
        if table not in _OURS:
            wrong = f"unknown table {table!r}" if table else "option table is missing"
            raise UsageError(f"{wrong}: tables are {', '.join(sorted(_OURS))}", code="bad_option")
        return table


class Records(DataSourceReader):  # type: ignore[misc]
    """Everything is read by `partitions`, on the driver."""

    def __init__(self, table: str, options: Mapping[str, str]) -> None:
        self._table = table
        self._options = dict(options)

    def __repr__(self) -> str:
        return f"Records({self._table!r})"

    def partitions(self) -> Sequence[InputPartition]:
        options, self._options = self._options, {}  # what is left of this object goes to executors
        transport = Transport(
            options.get("url", "http://127.0.0.1:8180"),
            options.get("token") or given_token(options.get("token_file"), os.environ),
            ca_file=options.get("ca_file", ""),
        )
        try:
            return list(_pages(_OURS[self._table], DeskReader(ask=transport.call, most=sys.maxsize)))
        finally:
            transport.close()

    def read(self, partition: InputPartition) -> Iterator[Row]:
        assert isinstance(partition, RecordsPartition)
        return iter(partition.rows)


def _pages(table: SqlTable, reader: DeskReader) -> Iterator[RecordsPartition]:
    """At least one, so that a table without rows is a table."""
    times = {name for name, kind in table.schema.columns if "DateTime" in kind}
    rows = (
        tuple(_time(row[name]) if name in times else row[name] for name, _ in table.schema.columns)
        for row in table.rows(reader)
    )
    yield RecordsPartition(list(islice(rows, _ROWS)))
    while more := list(islice(rows, _ROWS)):
        yield RecordsPartition(more)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text).replace(tzinfo=UTC) if text else None


def spark_type(kind: str) -> str:
    """Of a column of ClickHouse."""
    if inner := _WRAPPED.fullmatch(kind):
        return spark_type(inner[1])
    if kind.startswith("Array("):
        return f"ARRAY<{spark_type(kind[6:-1])}>"
    return _TYPES[kind.partition("(")[0]]
