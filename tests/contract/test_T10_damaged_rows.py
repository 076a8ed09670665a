"""T10: one row that cannot be read stops nobody, in either database, whatever the table and the column."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Text, select, update

from calve.control.why import why
from calve.control.worker import WorkerLoop
from calve.model.access import Action, Asked, Role
from calve.model.limits import Limits
from calve.model.process import ProcessId, ProcessQuery
from calve.model.states import ProcessState
from calve.store import SqlStore, open_store
from calve.store.tables import metadata, processes
from calve.testing.clock import FakeClock
from calve.testing.contracts.contract import new
from calve.testing.scene import Scene
from support.postgres import Postgres

# Every column of text is one of these. JSON that the store reads itself; text that kinds read; plain words.
JSON_COLUMNS = {
    "processes": ["needs", "partitions", "locks", "error"],
    "tasks": ["error"],
    "pins": ["error"],
    "workers": ["reach", "error", "granted"],
}
IDS = {"requests": ["processes"], "audit": ["processes"], "actions": ["processes"]}  # JSON, for people
OF_KINDS = {
    "processes": ["request", "publish_note", "result"],
    "plans": ["plan"],
    "tasks": ["spec", "receipt"],
    "pins": ["detail"],
}
WORDS = {
    "processes": ["id", "kind", "state", "source", "destination", "lane", "batch", "retry_of", "owner",
                  "snapshot_id", "leftovers"],
    "plans": ["process_id"],
    "locks": ["name", "process_id"],
    "tasks": ["process_id", "state"],
    "pins": ["name", "process_id", "source", "state"],
    "events": ["process_id", "name", "message"],
    "workers": ["id", "host", "version"],
    "breakers": ["lane", "reason"],
    "store_state": ["id"],
    "requests": ["who", "key", "verb", "hash", "answer"],
    "tokens": ["id", "name", "role", "hash", "created_by"],
    "halts": ["kind", "source", "who", "reason"],
    "servers": ["id", "host", "url", "version"],
    "proofs": ["process_id", "depth", "detail"],
    "audit": ["who", "verb", "subject", "outcome", "detail"],
    "targets": ["name"],
    "alarms": ["target", "subject", "state", "process_id"],
    "notices": ["id", "target", "name", "process_id", "body", "error"],
    "actions": ["id", "who", "role", "command", "error"],
    "attempts": ["process_id", "ending", "code", "worker"],
    "outages": ["service", "reason"],
    "sightings": ["subject", "what", "seen_by", "error", "summary", "body"],
    "sessions": ["hash", "token_id", "token_hash", "role"],
    "starts": ["policy", "hash", "action", "identity", "partition", "destination", "content", "day", "process_id"],
    # Of these the store reads no JSON: what is in them is for those who put it there.
    "guards": ["subject"],
    "holds": ["id", "identity", "uuid", "name", "partition", "who", "reason", "released_by"],
    "intents": ["process_id", "identity", "uuid", "name", "partition", "step", "query_id", "detail", "result"],
    "approvals": ["what", "hash", "identity", "destination", "policy", "who", "revoked_by"],
    "policies": ["program", "name", "hash", "body"],
    "releases": ["process_id", "identity", "partition", "destination", "state", "place", "sums", "parts", "keys",
                 "backup", "error"],
}  # fmt: skip
DAMAGES = ["", "{", '{"code": 5', "[1, 2]", '"text"', "[" * 100_000]
SET_ASIDE = [("processes", column) for column in JSON_COLUMNS["processes"]]
CASES = [
    (table, column, text) for table, names in JSON_COLUMNS.items() for column in names for text in DAMAGES
]
CASES += [(table, column, "{") for table, names in OF_KINDS.items() for column in names]


def in_pairs() -> list[object]:
    """All of them over SQLite. Over PostgreSQL each column, and each damage to two columns or more: Python reads them.
    The others are long."""
    params: list[object] = [pytest.param("sqlite", *case) for case in CASES]
    for place, (table, column, text) in enumerate(CASES):
        row, kind = divmod(place, len(DAMAGES))
        is_long = column in JSON_COLUMNS.get(table, []) and (row + kind) % 3 > 0
        marks = [pytest.mark.services, *([pytest.mark.long] if is_long else [])]
        params.append(pytest.param("postgres", table, column, text, marks=marks))
    return params


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'calve.db'}"
    server: Postgres = request.getfixturevalue("postgres_server")
    return server.new_database()


@pytest.fixture
def scene(url: str) -> Iterator[Scene]:
    clock = FakeClock()
    with open_store(url, clock_offset_seconds=clock.offset_seconds) as store:
        yield Scene(store=store, clock=clock, limits=Limits(slots=2))


def damage(scene: Scene, table: str, column: str, text: str) -> None:
    """Every row there is."""
    store = scene.store
    assert isinstance(store, SqlStore)
    with store.database.engine.begin() as connection:
        connection.execute(update(metadata.tables[table]).values({column: text}))


def test_every_column_of_text_is_listed() -> None:
    for table in metadata.sorted_tables:
        listed = [
            *JSON_COLUMNS.get(table.name, []),
            *IDS.get(table.name, []),
            *OF_KINDS.get(table.name, []),
            *WORDS.get(table.name, []),
        ]
        found = [column.name for column in table.columns if isinstance(column.type, Text)]
        assert sorted(found) == sorted(listed), table.name


@pytest.mark.parametrize(
    ("url", "table", "column", "text"), in_pairs(), ids=lambda value: value[:8] or "empty", indirect=["url"]
)
def test_T10_a_damaged_row_stops_nobody(
    scene: Scene, table: str, column: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    victim = scene.submit(tasks=3, key="victim")
    worker = scene.worker()
    worker.tick()  # planned: it has a plan, tasks and pins, and is held by this worker
    assert scene.row(victim).planned
    damage(scene, table, column, text)
    other = scene.submit(tasks=2, key="other")
    caplog.set_level(logging.INFO)
    finish(scene, worker, other)
    # Another worker, that knows nothing of it, does the same.
    third = scene.submit(tasks=1, key="third")
    finish(scene, scene.worker(), third)
    assert "Traceback" not in caplog.text
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) < 20, caplog.text
    # Everything can still be read.
    assert victim in {process.id for process in scene.store.processes(ProcessQuery())}
    scene.store.workers(), scene.store.pins(), scene.store.tasks(victim), scene.store.breakers()
    why(scene.store, scene.row(victim))
    scene.check()


@pytest.mark.parametrize("text", DAMAGES, ids=lambda text: text[:8] or "empty")
def test_T10_ids_that_cannot_be_read_are_shown_as_none(scene: Scene, text: str) -> None:
    store = scene.store
    assert isinstance(store, SqlStore)
    asked = Asked(who="anne", verb="export", key="k", hash="h")
    store.submit([new()], asked=asked)
    store.put_actions([Action(id="a", who="anne", role=Role.ADMIN, command="create x")])
    for table in IDS:
        damage(scene, table, "processes", text)
    request = store.request("anne", "k")
    assert request is not None and request.processes == ()
    assert [entry.processes for entry in store.audited(None, 5)] == [()]
    assert [action.processes for action in store.claim_actions(limit=5, lease_seconds=5)] == [()]


@pytest.mark.parametrize(("table", "column"), SET_ASIDE)
def test_T10_a_damaged_process_is_set_aside_and_goes_on_once_it_can_be_read(
    scene: Scene, table: str, column: str
) -> None:
    victim = scene.submit(tasks=3)
    worker = scene.worker()
    worker.tick()
    kept = _value(scene, victim, column)
    damage(scene, table, column, "{")
    scene.run(worker, ticks=5, seconds=5.0)
    row = scene.row(victim)
    assert f"`{column}`" in row.damaged
    assert row.state is ProcessState.RUNNING and row.tasks.done == 0, "nobody works on it"
    assert "Nobody works on it" in why(scene.store, row)
    fence = row.fence
    scene.run(scene.worker(), ticks=5, seconds=60.0)
    assert scene.row(victim).fence == fence, "nobody takes it"
    store = scene.store
    assert isinstance(store, SqlStore)
    with store.database.engine.begin() as connection:
        connection.execute(update(processes).values({column: kept}))
    scene.run(scene.worker(), seconds=5.0)
    assert scene.state(victim) is ProcessState.COMPLETED
    scene.check_settled()


@pytest.mark.parametrize("column", JSON_COLUMNS["processes"])
def test_T10_many_damaged_processes_do_not_crowd_out_the_others(scene: Scene, column: str) -> None:
    for number in range(2 * scene.limits.processes_per_worker + 5):
        scene.submit(tasks=1, key=f"damaged-{number}")
    damage(scene, "processes", column, "{")
    other = scene.submit(tasks=1, key="other")
    finish(scene, scene.worker(), other)


def finish(scene: Scene, worker: WorkerLoop, process_id: ProcessId) -> None:
    """Until it is completed, and then some ticks more."""
    ticks = 0
    while scene.state(process_id) is not ProcessState.COMPLETED:
        ticks += 1
        assert ticks < 60, why(scene.store, scene.row(process_id))
        worker.tick()
        scene.clock.advance(5.0)
    for _ in range(5):
        worker.tick()
        scene.clock.advance(5.0)


def _value(scene: Scene, process_id: ProcessId, column: str) -> str | None:
    store = scene.store
    assert isinstance(store, SqlStore)
    found = select(processes.c[column]).where(processes.c.id == process_id)
    return store.database.read(lambda connection: connection.execute(found).scalar_one())
