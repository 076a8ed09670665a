"""Whole exports from an embedded source to an Iceberg table, read back by independent readers."""

import pyarrow.compute as pc
import pytest

from calve.destination.receipt import Receipt
from calve.model.errors import NotFoundError, RefusedError
from calve.model.seen import PHASES, Ending
from calve.model.states import ProcessState
from support.place import Place
from support.sparks import CLUSTER, LOCAL

pytestmark = pytest.mark.spark

# What executors have a part in; the rest is settled before a task runs, or after.
on_a_cluster_too = pytest.mark.parametrize("runner", [LOCAL, CLUSTER], indirect=True)


@on_a_cluster_too
def test_rows_and_sums_equal_the_source_s_for_two_readers(place: Place) -> None:
    [process] = place.export("db.events", "202401")
    assert process.state is ProcessState.COMPLETED, process.error
    [source] = place.select("SELECT count() AS n, sum(id) AS ids FROM db.events WHERE day < '2024-02-01'")
    table = place.read()
    assert process.rows == table.num_rows == source["n"]
    assert int(pc.sum(table["id"]).as_py()) == source["ids"]
    assert place.read_by_clickhouse("count() AS n, sum(id) AS ids") == [source]


def test_an_attempt_leaves_the_time_that_it_read_wrote_and_uploaded(place: Place) -> None:
    [process] = place.export("db.events", "202401")
    with place.app() as app:
        [attempt] = app.registry.attempts(process.id)
        receipt = Receipt.from_json(app.store.tasks(process.id)[0].receipt)
    spent = [attempt.read_ms, attempt.write_ms, attempt.upload_ms]
    assert spent == [round(receipt.spent[phase] * 1000) for phase in PHASES]
    assert all(spent[:2]), (
        spent
    )  # a query and an INSERT take a millisecond or more; in memory a file is moved in less
    took_ms = (attempt.ended_at - attempt.started_at).total_seconds() * 1000
    assert sum(spent) <= took_ms + 2  # SQLite's clock has milliseconds
    assert (attempt.ending, attempt.rows, attempt.code) == (Ending.DONE, process.rows, "")


def test_the_snapshot_names_its_process_and_nothing_is_left_at_the_source(place: Place) -> None:
    [process] = place.export("db.events", "202401")
    table = place.table()
    head = table.current_snapshot()
    assert head is not None and head.summary is not None
    assert head.summary["calve.process-id"] == process.id
    assert str(head.snapshot_id) == process.snapshot_id
    assert table.metadata.refs[f"calve-{process.id}"].snapshot_id == head.snapshot_id
    assert place.frozen == []


@on_a_cluster_too
def test_several_partitions_are_a_batch_of_processes(place: Place) -> None:
    processes = place.export("db.events")
    assert [process.partitions for process in processes] == [("202401",), ("202402",), ("202403",)]
    assert [process.error for process in processes] == [None, None, None]
    assert len({process.batch for process in processes}) == 1
    assert place.read().num_rows == 3000


def test_beyond_the_limit_several_partitions_share_a_process_and_a_commit(place: Place) -> None:
    place.settings["CALVE_LIMITS__COMMITS_PER_EXPORT"] = "1"
    [process] = place.export("db.events")
    assert process.partitions == ("202401", "202402", "202403")
    assert place.read().num_rows == 3000
    assert place.export("db.events") == []


def test_what_is_exported_and_unchanged_is_skipped_also_after_a_merge(place: Place) -> None:
    place.export("db.events", "202401")
    place.execute("SYSTEM START MERGES db.events", "OPTIMIZE TABLE db.events PARTITION ID '202401' FINAL")
    assert place.export("db.events", "202401") == []
    assert place.read().num_rows == 1000


@on_a_cluster_too
def test_what_changed_since_is_told_and_replaced_by_force(place: Place) -> None:
    place.export("db.events", "202401")
    place.execute("INSERT INTO db.events (id, day) VALUES (77, '2024-01-05')")
    assert place.export("db.events", "202401") == []
    [process] = place.export("db.events", "202401", force=True)
    assert process.state is ProcessState.COMPLETED, process.error
    assert place.read().num_rows == 1001
    assert place.read_by_clickhouse("count() AS n") == [{"n": 1001}]


def test_D8_another_selection_of_an_exported_partition_is_refused(place: Place) -> None:
    place.export("db.events", "202401", where="id < 100")
    with pytest.raises(RefusedError, match="another selection"):
        place.export("db.events", "202401")
    with pytest.raises(RefusedError, match="another selection"):
        place.export("db.events", "202401", where="id < 50")
    place.export("db.events", "202401", where="id >= 100", allow_overlap=True)
    assert place.read().num_rows == 1000


def test_D8_parts_that_do_not_meet_may_follow_each_other(place: Place) -> None:
    names = [
        row["name"]
        for row in place.select("SELECT name FROM system.parts WHERE active AND partition_id = '202401'")
    ]
    assert len(names) == 2
    for name in names:
        [process] = place.export("db.events", parts=(name,))
        assert process.state is ProcessState.COMPLETED, process.error
    assert place.read().num_rows == 1000
    assert place.export("db.events", parts=(names[0],)) == []
    with pytest.raises(RefusedError, match="another selection"):
        place.export("db.events", "202401")


def test_what_is_not_there_is_named_and_leaves_nothing(place: Place) -> None:
    with pytest.raises(NotFoundError, match=r"db\.evnts"):
        place.export("db.evnts")
    with pytest.raises(NotFoundError, match="202412"):
        place.export("db.events", "202412")
    place.execute(
        "SYSTEM START MERGES db.events",
        "DELETE FROM db.events WHERE day >= '2024-03-01' SETTINGS mutations_sync = 2",
    )
    with pytest.raises(RefusedError, match="has no rows"):
        place.export("db.events", "202403")
    assert place.frozen == []
    assert not (place.folder / "lake" / "warehouse").exists()
