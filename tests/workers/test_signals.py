"""Real workers, real signals: told to stop, told twice, killed, stopped and woken."""

import signal

from gate import Gate
from programs import PARTS, Folder

from calve.app.wiring import App
from calve.model.states import PinState, ProcessState


def test_a_worker_runs_until_sigterm_and_is_then_forgotten(folder: Folder) -> None:
    worker = folder.worker()
    process_id = folder.submit()
    folder.wait_ended(worker, process_id)
    folder.check_exported_once(process_id)
    assert worker.running, "it waits for more"
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    with folder.place.app() as app:
        assert app.store.workers() == []


def test_sigterm_lets_running_tasks_finish_starts_no_more_and_keeps_the_pin(
    folder: Folder, gate: Gate
) -> None:
    worker = folder.worker(gate=gate, at="before", CALVE_LIMITS__LEASE_SECONDS="600")
    process_id = folder.submit()
    worker.wait_ready(lambda: gate.arrived >= 2)  # its two slots
    worker.send(signal.SIGTERM)
    folder.wait_until(worker, lambda app: all(one.draining for one in app.store.workers()))
    gate.open()
    assert worker.wait() == 0
    row = folder.row(process_id)
    assert (row.state, row.owner) == (ProcessState.RUNNING, None)
    assert (row.tasks.done, row.tasks.running, row.tasks.total) == (2, 0, PARTS)
    with folder.place.app() as app:
        assert [pin.state for pin in app.store.pins(process_id)] == [PinState.TAKEN]
    folder.wait_ended(folder.worker(), process_id)
    folder.check_exported_once(process_id)


def test_tasks_that_outlive_the_drain_are_handed_back_at_no_cost(folder: Folder, gate: Gate) -> None:
    # The drain lasts a lease, and stopping them may take another.
    worker = folder.worker(gate=gate, at="before", CALVE_LIMITS__LEASE_SECONDS="4")
    process_id = folder.submit()
    worker.wait_ready(lambda: gate.arrived >= 2)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0  # though they hang
    with folder.place.app() as app:
        tasks = app.store.tasks(process_id)
    assert all(task.attempt == task.free_attempts for task in tasks)
    assert sum(task.attempt for task in tasks) >= 2
    assert {task.state.value for task in tasks} == {"PENDING"}
    assert folder.row(process_id).owner is None
    folder.wait_ended(folder.worker(), process_id)
    folder.check_exported_once(process_id)


def test_a_second_sigterm_is_quick_and_the_next_worker_goes_on(folder: Folder, gate: Gate) -> None:
    worker = folder.worker(gate=gate, at="before", CALVE_LIMITS__LEASE_SECONDS="600")
    process_id = folder.submit()
    worker.wait_ready(lambda: gate.arrived >= 2)
    worker.send(signal.SIGTERM)
    folder.wait_until(worker, lambda app: all(one.draining for one in app.store.workers()))
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0  # and not after ten minutes of drain
    row = folder.row(process_id)
    assert row.owner is None, "the lease is given up, not left to run out"
    folder.wait_ended(folder.worker(), process_id)
    folder.check_exported_once(process_id)


def test_ctrl_c_of_a_worker_twice_is_safe_too(folder: Folder, gate: Gate) -> None:
    worker = folder.worker(gate=gate, at="after", CALVE_LIMITS__LEASE_SECONDS="600")
    process_id = folder.submit()
    worker.wait_ready(lambda: gate.arrived >= 2)
    worker.send(signal.SIGINT)
    folder.wait_until(worker, lambda app: all(one.draining for one in app.store.workers()))
    worker.send(signal.SIGINT)
    assert worker.wait() == 0
    assert "Traceback" not in worker.said
    folder.wait_ended(folder.worker(), process_id)
    folder.check_exported_once(process_id)
    # The tasks had left their receipts: nothing was done again (L25).
    with folder.place.app() as app:
        assert [task.attempt for task in app.store.tasks(process_id)] == [1] * PARTS


def test_after_kill_9_the_next_worker_takes_over_and_goes_on(folder: Folder, gate: Gate) -> None:
    worker = folder.worker(gate=gate, at="before")
    process_id = folder.submit()
    worker.wait_ready(lambda: gate.arrived >= 2)
    worker.kill()
    assert folder.row(process_id).owner is not None, "nobody gave the lease up"
    folder.let_leases_run_out()
    gate.open()
    folder.wait_ended(folder.worker(), process_id)
    folder.check_exported_once(process_id)
    assert "taken_over" in folder.events(process_id)


def test_a_worker_that_slept_through_its_lease_is_refused_and_nothing_is_doubled(
    folder: Folder, gate: Gate
) -> None:
    sleeper = folder.worker(gate=gate, at="after")
    process_id = folder.submit()
    sleeper.wait_ready(lambda: gate.arrived >= 2)
    sleeper.send(signal.SIGSTOP)
    fence = folder.row(process_id).fence
    folder.let_leases_run_out()
    other = folder.worker()
    folder.wait_ended(other, process_id)
    gate.open()  # its tasks come back, to a sleeper whose lease another took
    sleeper.send(signal.SIGCONT)
    folder.wait_until(sleeper, lambda app: _beats(app) == 2)
    assert folder.row(process_id).fence > fence
    folder.check_exported_once(process_id)
    sleeper.send(signal.SIGTERM)
    assert sleeper.wait() == 0
    assert "Traceback" not in sleeper.said


def test_D2_a_worker_stopped_right_before_its_commit_cannot_publish_what_another_published(
    folder: Folder, gate: Gate
) -> None:
    sleeper = folder.worker(gate=gate, at="send")
    process_id = folder.submit()
    sleeper.wait_ready(lambda: gate.arrived >= 1)
    assert folder.row(process_id).publish_sent
    sleeper.send(signal.SIGSTOP)
    folder.let_leases_run_out()
    other = folder.worker()
    folder.wait_ended(other, process_id)
    gate.open()
    sleeper.send(signal.SIGCONT)  # and its commit goes out
    sleeper.send(signal.SIGTERM)
    assert sleeper.wait() == 0
    folder.check_exported_once(process_id)


def test_D2_a_worker_stopped_right_before_its_commit_cannot_publish_what_was_cancelled(
    folder: Folder, gate: Gate
) -> None:
    sleeper = folder.worker(gate=gate, at="send")
    process_id = folder.submit()
    sleeper.wait_ready(lambda: gate.arrived >= 1)
    sleeper.send(signal.SIGSTOP)
    code, out, said = folder.call("cancel", process_id, "--no-wait")
    assert (code, out.split()[1]) == (0, "PUBLISHING"), said
    folder.let_leases_run_out()
    other = folder.worker()
    folder.wait_ended(other, process_id)
    gate.open()
    sleeper.send(signal.SIGCONT)
    sleeper.send(signal.SIGTERM)
    assert sleeper.wait() == 0
    assert folder.row(process_id).state is ProcessState.CANCELLED
    assert folder.place.read("lake.ns.events").num_rows == 0
    assert other.running


def _beats(app: App) -> int:
    return len(app.live_workers())
