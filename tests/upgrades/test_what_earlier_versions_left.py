"""L12: today's code on the store, lake, folder and backups that earlier versions left (`make.py`)."""

import json
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet
from pyiceberg.table import Table

from calve.app.config import load_config
from calve.app.wiring import App
from calve.clickhouse.embedded.source import EmbeddedSource
from support.calve_command import Run

ROWS = 80  # of a month; the first has 40 more since the second backup
EVENTS = "lake.ns.events"
LEFT = {
    ("export", "COMPLETED"): 8,
    ("export", "FAILED"): 1,
    ("export", "CANCELLED"): 1,
    ("export", "RUNNING"): 1,
    ("export", "PUBLISHING"): 3,
    ("export", "PENDING"): 1,
    ("optimize", "COMPLETED"): 1,
    ("backup", "COMPLETED"): 2,
    ("backup", "PENDING"): 1,
    ("restore", "COMPLETED"): 1,
}


def test_L12_every_process_is_listed_shown_and_explained(run: Run) -> None:
    listed = run("ps", "--all", "--json").json
    assert Counter((row["kind"], row["state"]) for row in listed) == LEFT
    for row in listed:
        shown = run("show", row["id"], "--json")
        assert shown.code == 0, shown.err
        assert len(shown.json["tasks"]) == row["tasks"]["total"]
        assert (shown.json["plan"] is None) == (row["tasks"]["total"] == 0), row
        assert run("events", row["id"], "--json").json
        assert run("why", row["id"]).code == 0
    held = [row for row in listed if run("show", row["id"], "--json").json["pins"]]
    assert {row["state"] for row in held} >= {"RUNNING", "PUBLISHING"}
    assert "catalog:other" in run("doctor", "--json").out


def test_L12_what_was_half_done_is_finished_exactly_once(run: Run, root: Path) -> None:
    live = {row["id"] for row in run("ps", "--json").json}
    assert len(live) == 6
    worker = run("worker", "--until-idle", "--json")
    assert worker.code == 0, worker.err
    rows = {row["id"]: row for row in run("ps", "--all", "--json").json}
    assert {rows[process_id]["state"] for process_id in live} == {"COMPLETED"}, worker.err
    table = load(root, EVENTS)
    publishers = [snapshot.summary["calve.process-id"] for snapshot in table.metadata.snapshots]  # type: ignore[index]
    assert len(publishers) == len(set(publishers)) == 7
    months = ("202401", "202402", "202403", "202404", "202405", "202406")
    assert exported(table) == source(root, *months)
    assert exported(load(root, "other.ns.events")) == source(root, "202407")
    assert committed(root / "plain") == source(root, "202401", "202405")
    assert not list((root / "clickhouse" / "shadow").glob("calve*"))


def test_L12_what_was_published_is_known_as_exported(run: Run, root: Path) -> None:
    before = load(root, EVENTS).metadata
    again = run("export", "db.events", "--partition", "202401", "--partition", "202402", "--to", EVENTS)
    assert (again.code, "already" in again.out + again.err) == (0, True), again.err
    assert load(root, EVENTS).metadata == before
    known = {
        row["id"]: row["exported"] for row in run("partitions", "db.events", "--to", EVENTS, "--json").json
    }
    assert [known[month] for month in ("202401", "202402", "202403")] == ["unchanged"] * 3
    plain = run("export", "db.events", "--partition", "202401", "--to", f"{root}/plain/")
    assert (plain.code, "already" in plain.out + plain.err) == (0, True), plain.err


def test_L12_what_was_published_is_proven_by_value(run: Run) -> None:
    rows = [
        row for row in run("ps", "--all", "--state", "COMPLETED", "--json").json if row["kind"] != "backup"
    ]
    replaced, *plain = sorted(
        (row for row in rows if "/plain" in row["destination"]), key=lambda row: row["created_at"]
    )
    told = run("verify", replaced["id"], "--json")
    assert (told.code, told.json["error"]["code"]) == (4, "replaced")
    others = [
        row["id"] for row in rows if row["kind"] in ("export", "optimize") and row not in (replaced, *plain)
    ]
    assert (len(plain), len(others)) == (1, 7)
    for process_id in (plain[0]["id"], *others):
        proof = run("verify", process_id, "--json")
        assert proof.code == 0, proof.err
    [current] = [row["id"] for row in rows if row["partitions"] == ["202403"]]
    deep = run("verify", current, "--deep", "--json")
    assert deep.code == 0, deep.err


