"""Publishing alone: one commit by `calve.iceberg.publish`, search, recount, manifests and read-back included, into
tables of a SQL catalog in a folder.

- snapshots of 1,000 and of 10,000 files: linear in the files;
- a table that a thousand publishes made, one after another: the last of them against the tenth;
- a table with many `calve.export.*` keys: bounded, and linear in the keys.
"""

import json
import statistics
import uuid
from dataclasses import replace
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.iceberg.publish import PublishedSnapshot, publish
from calve.iceberg.publish.marks import KEY_PROPERTY
from calve.model.process import new_process_id
from kit.report import Report
from kit.world import folder
from support.lake import IDENTIFIER, Work, make_table, make_work
from support.place import Place

YOUNG = 10
YOUNG_TABLE = (*IDENTIFIER[:-1], "young")
ROUNDS = 10  # half of them on either side of an age


def main() -> None:
    report = Report("publish", __doc__)
    files = (300, 3_000) if report.quick else (1_000, 10_000)
    snapshots = 150 if report.quick else 1_000
    keys = (3_000, 30_000) if report.quick else (10_000, 100_000)
    with folder() as home, Place(home).app() as app:
        catalog = app.catalog("lake")
        for count in files:
            table = make_table(catalog)
            for _ in range(3):
                publish_one(report, f"{count:,} files", catalog, files=count)
            catalog.drop_table(table.name())
        report.ratio(
            "ten times the files",
            report.best(f"{files[1]:,} files") / report.best(f"{files[0]:,} files"),
            13,
            at_least=False,
        )
        table = make_table(catalog)
        make_table(catalog, identifier=YOUNG_TABLE)
        for identifier, age in ((IDENTIFIER, snapshots), (YOUNG_TABLE, YOUNG)):
            for _ in range(age - ROUNDS // 2):
                publish_work(catalog, some_work(catalog, identifier=identifier))
        for _ in range(ROUNDS):  # in turn: what a disk takes changes by the minute
            publish_one(report, f"{YOUNG:,} snapshots", catalog, identifier=YOUNG_TABLE)
            publish_one(report, f"{snapshots:,} snapshots", catalog)
        young, old = (_median(report, f"{count:,} snapshots") for count in (YOUNG, snapshots))
        report.ratio(f"{snapshots:,} snapshots over {YOUNG}", old / young, 1.5, at_least=False)
        catalog.drop_table(table.name())
        table = make_table(catalog)
        for count in keys:
            add_keys(table, count)
            for _ in range(3):
                publish_one(report, f"{count:,} keys", catalog)
        few, many = (report.best(f"{count:,} keys") for count in keys)
        report.ratio("ms for each 1,000 keys", 1e6 * (many - few) / (keys[1] - keys[0]), 100, at_least=False)
        report.ratio("ten times the keys", many / few, 13, at_least=False)
    report.finish()


def publish_one(
    report: Report, series: str, catalog: Catalog, files: int = 1, identifier: tuple[str, ...] = IDENTIFIER
) -> None:
    work = some_work(catalog, files, identifier)
    detail = {"metadata_mb": round(metadata_mb(catalog, identifier), 2)}
    with report.timed(series) as run:
        publish_work(catalog, work)
        run.detail |= detail


def publish_work(catalog: Catalog, work: Work) -> None:
    done = publish(catalog, work.process_id, work.plan, work.receipts, "", lambda _: None)
    assert isinstance(done, PublishedSnapshot)


def some_work(catalog: Catalog, files: int = 1, identifier: tuple[str, ...] = IDENTIFIER) -> Work:
    """The files but the first are names only: publishing reads none."""
    process_id = new_process_id()
    key = f"{uuid.uuid4().hex}{uuid.uuid4().hex}"
    work = make_work(
        catalog,
        [(1, range(1))],
        keys=[(key[:8], key)],
        content=key,
        process_id=process_id,
        keep_receipts=False,
        identifier=identifier,
    )
    [receipt] = work.receipts
    [file] = receipt.files
    named = [
        replace(file, path=file.path.removesuffix("0.parquet") + f"{number}.parquet")
        for number in range(files)
    ]
    [part], [[piece]] = work.plan.parts, work.plan.tasks
    return replace(
        work,
        plan=replace(
            work.plan,
            parts=(replace(part, rows=files),),
            tasks=((replace(piece, end=files),),),
            keys=(replace(work.plan.keys[0], text=json.dumps(["server/table", key[:8], "", "uuid"])),),
            refuse_overlap=True,
        ),
        receipts=(replace(receipt, rows=files, files=tuple(named)),),
    )


def add_keys(table: Table, count: int) -> None:
    """Up to that many, each with a mark as a publish leaves it."""
    table.refresh()
    there = sum(name.startswith(KEY_PROPERTY) for name in table.properties)
    with table.transaction() as change:
        change.set_properties(
            {f"{KEY_PROPERTY}{uuid.uuid4().hex}{uuid.uuid4().hex}": mark() for _ in range(count - there)}
        )


def mark() -> str:
    identity = f"{uuid.uuid4()}/{uuid.uuid4()}"
    return (
        f'{{"process":"{new_process_id()}","snapshot":"{uuid.uuid4().int % 2**63}","content":"{uuid.uuid4().hex}'
        f'{uuid.uuid4().hex}","input":["{identity}","202401",""],"sequence":1000,"rows":1000000,"files":8}}'
    )


def metadata_mb(catalog: Catalog, identifier: tuple[str, ...]) -> float:
    location = catalog.load_table(identifier).metadata_location
    return Path(location.removeprefix("file://")).stat().st_size / 1e6


def _median(report: Report, series: str) -> float:
    return statistics.median(run.seconds for run in report.runs[series])


if __name__ == "__main__":
    main()
