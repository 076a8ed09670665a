"""`--new-parts`: rows that came after an export are added, each once; what cannot be told from old rows is refused."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from test_dying_in_an_export import Stage
from whole_life import Life

from calve.control.ports import Runner
from calve.destination.plan import ExportPlan
from calve.export.increment import check_options
from calve.export.request import ExportRequest
from calve.export.source_check import read_again
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.released import ReleasedTable, ReleaseMark
from calve.model.errors import RefusedError, UsageError
from calve.model.process import Process
from calve.model.states import ProcessState
from calve.testing.faults import STORE_CALLS, Break, Crash, Faults
from support.kept_source import KeptSource
from support.local_runner import LocalRunner

JANUARY = list(range(100))
STOP, START = "SYSTEM STOP MERGES db.events", "SYSTEM START MERGES db.events"
MERGE = (START, "OPTIMIZE TABLE db.events PARTITION ID '202401' FINAL", STOP)


@pytest.fixture
def life(own_life: Life) -> Life:
    """Partition 202401 is exported; nothing is merged unless a test says so."""
    own_life.kept.execute(STOP)
    assert done(own_life.export("202401"))
    return own_life


def late(id: int) -> str:
    return f"INSERT INTO db.events VALUES ({id}, '2024-01-31', 'late')"


def done(row: Process) -> bool:
    return row.state is ProcessState.COMPLETED or pytest.fail(str(row.error))


def add(life: Life, *partitions: str) -> Process:
    return life.export(*(partitions or ("202401",)), new_parts=True)


def refusal(life: Life) -> RefusedError:
    checked = life.check("202401", new_parts=True)
    [one] = checked.changed
    assert checked.chosen == ()
    assert life.submit("202401", new_parts=True) == []
    return one.refusal(checked.request)


def snapshots(life: Life) -> list[str]:
    table = life.table()
    assert table is not None
    return [one.summary.operation.value for one in table.metadata.snapshots if one.summary]


def keys(life: Life) -> list[dict[str, Any]]:
    table = life.table()
    assert table is not None
    return [json.loads(text) for name, text in table.properties.items() if name.startswith("calve.export.")]


def test_what_is_new_is_added_and_nothing_is_replaced(life: Life) -> None:
    for id in (9000, 9001, 9002):
        life.kept.execute(late(id))
        row = add(life)
        assert done(row)
        assert row.rows == 1
    assert life.exported_ids() == [*JANUARY, 9000, 9001, 9002]
    assert snapshots(life) == ["append"] * 4
    whole = life.check("202401")
    assert [one.partition for one in whole.unchanged] == ["202401"]
    assert whole.unchanged[0].export.rows == 103
    assert [one.partition for one in life.check("202401", new_parts=True).unchanged] == ["202401"]
    assert sorted(key["top"] for key in keys(life)) == [2, 4, 5, 6]


def test_a_partition_that_was_never_exported_is_exported_whole(life: Life) -> None:
    life.kept.execute(late(9000))
    row = life.export(new_parts=True)
    assert done(row)
    assert (row.rows, life.exported_ids()) == (51, [*range(150), 9000])
    assert done(life.export("202402", force=True))  # it is an ordinary export


def test_the_dry_run_counts_what_is_new(life: Life) -> None:
    life.kept.execute(late(9000), late(9001))
    checked = life.check("202401", new_parts=True)
    assert [(one.id, one.rows) for one in checked.chosen] == [("202401", 2)]
    assert [part.name for part in checked.parts] == ["202401_4_4_0", "202401_5_5_0"]


def test_merges_of_old_parts_and_of_new_parts_are_no_matter(life: Life) -> None:
    life.kept.execute(*MERGE, late(9000))
    assert done(add(life))
    life.kept.execute(late(9001))
    assert done(add(life))
    life.kept.execute(*MERGE)  # all that was exported is one part now
    assert [one.partition for one in life.check("202401", new_parts=True).unchanged] == ["202401"]
    life.kept.execute(late(9002), late(9003))
    assert done(add(life))
    assert life.exported_ids() == [*JANUARY, 9000, 9001, 9002, 9003]


@pytest.mark.parametrize(
    ("statements", "code"),
    [
        ((late(9000), *MERGE), "mixed_merge"),
        ((START, "ALTER TABLE db.events DELETE WHERE id = 7 SETTINGS mutations_sync = 2", STOP, late(9000)), "rows_gone"),
        (("ALTER TABLE db.events DROP PART '202401_1_1_0'", late(9000)), "rows_gone"),
        (("ALTER TABLE db.events DETACH PART '202401_1_1_0'", "ALTER TABLE db.events ATTACH PART '202401_1_1_0'", late(9000)), "rows_gone"),
        (("ALTER TABLE db.events DROP PARTITION ID '202401'", late(9000)), "rows_gone"),
        (("INSERT INTO db.events SELECT * FROM db.events WHERE _part = '202401_1_1_0'",), "parts_came_back"),
    ],
    ids=["merged", "deleted", "dropped", "attached", "reloaded", "repeated"],
)  # fmt: skip
def test_what_cannot_be_told_from_old_rows_is_refused(
    life: Life, statements: tuple[str, ...], code: str
) -> None:
    life.kept.execute(*statements)
    refused = refusal(life)
    assert refused.code == code
    assert "202401" in refused.message
    assert life.exported_ids() == JANUARY


def test_a_merge_after_the_request_fails_the_plan(life: Life) -> None:
    life.kept.execute(late(9000))
    [process_id] = life.submit("202401", new_parts=True)
    life.kept.execute(*MERGE)
    life.run(life.worker())
    row = life.row(process_id)
    assert row.error is not None
    assert (row.state, row.error.code) == (ProcessState.FAILED, "mixed_merge")
    assert life.exported_ids() == JANUARY


@pytest.mark.parametrize(
    "also", [{"force": True}, {"where": "id > 1"}, {"casts": {"id": "int lossy"}}],
    ids=["force", "where", "lossy"],
)  # fmt: skip
def test_it_goes_with_no_other_selection(own_life: Life, also: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        own_life.check("202401", new_parts=True, **also)
    assert refused.value.code == "new_parts"


@pytest.mark.parametrize(
    "also", [{"from_backup": "b"}, {"parts": ("202401_4_4_0",)}, {"catalog": "s3://b/f"}]
)
def test_nor_with_a_backup_named_parts_or_a_folder(also: dict[str, Any]) -> None:
    given = {"source": "main", "database": "db", "table": "t", "catalog": "lake", "identifier": ("ns", "t")}
    request = ExportRequest(partitions=("202401",), new_parts=True, **given | also)
    with pytest.raises(UsageError) as refused:
        check_options(request)
    assert refused.value.code == "new_parts"


def test_parts_by_name_would_repeat_what_was_added(life: Life) -> None:
    life.kept.execute(late(9000))
    assert done(add(life))
    with pytest.raises(RefusedError) as refused:
        life.check("202401", where="id = 9000")
    assert refused.value.code == "overlap"


def test_a_forced_export_replaces_what_was_added_too_and_begins_anew(life: Life) -> None:
    life.kept.execute(late(9000))
    assert done(add(life))
    life.kept.execute(late(9001))
    row = life.export("202401", force=True)
    assert done(row)
    assert life.exported_ids() == [*JANUARY, 9000, 9001]
    assert [key["process"] for key in keys(life)] == [row.id]
    life.kept.execute(late(9002))
    assert done(add(life))
    assert life.exported_ids() == [*JANUARY, 9000, 9001, 9002]


def test_what_was_added_and_is_gone_from_the_lake_is_said(life: Life) -> None:
    life.kept.execute(late(9000))
    assert done(add(life))
    table = life.table()
    assert table is not None
    table.manage_snapshots().rollback_to_snapshot(table.metadata.snapshots[0].snapshot_id).commit()
    for asked in ({}, {"new_parts": True}):
        [one] = life.check("202401", **asked).changed  # type: ignore[arg-type]
        assert one.refusal(life.check("202401").request).code == "no_longer_there"
    assert done(life.export("202401", force=True))
    assert life.exported_ids() == [*JANUARY, 9000]


@pytest.mark.parametrize("how", ["DROP", "MOVE"])  # a MOVE leaves parts without rows in their place
def test_rows_that_came_after_a_release_are_added(life: Life, how: str) -> None:
    release(life)
    life.kept.execute("CREATE TABLE db.aside AS db.events")
    to = " TO TABLE db.aside" if how == "MOVE" else ""
    life.kept.execute(f"ALTER TABLE db.events {how} PARTITION ID '202401'{to}", late(9000))
    assert done(add(life))
    life.kept.execute(late(9001))
    assert done(add(life))
    assert life.exported_ids() == [*JANUARY, 9000, 9001]
    for asked in ({"force": True}, {"force": True, "allow_shrink": True}):
        [held_back] = life.check("202401", **asked).changed
        assert held_back.refusal(life.check("202401").request).code == "released"
    assert [one.partition for one in life.check("202401").unchanged] == ["202401"]


def test_parts_that_were_released_and_are_back_are_never_added(life: Life) -> None:
    life.kept.execute(
        "CREATE TABLE db.aside AS db.events",
        "ALTER TABLE db.events MOVE PARTITION ID '202401' TO TABLE db.aside",
    )
    release(life)
    life.kept.execute("ALTER TABLE db.events ATTACH PARTITION ID '202401' FROM db.aside", late(9000))
    assert refusal(life).code == "parts_came_back"
    assert life.exported_ids() == JANUARY


def release(life: Life) -> None:
    """As a release marks the lake before rows leave."""
    catalog = open_catalog("lake", life.ports.properties)
    table = catalog.load_table(("ns", "events"))
    head = table.current_snapshot()
    assert head is not None
    [key] = [name for name in table.properties if name.startswith("calve.export.")]
    input = tuple(json.loads(table.properties[key])["input"])
    mark = ReleaseMark(process="release1", store="s", attempt=1, rows=100, sums="-", place="-", input=input)
    lake = ReleasedTable(catalog=catalog, identifier=("ns", "events"), uuid=str(table.metadata.table_uuid))
    lake.mark("release1", {key.removeprefix("calve.export."): mark}, str(head.snapshot_id))
    catalog.close()


def test_a_source_is_read_again_for_the_new_parts_alone(life: Life) -> None:
    life.kept.execute(late(9000), late(9001))
    row = add(life)
    assert done(row)
    plan = life.store.plan(row.id)
    assert plan is not None
    found = read_again(life.kept, ExportRequest.from_json(row.request), ExportPlan.from_json(plan))
    assert found.rows == 2


# -- two stores, and any call that breaks ---------------------------------------------------------


@pytest.fixture
def other(life: Life, tmp_path: Path, runner: LocalRunner) -> Any:
    made = Life(tmp_path / "other", life.kept, runner)
    made.ports.properties = life.ports.properties
    yield made
    made.close()


def meanwhile(other: Life, **asked: Any) -> None:
    """A whole life of another store. The first one's freeze is still there, so the end is not compared with what must be
    left once all is over."""
    [process_id] = other.submit("202401", **asked)
    other.run(other.worker())
    assert done(other.row(process_id))


def test_two_stores_that_add_the_same_rows_at_once_add_them_once(life: Life, other: Life) -> None:
    life.kept.execute(late(9000))
    [mine] = life.submit("202401", new_parts=True)
    life.ports.before_send.append(lambda: meanwhile(other, new_parts=True))
    life.run(life.worker())
    assert done(life.row(mine))
    assert life.row(mine).rows == 0  # the other was first
    assert life.exported_ids() == [*JANUARY, 9000]


def test_two_stores_that_add_other_rows_at_once_lose_and_double_none(life: Life, other: Life) -> None:
    """The first planned one row, the second two: they share the first."""
    life.kept.execute(late(9000))
    [mine] = life.submit("202401", new_parts=True)

    def more() -> None:
        life.kept.execute(late(9001))
        meanwhile(other, new_parts=True)

    life.ports.before_send.append(more)
    life.run(life.worker())
    row = life.row(mine)
    assert row.error is not None
    assert (row.state, row.error.code) == (ProcessState.FAILED, "changed_since")
    assert "--force" not in row.error.hint
    life.keep_time_and_undo()
    assert life.exported_ids() == [*JANUARY, 9000, 9001]
    assert [one.partition for one in life.check("202401", new_parts=True).unchanged] == ["202401"]


@pytest.mark.parametrize("then", ["force", "force_and_add"])
def test_new_parts_are_not_added_to_another_export_than_they_were_planned_for(
    life: Life, other: Life, then: str
) -> None:
    """Another store replaces the partition, new rows and all, between the note and the send."""
    life.kept.execute(late(9000))
    [mine] = life.submit("202401", new_parts=True)

    def replaced() -> None:
        meanwhile(other, force=True)
        if then == "force_and_add":
            life.kept.execute(late(9001))
            meanwhile(other, new_parts=True)

    life.ports.before_send.append(replaced)
    life.run(life.worker())
    row = life.row(mine)
    assert row.error is not None
    assert (row.state, row.error.code) == (ProcessState.FAILED, "changed_since")
    life.keep_time_and_undo()
    assert life.exported_ids() == [*JANUARY, 9000, *([9001] if then == "force_and_add" else [])]


def test_a_replace_that_was_built_before_rows_were_added_takes_them_along(life: Life, other: Life) -> None:
    life.kept.execute(late(9000))
    [mine] = life.submit("202401", force=True)
    life.ports.before_send.append(lambda: meanwhile(other, new_parts=True))
    life.run(life.worker())
    assert done(life.row(mine))
    assert life.exported_ids() == [*JANUARY, 9000]
    assert [key["process"] for key in keys(life)] == [mine]


def adds_new_parts(life: Life) -> None:
    life.kept.execute(STOP)
    assert done(life.export("202401"))
    life.kept.execute(late(9000))
    publishing(life, new_parts=True)


def replaces_what_was_added(life: Life) -> None:
    life.kept.execute(STOP)
    assert done(life.export("202401"))
    life.kept.execute(late(9000))
    assert done(add(life))
    publishing(life, force=True)


def publishing(life: Life, **asked: Any) -> None:
    [process_id] = life.submit("202401", **asked)
    life.run_until(ProcessState.PUBLISHING, process_id)
    life.leave()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("story", "how"),
    [
        (adds_new_parts, Break.AFTER),
        (adds_new_parts, Break.REPORTED_FAILED),
        (replaces_what_was_added, Break.REPORTED_FAILED),
    ],
)
def test_whatever_call_breaks_each_row_is_there_once(
    story: Callable[[Life], None], how: Break, tmp_path: Path, own_source: KeptSource, runner: Runner
) -> None:
    stage = Stage(story, tmp_path, own_source, runner)
    whole = Faults(skipping=STORE_CALLS)
    lived(stage, whole).close()
    assert whole.calls[0] == "publish"
    assert len(whole.calls) > 5, "the story is too short to say anything"
    for at, call in enumerate(whole.calls, start=1):
        life = lived(stage, Faults(at=at, how=how, skipping=STORE_CALLS))
        life.check_settled()
        row = life.row(life.ids[-1])
        assert row.state is ProcessState.COMPLETED, (at, call, row.error)
        assert life.exported_ids() == [*JANUARY, 9000], (at, call)
        life.close()


def lived(stage: Stage, faults: Faults) -> Life:
    """To the end, with a new worker after the break."""
    life = stage.life(faults)
    faults.armed = True
    with suppress(Crash):
        life.run(life.worker())
    faults.armed = False
    life.leave()
    life.run(life.worker())
    return life
