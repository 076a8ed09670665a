"""A publish into tables of another age: with 10 and 1,000 snapshots, and with many `calve.export.*` keys, each the
time of a whole export of 1,000 rows by a warm worker, against the same into a young table."""

import uuid

import pyarrow as pa
from pyiceberg.table import Table

from kit.report import Report
from kit.world import Warm, fill, folder, warm
from support.place import Place

_PREFIX = "calve.export."


def main() -> None:
    report = Report("publish", __doc__)
    many_snapshots, many_keys = (100, 10_000) if report.quick else (1_000, 100_000)
    with folder() as home:
        fill(Place(home), 1_000, parts=1)
        with warm(home) as worker:
            for name in ("young", "snapshots", "keys"):
                worker.export(to=f"lake.ns.{name}")
            _age(worker.place.table("lake.ns.young"), 10)
            _age(worker.place.table("lake.ns.snapshots"), many_snapshots)
            _add_keys(worker.place.table("lake.ns.keys"), many_keys)
            for _ in range(3 if report.quick else 10):
                for name in ("young", "snapshots", "keys"):
                    with report.timed(name) as run:
                        worker.export(to=f"lake.ns.{name}")
                        run.detail["metadata_mb"] = round(_metadata_mb(worker, name), 2)
        young = report.best("young")
        report.ratio(f"{many_snapshots:,} snapshots", report.best("snapshots") / young, 1.5, at_least=False)
        report.ratio(f"{many_keys:,} keys", report.best("keys") / young, 10, at_least=False)
    report.finish()


def _age(table: Table, snapshots: int) -> None:
    """Snapshots of other writers, without rows of ours."""
    empty = table.scan().to_arrow().slice(0, 0)
    while len(table.metadata.snapshots) < snapshots:
        table.append(pa.Table.from_batches([], schema=empty.schema))


def _add_keys(table: Table, keys: int) -> None:
    """As many exports of other partitions, each with the mark that a publish leaves."""
    [mark] = [value for name, value in table.properties.items() if name.startswith(_PREFIX)]
    with table.transaction() as change:
        change.set_properties({f"{_PREFIX}{uuid.uuid4().hex}{uuid.uuid4().hex}": mark for _ in range(keys)})


def _metadata_mb(worker: Warm, name: str) -> float:
    table = worker.place.table(f"lake.ns.{name}")
    return len(table.io.new_input(table.metadata_location)) / 1e6


if __name__ == "__main__":
    main()
