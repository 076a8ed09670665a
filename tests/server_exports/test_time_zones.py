"""P3: a row filter asks for hours and days in the zone that the table's owner means, whoever computes it."""

from contextlib import closing
from pathlib import Path

import pytest
from served import Served, events

from calve.model.process import ProcessQuery
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.place import Place, kept_place
from support.server_place import ServerPlace

pytestmark = pytest.mark.services
FILTERS = ("toHour(at) = 3", "toDate(at) = '2024-03-10'", "at < '2024-03-10 12:00:00'")


def ids_by_the_source(place: Place, table: str, where: str) -> list[int]:
    found = place.select(f"SELECT id FROM {table} WHERE toYYYYMM(day) = 202401 AND ({where}) ORDER BY id")
    return [row["id"] for row in found]


def exported_ids(place: Place, table: str, where: str, to: str) -> list[int]:
    [process] = place.export(table, "202401", where=where, to=to)
    assert process.state is ProcessState.COMPLETED, process.error
    return sorted(int(row["id"]) for row in place.read(to).to_pylist())


def agree(place: Place, table: str) -> None:
    for number, where in enumerate(FILTERS):
        wanted = ids_by_the_source(place, table, where)
        assert wanted
        assert exported_ids(place, table, where, f"lake.ns.filtered{number}") == wanted


def test_P3_live_from_a_server_of_another_zone(place: ServerPlace) -> None:
    agree(place, events(place))


def test_P3_frozen_at_a_server_of_another_zone(today: Served, tmp_path: Path, runner: LocalRunner) -> None:
    place = today.place(tmp_path, runner, disks={"default": str(today.data)})
    table = events(place)
    agree(place, table)
    with place.app() as app:
        plans = [app.store.plan(process.id) or "" for process in app.store.processes(ProcessQuery())]
    assert all('"mode":"frozen"' in plan.replace(" ", "") for plan in plans) and plans
    assert not list((today.data / "shadow").glob("calve-*"))


def test_P3_frozen_in_an_embedded_source_of_another_zone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source's engine takes its zone from TZ; the executors have another."""
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    executors = LocalRunner(slots=1, environment={"TZ": "UTC"})
    with closing(executors), kept_place(tmp_path, executors) as place:
        agree(place, events(place))
