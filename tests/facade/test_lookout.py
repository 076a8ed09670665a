"""A server looks outside for its pages: what is open first, seldom, and never in anybody's way."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, update

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.pages.lookout import A_MINUTE, Lookout, bounded_for_looks, looking_out
from calve.app.pages.overview import Memory
from calve.app.pages.sightings import pair
from calve.model.errors import UnavailableError
from calve.model.states import ProcessState
from calve.store import SqlStore
from calve.store.tables import processes, sightings
from calve.testing.contracts.contract import claim_one, move, publishing, submit

SERVER = '[source.main]\nurl = "http://127.0.0.1:1"\n[source.other]\nurl = "http://127.0.0.1:2"\n'
LAKE = '[catalog.lake]\ntype = "sql"\nuri = "sqlite://"\n'
EVENTS = ("pair", pair("main:db.events", "lake.ns.events"))
PARTITION = {
    "id": "202401", "value": "202401", "rows": 5, "bytes": 50, "parts": 1, "modified_at": None,
    "exported": "unchanged", "process": None, "snapshot_id": None,
}  # fmt: skip
HEALTH = {
    "score": 90, "files": 1, "rows": 5, "bytes": 50, "sizes": [], "snapshots": 1, "partitions_due": 0, "parts": [],
    "location": "", "latest_snapshots": [],
}  # fmt: skip


class Outside(Calve):
    """What a source, a catalog and a storage answer."""

    def prepare(self) -> "Outside":
        self.asked: list[str] = []
        self.down: set[str] = set()
        return self

    def partitions(self, table: str, to: str = "", *, gone: bool = False) -> list[dict[str, Any]]:
        self.asked.append(table)
        source = table.partition(":")[0]
        if source in self.down:
            raise UnavailableError(f"{source} does not answer", code="down", service=f"source:{source}")
        return [PARTITION]

    def health(self, table: str, *, orphans: bool = False) -> dict[str, Any]:
        self.asked.append(table)
        return HEALTH

    def backup_list(self, *, contents: bool = False) -> dict[str, Any]:
        self.asked.append("backups")
        return {"location": self.config.backup_url, "backups": [], "stored_bytes": 0, "without_key": []}


class Stage:
    """A lookout over a store of its own, with a clock that both share."""

    def __init__(self, folder: Path, settings: str = SERVER + LAKE) -> None:
        self.now = 1000.0
        (folder / "calve.toml").write_text(settings)
        config = bounded_for_looks(load_config(folder / "calve.toml", environ={}))
        self.calve = Outside(config).prepare()
        self.lookout = self.another()
        found = self.calve.registry
        assert isinstance(found, SqlStore)
        self.store = found

    def another(self) -> Lookout:
        return Lookout(self.calve, now=lambda: self.now)

    def exported(self, name: str = "events", source: str = "main") -> None:
        # Its needs are those that the contract's worker reaches.
        row = publishing(self.store, source=f"{source}:db.{name}", destination=f"lake.ns.{name}")
        move(self.store, row, ProcessState.COMPLETED)

    def later(self, seconds: float) -> None:
        self.now += seconds
        back = {name: getattr(sightings.c, name) - int(seconds * 1e6) for name in ("tried_at", "seen_at")}
        with self.store.database.engine.begin() as connection:
            connection.execute(update(sightings).values(back))
            ended = {"finished_at": processes.c.finished_at - int(seconds * 1e6)}
            connection.execute(update(processes).values(ended))
        # What happened is not rewritten but here: nobody remembers it.
        self.store.ended_work = None
        self.lookout.overview.memory = Memory(self.now)

    def round(self, lookout: Lookout | None = None) -> list[str]:
        """All that is looked at now, each after the other."""
        self.calve.asked.clear()
        while (look := (lookout or self.lookout).next()) is not None:
            look()
        return list(self.calve.asked)


@contextmanager
def statements(store: SqlStore) -> Iterator[list[str]]:
    """What the store is asked meanwhile."""
    made: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement != "BEGIN":
            made.append(statement)

    event.listen(store.database.engine, "before_cursor_execute", note)
    yield made
    event.remove(store.database.engine, "before_cursor_execute", note)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.calve.close()


def test_everything_is_looked_at_on_its_interval(stage: Stage) -> None:
    stage.exported()
    stage.exported("clicks", source="other")
    assert set(stage.round()) == {"main:db.events", "other:db.clicks", "lake.ns.events", "lake.ns.clicks"}
    seen = stage.store.sighting(EVENTS[1], "pair")
    assert seen is not None and json.loads(seen.summary)["counts"]["exported"] == 1 and not seen.error
    assert stage.round() == []
    stage.later(15 * 60)
    assert set(stage.round()) == {"main:db.events", "other:db.clicks"}, "nothing was published since"
    stage.exported()
    stage.later(15 * 60)
    assert "lake.ns.events" in stage.round() and "lake.ns.clicks" not in stage.calve.asked
    stage.later(6 * 3600)
    assert {"lake.ns.events", "lake.ns.clicks"} <= set(stage.round())


def test_backups_are_looked_at_where_there_ever_was_one_or_somebody_looks(stage: Stage) -> None:
    assert stage.round() == []
    stage.lookout.want([["backups", stage.calve.config.backup_url]])
    assert stage.round() == ["backups"]
    stage.later(15 * 60)
    assert stage.round() == ["backups"]


def test_what_is_open_comes_first_and_not_more_than_once_a_minute(stage: Stage) -> None:
    for name in "abc":
        stage.exported(name)
    stage.round()
    stage.later(15 * 60)
    stage.lookout.want([["pair", pair("main:db.c", "lake.ns.c")], ["pair", "nobody's"]])
    assert stage.round()[0] == "main:db.c"
    stage.later(59)
    assert stage.round() == []
    stage.later(2)
    assert stage.round() == ["main:db.c"]
    stage.later(121)
    assert stage.round() == [], "the page was closed"


def test_a_button_looks_again_after_ten_seconds(stage: Stage) -> None:
    stage.exported()
    stage.round()
    stage.lookout.press(*EVENTS)
    assert stage.round() == []
    stage.later(10)
    assert stage.round() == ["main:db.events"]
    stage.later(10)
    assert stage.round() == [], "it was pressed once"


def test_one_look_at_a_time_for_each_service(stage: Stage) -> None:
    stage.exported("a")
    stage.exported("b")
    stage.exported("c", source="other")
    first = stage.lookout.next()
    assert first is not None
    # All of them name the same catalog.
    assert stage.lookout.next() is None
    first()
    assert stage.lookout.next() is not None


def test_so_many_looks_a_minute(stage: Stage) -> None:
    for number in range(A_MINUTE):
        stage.exported(f"t{number}")
    assert len(stage.round()) == A_MINUTE
    stage.later(60)
    assert len(stage.round()) == A_MINUTE, "their destinations"


def test_nothing_is_asked_of_a_service_that_is_down(stage: Stage) -> None:
    stage.exported()
    stage.exported("clicks", source="other")
    stage.store.trip("source:main", "refused", 5)
    assert "main:db.events" not in stage.round() and "other:db.clicks" not in stage.round()
    stage.store.close_breaker("source:main")
    stage.calve.down.add("main")
    assert stage.round() == ["main:db.events"]
    seen = stage.store.sighting(EVENTS[1], "pair")
    assert seen is not None and seen.error == "main does not answer" and seen.seen_at is None
    stage.lookout.press(*EVENTS)
    stage.later(20)
    assert stage.round() == [], "nor of one that did not answer us"
    stage.calve.down.clear()
    stage.later(31)
    assert stage.round() == ["main:db.events"]
    seen = stage.store.sighting(EVENTS[1], "pair")
    assert seen is not None and seen.error == "" and seen.seen_at


def test_a_failed_look_keeps_what_was_seen(stage: Stage) -> None:
    stage.exported()
    stage.round()
    stage.later(15 * 60)
    stage.calve.down.add("main")
    stage.round()
    seen = stage.store.sighting(EVENTS[1], "pair")
    assert seen is not None and seen.error and json.loads(seen.summary)["partitions"] == 1
    assert stage.store.sighting_body(EVENTS[1], "pair")


def test_two_servers_look_once(stage: Stage) -> None:
    stage.exported()
    other = stage.another()
    look = stage.lookout.next()
    assert look is not None and other.next() is not None, "the destination's health"
    assert other.next() is None
    look()
    assert stage.round(other) == []


def test_an_embedded_source_is_looked_at_only_if_somebody_looks_and_no_work_needs_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path, f'[source.main]\nurl = "chdb://{tmp_path}/source"\n' + LAKE)
    stage.exported()
    assert stage.round() == ["lake.ns.events"]
    waits = submit(stage.store)
    stage.lookout.want([EVENTS])
    stage.later(61)
    assert stage.round() == []
    move(stage.store, claim_one(stage.store, waits.id), ProcessState.CANCELLED)
    assert stage.round() == ["main:db.events"]
    stage.calve.close()


def test_work_that_waits_for_another_service_does_not_keep_an_embedded_source(tmp_path: Path) -> None:
    stage = Stage(tmp_path, f'[source.main]\nurl = "chdb://{tmp_path}/source"\n' + LAKE)
    stage.exported()
    stage.round()
    submit(stage.store, needs=("source:main", "catalog:far"))
    stage.lookout.want([EVENTS])
    stage.later(61)
    assert stage.round() == []
    stage.store.trip("catalog:far", "refused", 5)
    assert stage.round() == ["main:db.events"]
    stage.calve.close()


def test_what_waits_for_an_embedded_source_costs_the_same_however_much_of_it_is_open(tmp_path: Path) -> None:
    stage = Stage(tmp_path, f'[source.main]\nurl = "chdb://{tmp_path}/source"\n' + LAKE)
    for number in range(15):
        stage.exported(f"t{number}")
    submit(stage.store)
    stage.lookout.want([["pair", pair(f"main:db.t{number}", f"lake.ns.t{number}")] for number in range(15)])
    stage.round()  # destinations, and the list of what there is
    with statements(stage.store) as made:
        assert stage.round() == []
    assert len(made) == 2, made  # what is down, and what work needs
    stage.calve.close()


def test_a_server_that_nobody_looks_at_asks_the_store_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SERVER + LAKE + "[limits]\nlook_minutes = 0\n")
    stage.exported()
    stage.lookout.want([EVENTS])
    stage.round()
    stage.later(121)
    with statements(stage.store) as made:
        assert stage.round() == []
    assert made == [] and stage.lookout.tick_seconds >= 10
    stage.calve.close()


def test_a_page_that_is_asked_for_again_wakes_nobody(stage: Stage) -> None:
    stage.lookout.want([EVENTS])
    assert stage.lookout.woken.is_set() and stage.lookout.tick_seconds == 1
    stage.lookout.woken.clear()
    stage.lookout.want([EVENTS])
    assert not stage.lookout.woken.is_set()
    stage.lookout.press(*EVENTS)
    assert stage.lookout.woken.is_set()


def test_without_an_interval_only_what_is_open_is_looked_at(tmp_path: Path) -> None:
    stage = Stage(tmp_path, SERVER + LAKE + "[limits]\nlook_minutes = 0\n")
    stage.exported()
    assert stage.round() == []
    stage.lookout.want([EVENTS])
    assert stage.round() == ["main:db.events"]
    stage.calve.close()


def test_a_thread_of_the_server_does_it(stage: Stage) -> None:
    stage.exported()
    looked = threading.Event()
    ask = stage.calve.partitions

    def partitions(table: str, to: str = "", *, gone: bool = False) -> list[dict[str, Any]]:
        looked.set()
        return ask(table, to)

    stage.calve.partitions = partitions  # type: ignore[method-assign]
    with looking_out(stage.lookout):
        assert looked.wait(30)


def test_nothing_of_a_look_takes_long(stage: Stage) -> None:
    config = stage.calve.config
    given = replace(config, limits=replace(config.limits, query_seconds=300.0, call_seconds=3.0))
    limits = bounded_for_looks(given).limits
    assert (limits.source_busy_seconds, limits.query_seconds, limits.call_seconds) == (0.0, 15.0, 3.0)
