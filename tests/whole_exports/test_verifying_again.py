"""`calve verify --deep`: the source is read again, long after, and compared; and files that an undo had to
leave are found by `calve doctor`."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from whole_life import Life

from calve.app.doctor import work
from calve.app.proof import prove
from calve.app.wiring import App
from calve.destination.receipt import Receipt
from calve.model.errors import RefusedError
from calve.model.process import Task
from calve.model.states import ProcessState
from support.kept_source import KeptSource
from support.local_runner import LocalRunner

TYPES = (
    "CREATE DATABASE db",
    "CREATE TABLE db.events (id UInt64, day Date, at DateTime64(3, 'Asia/Tokyo'), f Float64, n Nullable(String),"
    " c LowCardinality(String), a Array(Nullable(Int32)), m Map(String, UInt32), d Decimal(12, 2), u UUID,"
    " t Tuple(x Int8, y String), e Enum8('a' = 1, 'b' = 2), ip IPv4) ENGINE = MergeTree"
    " PARTITION BY toYYYYMM(day) ORDER BY id",
    "INSERT INTO db.events SELECT number, '2024-01-01', toDateTime64('2024-01-01 00:00:00.5', 3) + number,"
    " if(number % 7 = 0, nan, number / 3), if(number % 5 = 0, NULL, toString(number)), toString(number % 3),"
    " [NULL, number], map('k', number), number / 100, generateUUIDv4(), (1, toString(number)), 'b', '10.0.0.1'"
    " FROM numbers(200)",
    "INSERT INTO db.events SELECT * REPLACE (id + 200 AS id) FROM db.events",
    "SYSTEM START MERGES db.events",
    "DELETE FROM db.events WHERE id % 10 = 3",
    "SYSTEM STOP MERGES db.events",
)


@pytest.fixture
def own_source(tmp_path: Path) -> Iterator[KeptSource]:
    with KeptSource(tmp_path / "clickhouse") as kept:
        kept.execute(*TYPES)
        yield kept


def app(life: Life) -> App:
    """What proving and the doctor ask of an application, over the life's own ports."""
    ports = life.ports
    return cast(
        App,
        SimpleNamespace(
            store=life.store, source=ports.source, catalog=ports.catalog, destination=ports.destination
        ),
    )


def test_a_source_that_has_not_changed_proves_the_export_also_after_a_merge(own_life: Life) -> None:
    process = own_life.export()
    assert process.rows == 360
    own_life.kept.execute("SYSTEM START MERGES db.events", "OPTIMIZE TABLE db.events FINAL")
    proven = prove(app(own_life), process.id, deep=True)
    assert proven.faults == ()
    assert proven.source is not None and proven.source.found_rows == 360


def test_a_selection_is_read_again_as_it_was_selected(own_life: Life) -> None:
    process = own_life.export("202401", where="id % 2 = 0")
    proven = prove(app(own_life), process.id, deep=True)
    assert proven.ok and proven.source is not None
    assert proven.source.found_rows == process.rows == 200


def test_a_source_that_changed_is_said_to_have_changed(own_life: Life) -> None:
    process = own_life.export()
    own_life.kept.execute("INSERT INTO db.events (id, day) VALUES (7777, '2024-01-05')")
    assert prove(app(own_life), process.id).ok, "the files are still what the tasks read"
    with pytest.raises(RefusedError, match="360 rows then, 361 now") as refused:
        prove(app(own_life), process.id, deep=True)
    assert refused.value.code == "source_changed"


def test_a_dropped_partition_is_named(own_life: Life) -> None:
    process = own_life.export()
    own_life.kept.execute("ALTER TABLE db.events DROP PARTITION ID '202401'")
    with pytest.raises(RefusedError, match=r"202401 .* has been dropped"):
        prove(app(own_life), process.id, deep=True)


def test_a_column_that_differs_is_named(own_life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """Receipts that say something else than the source and the files hold."""
    process = own_life.export()
    really = own_life.store.tasks

    def tasks(*given: Any, **named: Any) -> list[Task]:
        return [_with_another_checksum(task) for task in really(*given, **named)]

    monkeypatch.setattr(own_life.store, "tasks", tasks)
    proven = prove(app(own_life), process.id, deep=True)
    assert proven.source is not None
    assert proven.source.differing == ("d",)
    assert "column d differs between source and export" in proven.faults


def _with_another_checksum(task: Task) -> Task:
    receipt = Receipt.from_json(task.receipt)
    sums = {**receipt.checksums, "d": f"{(int(receipt.checksums['d'], 16) + 1) % 2**64:016x}"}
    return replace(task, receipt=replace(receipt, checksums=sums).to_json())


def test_the_doctor_lists_files_that_an_undo_had_to_leave_as_long_as_they_are_there(
    tmp_path: Path, source: KeptSource, runner: LocalRunner
) -> None:
    life = Life(tmp_path / "life", source, runner)
    [process_id] = life.submit()
    life.run_until(ProcessState.PUBLISHING, process_id)
    life.ports.catalog("lake").drop_table(("ns", "events"))  # without its files
    life.run(life.worker())
    life.keep_time_and_undo()
    assert life.row(process_id).state is ProcessState.FAILED
    files = sorted(life.folder.rglob(f"calve-{process_id}-*.parquet"))
    assert len(files) == 2
    [finding] = work.leftovers(app(life))
    assert finding.part == f"process:{process_id}"
    assert "left 2 files" in finding.words and "is gone" in finding.words
    assert files[0].name in finding.words
    for file in files:
        file.unlink()
    assert list(work.leftovers(app(life))) == []
    life.close()
