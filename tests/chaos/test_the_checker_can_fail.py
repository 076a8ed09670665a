"""Evidence of a run in which all went well, and then with one fault planted in it at a time: each is found."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from calve.model.errors import ErrorInfo, Outcome
from calve.model.process import Event, Process, ProcessId, WorkerId
from calve.model.states import Leftovers, ProcessState
from calve.restore.plan import Item, RestoreRequest
from support.chaos.check import check, lost_and_doubled
from support.chaos.chronicle import Landed
from support.chaos.evidence import Evidence, Restored
from support.chaos.foreign import FIRST_ID, Effect
from support.chaos.ledger import Ledger, Row, TableLedger, row
from support.chaos.schedule import Schedule

BEGAN = 1_000_000.0
ROWS = 10
FOREIGN = tuple(row(FIRST_ID + number, 900) for number in range(3))


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(BEGAN, UTC) + timedelta(seconds=seconds)


def process(kind: str, number: int, begin: float, end: float, **changes: object) -> Process:
    made = Process(
        id=ProcessId(f"{kind}{number}"), kind=kind, state=ProcessState.COMPLETED, version=5, source="main:chaos.t0",
        destination="lake.ns.t0", lane="", needs=(), request="{}", partitions=("1",), batch=None, priority=0,
        retry_of=None, adopted=False, created_at=at(begin), deadline_at=at(9_999), finished_at=at(end),
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def restoring(backup: str) -> str:
    item = Item(database="chaos", name="t0", to_database="r", to_name="t0")
    return RestoreRequest(
        backup="b", number=1, backup_process=backup, source="main", items=(item,), seed="s"
    ).to_json()


def written() -> TableLedger:
    """Two batches of partition 1, an update between them, and one batch more."""
    table = TableLedger()
    for began in (0.0, 20.0, 40.0):
        if began == 20.0:
            table.begin_update(1, BEGAN + 10).known = BEGAN + 11
        table.begin_batch(1, ROWS, BEGAN + began).known = BEGAN + began + 1
    return table


def rows(*batches: tuple[int, int]) -> list[Row]:
    """Of partition 1, by batch and version."""
    return [row(number * 100_000 + n, 1, version) for number, version in batches for n in range(ROWS)]


def snapshot(
    number: int, process_id: str = "", act: str = "", operation: str = "append", **changes: object
) -> Landed:
    made = Landed(
        table="t0", snapshot_id=number, sequence=number, operation=operation, process_id=process_id, act=act,
        added=(f"s3://chaos/lake/t0/data/{number}.parquet",), removed=0,
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture
def found() -> Evidence:
    """An export of both batches, a forced one of three, somebody else's rows, a backup and its restore."""
    first, second = rows((1, 1), (2, 0)), rows((1, 1), (2, 0), (3, 0))
    processes = [
        process("export", 1, 25, 30, rows=len(first), files=1, snapshot_id="1"),
        process("export", 2, 50, 60, rows=len(second), files=1, snapshot_id="3", request='{"force": true}'),
        process("export", 3, 50, 55, state=ProcessState.CANCELLED, leftovers=Leftovers.GONE),
        process("backup", 1, 25, 30),
        process("restore", 1, 31, 35, request=restoring("backup1")),
    ]
    landed = [
        snapshot(1, "export1"),
        snapshot(2, act="append-1"),
        snapshot(3, "export2", operation="overwrite"),
    ]
    files = {uri for one in landed for uri in one.added}
    return Evidence(
        ledger=Ledger(tables={"t0": written()}),
        processes=processes,
        events={one.id: [event(one)] for one in processes},
        landed={"t0": landed},
        published={("t0", 1): first, ("t0", 3): second},
        effects={"append-1": Effect(added=FOREIGN)},
        lake={"t0": [*second, *FOREIGN]},
        referenced=set(files),
        objects=set(files),
        restored=[Restored(process_id="restore1", backup="backup1", table="t0", rows=list(first))],
        logs={"worker 0": "all is well"},
    )  # fmt: skip


def event(one: Process) -> Event:
    return Event(process_id=one.id, number=1, at=at(1), name=one.state.lower(), message="")


def change(found: Evidence, number: int, **changes: object) -> None:
    processes = list(found.processes)
    processes[number] = replace(processes[number], **changes)  # type: ignore[arg-type]
    found.processes = processes


def test_a_run_in_which_all_went_well_has_no_problem(found: Evidence) -> None:
    assert check(found) == []
    assert lost_and_doubled(found) == (0, 0)


