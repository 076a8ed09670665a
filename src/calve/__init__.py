"""Calve publishes partitions of ClickHouse MergeTree tables as Apache Iceberg snapshots, exactly once.

The rooms, from the bottom up; each knows only what stands above it in this list, and
import contracts (`pyproject.toml`) hold them apart:

- `model`    what is true of processes, tasks, pins, plans, receipts and errors. Pure.
- `store`    the SQL that keeps the model's rows.
- `control`  decides and performs the next step of each process. Knows ports, not products.
- `objects`  object storage: local folders, S3, and the keys that reach them.
- `clickhouse`  reading tables, pinning parts, the embedded engine.
- `iceberg`  schemas, data files, statistics, publishing.
- `parquet`  plain Parquet folders as a destination.
- `spark`    sessions, jobs, cancelling.
- `tasks`    what every task on an executor does alike.
- `export`, `backup`, `restore`, `optimize`  the kinds: what a process does.
- `app`      configuration and wiring, the one place that builds the others.
- `cli`      what a person types.
- `testing`  shipped fakes, contract suites, fault injection.
"""

__version__ = "0.1.0"
