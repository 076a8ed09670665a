"""What Calve knows of its own work, as a data source of Spark.

    from calve.data_source.records import CalveDataSource

    spark.dataSource.register(CalveDataSource)
    done = spark.read.format("calve").option("url", "http://127.0.0.1:8180").option("table", "processes").load()

The driver reads it from a server, page by page, and hands the rows to the tasks: no executor sees the token or
needs to reach the server.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from calve.client.transport import Transport, given_token
from calve.model.errors import UsageError

_PAGE = 1000
_OPTIONS = ("url", "table", "token", "token_file", "ca_file")
_PROCESSES = """
    id STRING, batch STRING, kind STRING, state STRING, source STRING, destination STRING, partitions ARRAY<STRING>,
    tasks_total BIGINT, tasks_done BIGINT, tasks_failed BIGINT, rows BIGINT, files BIGINT, bytes BIGINT,
    snapshot_id STRING, retry_of STRING, error_code STRING, error_message STRING, created_at TIMESTAMP,
    finished_at TIMESTAMP
"""
_SCHEMAS = {
    "processes": _PROCESSES,
    "exports": _PROCESSES,
    "backups": """
        name STRING, created_at TIMESTAMP, source STRING, process STRING, tables BIGINT, parts BIGINT, rows BIGINT,
        bytes BIGINT, own_bytes BIGINT, moved_bytes BIGINT, error STRING
    """,
    "workers": """
        id STRING, host STRING, state STRING, slots BIGINT, processes BIGINT, reach ARRAY<STRING>, kinds ARRAY<STRING>,
        started_at TIMESTAMP, heartbeat_at TIMESTAMP
    """,
}
Row = tuple[Any, ...]
Call = Callable[[str, Mapping[str, Any]], Any]


class Page(InputPartition):  # type: ignore[misc]
    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = list(rows)


class CalveDataSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "calve"

    def schema(self) -> str:
        return _SCHEMAS[self._table]

    def reader(self, schema: Any) -> "Records":
        return Records(self._table, dict(self.options))

    @property
    def _table(self) -> str:
        given = {name.lower() for name in self.options} - set(_OPTIONS)
        table = str(self.options.get("table", "processes"))
        if given or table not in _SCHEMAS:
            raise UsageError(
                f"unknown option {sorted(given)[0]!r}" if given else f"unknown table {table!r}",
                code="bad_option",
                hint=f"options are {', '.join(_OPTIONS)}; tables are {', '.join(_SCHEMAS)}",
            )
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
            return [Page(rows) for rows in _pages(self._table, transport.call)]
        finally:
            transport.close()

    def read(self, partition: InputPartition) -> Iterator[Row]:
        assert isinstance(partition, Page)
        return iter(partition.rows)


def _pages(table: str, call: Call) -> Iterator[list[Row]]:
    """At least one, so that a table without rows is a table."""
    names = [column.split()[0] for column in _SCHEMAS[table].split(",")]
    if table == "workers":
        yield [_row(one, names) for one in call("workers", {})]
    elif table == "backups":
        yield [_row(one, names) for one in call("backup_list", {})["backups"]]
    else:
        filters = {"kind": "export"} if table == "exports" else {}
        after = None
        while True:
            page = call("page", {**filters, "limit": _PAGE, "after": after})
            yield [_row(_flat(one), names) for one in page["processes"]]
            after = page["next"]
            if after is None:
                return


def _flat(process: Mapping[str, Any]) -> dict[str, Any]:
    error, tasks = process["error"] or {}, process["tasks"]
    return {
        **process,
        **{f"tasks_{name}": tasks[name] for name in ("total", "done", "failed")},
        "error_code": error.get("code"),
        "error_message": error.get("message"),
    }


def _row(document: Mapping[str, Any], names: Sequence[str]) -> Row:
    return tuple(_value(name, document.get(name)) for name in names)


def _value(name: str, value: Any) -> Any:
    return datetime.fromisoformat(value) if name.endswith("_at") and value else value
