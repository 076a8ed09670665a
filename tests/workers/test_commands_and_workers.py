"""Commands beside workers: handing over, waiting, interrupting, cancelling, and what people see."""

import json
import os
import signal

import pytest
from gate import Gate
from programs import DESTINATION, ROWS, TABLE, Folder

from calve.model.process import ProcessId
from calve.model.states import PROCESS_TERMINAL, PinState, ProcessState, TaskState

EXPORT = ("export", TABLE, "--all", "--to", DESTINATION)


def test_export_hands_over_to_a_live_worker_and_wait_follows_what_no_wait_left(folder: Folder) -> None:
    worker = folder.worker()
    code, out, said = folder.call(*EXPORT, "--no-wait")
    assert code == 0 and "no worker" not in said, said
    process_id = ProcessId(out.strip())
    code, out, _ = folder.call("wait", process_id, "--json")
    assert (code, json.loads(out)["state"], json.loads(out)["rows"]) == (0, "COMPLETED", ROWS)
    folder.wait_ended(worker, process_id)
    folder.check_exported_once(process_id)
    with folder.place.app() as app:
        leased = [event for event in app.store.events(process_id) if event.name == "leased"]
        (only,) = app.store.workers()
    assert [event.message for event in leased] == [f"by worker {only.id}"]
    # The whole command: it brings no worker of its own where one is running.
    folder.place.execute("INSERT INTO db.events VALUES (999999, 'changed since')")
    code, out, said = folder.call(*EXPORT, "--force", "--json")
    assert code == 0, said
    with folder.place.app() as app:
        (leased_again,) = [
            event for event in app.store.events(json.loads(out)["id"]) if event.name == "leased"
        ]
    assert leased_again.message == f"by worker {only.id}"


def test_no_wait_pins_by_itself_and_says_when_no_worker_is_there(folder: Folder) -> None:
    code, out, said = folder.call(*EXPORT, "--no-wait")
    assert code == 0
    assert "no worker is running to do the work; start one with: calve worker" in said
    row = folder.row(ProcessId(out.strip()))
    assert (row.state, row.tasks.running, row.owner) == (ProcessState.RUNNING, 0, None)
    with folder.place.app() as app:
        assert [pin.state for pin in app.store.pins(row.id)] == [PinState.TAKEN]
        assert app.store.workers() == []


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM], ids=["ctrl_c", "sigterm"])
def test_export_that_is_told_to_end_exits_130_says_how_to_go_on_and_a_worker_finishes(
    folder: Folder, gate: Gate, told: signal.Signals
) -> None:
    export = folder.calve(*EXPORT, gate=gate, at="before")
    export.wait_ready(lambda: gate.arrived >= 2)
    process_id = folder.only_row().id
    if told is signal.SIGINT:
        export.interrupt()
    else:
        os.kill(export.pid, told)
    assert export.wait() == 130
    assert "nothing is lost, and nothing is published twice" in export.said
    assert f"calve cancel {process_id}" in export.said and "calve worker" in export.said
    assert "Traceback" not in export.said and export.said.count("interrupted") == 1
    row = folder.row(process_id)
    assert (row.state, row.owner) == (ProcessState.RUNNING, None)
    with folder.place.app() as app:
        assert app.store.workers() == [], "the worker it brought is not left in the list"
        assert [pin.state for pin in app.store.pins(process_id)] == [PinState.TAKEN]
    gate.open()
    # T16: the same command goes on as well as a worker would.
    finishing = folder.calve(*(EXPORT if told is signal.SIGINT else ("worker", "--until-idle")))
    assert finishing.wait() == 0
    assert told is signal.SIGTERM or f"joining process {process_id}" in finishing.said
    folder.check_exported_once(process_id)


def test_ctrl_c_of_a_command_that_only_watches_leaves_the_workers_at_work(folder: Folder, gate: Gate) -> None:
    worker = folder.worker(gate=gate, at="before")
    export = folder.calve(*EXPORT)
    worker.wait_ready(lambda: gate.arrived >= 2)
    process_id = folder.only_row().id
    export.interrupt()
    assert export.wait() == 130
    assert f"calve wait {process_id}" in export.said
    gate.open()
    folder.wait_ended(worker, process_id)
    folder.check_exported_once(process_id)


