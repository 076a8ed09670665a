"""What programs and the store hold at a moment, as the kernel and PostgreSQL tell it."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from support.chaos.fleet import Fleet, Kept
from support.chaos.world import World
from support.soak.slopes import Line

_HISTORY = ("events", "attempts", "pins")
_KEPT = ("processes", "tasks")
KEEP_HISTORY_DAYS = 0.004
# Workers delete what is older, and then rest for an hour.
_OVERDUE_SECONDS = KEEP_HISTORY_DAYS * 86_400 + 3_600 + 600
_OVERDUE = (
    "SELECT count(*) FROM events JOIN processes ON processes.id = events.process_id"
    f" WHERE finished_at < (extract(epoch FROM now()) - {_OVERDUE_SECONDS}) * 1000000"
)
Key = tuple[str, str]  # subject and measure


@dataclass(kw_only=True)
class Samples:
    world: World
    fleet: Fleet
    values: dict[Key, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def take(self, now: float) -> None:
        for one in self.fleet.all:
            for key, value in _program(one):
                self.values[key].append((now, value))
        for key, value in self._store():
            self.values[key].append((now, value))

    def lines(self) -> list[Line]:
        return [
            Line(
                subject=subject,
                measure=measure,
                seconds=[at for at, _ in points],
                values=[value for _, value in points],
            )
            for (subject, measure), points in self.values.items()
        ]

    def _store(self) -> Iterator[tuple[Key, float]]:
        with psycopg.connect(self.world.store_url, autocommit=True) as connection:

            def ask(sql: str) -> float:
                row = connection.execute(sql.encode()).fetchone()
                assert row is not None
                return float(row[0])

            yield ("store", "history rows"), sum(ask(f"SELECT count(*) FROM {one}") for one in _HISTORY)
            yield ("store", "overdue history"), ask(_OVERDUE)
            yield ("store", "kept rows"), sum(ask(f"SELECT count(*) FROM {one}") for one in _KEPT)
            yield (
                ("store", "connections"),
                ask("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"),
            )


def _program(one: Kept) -> Iterator[tuple[Key, float]]:
    """The driver, its JVM and its engines apart."""
    sums: dict[Key, float] = defaultdict(float)
    for pid in one.pids():
        with suppress(OSError, StopIteration):
            part = _part(one, pid)
            folder = Path(f"/proc/{pid}")
            status = dict(
                line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
            )
            sums[part, "memory MB"] += int(status["VmRSS"].split()[0]) / 1024
            sums[part, "threads"] += int(status["Threads"])
            sums[part, "handles"] += sum(1 for _ in (folder / "fd").iterdir())
    if one.disk is not None:
        files = [path for path in one.disk.folder.rglob("*") if path.is_file()]
        sums[one.name, "temporary files"] = len(files)
    yield from sums.items()


def _part(one: Kept, pid: int) -> str:
    if one.program is not None and pid == one.program.pid:
        return one.name
    words = Path(f"/proc/{pid}/cmdline").read_bytes()
    return f"{one.name}, JVM" if words.split(b"\0")[0].endswith(b"java") else f"{one.name}, engines"
