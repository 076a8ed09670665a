"""A server that dies, moves or refuses; and a password that must be found nowhere."""

import logging
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from killing import export_through_the_death_of_its_server
from served import PASSWORD, ROWS, Served, events

from calve.clickhouse.engine.folders import folders
from calve.model.errors import PermanentError
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.programs import free_ports
from support.server_place import MeddlingRunner

pytestmark = pytest.mark.services


def test_a_server_killed_in_mid_read_costs_attempts_and_nothing_else(
    own_front: Callable[[], Served], tmp_path: Path, runner: LocalRunner
) -> None:
    export_through_the_death_of_its_server(own_front(), tmp_path, runner)


def test_a_dead_replica_is_passed_over_before_the_pin(
    today: Served, tmp_path: Path, runner: LocalRunner
) -> None:
    (dead,) = free_ports(1)
    place = today.place(tmp_path, runner, url=f"http://127.0.0.1:{dead},{today.url.removeprefix('http://')}")
    table = events(place)
    [process] = place.export(table, "202401")
    assert process.state is ProcessState.COMPLETED, process.error
    assert process.rows == 2 * ROWS
    assert place.pins == []


def test_P9_wrong_credentials_fail_at_once(served: Served, tmp_path: Path, runner: LocalRunner) -> None:
    place = served.place(tmp_path, runner)
    table = events(place)
    with place.app() as app:
        ids = place.submit(app, table, "lake.ns.events", partitions=("202401",))
    place.settings["CALVE_SOURCE__MAIN__PASSWORD"] = "wrong"
    with pytest.raises(PermanentError) as refused:
        place.export(table, "202402")
    assert refused.value.code == "authentication"
    with place.app() as app:  # what was accepted before the password changed
        [process] = place.finish(app, ids)
    assert process.state is ProcessState.FAILED
    assert process.error is not None and process.error.code == "authentication"
    assert process.plan_attempts == 1
    assert "password" in process.error.hint


def test_P22_the_password_is_nowhere_in_what_an_export_leaves_or_shows(
    served: Served,
    tmp_path: Path,
    runner: LocalRunner,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    commands: list[bytes] = []
    meddling = MeddlingRunner(runner, after=lambda: commands.extend(_command_lines()))
    place = served.place(tmp_path, meddling)
    table = events(place)
    [process] = place.export(table, "202401")
    assert process.state is ProcessState.COMPLETED, process.error
    assert commands
    assert not [command for command in commands if PASSWORD.encode() in command]
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".parquet" for path in written)
    written += [path for path in _engines() if path.is_file()]
    assert [path for path in written if PASSWORD.encode() in _bytes(path)] == []
    assert PASSWORD not in "\n".join(sqlite3.connect(tmp_path / "calve.db").iterdump())
    assert PASSWORD not in caplog.text + "".join(capfd.readouterr())


def _command_lines() -> Iterator[bytes]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                yield (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it ended meanwhile


def _engines() -> Iterator[Path]:
    """The folders of executors' engines, whose statements hold the password in memory."""
    for folder in folders():
        yield from folder.rglob("*")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it was removed meanwhile
