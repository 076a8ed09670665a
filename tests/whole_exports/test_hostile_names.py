"""Names that are paths, SQL, markup or unprintable: each is exported, proven, shown by a view, held, backed up and restored as
any other, and nothing outside of the place is touched. Names that no ClickHouse would take are one clear error."""

from collections.abc import Iterator, Sequence

import pytest

from calve.app.backups import requests
from calve.app.policies import documents, holds, tier
from calve.app.proof import proofs
from calve.app.wiring import App
from calve.clickhouse.sql.tokens import TableName, string
from calve.clickhouse.sql.tokens import name as quoted
from calve.model.access import Asked
from calve.model.errors import CalveError
from calve.model.process import Process, ProcessId
from calve.model.states import ProcessState
from support.local_runner import LocalRunner
from support.place import Place, kept_place

pytestmark = [pytest.mark.programs]

NAMES = [
    "d\"b'",
    "a.b",
    "ünï 漢\u202e",
    "x\ny",
    "n`b",
    "../../etc/x",
    "a' OR 1=1 --",
    "{uuid}",
    "back\\slash",
    ".",
    "*",
]
VALUES = ["/../../x", "q'\"\nl", ""]
TOO_LONG = "n" * 1000
_ASKED = Asked(who='it\'s "me"', verb="hold_add")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    """A database, a table and a column of each name."""
    folder = tmp_path_factory.mktemp("outer") / "inner"
    folder.mkdir()
    policy = {"CALVE_POLICY__ALL__SOURCE": "main:*.*", "CALVE_POLICY__ALL__TO": "lake.{database}.{table}"}
    with kept_place(folder, runner, **policy) as made:
        values = ", ".join(map(string, VALUES))
        for name in NAMES:
            one, key = quoted(name) + "." + quoted(name), quoted(name)
            made.execute(
                f"CREATE DATABASE {key}",
                f"CREATE TABLE {one} (id UInt64, {key} String) ENGINE = MergeTree PARTITION BY {key} ORDER BY id",
                f"INSERT INTO {one} SELECT number, [{values}][1 + number % 3] FROM numbers(6)",
            )
        yield made


@pytest.fixture(autouse=True)
def nothing_outside_is_touched(place: Place) -> Iterator[None]:
    yield
    assert [path.name for path in place.folder.parent.iterdir()] == ["inner"]
    assert {path.name for path in place.folder.iterdir()} <= {
        "calve.toml", "calve.db", "calve.db-wal", "calve.db-shm", "clickhouse", "lake", "backups",
    }  # fmt: skip
    assert place.frozen == []


def _run(place: Place, app: App, processes: Sequence[Process]) -> list[ProcessId]:
    ended = place.finish(app, [one.id for one in processes])
    assert [one.error for one in ended] == [None] * len(ended)
    assert {one.state for one in ended} == {ProcessState.COMPLETED}
    return [one.id for one in ended]


def test_all_of_them_are_backed_up_and_restored(place: Place) -> None:
    before = [place.select(f"SELECT * FROM {quoted(name)}.{quoted(name)} ORDER BY id") for name in NAMES]
    with place.app() as app:
        _run(place, app, requests.create(app, app.store, "all", ["*.*"]).processes)
        place.execute(*(f"DROP DATABASE {quoted(name)}" for name in NAMES))
        _run(place, app, requests.restore(app, app.store, "all").processes)
    after = [place.select(f"SELECT * FROM {quoted(name)}.{quoted(name)} ORDER BY id") for name in NAMES]
    assert after == before


@pytest.mark.parametrize("name", NAMES)
def test_a_table_of_that_name_is_exported_proven_shown_and_held(place: Place, name: str) -> None:
    table, to = str(TableName(source=None, database=name, table=name)), f"lake.ns.t{NAMES.index(name)}"
    with place.app() as app:
        ids = _run(place, app, [app.store.process(id) for id in place.submit(app, table, to)])
        assert [one.faults for one in proofs(app, ids, deep=True)] == [()] * len(ids)
        rows = place.read(to)
        assert sorted(rows.column(name.replace(".", "_")).to_pylist()) == sorted(VALUES * 2)
        view = quoted(name) + "." + quoted(name + "_all")
        made = tier.view_create(app, table, to, view)
        assert made["cold"] == []
        assert len(place.select(f"SELECT * FROM {view}")) == 6
        held = holds.hold_add(
            app, table, "", reason='it\'s "x"\n-- \x1b[31m', until="", force=False, asked=_ASKED
        )
        assert held["name"] == f"main:{name}.{name}"


def test_a_policy_over_all_of_them_looks_and_says_what_it_cannot_do(place: Place) -> None:
    with place.app() as app:
        try:
            found = documents.policy_run(app, "all", dry_run=True)
        except CalveError as error:
            assert error.message
        else:
            assert found["started"] == []


@pytest.mark.parametrize("name", [TOO_LONG, "\0", "x" * 300 + "/../y"], ids=["long", "zero", "long path"])
def test_a_name_that_nothing_has_is_one_clear_error(place: Place, name: str) -> None:
    table = str(TableName(source=None, database=name, table=name))
    with place.app() as app:
        for ask in (
            lambda: place.submit(app, table, "lake.ns.none"),
            lambda: place.submit(app, table, f"lake.{name}.{name}"),
            lambda: place.submit(app, table, f"/tmp/{name}/"),
            lambda: tier.view_create(app, table, "lake.ns.t0", "db.v"),
            lambda: holds.hold_add(app, table, "", reason="x", until="", force=False, asked=_ASKED),
            lambda: requests.create(app, app.store, name, ["*.*"]),
            lambda: requests.create(app, app.store, "good", [f"{name}.{name}"]),
            lambda: requests.restore(app, app.store, name),
        ):
            with pytest.raises(CalveError) as caught:
                ask()
            assert caught.value.message
