"""Marks outlive expiry (P8), deletes made in the lake outlive a re-export (D13), plans outlive versions
(L12), and attempts that died leave nothing that could be taken for work (P6)."""

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from sqlalchemy import text
from whole_life import IDS, DyingRunner, Life

from calve.control.client import retry
from calve.destination.plan import ColumnPlan, DestinationPlan, ExportPlan, KeyPlan, PartPlan, Relation
from calve.model.process import Process
from calve.model.states import ProcessState
from support.kept_source import KeptSource
from support.local_runner import LocalRunner

UNPARTITIONED = {"partition_by": "none"}  # which PyIceberg can write to by itself


def expire_everything_but_the_head(table: Table) -> None:
    """As maintenance does it once the tags' age has passed."""
    head = table.current_snapshot()
    assert head is not None
    tags = [name for name in table.metadata.refs if name != "main"]
    with table.manage_snapshots() as change:
        for name in tags:
            change.remove_tag(name)
    old = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != head.snapshot_id]
    for snapshot_id in old:
        table.refresh().maintenance.expire_snapshots().by_id(snapshot_id).commit()


def lake_table(life: Life) -> Table:
    table = life.ports.catalog("lake").load_table(("ns", "events"))
    assert isinstance(table, Table)
    return table


def add_a_row_of_somebody_else(life: Life) -> None:
    table = lake_table(life)
    table.append(table.scan(row_filter="id = 0").to_arrow().slice(0, 1))


def test_P8_after_every_snapshot_and_tag_is_expired_an_export_is_still_known(life: Life) -> None:
    first = life.export("202401", **UNPARTITIONED)
    add_a_row_of_somebody_else(life)
    expire_everything_but_the_head(lake_table(life))
    table = lake_table(life)
    assert table.metadata.snapshot_by_id(int(first.snapshot_id or 0)) is None
    assert not [name for name in table.metadata.refs if name.startswith("calve-")]
    assert life.submit("202401") == [], "exported and unchanged"
    [unchanged] = life.check("202401").unchanged
    assert unchanged.export.process_id == first.id
    assert len(life.exported_ids()) == 101


def test_P8_a_late_retry_after_expiry_publishes_nothing(life: Life) -> None:
    """The commit landed unseen, its process is still publishing, and the table has moved on since."""
    [process_id] = life.submit("202401", **UNPARTITIONED)
    life.run_until(ProcessState.PUBLISHING, process_id)
    catalog = life.ports.catalog("lake")
    send = catalog.commit_table

    def land_and_lose_the_answer(*args: Any) -> None:
        send(*args)
        catalog.commit_table = send  # type: ignore[method-assign]
        add_a_row_of_somebody_else(life)
        expire_everything_but_the_head(lake_table(life))
        raise TimeoutError("the answer was lost")

    catalog.commit_table = land_and_lose_the_answer  # type: ignore[method-assign,assignment]
    life.run(life.worker())
    row = life.row(process_id)
    assert row.state is ProcessState.COMPLETED, row.error
    assert row.rows == 100
    assert len(life.exported_ids()) == 101
    assert all(
        Path(t.file.file_path.removeprefix("file://")).is_file() for t in lake_table(life).scan().plan_files()
    )


def test_D13_rows_deleted_in_the_lake_are_not_brought_back_by_force_unless_told(own_life: Life) -> None:
    own_life.export("202401", **UNPARTITIONED)
    lake_table(own_life).delete("id < 10")
    own_life.kept.execute("INSERT INTO db.events VALUES (100000, '2024-01-09', 'new')")
    refused = own_life.export("202401", force=True)
    assert refused.state is ProcessState.FAILED and refused.error is not None
    assert (
        refused.error.code == "replace_refused"
    )  # the delete rewrote the file: whose rows it has is not known
    assert own_life.exported_ids() == list(range(10, 100))
    lake_table(own_life).delete()
    refused = own_life.export("202401", force=True)
    assert refused.error is not None and refused.error.code == "deletes_would_be_lost"
    told = own_life.export("202401", force=True, discard_deletes=True)
    assert told.state is ProcessState.COMPLETED, told.error
    assert own_life.exported_ids() == [*range(100), 100000]


def test_L12_a_plan_without_any_field_that_was_added_later_is_carried_out(life: Life) -> None:
    [process_id] = life.submit("202401")
    life.run_until(ProcessState.RUNNING, process_id)
    plan = life.store.plan(process_id)
    assert plan is not None
    with life.store.database.engine.begin() as connection:
        changed = connection.execute(
            text("UPDATE plans SET plan = :plan WHERE process_id = :id"),
            {"plan": as_an_older_version_wrote_it(plan), "id": process_id},
        )
        assert changed.rowcount == 1
    life.run(life.worker())
    life.check_settled()
    assert life.row(process_id).state is ProcessState.COMPLETED, life.row(process_id).error
    assert life.exported_ids() == list(range(100))


NEEDED = {
    "path",
    "create",
    "settings",
    "spec",
    "base_snapshot_id",
    "select",
}  # of the oldest version there is


def as_an_older_version_wrote_it(plan: str) -> str:
    data = json.loads(plan)

    def strip(item: dict[str, Any], kind: type) -> None:
        for known in fields(kind):
            optional = known.default is not MISSING or known.default_factory is not MISSING
            if optional and known.name not in NEEDED:
                item.pop(known.name, None)

    for name, kind in (("parts", PartPlan), ("columns", ColumnPlan), ("keys", KeyPlan)):
        for item in data[name]:
            strip(item, kind)
    strip(data["relation"], Relation)
    strip(data["destination"], DestinationPlan)
    strip(data, ExportPlan)
    return json.dumps(data)


def test_P6_an_attempt_that_died_with_some_of_its_files_written_is_never_taken_for_done(
    tmp_path: Path, source: KeptSource, runner: LocalRunner
) -> None:
    """A task of several files; its executor dies after some: the next attempt writes all of them anew."""
    life = Life(tmp_path / "life", source, DyingRunner(runner, at=2, how="after"))
    process = life.export("202401", partition_by="bucket(4, id)")
    assert process.state is ProcessState.COMPLETED, process.error
    assert life.exported_ids() == list(range(100))
    files = [Path(task.file.file_path).name for task in lake_table(life).scan().plan_files()]
    assert {name.split("-")[3] for name in files} == {"2"}, "only files of the second attempt"
    left = {path.name for path in life.folder.rglob("calve-*.parquet")} - set(files)
    assert left == set(), "T13: what the attempt that lost had written is gone"
    life.close()


def test_P6_a_retry_that_adopts_takes_only_what_has_a_receipt(
    tmp_path: Path, source: KeptSource, runner: LocalRunner
) -> None:
    life = Life(tmp_path / "life", source, DyingRunner(runner, at=1, how="after"))
    [process_id] = life.submit()
    life.store.request_cancel(_after_planning(life, process_id).id)
    life.run(life.worker())
    assert life.row(process_id).state is ProcessState.CANCELLED
    second = retry(life.store, process_id).process
    life.ids.append(second.id)
    life.run(life.worker())
    life.keep_time_and_undo()
    life.check_settled()
    assert life.row(second.id).state is ProcessState.COMPLETED, life.row(second.id).error
    assert life.exported_ids() == list(IDS)
    life.close()


def _after_planning(life: Life, process_id: Any) -> Process:
    """Planned, and one wave run: task 1 is done, the executor of task 0 died."""
    life.run_until(ProcessState.RUNNING, process_id)
    life.worker().tick()
    return life.row(process_id)
