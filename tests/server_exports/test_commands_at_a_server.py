"""Commands against a server, as a person types them."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from served import PASSWORD, ROWS, Served, events

from calve.cli.main import run
from support.server_place import ServerPlace

pytestmark = pytest.mark.services
Command = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def command(
    place: ServerPlace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs a command with --json in the place; exit code, what it printed, and what it said."""

    def call(*arguments: str) -> tuple[int, Any, str]:
        with monkeypatch.context() as patch:
            patch.chdir(place.folder)
            for name in [name for name in os.environ if name.startswith("CALVE_")]:
                patch.delenv(name)
            for name, value in place.environment.items():
                patch.setenv(name, value)
            capsys.readouterr()
            code = run([*arguments, "--json"])
        captured = capsys.readouterr()
        assert PASSWORD not in captured.out + captured.err
        return code, json.loads(captured.out), captured.err

    return call


def test_partitions_shows_what_the_server_has(place: ServerPlace, command: Command) -> None:
    table = events(place)
    code, found, _ = command("partitions", table)
    assert code == 0
    assert [(one["id"], one["rows"]) for one in found] == [("202401", 2 * ROWS), ("202402", 2 * ROWS)]


def test_a_dry_run_tells_the_plan_and_changes_nothing(place: ServerPlace, command: Command) -> None:
    table = events(place)
    code, found, _ = command("export", table, "--partition", "202401", "--to", "lake.ns.events", "--dry-run")
    assert code == 0
    assert str(2 * ROWS) in json.dumps(found)
    assert place.pins == []
    assert not (place.folder / "lake" / "warehouse").exists()


def test_doctor_says_what_the_server_is_and_what_it_lacks(
    place: ServerPlace, command: Command, served: Served
) -> None:
    _, found, _ = command("doctor", "--no-spark")
    [words] = [one["words"] for one in found if one["part"] == "source:main"]
    assert words.startswith("ClickHouse ")
    assert ("however large" in words) is not served.modern


def test_L32_doctor_lists_pins_that_no_journal_knows(place: ServerPlace, command: Command) -> None:
    place.execute(
        "CREATE DATABASE IF NOT EXISTS calve_pins",
        "CREATE TABLE calve_pins.`calve-lost-1` (a UInt8) ENGINE = MergeTree ORDER BY a",
    )
    try:
        _, found, _ = command("doctor", "--no-spark")
    finally:
        place.execute("DROP TABLE calve_pins.`calve-lost-1`")
    [finding] = [one for one in found if one["part"] == "source:main" and not one["ok"]]
    assert "calve-lost-1" in finding["words"]
    assert "calve_pins" in finding["remedy"]


def test_an_export_is_proven_and_again_at_the_source_where_that_can_compute_it(
    place: ServerPlace, command: Command, served: Served
) -> None:
    table = events(place)
    [process] = place.export(table, "202401")
    code, _, _ = command("verify", process.id)
    assert code == 0
    code, found, said = command("verify", process.id, "--deep")
    assert code == (0 if served.modern else 4), (found, said)


def test_a_url_with_a_password_is_refused_without_repeating_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ServerPlace(tmp_path, "http://127.0.0.1:1")
    monkeypatch.chdir(tmp_path)
    file = place.folder / "calve.toml"
    file.write_text(file.read_text().replace("http://127.0.0.1:1", f"http://default:{PASSWORD}@127.0.0.1:1"))
    assert run(["partitions", "db.events"]) == 2
    said = "".join(capsys.readouterr())
    assert PASSWORD not in said
    assert "password_file" in said
