"""A worker's log, of real runs: what happened, when, and nothing else."""

import json
import re
import signal
import subprocess
import sys
from datetime import datetime
from typing import Any

from gate import Gate
from programs import Calve, Folder


def records(worker: Calve) -> list[dict[str, Any]]:
    """Its stderr is a file, so every line is JSON."""
    return [json.loads(line) for line in worker.said.splitlines()]


def lines(worker: Calve) -> list[str]:
    return [record["message"] for record in records(worker)]


def test_a_take_over_an_end_and_a_drain_are_logged_with_the_zone_of_their_time(
    folder: Folder, gate: Gate
) -> None:
    first = folder.worker(gate=gate, at="before")
    process_id = folder.submit()
    first.wait_ready(lambda: gate.arrived >= 2)
    owner = folder.row(process_id).owner
    first.kill()
    folder.let_leases_run_out()
    gate.open()
    worker = folder.worker()
    folder.wait_ended(worker, process_id)
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0
    logged = lines(worker)
    for record in records(worker):
        assert datetime.fromisoformat(record["at"]).tzinfo is not None
        assert record["level"] in ("info", "warning") and record["worker"], record
        if process_id in record["message"]:
            assert record["process"] == process_id
    failed = [record for record in records(worker) if "attempt_lost" in record["message"]]
    assert sorted((record["task"], record["attempt"]) for record in failed) == [(0, 1), (1, 1)]
    for words in (
        f"process {process_id} is taken over: the lease of {owner} ran out",
        "attempt 1 failed (1 of 5): attempt_lost",
        f"process {process_id} is COMPLETED",
        "draining: 0 running tasks",
        "drained in ",
    ):
        assert any(words in line for line in logged), (words, logged)


def test_a_lease_that_was_lost_is_logged(folder: Folder, gate: Gate) -> None:
    sleeper = folder.worker(gate=gate, at="after")
    process_id = folder.submit()
    sleeper.wait_ready(lambda: gate.arrived >= 2)
    sleeper.send(signal.SIGSTOP)
    folder.let_leases_run_out()
    other = folder.worker(gate=gate, at="after")
    folder.wait_until(other, lambda app: "taken over" in other.said)
    owner = folder.row(process_id).owner
    sleeper.send(signal.SIGCONT)
    sleeper.wait_ready(lambda: f"process {process_id}: lease lost to {owner}" in sleeper.said)
    gate.open()
    folder.wait_ended(other, process_id)


def test_every_attempt_that_is_counted_is_logged_with_its_code(folder: Folder, gate: Gate) -> None:
    worker = folder.worker(gate=gate, at="before")
    process_id = folder.submit()
    worker.wait_ready(lambda: gate.arrived >= 2)
    # Where its files should go is a file.
    data = folder.path / "lake" / "warehouse" / "ns" / "events" / "data"
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text("in the way")
    gate.open()
    row = folder.wait_ended(worker, process_id)
    assert row.error is not None
    for attempt in range(1, 6):
        said = f"attempt {attempt} failed ({attempt} of 5): {row.error.code}"
        assert any(said in line for line in lines(worker)), (said, worker.said)
    assert any(f"process {process_id} is FAILED" in line for line in lines(worker))


def test_what_libraries_warn_of_is_not_logged() -> None:
    program = (
        "import logging, warnings\n"
        "from calve.wire import logs\n"
        "logs.start(form='human')\n"
        "logging.getLogger('urllib3.connectionpool').warning('Connection pool is full')\n"
        "warnings.warn('something is deprecated', UserWarning, stacklevel=1)\n"
        "logging.getLogger('calve.control').info('ours')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert re.fullmatch(r"\S+ \S+ INFO ours\n", done.stderr), done.stderr
