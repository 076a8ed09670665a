"""A place with two destinations: `far`, whose files are in S3 behind a proxy, and `lake`, in a folder.

The worker runs in this program beside the test, as `calve worker` does; the test looks at the store.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from calve.app.wiring import App
from calve.export.kind import ExportKind
from calve.model.process import Process, ProcessId, ProcessQuery
from calve.model.reach import is_folder
from calve.model.states import PIN_HELD, PROCESS_TERMINAL, ProcessState
from support.child_runner import ChildRunner
from support.kept_source import KeptSource
from support.place import Place
from support.s3 import S3Server
from support.watched_runner import WatchedRunner

_LOOK_SECONDS = 0.05
BUCKET = "far"
PARTITIONS, PARTS, ROWS_OF_A_PART = 5, 10, 2_000
# Short, so that an outage is known in seconds; the defaults are measured by `bench/outage.py`.
QUICK = {
    "CALVE_LIMITS__TICK_SECONDS": "0.05",
    "CALVE_LIMITS__CONNECT_SECONDS": "2",
    "CALVE_LIMITS__CALL_SECONDS": "6",
    "CALVE_LIMITS__PROBE_SECONDS": "0.5",
    "CALVE_LIMITS__BACKOFF_FIRST_SECONDS": "0.1",
    "CALVE_LIMITS__BACKOFF_MOST_SECONDS": "1",
    "CALVE_LIMITS__TASK_BYTES_MB": "1",
    "CALVE_LIMITS__LEASE_SECONDS": "10",
}


def make_table(name: str, *, rows: int = ROWS_OF_A_PART) -> tuple[str, ...]:
    """Five partitions of two parts each; `blob` does not compress, so an upload takes its time."""
    return (
        "CREATE DATABASE IF NOT EXISTS db",
        f"CREATE TABLE db.{name} (id UInt64, month UInt8, blob String) ENGINE = MergeTree"
        " PARTITION BY month ORDER BY id",
        f"SYSTEM STOP MERGES db.{name}",
        *(
            f"INSERT INTO db.{name} SELECT number + {part * rows}, {part % PARTITIONS},"
            f" hex(randomString(64)) FROM numbers({rows})"
            for part in range(PARTS)
        ),
    )


Executors = ChildRunner | WatchedRunner  # children of the test, or those of Spark


class OutagePlace:
    """What a test does to the place, and what it sees in its store."""

    def __init__(
        self,
        folder: Path,
        runner: Executors,
        s3: dict[str, str],
        *,
        defaults: bool = False,
        source: KeptSource | None = None,
        **settings: str,
    ) -> None:
        """A source that is given is open already, and stays so."""
        self.runner = runner
        folder.mkdir(parents=True, exist_ok=True)
        self._closing = ExitStack()
        # The worker's default is Spark's, whoever runs the tasks.
        given = {"CALVE_LIMITS__SLOTS": str(runner.slots)} | ({} if defaults else QUICK) | settings
        # Opening the engine at each visit takes a second or more, and is not what these tests are about.
        kept = source or self._closing.enter_context(KeptSource(folder / "clickhouse"))
        self.place = Place(folder, runner, kept, **given)
        config = folder / "calve.toml"
        lines = "\n".join(f'"{name}" = "{value}"' for name, value in s3.items())
        config.write_text(
            config.read_text() + _plain(s3) + '\n[catalog.far]\ntype = "sql"\nuri = "sqlite:///lake/far.db"\n'
            f'warehouse = "s3://{BUCKET}/warehouse"\n{lines}\n'
        )
        self._using = ExitStack()
        self.app: App = self._using.enter_context(self.place.app())

    def close(self) -> None:
        self._using.close()
        self._closing.close()

    def reopen(self) -> None:
        """Read the configuration again."""
        self._using.close()
        self.app = self._using.enter_context(self.place.app())

    @contextmanager
    def worker(self, **settings: str) -> Iterator[None]:
        """A worker beside the test, with settings of its own, stopped at the end of the block."""
        given = self.place.settings
        self.place.settings = given | settings
        with self.place.app() as app:
            self.place.settings = given
            app.__dict__["kinds"] = {"export": ExportKind(app)}  # only what these tests are about
            loop = app.worker()
            thread = threading.Thread(target=loop.run, name="calve-worker", daemon=True)
            thread.start()
            try:
                yield
            finally:
                loop.request_stop()
                loop.request_stop()  # quickly: what is under way is found by the next worker
                thread.join(60)
                assert not thread.is_alive(), "the worker did not stop"

    def use_store(self, url: str) -> None:
        """Another database for the processes; a worker may be given another way to it."""
        self.place.settings = self.place.settings | {"CALVE_STORE__URL": url}
        self.reopen()

    def submit(self, table: str, to: str, *partitions: str, parts: Sequence[str] = ()) -> list[ProcessId]:
        return self.place.submit(self.app, f"db.{table}", to, partitions=partitions, parts=parts)

    # -- what the store says ------------------------------------------------------------------------

    def rows(self, ids: Sequence[ProcessId]) -> list[Process]:
        return [self.app.store.process(one) for one in ids]

    def states(self, ids: Sequence[ProcessId]) -> set[ProcessState]:
        return {process.state for process in self.rows(ids)}

    def ended(self, ids: Sequence[ProcessId]) -> bool:
        return self.states(ids) <= PROCESS_TERMINAL

    def planned(self, ids: Sequence[ProcessId]) -> bool:
        return all(process.planned for process in self.rows(ids))

    def breakers(self) -> list[str]:
        return [breaker.service for breaker in self.app.store.breakers()]

    def held_pins(self, ids: Sequence[ProcessId]) -> int:
        return sum(len(self.app.store.pins(one, PIN_HELD)) for one in ids)

    def told(self, process_id: ProcessId) -> str:
        """Everything that happened to it, for a failing test to show."""
        return "\n".join(
            f"{event.at} {event.name}: {event.message}" for event in self.app.store.events(process_id)
        )

    def everything_told(self) -> str:
        """Of every process, and who is down: what a test that waited in vain is understood by."""
        stories = [
            f"{process.id} {process.state}\n{self.told(process.id)}"
            for process in self.app.store.processes(ProcessQuery())
        ]
        return "\n".join([*stories, f"down: {self.app.store.breakers()}", f"errors: {self.runner.errors}"])

    def finish(self, ids: Sequence[ProcessId], seconds: float = 120.0) -> list[Process]:
        until(lambda: self.ended(ids), f"the end of {len(ids)} exports", seconds)
        return self.rows(ids)

    # -- what readers see ---------------------------------------------------------------------------

    def ids_in(self, table: str) -> list[int]:
        """The `id` of every row there, sorted: any lost or doubled row shows."""
        if is_folder(table):
            return self._ids_in_files(table)
        return sorted(self.place.read(table).column("id").to_pylist())

    def _ids_in_files(self, uri: str) -> list[int]:
        """Of plain Parquet: of the files that its commits list."""
        storage, found = self.app.storage(uri.rstrip("/")), list[int]()
        for commit in storage.list(f"{uri}_calve/commits"):
            for file in json.loads(storage.read(commit))["files"]:
                data = pq.read_table(pa.BufferReader(storage.read(file["path"])), columns=["id"])
                found += data.column("id").to_pylist()
        return sorted(found)


def _plain(s3: Mapping[str, str]) -> str:
    """The same bucket for plain Parquet."""
    if not s3:
        return ""
    keys = {"endpoint": "s3.endpoint", "region": "s3.region"}
    keys |= {
        name: f"s3.{name.replace('_', '-')}"
        for name in ("access_key_id", "secret_access_key", "session_token")
    }
    lines = [f'{ours} = "{s3[theirs]}"' for ours, theirs in keys.items() if theirs in s3]
    return "\n".join(("", f'[storage."s3://{BUCKET}"]', *lines, ""))


def until(happened: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Return once it has happened. The one place of these tests that polls."""
    looks = threading.Event()
    for _ in range(int(seconds / _LOOK_SECONDS)):
        if happened():
            return
        looks.wait(_LOOK_SECONDS)
    raise AssertionError(f"{what}: did not happen within {seconds:.0f} s")


def behind(server: S3Server, port: int) -> dict[str, str]:
    """The server's properties with a proxy in front of it."""
    return server.properties() | {"s3.endpoint": f"http://127.0.0.1:{port}"}