Plant = Callable[[Evidence], object]
PLANTED: dict[str, tuple[Plant, str]] = {
    "a row is doubled": (lambda it: it.lake["t0"].append(it.lake["t0"][0]), "1 rows too many"),
    "a row is lost": (lambda it: it.lake["t0"].pop(0), "1 rows are lost"),
    "a row of somebody else is lost": (lambda it: it.lake["t0"].pop(), "a foreign row among them"),
    "a value is changed": (
        lambda it: it.lake["t0"].append(it.lake["t0"].pop(0)._replace(cents=1)),
        "1 rows are lost",
    ),
    "a row is exported without its batch": (lambda it: it.published["t0", 1].pop(), "has 9 of 10 rows"),
    "an old batch is not exported": (
        lambda it: it.published.update({("t0", 3): rows((1, 1), (2, 0))}),
        "batch 3 is missing",
    ),
    "a batch from after the pin is exported": (
        lambda it: it.published.update({("t0", 1): rows((1, 1), (2, 0), (3, 0))}),
        "too late to be there",
    ),
    "rows from before an update are exported": (
        lambda it: it.published.update({("t0", 1): rows((1, 0), (2, 0))}),
        "not one between 1 and 1",
    ),
    "a value is wrong from the start": (
        lambda it: it.published["t0", 1].append(it.published["t0", 1].pop()._replace(payload="?")),
        "rows of other values",
    ),
    "a process is published twice": (
        lambda it: it.landed["t0"].append(snapshot(4, "export2")),  # type: ignore[attr-defined]
        "was published 2 times",
    ),
    "a cancelled process is published": (
        lambda it: it.landed["t0"].append(snapshot(4, "export3")),  # type: ignore[attr-defined]
        "is CANCELLED, and was published",
    ),
    "a completed process was never published": (
        lambda it: it.landed["t0"].pop(0),  # type: ignore[attr-defined]
        "was never published",
    ),
    "a process never ends": (lambda it: change(it, 0, state=ProcessState.RUNNING), "RUNNING for ever"),
    "an outcome stays unknown": (
        lambda it: change(it, 2, error=ErrorInfo(code="x", message="x", outcome=Outcome.UNKNOWN)),
        "unknown outcome for ever",
    ),
    "a lease stays": (lambda it: change(it, 2, owner=WorkerId("w")), "still leased"),
    "events do not fold to the row": (lambda it: change(it, 2, state=ProcessState.FAILED), "its events say"),
    "a restore lacks a row": (lambda it: it.restored[0].rows.pop(), "has 9 of 10 rows"),
    "a backup cannot be restored": (lambda it: it.restored.clear(), "no restore of it completed"),
    "a referenced file is gone": (lambda it: it.objects.pop(), "a snapshot refers to it"),
    "a file is left": (
        lambda it: it.objects.add("s3://chaos/lake/t0/data/calve-export3-0-1-0.parquet"),
        "nothing ever referred to it",
    ),
    "a receipt is left": (
        lambda it: it.objects.add("s3://chaos/lake/t0/metadata/calve/export3/0-1.json"),
        "that was undone is left",
    ),
    "a clone is left": (lambda it: setattr(it, "clones", ["calve-export1-1"]), "is left in calve_pins"),
    "a freeze is left": (lambda it: setattr(it, "frozen", ["calve-export1-1"]), "is left in shadow"),
    "a program is left": (lambda it: setattr(it, "programs_left", ["java"]), "outlived its program"),
    "a traceback": (
        lambda it: setattr(it, "logs", {"worker 0": "Traceback (most recent call last):"}),
        "tracebacks",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(found: Evidence, fault: str) -> None:
    plant, words = PLANTED[fault]
    plant(found)
    problems = check(found)
    assert any(words in one for one in problems), problems


def test_a_lost_and_a_doubled_row_are_counted(found: Evidence) -> None:
    found.lake["t0"][0] = found.lake["t0"][1]
    assert lost_and_doubled(found) == (1, 1)


def test_the_seed_makes_the_plan_and_every_kind_of_strike_comes_in_two_minutes() -> None:
    assert Schedule.of(7, 120) == Schedule.of(7, 120) != Schedule.of(8, 120)
    verbs = {act.verb for act in Schedule.of(7, 120).strikes}
    assert {"kill_worker", "stop_machine", "network", "restart_s3", "full_disk", "clock_jump"} <= verbs