def test_L12_a_backup_is_restored_and_exported_from(run: Run, root: Path) -> None:
    restored = run("backup", "restore", "second", "--as", "again")
    assert restored.code == 0, restored.err
    for month in ("202401", "202402", "202409"):
        assert source(root, month, table="again.events") == source(root, month)
    assert len(source(root, "202408", table="again.events")) == ROWS  # dropped in the original since
    export = run(
        "export", "--from-backup", "first", "db.events", "--partition", "202401", "--to", "lake.ns.first"
    )
    assert export.code == 0, export.err
    assert len(exported(load(root, "lake.ns.first"))) == ROWS  # as it was then


def test_P16_deleting_one_backup_leaves_the_other_whole(run: Run, root: Path) -> None:
    assert run("backup", "delete", "first").code == 0
    assert [row["name"] for row in run("backup", "list", "--json").json] == ["second"]
    verified = run("backup", "verify", "second")
    assert verified.code == 0, verified.err
    restored = run("backup", "restore", "second", "--tables", "db.counts", "--as", "again")
    assert restored.code == 0, restored.err
    ask = "SELECT shard, number FROM {} ORDER BY ALL"
    assert select(root, ask.format("again.counts")) == select(root, ask.format("db.counts"))


def test_D3_a_cancelled_export_is_retried(run: Run, root: Path) -> None:
    (cancelled,) = run("ps", "--all", "--state", "CANCELLED", "--json").json
    retried = run("retry", cancelled["id"], "--json")
    assert retried.code == 0, retried.err
    assert retried.json["retry_of"] == cancelled["id"]
    found = exported(load(root, EVENTS))
    assert [row for row in source(root, "202409") if row not in found] == []


# -- every value, by readers that did not write it ------------------------------------------------------

Rows = list[tuple[Any, ...]]


def load(root: Path, name: str) -> Table:
    catalog, *identifier = name.split(".")
    app = App(load_config(root / "calve.toml", environ={}, cwd=root))
    try:
        return app.catalog(catalog).load_table(tuple(identifier))
    finally:
        app.close()


def exported(table: Table) -> Rows:
    """By PyIceberg."""
    return values(table.scan().to_arrow())


def committed(folder: Path) -> Rows:
    """What the newest commit of each key lists, by pyarrow."""
    newest: dict[str, Any] = {}
    for path in (folder / "_calve" / "commits").iterdir():
        commit = json.loads(path.read_text())
        if commit["generation"] > newest.get(commit["key"], commit | {"generation": -1})["generation"]:
            newest[commit["key"]] = commit
    files = [file["path"].removeprefix("file://") for commit in newest.values() for file in commit["files"]]
    return values(pa.concat_tables(pa.parquet.ParquetFile(file).read() for file in files))


def values(rows: pa.Table) -> Rows:
    return [
        (
            row["id"],
            row["at"].isoformat(timespec="milliseconds"),
            row["name"],
            str(row["price"]),
            row["note"],
            row["tags"],
            dict(row["labels"]),
            str(row["session"] if isinstance(row["session"], UUID) else UUID(bytes=row["session"])),
        )
        for row in rows.sort_by("id").to_pylist()
    ]


def source(root: Path, *months: str, table: str = "db.events") -> Rows:
    """By ClickHouse."""
    listed = ", ".join(f"'{month}'" for month in months)
    at = "concat(replace(toString(at), ' ', 'T'), '+00:00') AS at"
    price = "toDecimalString(price, 2) AS price"
    found = select(
        root,
        f"SELECT toUInt32(id) AS id, {at}, name, {price}, note, tags, labels, toString(session) AS session"
        f" FROM {table} WHERE _partition_id IN ({listed}) ORDER BY id",
    )
    return [tuple(row.values()) for row in found]


def select(root: Path, sql: str) -> list[dict[str, Any]]:
    with EmbeddedSource("main", root / "clickhouse").visit() as session:
        return session.rows(sql)
