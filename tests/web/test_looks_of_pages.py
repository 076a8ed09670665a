"""What a page shows is looked at again: because it is open, or because somebody pressed a button. The lookout does it."""

import time
from collections.abc import Iterator

import httpx
import pytest

from calve.app.pages.lookout import Lookout
from calve.app.pages.sightings import pair
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.states import ProcessState
from calve.testing.contracts.contract import move, running, submit
from web.conftest import Place, page

SOURCE, TO = "main:web.events", "lake.web.looked"
FORM = {"table": SOURCE, "to": TO, "key": "0123456789abcdef", "back": "tables"}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A store in which no live process needs the embedded source: looks would wait for it."""
    made = Place(tmp_path_factory.mktemp("looks"))
    with EmbeddedSource("main", made.folder / "clickhouse", create=True).visit() as session:
        session.execute("CREATE DATABASE web")
        session.execute(
            "CREATE TABLE web.events (day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY day"
        )
        session.execute("INSERT INTO web.events VALUES ('2026-01-31'), ('2026-02-01')")
    with made.calve, made.served() as made.url:
        move(made.store, running(made.store, source=SOURCE, destination=TO), ProcessState.FAILED)
        yield made


def test_a_page_that_is_opened_is_looked_at(own: Place) -> None:
    address = f"/tables/of?source={SOURCE}&to={TO}"
    with own.browser() as reader:
        page(reader, address)
        deadline = time.monotonic() + 120
        while not (found := reader.get(address.replace("?", ".json?")).json())["seen"]["at"]:
            assert time.monotonic() < deadline
        assert [row["id"] for row in found["partitions"]] == ["202602", "202601"]


def test_anybody_who_may_read_may_ask_for_a_look(own: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pressed: list[tuple[str, str]] = []
    monkeypatch.setattr(Lookout, "press", lambda _, what, subject: pressed.append((what, subject)))
    with own.browser() as reader:
        answer = reader.post("/do/look", data=FORM)
    assert (answer.status_code, answer.headers["location"]) == (303, "../tables")
    assert pressed == [("pair", pair(SOURCE, TO)), ("health", TO)]


def test_a_look_needs_the_names_of_both_ends(own: Place) -> None:
    with own.browser() as reader:
        answer: httpx.Response = reader.post("/do/look", data={**FORM, "to": ""})
    assert answer.status_code == 400


def test_a_page_that_is_loaded_because_of_an_outage_shows_it(
    place: Place, reader: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage moves no cursor, so only the stream can say that a page from before is too old."""
    monkeypatch.setattr("calve.web.documents.KEEP_SECONDS", 3600.0)
    with reader.stream("GET", "/v1/events/stream") as stream:
        lines = stream.iter_lines()
        one = submit(place.store)
        next(line for line in lines if one.id in line)  # it is heard now
        place.store.trip("catalog:apart", "no answer", 3600)
        try:
            next(line for line in lines if line.startswith("data:") and "catalog:apart" in line)
            found = reader.get("/system.json").json()["breakers"]
        finally:
            place.store.close_breaker("catalog:apart")
        assert "catalog:apart" in [one["service"] for one in found]
        next(line for line in lines if line == "event: down")
        assert "catalog:apart" not in [
            one["service"] for one in reader.get("/system.json").json()["breakers"]
        ]
