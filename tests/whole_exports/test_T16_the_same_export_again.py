"""T16: the same export again, whatever became of the first: never refused by its own ghost, rows once."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from whole_life import IDS, Life

from calve.clickhouse.parts.partitions import Selection
from calve.control.client import cancel, retry
from calve.export.request import ExportRequest
from calve.export.submit import Submission, submit_export, survey_export
from calve.model.change import PinChange
from calve.model.errors import LockedError, RefusedError
from calve.model.process import Pin, Process, ProcessId
from calve.model.states import PROCESS_LIVE, ProcessState
from calve.testing.faults import Crash


def forbidden(_: float) -> None:
    raise AssertionError("nothing is being pinned at this moment")


def ask(
    life: Life,
    selection: Selection | None = None,
    sleep: Callable[[float], None] = forbidden,
    **options: object,
) -> Submission:
    request = ExportRequest(
        source="main",
        database="db",
        table="events",
        catalog="lake",
        identifier=("ns", "events"),
        partitions=(),
        **options,  # type: ignore[arg-type]
    )
    surveyed = survey_export(life.ports, request, selection or Selection(all=True))
    answer = submit_export(life.ports, life.store, surveyed, sleep=sleep)
    life.ids += [one.id for one in answer.processes if one.id not in life.ids]
    return answer


@pytest.fixture
def two(life: Life) -> Life:
    """A life where each partition is a process of its own."""
    return _two(life)


def _two(life: Life) -> Life:
    from dataclasses import replace

    life.limits = life.ports.limits = replace(life.limits, commits_per_export=2)
    return life


def end_one(life: Life) -> tuple[Process, Process]:
    """One of the two completes, and the worker dies while it does the other: the done one, and the other."""
    worker = life.worker()
    for _ in range(40):
        rows = [life.row(one) for one in life.ids]
        if any(row.state is ProcessState.COMPLETED for row in rows):
            break
        worker.tick()
        life.clock.advance(0.1)
    done = next(row for row in rows if row.state is ProcessState.COMPLETED)
    left = next(row for row in rows if row.id != done.id)
    return done, left


def hold(life: Life, process_id: ProcessId) -> None:
    """Keep one process from being done: its worker has it, and is not heard of again."""
    life.store.claim(
        "gone", frozenset({"source:main", "catalog:lake", "kind:export"}), lease_seconds=600, limit=1
    )
    assert life.row(process_id).owner == "gone"


def test_T16_a_batch_of_which_one_is_done_goes_on_with_the_rest(two: Life) -> None:
    first = ask(two)
    assert len(first.processes) == 2
    hold(two, first.processes[0].id)
    done, left = end_one(two)
    assert left.id == first.processes[0].id

    again = ask(two)
    assert [one.id for one in again.processes] == [left.id]
    assert again.joined == {left.id}
    assert [one.export.process_id for one in again.survey.unchanged] == [done.id]

    two.leave()
    two.clock.advance(600)
    two.run(two.worker())
    two.check_settled()
    assert two.row(left.id).state is ProcessState.COMPLETED
    assert two.exported_ids() == list(IDS)


def test_T16_a_forced_batch_goes_on_and_replaces_nothing_twice(two: Life) -> None:
    ask(two)
    two.run(two.worker())
    two.ids.clear()
    first = ask(two, force=True)
    hold(two, first.processes[0].id)
    done, left = end_one(two)
    again = ask(two, force=True)
    assert [one.id for one in again.processes] == [left.id]
    assert [one.export.process_id for one in again.survey.unchanged] == [done.id]
    two.clock.advance(700)
    two.run(two.worker())
    two.check_settled()
    assert two.exported_ids() == list(IDS)
    # Once nothing of it is under way, the same words are a new request.
    assert not ask(two, force=True).joined


def test_T16_new_partitions_of_all_join_the_batch_that_is_under_way(own_life: Life) -> None:
    life = _two(own_life)
    first = ask(life)
    life.kept.execute("INSERT INTO db.events VALUES (150, '2024-03-01', 'march')")
    again = ask(life)
    assert again.joined == {one.id for one in first.processes}
    [march] = [one for one in again.processes if one.id not in again.joined]
    assert march.partitions == ("202403",)
    assert {one.batch for one in again.processes} == {first.processes[0].batch}
    life.run(life.worker())
    life.check_settled()
    assert life.exported_ids() == [*IDS, 150]


def test_T16_rows_that_came_after_the_pin_are_named_when_what_pinned_before_is_joined(own_life: Life) -> None:
    [first] = ask(own_life).processes
    own_life.kept.execute("INSERT INTO db.events VALUES (150, '2024-01-05', 'before the pin')")
    assert ask(own_life).outdated == (), "nothing is pinned: it will be in the export"
    own_life.run_until(ProcessState.RUNNING, first.id)
    assert ask(own_life).outdated == ()
    own_life.kept.execute("INSERT INTO db.events VALUES (151, '2024-01-05', 'after it')")
    own_life.kept.execute("OPTIMIZE TABLE db.events PARTITION 202402 FINAL")
    again = ask(own_life)
    assert again.joined == {first.id}
    [outdated] = again.outdated
    assert "partition 202401 has changed since" in outdated.message and first.id in outdated.message
    assert "--force" in outdated.hint
    own_life.leave()
    own_life.run(own_life.worker())
    assert own_life.exported_ids() == [*IDS, 150]
    # The hint, as it says.
    ask(own_life, force=True)
    own_life.run(own_life.worker())
    own_life.check_settled()
    assert own_life.exported_ids() == [*IDS, 150, 151]


def _between_pin_and_plan(life: Life, then: Callable[[], None]) -> None:
    """Do something there, once: the source is pinned, and the plan is not written."""
    take = life.kind.take

    def taking(process: Process, pins: Sequence[Pin]) -> Sequence[PinChange]:
        life.kind.take = take  # type: ignore[method-assign]
        taken = take(process, pins)
        then()
        return taken

    life.kind.take = taking  # type: ignore[method-assign]


def test_T16_rows_that_came_between_a_pin_and_its_plan_are_named(own_life: Life) -> None:
    """The one who joins there waits for the plan, which shows what was pinned."""
    [first] = ask(own_life).processes
    found: list[RefusedError] = []
    waits = threading.Event()

    def wait(_: float) -> None:
        waits.set()
        time.sleep(0.01)

    joins = threading.Thread(target=lambda: found.extend(ask(own_life, sleep=wait).outdated))

    def join() -> None:
        own_life.kept.execute("INSERT INTO db.events VALUES (151, '2024-01-05', 'after the pin')")
        joins.start()
        assert waits.wait(30)

    _between_pin_and_plan(own_life, join)
    own_life.run_until(ProcessState.RUNNING, first.id)
    joins.join(30)
    [outdated] = found
    assert "partition 202401 has changed since" in outdated.message and first.id in outdated.message


def test_T16_rows_are_not_missed_where_a_worker_died_between_its_pin_and_its_plan(own_life: Life) -> None:
    [first] = ask(own_life).processes

    def die() -> None:
        raise Crash("after the pin")

    _between_pin_and_plan(own_life, die)
    with pytest.raises(Crash):
        own_life.run_until(ProcessState.RUNNING, first.id)
    own_life.kept.execute("INSERT INTO db.events VALUES (151, '2024-01-05', 'after the pin')")
    own_life.leave()
    assert ask(own_life).outdated == ()
    own_life.run(own_life.worker())
    own_life.check_settled()
    assert own_life.exported_ids() == [*IDS, 151]


def test_T16_rows_that_went_after_the_pin_are_exported_and_no_force_is_offered(own_life: Life) -> None:
    [first] = ask(own_life).processes
    own_life.run_until(ProcessState.RUNNING, first.id)
    own_life.kept.execute("INSERT INTO db.events VALUES (151, '2024-01-05', 'in place of all')")
    own_life.kept.execute("ALTER TABLE db.events DELETE WHERE id < 151 SETTINGS mutations_sync = 2")
    outdated = ask(own_life).outdated
    assert outdated and not any("--force" in one.hint for one in outdated)
    own_life.leave()
    own_life.run(own_life.worker())
    assert own_life.exported_ids() == list(IDS)


@pytest.mark.parametrize("end", [ProcessState.FAILED, ProcessState.CANCELLED])
def test_T16_after_an_end_the_same_request_is_a_new_export(life: Life, end: ProcessState) -> None:
    [first] = ask(life).processes
    if end is ProcessState.CANCELLED:
        cancel(life.store, first.id)
    else:
        life.clock.advance(25 * 3600)  # past its deadline
    life.run(life.worker())
    assert life.row(first.id).state is end
    again = ask(life)
    assert not again.joined
    life.run(life.worker())
    assert life.row(again.process.id).state is ProcessState.COMPLETED
    assert life.exported_ids() == list(IDS)


def test_T16_while_it_is_being_cancelled_the_same_request_is_refused(life: Life) -> None:
    [first] = ask(life).processes
    cancel(life.store, first.id)
    with pytest.raises(LockedError, match="being cancelled"):
        ask(life)


def test_T16_once_it_is_completed_the_same_request_finds_it_exported(life: Life) -> None:
    ask(life)
    life.run(life.worker())
    again = ask(life)
    assert again.processes == () and len(again.survey.unchanged) == 2


def test_T16_a_retry_is_joined_as_the_process_that_it_retries_would_be(life: Life) -> None:
    [first] = ask(life).processes
    cancel(life.store, first.id)
    life.run(life.worker())
    again = retry(life.store, first.id).process
    life.ids.append(again.id)
    assert ask(life).joined == {again.id}


def test_T16_a_partition_may_be_named_by_its_id_or_by_its_value(life: Life) -> None:
    [first] = ask(life, Selection(partitions=("202401", "202402"))).processes
    assert ask(life, Selection(partitions=("202402", "202401"))).joined == {first.id}


@pytest.mark.parametrize(
    ("selection", "options"),
    [
        (Selection(partitions=("202401",)), {}),
        (Selection(older_than=timedelta(days=1)), {}),
        (Selection(all=True), {"force": True}),
        (Selection(all=True), {"where": "id < 10"}),
        (Selection(all=True), {"exclude": ("note",)}),
        (Selection(all=True), {"file_mb": 7}),
    ],
)
def test_T16_another_request_that_overlaps_is_refused(
    life: Life, selection: Selection, options: dict[str, object]
) -> None:
    [first] = ask(life).processes
    with pytest.raises(LockedError, match=first.id) as refused:
        ask(life, selection, **options)
    assert f"calve cancel {first.id}" in refused.value.hint
    assert [one.id for one in life.store.live()] == [first.id]


def test_T16_at_every_moment_of_its_life_the_same_request_ends_with_each_row_once(life: Life) -> None:
    """A worker that dies after each tick, and the same request after each death."""
    ask(life)
    for _ in range(30):
        life.worker().tick()
        life.leave()
        answer = ask(life)
        if not answer.processes:
            break
        assert answer.joined == {one.id for one in answer.processes}
        assert answer.process.state in PROCESS_LIVE
    else:
        raise AssertionError("it never ended")
    life.run(life.worker())
    life.check_settled()
    assert len(life.ids) == 1
    assert life.exported_ids() == list(IDS)
