"""`calve` as real programs in one folder: workers and commands that get real signals."""

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gate import Gate

from calve.app.wiring import App
from calve.clickhouse.source import LiveSource
from calve.model.process import Process, ProcessId
from calve.model.states import PIN_HELD, PROCESS_TERMINAL, ProcessState
from support.kept_source import KeptSource
from support.place import Place
from support.programs import ForkedProgram, Program
from support.shared_service import SharedService

TABLE, DESTINATION = "db.events", "lake.ns.events"
SHORT = {  # a lease of seconds, so that losing it takes seconds
    "CALVE_LIMITS__LEASE_SECONDS": "4",
    "CALVE_LIMITS__TICK_SECONDS": "0.05",
    "CALVE_LIMITS__BACKOFF_FIRST_SECONDS": "0.1",
    "CALVE_LIMITS__TASK_BYTES_MB": "1",  # a task for each part
    "CALVE_LIMITS__SLOTS": "2",
}
PARTS, ROWS_OF_A_PART = 3, 35_000
ROWS = PARTS * ROWS_OF_A_PART


def create(place: Place) -> None:
    """A table of one partition, with a few parts that stay apart."""
    place.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.events (id UInt64, note String) ENGINE = MergeTree PARTITION BY id % 1 ORDER BY id"
        " SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1",
        *(
            f"INSERT INTO db.events SELECT number + {part * ROWS_OF_A_PART}, randomPrintableASCII(24)"
            f" FROM numbers({ROWS_OF_A_PART})"
            for part in range(PARTS)
        ),
    )


class Calve(Program):
    """One `calve …`, running."""

    @property
    def said(self) -> str:
        """Its stderr so far."""
        return self.output.read_text()

    def interrupt(self) -> None:
        """Ctrl-C in a terminal: every program of the group gets it."""
        os.killpg(self.pid, signal.SIGINT)


class ForkedCalve(ForkedProgram, Calve):
    """One that starts at once."""


class Folder:
    """A place with a table of one partition, and the programs started in it."""

    def __init__(self, folder: Path, source: LiveSource | None = None, **settings: str) -> None:
        self.settings = SHORT | settings
        self.place = Place(folder, source=source, **self.settings)
        self.path = folder
        self._programs: list[Calve] = []
        create(self.place)

    def calve(
        self, *arguments: str, gate: Gate | None = None, at: str = "", spark: bool = False, **settings: str
    ) -> Calve:
        environment = self.settings | settings
        if gate is not None:
            environment |= {"GATE": str(gate.folder), "GATE_AT": at}
        name = f"calve-{arguments[0]}-{len(self._programs)}"
        command = ["calve.cli.main:main" if spark else "calve_without_spark:program", *arguments]
        program = ForkedCalve(name, command, self.path / f"{name}.stderr", environment, self.path)
        self._programs.append(program)
        return program

    def call(self, *arguments: str, **settings: str) -> tuple[int, str, str]:
        """Run one to its end: exit code, stdout, stderr."""
        program = self.calve(*arguments, **settings)
        out = program.read_all()
        return program.wait(), out, program.said

    def worker(self, **given: object) -> Calve:
        """A worker that has said it is there."""
        worker = self.calve("worker", **given)  # type: ignore[arg-type]
        worker.wait_ready(lambda: " reaches " in worker.said)
        return worker

    def submit(self) -> ProcessId:
        """An export that nobody waits for."""
        with self.place.app() as app:
            (process_id,) = self.place.submit(app, TABLE, DESTINATION)
        return process_id

    def row(self, process_id: ProcessId) -> Process:
        with self.place.app() as app:
            return app.store.process(process_id)

    def only_row(self) -> Process:
        with self.place.app() as app:
            (row,) = app.store.live()
        return row

    def events(self, process_id: ProcessId) -> list[str]:
        with self.place.app() as app:
            return [event.name for event in app.store.events(process_id)]

    def let_leases_run_out(self) -> None:
        """As if whoever holds one had been silent for that long: the store's clock is the only one that counts."""
        with closing(sqlite3.connect(self.path / "calve.db", isolation_level=None, timeout=60)) as database:
            database.execute("UPDATE processes SET lease_until = 1 WHERE owner IS NOT NULL")

    def wait_until(self, worker: Calve, condition: Callable[[App], bool], seconds: float = 60.0) -> None:
        with self.place.app() as app:
            worker.wait_ready(lambda: condition(app), seconds)

    def wait_ended(self, worker: Calve, process_id: ProcessId) -> Process:
        def ended(app: App) -> bool:
            row = app.store.process(process_id)
            return row.state in PROCESS_TERMINAL and not app.store.pins(process_id, PIN_HELD)

        self.wait_until(worker, ended)
        return self.row(process_id)

    def check_exported_once(self, process_id: ProcessId) -> None:
        """Published, every row once, by an independent reader; nothing is held any more."""
        row = self.row(process_id)
        assert (row.state, row.rows) == (ProcessState.COMPLETED, ROWS), row.error
        table = self.place.table(DESTINATION)
        assert len(table.metadata.snapshots) == 1
        ids = table.scan(selected_fields=("id",)).to_arrow()["id"]
        assert len(ids) == ROWS and len(ids.unique()) == ROWS
        assert self.place.frozen == []

    def close(self) -> None:
        for program in self._programs:
            program.kill()


@contextmanager
def opened(folder: Path, **settings: str) -> Iterator[Folder]:
    """Every program opens the source for itself, as it does outside of tests."""
    made = Folder(folder, **settings)
    try:
        yield made
    finally:
        made.close()


@contextmanager
def served(folder: Path) -> Iterator[Folder]:
    """The programs share a source that stays open: each would open it a few times, half a second of CPU each."""
    with (
        KeptSource(folder / "clickhouse") as source,
        SharedService(source, None, folder / "source") as service,
    ):
        made = Folder(folder, source, SOURCE=service.address)
        try:
            yield made
        finally:
            made.close()
