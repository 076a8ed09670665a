"""Deleted rows stay deleted, and what others write meanwhile stays written (P19)."""

import json
from collections.abc import Callable

import pytest

from calve.iceberg.health.report import health
from calve.model.states import ProcessState
from calve.spark.actions import ActionTable
from support.equality_deletes import delete_equal
from support.optimizing import OptimizeScene

pytestmark = pytest.mark.spark
FIRST_DAY = 19723  # 2024-01-01


def delete_files(lake: OptimizeScene) -> int:
    return sum(file["content"] > 0 for file in lake.table("ns.t").inspect.files().to_pylist())


def test_P19_position_deletes_are_applied_and_their_files_go(lake: OptimizeScene) -> None:
    lake.make("ns.t", files=2, rows=40)
    lake.sql("DELETE FROM lake.ns.t WHERE id % 3 = 0")
    assert delete_files(lake) > 0
    before = lake.rows("ns.t")
    process = lake.optimize("ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.rows("ns.t") == before and len(before) == 26
    assert delete_files(lake) == 0


def test_P19_equality_deletes_are_applied_and_their_files_go(lake: OptimizeScene) -> None:
    lake.make("ns.t", files=2, rows=40)
    delete_equal(lake.catalog_, ("ns", "t"), "id", [2, 4, 6, 8], partition=(FIRST_DAY,))
    before = lake.rows("ns.t")
    assert len(before) == 36
    process = lake.optimize("ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.rows("ns.t") == before
    assert delete_files(lake) == 0
    assert lake.optimize("ns.t").tasks.total == 0, "it is not due for ever"


def test_P19_a_global_equality_delete_is_never_taken_for_dangling(lake: OptimizeScene) -> None:
    """Iceberg's own search drops it, and the rows come back: the delete's spec has no data."""
    lake.sql(
        "CREATE TABLE lake.ns.t (id BIGINT, day DATE, name STRING) USING iceberg TBLPROPERTIES ('format-version'='2')"
    )
    with lake.table("ns.t").update_spec() as spec:
        spec.add_identity("day")
    lake.sql(lake.insert("ns.t", range(40), files=13))
    delete_equal(lake.catalog_, ("ns", "t"), "id", [1, 2, 3], spec_id=0)
    before = lake.rows("ns.t")
    assert len(before) == 37
    process = lake.optimize("ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.rows("ns.t") == before
    lake.sql(lake.insert("ns.t", range(100, 102)))
    assert len(lake.rows("ns.t")) == 39


def test_P19_a_global_equality_delete_goes_once_all_older_data_was_rewritten(lake: OptimizeScene) -> None:
    lake.sql(
        "CREATE TABLE lake.ns.t (id BIGINT, day DATE, name STRING) USING iceberg TBLPROPERTIES ('format-version'='2')"
    )
    with lake.table("ns.t").update_spec() as spec:
        spec.add_identity("day")
    lake.sql(lake.insert("ns.t", range(40), files=3))
    delete_equal(lake.catalog_, ("ns", "t"), "id", [1, 2, 3], spec_id=0)
    [finding] = [found for found in health(lake.catalog_, ("ns", "t")).findings if "global" in found.what]
    assert finding.command == "calve optimize lake.ns.t --full"
    before = lake.rows("ns.t")
    process = lake.optimize("ns.t", full=True)
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.rows("ns.t") == before and len(before) == 37
    assert delete_files(lake) == 0
    assert json.loads(process.result)["removed_delete_files"] == 1
    assert sorted(lake.table("ns.t").scan().to_arrow()["id"].to_pylist()) == [
        row["id"] for row in sorted(before, key=lambda row: row["id"])
    ], "PyIceberg, which has no equality deletes, reads it too"


def interfere(monkeypatch: pytest.MonkeyPatch, write: Callable[[], None], *, times: int = 1) -> None:
    """Another writer commits between the moment a rewrite looks at the table and its commit."""
    look = ActionTable.marked
    left = [times]

    def looking(table: ActionTable, step: str) -> dict[str, str] | None:
        found = look(table, step)
        if left[0] > 0:
            left[0] -= 1
            write()
        return found

    monkeypatch.setattr(ActionTable, "marked", looking)


@pytest.mark.parametrize("mode", ["merge-on-read", "copy-on-write"])
def test_P19_a_delete_made_meanwhile_is_a_conflict_and_the_rest_is_planned_again(
    lake: OptimizeScene, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    lake.make("ns.t", files=13, **{"write.delete.mode": mode})
    expected = [row for row in lake.rows("ns.t") if row["id"] not in (7, 8)]
    interfere(monkeypatch, lambda: void(lake.sql("DELETE FROM lake.ns.t WHERE id IN (7, 8)")))
    process = lake.optimize("ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.rows("ns.t") == expected
    assert [task.attempt for task in lake.store.tasks(process.id)] == [2]
    assert "task_again" in {event.name for event in lake.store.events(process.id)}


def test_P19_an_equality_delete_made_meanwhile_still_applies(
    lake: OptimizeScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.make("ns.t", files=13)
    expected = [row for row in lake.rows("ns.t") if row["id"] != 8]
    interfere(
        monkeypatch, lambda: delete_equal(lake.catalog_, ("ns", "t"), "id", [8], partition=(FIRST_DAY,))
    )
    process = lake.optimize("ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.rows("ns.t") == expected


def test_P19_under_a_new_spec_an_equality_delete_made_meanwhile_still_applies(
    lake: OptimizeScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files move to the new spec, where a delete of the old one would apply to nothing."""
    lake.make("ns.t", files=13)
    with lake.table("ns.t").update_spec() as spec:
        spec.add_field("id", "bucket[2]", "shard")
    expected = [row for row in lake.rows("ns.t") if row["id"] != 8]
    interfere(
        monkeypatch,
        lambda: delete_equal(lake.catalog_, ("ns", "t"), "id", [8], partition=(FIRST_DAY,), spec_id=0),
    )
    process = lake.optimize("ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    assert lake.rows("ns.t") == expected


def test_P19_rows_appended_meanwhile_survive(lake: OptimizeScene, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.make("ns.t", files=13)
    ids = {row["id"] for row in lake.rows("ns.t")}
    interfere(monkeypatch, lambda: void(lake.sql(lake.insert("ns.t", range(500, 510)))))
    process = lake.optimize("ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    assert sorted(row["id"] for row in lake.rows("ns.t")) == sorted(ids | set(range(500, 510)))
    assert [task.attempt for task in lake.store.tasks(process.id)] == [1]


def void(_: object) -> None:
    """A statement's rows are not asked for."""
