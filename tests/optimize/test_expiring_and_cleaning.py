"""What optimize removes, and what it never does: real tables, no JVM."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.health.report import health
from calve.iceberg.health.settings import Settings
from calve.model.change import Change, ClearWait, LeftoversTo, MoveTo, WritePlan
from calve.model.errors import TemporaryError
from calve.model.limits import Limits
from calve.model.process import Lease, NewProcess, WorkerId, new_process_id
from calve.model.states import ProcessState
from calve.optimize import expiry as expiring
from calve.optimize.cleanup import clean
from calve.optimize.expiry import expire
from calve.testing.memory_store import MemoryStore
from support.lake import IDENTIFIER, arrow, make_table, rows_of, sqlite_properties
from support.optimizing import MovedClock

REACH = frozenset({"catalog:lake"})


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return open_catalog("lake", sqlite_properties(tmp_path))


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def store(clock: MovedClock) -> MemoryStore:
    return MemoryStore(clock)


def submit(store: MemoryStore, plan: str | None = None, destination: str = "lake.ns.events") -> Lease:
    """A live process, with a plan where one is given."""
    new = NewProcess(
        id=new_process_id(), kind="export", source="main:db.t", destination=destination,
        lane="catalog:lake", needs=("catalog:lake",), request="{}",
    )  # fmt: skip
    store.submit([new])
    [claimed] = [p for p in store.claim(WorkerId("w"), REACH, lease_seconds=1e6, limit=9) if p.id == new.id]
    lease = Lease(process_id=new.id, worker=WorkerId("w"), fence=claimed.fence)
    if plan is not None:
        store.apply(
            lease,
            Change(
                MoveTo(ProcessState.RUNNING), WritePlan(plan), ClearWait(), expect_version=claimed.version
            ),
        )
    return lease


def end(store: MemoryStore, lease: Lease) -> None:
    process = store.process(lease.process_id)
    store.apply(lease, Change(MoveTo(ProcessState.CANCELLED), expect_version=process.version))


def files_below(table: Table) -> set[str]:
    root = Path(table.location().removeprefix("file://"))
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def put(table: Table, name: str, *, age_days: float = 100.0) -> Path:
    path = Path(table.location().removeprefix("file://")) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    at = (datetime.now(UTC) - timedelta(days=age_days)).timestamp()
    os.utime(path, (at, at))
    return path


def expire_later(catalog: Catalog, store: MemoryStore, clock: MovedClock, days: float = 30) -> Any:
    clock.advance(days=days)
    return expire(catalog, IDENTIFIER, Settings(), store, store.now())


def test_expired_snapshots_take_their_files_with_them_and_every_row_stays(
    catalog: Catalog, store: MemoryStore, clock: MovedClock
) -> None:
    table = make_table(catalog)
    table.append(arrow(range(10), 1))
    table.append(arrow(range(10, 20), 2))
    table.overwrite(arrow(range(20, 30), 1), overwrite_filter="month == 1")
    found = expire_later(catalog, store, clock)
    assert found.snapshots == 3 and found.files >= 2
    assert rows_of(catalog) == list(range(10, 30))
    data = [name for name in files_below(catalog.load_table(IDENTIFIER)) if name.startswith("data/")]
    assert len(data) == 2
    assert not expire_later(catalog, store, clock, days=0).snapshots, "twice is harmless"


def test_tags_branches_and_the_base_of_a_live_process_are_kept_with_their_files(
    catalog: Catalog, store: MemoryStore, clock: MovedClock
) -> None:
    table = make_table(catalog)
    ids = []
    for number in range(4):
        write = table.overwrite if number else table.append
        write(arrow(range(number * 10, number * 10 + 10), 1))
        head = table.current_snapshot()
        assert head is not None
        ids.append(head.snapshot_id)
    table.manage_snapshots().create_tag(ids[0], "first").commit()
    base = f'{{"destination": {{"uuid": "{table.metadata.table_uuid}", "base_snapshot_id": "{ids[1]}"}}}}'
    lease = submit(store, plan=base)
    expire_later(catalog, store, clock)
    kept = catalog.load_table(IDENTIFIER)
    for number in (0, 1, 3):
        found = kept.scan(snapshot_id=ids[number]).to_arrow().column("id").to_pylist()
        assert sorted(found) == list(range(number * 10, number * 10 + 10))
    assert kept.snapshot_by_id(ids[2]) is None
    end(store, lease)
    expire_later(catalog, store, clock)
    assert catalog.load_table(IDENTIFIER).snapshot_by_id(ids[1]) is None, "once it has ended, it goes"


def test_an_old_tag_of_calves_goes_and_that_of_a_live_process_stays(
    catalog: Catalog, store: MemoryStore, clock: MovedClock
) -> None:
    table = make_table(catalog)
    table.append(arrow(range(10), 1))
    head = table.current_snapshot()
    assert head is not None
    lease = submit(store)
    for process in (lease.process_id, "gone"):
        table.manage_snapshots().create_tag(
            head.snapshot_id, f"calve-{process}", max_ref_age_ms=1000
        ).commit()
    assert expire_later(catalog, store, clock).refs == ("calve-gone",)
    assert f"calve-{lease.process_id}" in catalog.load_table(IDENTIFIER).refs()


def test_L20_nothing_is_deleted_when_the_commit_did_not_land(
    catalog: Catalog, store: MemoryStore, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(catalog)
    table.append(arrow(range(10), 1))
    table.overwrite(arrow(range(10, 20), 1))
    before = {name for name in files_below(table) if not name.endswith(".json")}

    def refused(*_: Any, **__: Any) -> Any:
        raise OSError("Connection reset by peer")

    monkeypatch.setattr(type(catalog), "commit_table", refused)
    with pytest.raises(TemporaryError):
        expire_later(catalog, store, clock)
    assert before <= files_below(table)


def test_a_writer_that_is_first_makes_expiry_look_again(
    catalog: Catalog, store: MemoryStore, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(catalog)
    table.append(arrow(range(10), 1))
    table.overwrite(arrow(range(10, 20), 1))
    send, sent = expiring.send, []

    def interrupted(*given: Any) -> Any:
        if not sent:
            catalog.load_table(IDENTIFIER).append(arrow(range(20, 30), 1))
        sent.append(given)
        return send(*given)

    monkeypatch.setattr(expiring, "send", interrupted)
    found = expire_later(catalog, store, clock)
    assert found.snapshots >= 1 and len(sent) == 2
    assert rows_of(catalog) == list(range(10, 30))


def cleaned(catalog: Catalog, store: MemoryStore) -> Any:
    return clean(catalog, IDENTIFIER, Settings(), store, Limits(), store.now())


def test_D15_only_old_files_that_nobody_may_need_are_removed(catalog: Catalog, store: MemoryStore) -> None:
    table = make_table(catalog)
    table.append(arrow(range(10), 1))
    live, ended = submit(store), submit(store)
    end(store, ended)
    stay = [
        put(table, "data/calve-stranger-0-1-0.parquet", age_days=3650),
        put(table, f"data/calve-{live.process_id}-0-1-0.parquet"),
        put(table, "data/young.parquet", age_days=1),
        put(table, "metadata/calve/stranger/0-1.json", age_days=3650),
        put(table, f"metadata/calve/{live.process_id}/0-1.json"),
        put(table, f"metadata/calve/{ended.process_id}/1-1.json", age_days=3),
        put(table, "inner/metadata/00000-x.metadata.json"),
        put(table, "inner/data/theirs.parquet"),
    ]
    go = [
        put(table, "data/lost.parquet"),
        put(table, f"data/calve-{ended.process_id}-0-1-0.parquet"),
        put(table, f"metadata/calve/{ended.process_id}/0-1.json"),
    ]
    found = cleaned(catalog, store)
    assert (found.orphans, found.receipts, found.of_unknown) == (2, 1, 1)
    assert all(path.exists() for path in stay) and not any(path.exists() for path in go)
    assert rows_of(catalog) == list(range(10))


def test_receipts_of_a_process_whose_key_was_released_stay(catalog: Catalog, store: MemoryStore) -> None:
    table = make_table(catalog)
    table.append(arrow(range(10), 1))
    ended = submit(store)
    end(store, ended)
    exported = {"process": str(ended.process_id), "snapshot": "1"}
    with table.transaction() as change:
        change.set_properties(
            {
                "calve.export.k1": json.dumps({"released": exported, "by": "release1"}),
                "calve.released.k1": "{}",
            }
        )
    table.manage_snapshots().create_tag(table.metadata.refs["main"].snapshot_id, "calve-released").commit()
    receipt = put(table, f"metadata/calve/{ended.process_id}/0-1.json")
    lost = put(table, "data/lost.parquet")
    found = cleaned(catalog, store)
    assert (found.orphans, found.receipts) == (1, 0)
    assert receipt.exists()
    assert not lost.exists()


def test_D15_files_that_another_table_writes_into_this_ones_folder_stay(
    catalog: Catalog, store: MemoryStore
) -> None:
    """Its `write.data.path` leads here; only the store knows that they are not this table's."""
    table = make_table(catalog)
    neighbour = submit(store, destination="lake.ns.neighbour")
    end(store, neighbour)
    stays = put(table, f"data/calve-{neighbour.process_id}-0-1-0.parquet", age_days=3650)
    assert cleaned(catalog, store).orphans == 0 and stays.exists()