def test_L1_a_cancel_ends_within_its_bound_while_tasks_hang(folder: Folder, gate: Gate) -> None:
    worker = folder.worker(gate=gate, at="before")
    process_id = folder.submit()
    worker.wait_ready(lambda: gate.arrived >= 2)
    with folder.place.app() as app:
        asked_at = app.store.now()
    code, out, said = folder.call("cancel", process_id)
    assert (code, out.split()[1]) == (0, "CANCELLED"), said
    folder.wait_ended(worker, process_id)
    with folder.place.app() as app:
        row, bound = app.store.process(process_id), app.config.limits.cancel_seconds
        events = {event.name: event.at for event in app.store.events(process_id)}
        assert {task.state for task in app.store.tasks(process_id)} == {TaskState.CANCELLED}
    assert row.finished_at is not None and row.finished_at > asked_at
    assert (row.finished_at - events["cancel_requested"]).total_seconds() < bound
    assert folder.place.frozen == []
    # The slots are free though nobody opened the gate: another export gets as far.
    before = gate.arrived
    folder.submit()
    worker.wait_ready(lambda: gate.arrived >= before + 2)


def test_a_cancel_without_a_worker_is_carried_out_by_the_command(folder: Folder) -> None:
    process_id = folder.submit()
    code, out, said = folder.call("cancel", process_id)
    assert (code, out.split()[1]) == (0, "CANCELLED"), said
    assert folder.row(process_id).state is ProcessState.CANCELLED


def test_a_command_takes_over_from_the_worker_it_watched_once_that_one_is_dead(
    folder: Folder, gate: Gate
) -> None:
    """For the length of a lease nobody can tell a killed worker from a busy one."""
    worker = folder.worker(gate=gate, at="before")
    export = folder.calve(*EXPORT)
    worker.wait_ready(lambda: gate.arrived >= 2)
    process_id = folder.only_row().id
    worker.kill()
    assert export.wait() == 0, export.said
    folder.check_exported_once(process_id)


def test_a_cancel_just_after_its_worker_was_killed_is_carried_out(folder: Folder, gate: Gate) -> None:
    worker = folder.worker(gate=gate, at="before")
    process_id = folder.submit()
    worker.wait_ready(lambda: gate.arrived >= 2)
    worker.kill()
    code, out, said = folder.call("cancel", process_id)
    assert (code, out.split()[1]) == (0, "CANCELLED"), said


def test_a_cancel_of_a_publish_that_has_not_happened_fences_it(folder: Folder, gate: Gate) -> None:
    worker = folder.worker(gate=gate, at="send")
    process_id = folder.submit()
    worker.wait_ready(lambda: gate.arrived >= 1)
    assert folder.row(process_id).state is ProcessState.PUBLISHING
    code, out, said = folder.call("cancel", process_id)
    assert (code, out.split()[1]) == (0, "CANCELLED"), said
    gate.open()  # the commit is sent after all, and refused by its own assertion
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    assert folder.row(process_id).state is ProcessState.CANCELLED
    assert folder.place.read(DESTINATION).num_rows == 0


def test_L18_a_cancel_that_comes_too_late_says_so_and_changes_nothing(folder: Folder) -> None:
    worker = folder.worker()
    process_id = folder.submit()
    folder.wait_ended(worker, process_id)
    code, out, said = folder.call("cancel", process_id)
    assert code == 4 and out.split()[1] == "COMPLETED"
    assert "too late to cancel: it is COMPLETED" in said
    folder.check_exported_once(process_id)


def test_a_worker_s_heartbeat_and_last_error_are_visible(folder: Folder) -> None:
    worker = folder.worker()
    folder.wait_until(worker, lambda app: bool(app.store.workers()))
    code, out, said = folder.call("ps", "--workers", "--json")
    assert code == 0, said
    (shown,) = json.loads(out)
    assert (shown["state"], shown["slots"], shown["error"]) == ("working", 2, None)
    assert {"catalog:lake", "source:main"} <= set(shown["reach"])
    assert "export" in shown["kinds"]
    worker.kill()
    # Both known, one of them live: before the new one is heard of, the one live is still the killed.
    folder.wait_until(
        folder.worker(), lambda app: (len(app.store.workers()), len(app.live_workers())) == (2, 1)
    )
    _, out, _ = folder.call("ps", "--workers")
    assert sorted(line.split()[2] for line in out.splitlines()[1:]) == ["silent", "working"]


def test_a_worker_until_idle_ends_once_nothing_is_left_to_do_or_to_release(folder: Folder) -> None:
    process_id = folder.submit()
    worker = folder.calve("worker", "--until-idle")
    assert worker.wait() == 0
    assert folder.row(process_id).state in PROCESS_TERMINAL
    folder.check_exported_once(process_id)
