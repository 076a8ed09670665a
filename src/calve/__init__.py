"""Calve publishes partitions of ClickHouse MergeTree tables as Apache Iceberg snapshots, exactly once.

The rooms, from the bottom up; each knows only what stands above it in this list, and
import contracts (`pyproject.toml`) hold them apart:

- `wire`     bounds of HTTP, and the lines of the log.
- `model`    what is true of processes, tasks, pins, plans, receipts and errors. Pure.
- `store`    the SQL that keeps the model's rows.
- `control`  decides and performs the next step of each process. Knows ports, not products.
- `objects`  object storage: local folders, S3, and the keys that reach them.
- `tasks`    what every task on an executor does alike.
- `destination`  where exports go: the port that `iceberg` and `parquet` implement.
- `clickhouse`  reading tables, pinning parts, the embedded engine.
- `iceberg`  schemas, data files, statistics, publishing.
- `parquet`  plain Parquet folders as a destination.
- `spark`    sessions, jobs, cancelling.
- `archive`  the format of a backup.
- `export`, `backup`, `restore`, `optimize`  the kinds: what a process does.
- `notify`, `metrics`  what people and Prometheus are told.
- `app`      configuration and wiring, the one place that builds the others.
- `sql`      statements that users of ClickHouse know.
- `client`   Calve from outside: `Client`, and what `calve --server` asks with.
- `http`     `calve serve`.
- `cli`      what a person types.
- `data_source`  Calve in Spark.
- `testing`  shipped fakes, contract suites, fault injection.

What other programs may rely on is `__all__`; it is loaded when it is first used. Its types are in `__init__.pyi`: an
import here, even for types only, would let every room that reads the version import the client.
"""

from typing import Any

__version__ = "0.1.0"
__all__ = ["CalveError", "Client", "Event", "Process", "ProcessState", "Reset", "__version__"]

_HOMES = {
    "CalveError": "calve.model.errors",
    "Client": "calve.client.client",
    "Event": "calve.model.process",
    "Process": "calve.model.process",
    "ProcessState": "calve.model.states",
    "Reset": "calve.client.watch",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'calve' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
