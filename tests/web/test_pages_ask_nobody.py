"""Nothing outside is asked while a page is made: with a source, a catalog and a storage that accept and never answer,
every page comes, and none of them has a caller."""

import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from calve.model.seen import Sighting
from calve.model.states import ProcessState
from calve.testing.contracts.contract import move, running
from calve.web.pages import PAGES
from web.conftest import Place, page

SETTINGS = """
[source.main]
url = "http://127.0.0.1:{source}"
[catalog.lake]
type = "rest"
uri = "http://127.0.0.1:{catalog}"
warehouse = "lake"
[storage."s3://kept"]
endpoint = "http://127.0.0.1:{storage}"
access_key_id = "x"
secret_access_key = "x"
[backup]
url = "s3://kept/backups"
[policy.quiet]
source = "main:quiet.events"
to = "lake.quiet.events"
[limits]
requests_per_second = 5000
answer_seconds = 60
"""
SOURCE, TO = "main:quiet.events", "lake.quiet.events"


class Silent:
    """Takes connections and says nothing. They wait in its queue, to be counted."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def callers(self) -> int:
        count = 0
        with suppress(BlockingIOError):
            while True:
                self._socket.accept()[0].close()
                count += 1
        return count

    def is_called(self, *, within_seconds: float) -> bool:
        return bool(select.select([self._socket], [], [], within_seconds)[0])

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def outside() -> Iterator[dict[str, Silent]]:
    with ExitStack() as stack:
        made = {name: Silent() for name in ("source", "catalog", "storage")}
        for one in made.values():
            stack.callback(one.close)
        yield made


@pytest.fixture
def quiet(outside: dict[str, Silent], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("quiet")
    settings = SETTINGS.format(**{name: one.port for name, one in outside.items()})
    made = Place(folder, looks=False, settings=settings)  # it looks because a page is open, beside it
    with made.calve, made.served() as made.url:
        yield made


def test_no_page_asks_a_source_a_catalog_or_a_storage(quiet: Place, outside: dict[str, Silent]) -> None:
    seen = {"name": "nightly", "created_at": "2026-11-16T12:00:00+00:00", "source": "main", "process": None,
            "tables": 1, "parts": 1, "rows": 10, "bytes": 100, "own_bytes": 40, "error": None, "left_out": [],
            "contents": {"db.events": ["202601"]}}  # fmt: skip
    quiet.store.put_sighting(Sighting(subject="s3://kept/backups", what="backups"), [json.dumps([seen])])
    live = running(quiet.store, source=SOURCE, destination=TO)
    failed = move(quiet.store, running(quiet.store, source=SOURCE, destination=TO), ProcessState.FAILED)
    found = {
        "attention": ["/"],
        "tables": ["/tables", "/tables?q=quiet"],
        "table": [f"/tables/of?source={SOURCE}&to={TO}"],
        "page": ["/processes", "/processes?view=failed"],
        "sheet": [f"/processes/{live.id}", f"/processes/{failed.id}"],
        "vault": ["/backups"],
        "backup": ["/backups/of?name=nightly"],
        "policies": ["/policies"],
        "policy": ["/policies/of?name=quiet"],
        "system": ["/system"],
        "search": ["/search?q=nothing-fits"],
    }
    with quiet.browser() as reader:
        for name in PAGES:
            for address in found[name]:
                page(reader, address)
    assert {name: one.callers() for name, one in outside.items()} == {"source": 0, "catalog": 0, "storage": 0}


def test_one_that_asks_would_be_noticed(quiet: Place, outside: dict[str, Silent]) -> None:
    """The page of a plan asks the source."""

    def look() -> None:
        with quiet.browser() as reader:
            reader.get(f"/tables/plan?source={SOURCE}&to={TO}&all=1")

    thread = threading.Thread(target=look)
    thread.start()
    assert outside["source"].is_called(within_seconds=60)
    for one in outside.values():
        one.close()  # whoever waits for an answer is refused
    thread.join(60)
    assert not thread.is_alive()
