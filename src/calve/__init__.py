"""Calve publishes partitions of ClickHouse MergeTree tables as Apache Iceberg snapshots, exactly once.

The rooms, from the bottom up; each knows only what stands above it in this list, and
import contracts (`pyproject.toml`) hold them apart:

- `model`    what is true of processes, tasks, pins, plans, receipts and errors. Pure.
- `store`    the SQL that keeps the model's rows.
- `control`  decides and performs the next step of each process. Knows ports, not products.
- `source`   ClickHouse: reading tables, pinning parts, the embedded engine.
- `lake`     Iceberg: schemas, data files, statistics, publishing.
- `runner`   Spark: sessions, jobs, cancelling.
- `kinds`    what a process does: export, backup, restore, optimize.
- `app`      configuration and wiring, the one place that builds the others.
- `cli`      what a person types.
- `testing`  shipped fakes, contract suites, fault injection.
"""

__version__ = "0.1.0"