@pytest.mark.parametrize("name", ["write.data.path", "write.metadata.path"])
def test_D15_nothing_outside_the_tables_location_is_removed_and_health_says_so(
    catalog: Catalog, store: MemoryStore, tmp_path: Path, name: str
) -> None:
    """Other tables may write there, and nothing there says whose a file is."""
    table = make_table(catalog, properties={name: f"file://{tmp_path}/shared"})
    table.append(arrow(range(10), 1))
    lost = tmp_path / "shared" / "month=1" / "lost.parquet"
    lost.parent.mkdir(parents=True, exist_ok=True)
    lost.write_bytes(b"x")
    os.utime(lost, (1, 1))
    assert cleaned(catalog, store).orphans == 0 and lost.exists()
    findings = health(catalog, IDENTIFIER, orphans=True).findings
    assert [f"{tmp_path}/shared" in found.detail for found in findings if found.what == "files elsewhere"]
    assert rows_of(catalog) == list(range(10))


def test_a_data_path_inside_the_location_is_cleaned_like_the_rest(
    catalog: Catalog, store: MemoryStore
) -> None:
    location = make_table(catalog).location()
    with catalog.load_table(IDENTIFIER).transaction() as change:
        change.set_properties({"write.data.path": f"{location}/elsewhere"})
    table = catalog.load_table(IDENTIFIER)
    table.append(arrow(range(10), 1))
    lost = put(table, "elsewhere/lost.parquet")
    assert cleaned(catalog, store).orphans == 1 and not lost.exists()
    assert rows_of(catalog) == list(range(10))


