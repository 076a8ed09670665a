"""T10: whatever one row of the store holds, each verb that reads answers, or says in one clear error what it cannot read."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import BigInteger, Boolean, Integer, Table, Text, insert, select, update
from sqlalchemy.exc import IntegrityError

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.config.template import render
from calve.app.policies.look import WHAT, PartitionLook, TableLook
from calve.app.policies.views import WHAT as VIEWS
from calve.app.policies.views import KeptView
from calve.app.proof import rewritten
from calve.clickhouse.pins.pin import journaled_roots
from calve.control.ports import Store
from calve.destination.content import input_of
from calve.destination.plan import KeyPlan
from calve.model.errors import CalveError, DamagedError
from calve.model.process import Lock, NewProcess, ProcessId, ProcessQuery, Task
from calve.model.seen import Sighting
from calve.model.states import TaskState
from calve.store import SqlStore, open_store
from calve.store.tables import metadata

ID = ProcessId("7k2mexport")
RULES = """
[policy.events]
source = "main:db.events"
to = "lake.ns.events"
release = "quarantine"
view = "db.events_all"
[backup.schedule.nightly]
tables = "db.*"
at = "02:00 UTC"
keep_last = 3
[expect.events]
kind = "export"
table = "main:db.events"
within = "1d"
"""
DAMAGES = ["[" * 100_000, '[{"id": 5}, "x"]']
VALID = {
    "state": "MOVED", "role": "viewer", "outcome": "done", "processes": "[]", "process_id": ID, "name": "main:db.events",
    "identity": "i", "uuid": "u", "partition": "202401", "destination": "lake.ns.events", "kind": "export", "source": "main:db.events",
}  # fmt: skip
OWN = {
    ("sightings", "subject"): "main:db.events -> lake.ns.events", ("sightings", "what"): "pair", ("alarms", "state"): "failed",
    ("pins", "state"): "TAKEN", ("tasks", "state"): "PENDING", ("plans", "plan"): "{}", ("tokens", "name"): "anne",
    ("workers", "reach"): "[]", ("outages", "service"): "catalog:lake", ("breakers", "lane"): "catalog:lake",
}  # fmt: skip


def reads(calve: Calve) -> dict[str, Callable[[], Any]]:
    pair = ("main:db.events", "lake.ns.events")
    return {
        "attention": calve.attention, "tables": calve.tables, "table": lambda: calve.table(*pair),
        "table, filtered": lambda: calve.table(*pair, exported="no"), "vault": calve.vault,
        "a backup": lambda: calve.vault(name="b"), "system": calve.system, "search": lambda: calve.search("db"),
        "seen": calve.seen, "totals": calve.totals, "audit": calve.audit, "feed": calve.feed, "sheet": lambda: calve.sheet(ID),
        "policies": calve.policy_list, "policy": lambda: calve.policy_show("events"),
        "explain": lambda: calve.policy_explain("db.events", "202401"),
        "holds": lambda: calve.hold_list(every=True), "schedules": calve.schedule_list,
        "schedule": lambda: calve.schedule_show("nightly"), "workers": calve.workers, "servers": calve.servers,
        "breakers": calve.breakers, "halts": calve.halts, "page": lambda: calve.page(ProcessQuery(), why=True),
        "show": lambda: calve.show([ID]), "tasks": lambda: calve.tasks([ID]), "events": lambda: calve.events([ID]),
        "why": lambda: calve.why([ID]), "proofs": lambda: calve.proofs([ID]), "keys": lambda: calve.keys([ID]),
        "tokens": calve.token_list, "history": calve.history, "notes": lambda: calve.notes([ID]),
    }  # fmt: skip


@pytest.fixture(scope="module")
def calve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calve]:
    """Every table of the store has a row, and what is kept of looks is of the form that they have."""
    folder = tmp_path_factory.mktemp("damaged-facts")
    (folder / "calve.toml").write_text(render() + RULES)
    with open_store(f"sqlite:///{folder / 'calve.db'}") as made:
        _fill(made, (folder / "backups").as_uri())
    with Calve(load_config(folder / "calve.toml", environ={}, cwd=folder)) as opened:
        yield opened


@pytest.fixture(scope="module")
def store(calve: Calve) -> Iterator[SqlStore]:
    with open_store(calve.config.store_url) as opened:
        assert isinstance(opened, SqlStore)
        yield opened


def _fill(store: Store, location: str) -> None:
    assert isinstance(store, SqlStore)
    export = NewProcess(
        id=ID, kind="export", source="main:db.events", destination="lake.ns.events", lane="catalog:lake",
        needs=("source:main",), request="{}", partitions=("202401",), locks=(Lock(name="x"),),
    )  # fmt: skip
    store.submit([export])
    with store.database.engine.begin() as connection:
        for table in metadata.sorted_tables:
            if connection.execute(select(table).limit(1)).first() is None:
                connection.execute(insert(table).values(_row(table)))
    look = TableLook(
        database="db", table="events", source="main:db.events", destination="lake.ns.events",
        partitions=(PartitionLook(id="202401", value="202401"),),
    )  # fmt: skip
    partition = {"id": "202401", "value": "202401", "exported": "no", "process": None, "rows": 1}
    backup = {
        "name": "b",
        "source": "main",
        "process": ID,
        "created_at": "2026-01-01T00:00:00Z",
        "contents": {"db.events": ["202401"]},
    }
    view = KeptView(table="main:db.events", view="db.events_all", tried_at=datetime(2026, 1, 1, tzinfo=UTC))
    for subject, what, body in (
        ("main:db.events -> lake.ns.events", "pair", json.dumps([partition])),
        ("lake.ns.events", "health", "[]"),
        (location, "backups", json.dumps([backup])),
        ("installation", "doctor", "[]"),
        ("events", WHAT, look.to_json()),
        ("events", VIEWS, view.to_json()),
    ):
        store.put_sighting(_sighting(subject, what), [body])


def _sighting(subject: str, what: str) -> Sighting:
    return Sighting(
        subject=subject, what=what, summary='{"partitions": 1, "rows": 1, "hot": 2}', seen_by="host"
    )


def _row(table: Table) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for column in table.columns:
        if column.identity is not None or (column.nullable and not isinstance(column.type, Text)):
            continue
        match column.type:
            case Text():
                row[column.name] = OWN.get((table.name, column.name), VALID.get(column.name, "x"))
            case Boolean():
                row[column.name] = False
            case BigInteger():
                row[column.name] = time.time_ns() // 1000
            case Integer():
                row[column.name] = 1
    return row


TEXTS = {
    table.name: [
        column.name for column in table.columns if isinstance(column.type, Text) and not column.primary_key
    ]
    for table in metadata.sorted_tables
}
APART = (
    "processes",
    "sightings",
    "releases",
)  # where the first column that cannot be read may hide the others
CASES = [(table, tuple(columns)) for table, columns in TEXTS.items() if columns and table not in APART]
CASES += [(table, (column,)) for table in APART for column in TEXTS[table]]


def test_every_read_answers_while_nothing_is_damaged(calve: Calve) -> None:
    answered = [name for name, read in reads(calve).items() if _answers(read)]
    assert set(reads(calve)) - set(answered) == set(), "they were refused, so what they read is not tested"


@pytest.mark.parametrize(
    ("name", "columns"), CASES, ids=lambda value: value if isinstance(value, str) else "-".join(value)[:40]
)
def test_T10_a_damaged_row_is_answered_around_or_is_one_clear_error(
    calve: Calve, store: SqlStore, name: str, columns: tuple[str, ...]
) -> None:
    table = metadata.tables[name]
    keys = list(table.primary_key)
    with store.database.engine.begin() as connection:
        before = connection.execute(select(table)).mappings().all()
    try:
        for damage in DAMAGES:
            for column in columns:
                with suppress(IntegrityError), store.database.engine.begin() as connection:
                    connection.execute(update(table).values({column: damage}))
            for read in reads(calve).values():
                _answers(read)
    finally:
        with store.database.engine.begin() as connection:
            for row in before:
                same = [key == row[key.name] for key in keys]
                connection.execute(update(table).where(*same).values({one: row[one] for one in columns}))


OPTIMIZE = NewProcess(
    id=ID, kind="optimize", source="", destination="lake.ns.events", lane="catalog:lake", needs=(), request="{}",
).accepted(adopted=False, now=datetime(2026, 1, 1, tzinfo=UTC))  # fmt: skip
TASK = Task(process_id=ID, number=1, state=TaskState.DONE, attempt=1, spec="")
LEFT: dict[str, Callable[[str], object]] = {
    "the key of a plan": lambda text: input_of(KeyPlan(partition="202401", hash="h", content="c", text=text)),
    "the journal of a pin": journaled_roots,
    "the receipt of an optimize": lambda text: rewritten(OPTIMIZE, [replace(TASK, receipt=text)]),
    "the result of an optimize": lambda text: rewritten(replace(OPTIMIZE, result=text), []),
}


@pytest.mark.parametrize("read", LEFT.values(), ids=LEFT.keys())
def test_T10_what_a_process_left_is_one_clear_error_where_it_cannot_be_read(
    read: Callable[[str], object],
) -> None:
    for damage in [*DAMAGES, "{"]:
        with pytest.raises(DamagedError):
            read(damage)


def _answers(read: Callable[[], Any]) -> bool:
    """Anything but an error of ours is raised."""
    try:
        read()
    except CalveError as error:
        assert error.message
        return False
    return True
