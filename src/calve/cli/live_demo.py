"""Work for `calve demo --serve` to show: exports one after another, a backup, a failure and its retry, an outage of the
catalog and its end; then exports alone. All of it is asked of the server, as any program would, so it is in the audit.

It ends by itself after some hours, so that a demo that was forgotten does not fill a disk.
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from calve.app.demo.folder import fill
from calve.client.client import Client
from calve.client.tables import Queued, QueuedExport
from calve.model.errors import CalveError

LIVE, READINGS = "demo.live", "demo.readings"
TO_LIVE, TO_READINGS = "lake.demo.live", "lake.demo.readings"
ROUNDS = 200
PAUSE_SECONDS = 12.0
OUTAGE_SECONDS = 60.0  # it is noticed after about 20, when the catalog's driver gives up
_LOOK_SECONDS = 0.5
_MOST_SECONDS = 300.0  # that a scene waits for its process
_ROWS = 20_000
_log = logging.getLogger("calve.demo")

TABLES = (
    f"CREATE TABLE IF NOT EXISTS {LIVE} (id UInt64, at DateTime('UTC'), note String) ENGINE = MergeTree"
    " PARTITION BY toYYYYMMDD(at) ORDER BY id",
    f"CREATE TABLE IF NOT EXISTS {READINGS} (id UInt64, value String) ENGINE = MergeTree ORDER BY id",
    f"INSERT INTO {READINGS} SELECT number, toString(number) FROM numbers(1000)",
    f"INSERT INTO {READINGS} VALUES (1000, 'twelve')",
)


class LiveWork:
    """`clickhouse` is the folder of the demo's source, `catalog` the database of its catalog."""

    def __init__(self, url: str, token: str, *, clickhouse: Path, catalog: Path) -> None:
        self._client = Client(url, token=token)
        self._clickhouse = clickhouse
        self._catalog = catalog
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="live-work", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(30)
        self._client.close()

    def _run(self) -> None:
        for scene in self._scenes():
            try:
                scene()
            except (CalveError, sqlite3.Error) as error:  # somebody else is at the source, or the server ends
                if not self._stop.is_set():
                    _log.warning("the demo goes on with something else: %s", error)
            if self._stop.wait(PAUSE_SECONDS):
                return

    def _scenes(self) -> Iterator[Callable[[], None]]:
        yield lambda: fill(self._clickhouse, TABLES)
        yield self._export(0)
        yield self._fail
        yield self._export(1)
        yield self._back_up
        yield self._mend
        yield self._outage
        for number in range(3, ROUNDS):
            yield self._export(number)

    def _export(self, number: int) -> Callable[[], None]:
        """A new day of rows."""
        day = f"toDateTime('2024-04-01 00:00:00', 'UTC') + INTERVAL {number} DAY"
        rows = f"INSERT INTO {LIVE} SELECT number, {day} + number % 86400, 'round {number}' FROM numbers({_ROWS})"

        def scene() -> None:
            fill(self._clickhouse, [rows])
            self._wait(self._client.export(LIVE, TO_LIVE, all=True))

        return scene

    def _fail(self) -> None:
        """One value is not a number."""
        self._wait(self._client.export(READINGS, TO_READINGS, all=True, casts={"value": "long"}))

    def _mend(self) -> None:
        """The part with that value is dropped, and what failed is retried."""
        failed = [one.id for one in self._client.processes(all=True) if one.destination == TO_READINGS]
        # A mutation would wait for merges, which are stopped in an embedded source.
        fill(self._clickhouse, [f"ALTER TABLE {READINGS} DROP PART 'all_2_2_0'"])
        self._wait(self._client.retry(*failed))

    def _back_up(self) -> None:
        self._wait(self._client.backup("demo-1", [LIVE]))

    def _outage(self) -> None:
        """Somebody else holds the catalog's database: nobody can read it, and a process waits until it is free."""
        with closing(sqlite3.connect(self._catalog, timeout=30)) as held:
            fill(
                self._clickhouse,
                [f"INSERT INTO {LIVE} SELECT number, '2024-04-03', '' FROM numbers({_ROWS})"],
            )
            asked = self._client.export(LIVE, TO_LIVE, all=True)
            # If we die here, the lock ends with us.
            held.execute("BEGIN EXCLUSIVE")
            self._stop.wait(OUTAGE_SECONDS)
        self._wait(asked)

    def _wait(self, asked: Queued | QueuedExport) -> None:
        ids = [one.id for one in asked.processes]
        until = time.monotonic() + _MOST_SECONDS
        while ids and not self._stop.is_set() and time.monotonic() < until:
            with suppress(TimeoutError):
                self._client.wait(*ids, timeout_seconds=_LOOK_SECONDS)
                return