def test_D15_files_that_wait_for_a_retry_stay(catalog: Catalog, store: MemoryStore) -> None:
    from calve.model.errors import ErrorInfo, Outcome
    from calve.model.states import Leftovers

    table = make_table(catalog)
    kept, unknown = submit(store), submit(store)
    process = store.process(kept.process_id)
    store.apply(
        kept,
        Change(MoveTo(ProcessState.CANCELLED), LeftoversTo(Leftovers.KEPT), expect_version=process.version),
    )
    error = ErrorInfo(code="x", message="x", outcome=Outcome.UNKNOWN)
    process = store.process(unknown.process_id)
    store.apply(unknown, Change(MoveTo(ProcessState.FAILED, error), expect_version=process.version))
    stay = [put(table, f"data/calve-{lease.process_id}-0-1-0.parquet") for lease in (kept, unknown)]
    assert cleaned(catalog, store).orphans == 0
    assert all(path.exists() for path in stay)


def test_a_file_that_came_back_into_use_while_orphans_were_listed_stays(
    catalog: Catalog, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from calve.optimize import cleanup as cleaning

    table = make_table(catalog)
    table.append(arrow(range(10), 1))
    path = put(table, "data/lost.parquet")
    calls: list[int] = []
    reachable = cleaning.reachable

    def later(loaded: Table) -> Any:
        found = reachable(loaded)
        calls.append(1)
        if len(calls) == 2:
            found.update([f"file://{path}"])
        return found

    monkeypatch.setattr(cleaning, "reachable", later)
    assert cleaned(catalog, store).orphans == 0 and path.exists()
