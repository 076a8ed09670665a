"""`from calve import Client`: what is public, and that it answers alike here and through a server."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import calve
from calve import CalveError, Client, Event, Process, ProcessState, Reset
from calve.app.config.template import render
from calve.app.token_file import make_token
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.client import pages
from calve.client.tables import Document, Table
from calve.store import open_store
from calve.testing.contracts.contract import new
from support.network_proxy import Fault, Mode, NetworkProxy
from support.served import Served


def test_what_is_public() -> None:
    assert calve.__all__ == [
        "CalveError",
        "Client",
        "Event",
        "Process",
        "ProcessState",
        "Reset",
        "__version__",
    ]
    assert all(getattr(calve, name) is not None for name in calve.__all__)
    assert {name for name in vars(Client) if not name.startswith("_")} == {
        "ask", "backup", "backups", "cancel", "close", "events", "export", "health", "local", "optimize", "partitions",
        "process", "processes", "restore", "retry", "sql", "verify", "wait", "watch", "why", "workers",
    }  # fmt: skip
    assert (Path(calve.__file__).parent / "py.typed").exists()
    stub = Path(calve.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    assert f"__all__ = {json.dumps(calve.__all__)}" in stub
    with pytest.raises(AttributeError, match="no attribute 'Calve'"):
        _ = calve.Calve  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("program", "loaded"),
    [
        ("import calve", ()),
        ("from calve import Client; Client('http://127.0.0.1:1')", ("requests",)),
        ("from calve.cli.main import run; run(['ps', '--server', 'http://127.0.0.1:1'])", ("requests",)),
    ],
)
def test_nothing_heavy_is_loaded(program: str, loaded: tuple[str, ...], tmp_path: Path) -> None:
    heavy = (
        "pyspark",
        "pyiceberg",
        "chdb",
        "pyarrow",
        "numpy",
        "obstore",
        "sqlalchemy",
        "fastapi",
        "uvicorn",
        "requests",
    )
    code = f"import sys\n{program}\nprint(*[name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == list(loaded), done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("python")
    (made / "calve.toml").write_text(render())
    with EmbeddedSource("main", made / "clickhouse", create=True).visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute(
            "CREATE TABLE db.t (id UInt64, m UInt8) ENGINE = MergeTree PARTITION BY m ORDER BY id"
        )
        session.execute("INSERT INTO db.t SELECT number, number % 3 FROM numbers(300)")
    return made


@pytest.fixture(params=["here", "served"])
def client(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.chdir(folder)
    if request.param == "here":
        with Client.local() as made:
            yield made
        return
    with Client(request.getfixturevalue("served").url) as made:
        yield made


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    made = Served(folder)
    yield made
    made.close()


def test_a_life(client: Client, request: pytest.FixtureRequest) -> None:
    to = f"lake.ns.{request.node.callspec.params['client']}"
    assert [one["rows"] for one in client.partitions("db.t")] == [100, 100, 100]
    asked = client.export("db.t", to, all=True, key=to)
    assert client.export("db.t", to, all=True, key=to) == asked
    ids = [one.id for one in asked.processes]
    assert len(ids) == 3
    listed = client.processes(to=to)
    assert isinstance(listed[0], Process)
    assert sorted(one.id for one in listed) == sorted(ids)
    assert listed[0].state is ProcessState.PENDING
    assert "worker" in client.why(ids[0])
    with pytest.raises(TimeoutError, match=ids[0]):
        client.wait(*ids, timeout_seconds=0)
    assert all(one.accepted for one in client.cancel(*ids))
    events = client.events(ids[0])
    assert isinstance(events[0], Event)
    assert [one.name for one in events] == ["submitted", "cancel_requested"]
    assert client.process(ids[0]).cancel_requested
    assert client.workers() == []
    assert client.backups() == []


def test_errors_are_the_same(client: Client) -> None:
    seen = []
    for wrong in (
        lambda: client.process("nosuch"),
        lambda: client.export("db.t", "lake.ns.t", al=True),
        lambda: client.export("db.t", "lake.ns.t"),
        lambda: client.partitions("db.none"),
        client.wait,
    ):
        with pytest.raises(CalveError) as caught:
            wrong()
        seen.append((caught.value.exit_code, caught.value.code))
    assert seen == [
        (3, "process_not_found"), (2, "unknown_option"), (2, "selection"), (3, "no_table"), (2, "missing_option"),
    ]  # fmt: skip


def test_a_notebook_shows_tables_and_runs_nothing_that_is_in_them() -> None:
    evil = "<script>alert(1)</script>"
    shown = Table([{"name": evil, "rows": 3}, {"name": "b", evil: None}])._repr_html_()
    shown += Document({"table": evil, "list": [evil, 2]})._repr_html_()
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 4
    assert "<td>3</td>" in shown
    assert Table([1, 2]) == [1, 2]
    assert "and 1 more" in Table(range(501))._repr_html_()


def test_a_notebook_shows_what_was_asked_for(client: Client, request: pytest.FixtureRequest) -> None:
    to = f"lake.ns.shown_{request.node.callspec.params['client']}"
    asked = client.export("db.t", to, partitions=["0"])
    process = asked.process
    cancelled = client.cancel(process.id)
    for shown in (asked, client.processes(to=to)):
        text = shown._repr_html_()
        assert "<th>destination</th>" in text
        assert f"<td>{process.id}</td>" in text
    for one in (process, client.process(process.id), client.processes(to=to)[0]):
        assert f"<tr><th>id</th><td>{process.id}</td></tr>" in one._repr_html_()  # type: ignore[attr-defined]
        assert repr(one).startswith("Process(id=")
    assert f"<td>{process.id}</td><td>True</td>" in cancelled._repr_html_()
    assert "<th>message</th>" in client.events(process.id)._repr_html_()


def test_a_watch_sees_each_event_once_and_goes_on_where_another_stopped(
    client: Client, request: pytest.FixtureRequest
) -> None:
    to = f"lake.ns.watched_{request.node.callspec.params['client']}"
    watch = client.watch()
    asked = client.export("db.t", to, all=True)
    ids = {one.id for one in asked.processes}
    seen = [next(watch) for _ in ids]
    assert {(one.name, one.process_id) for one in seen if isinstance(one, Event)} == {
        ("submitted", one) for one in ids
    }
    first, *others = ids
    client.cancel(*others, first)
    later = client.watch(first, after=watch.cursor)
    event = next(later)
    assert isinstance(event, Event)
    assert (event.name, event.process_id) == ("cancel_requested", first)
    [reset] = [next(client.watch(after="0123.5.abcde"))]
    assert reset == Reset("foreign")
    oldest = next(client.watch(after="start"))
    assert isinstance(oldest, Event)
    assert oldest.name == "submitted"


@pytest.fixture
def submit(folder: Path) -> Iterator[Callable[[int], list[str]]]:
    """Processes that nobody will do, straight into the store."""
    with open_store(f"sqlite:///{folder}/calve.db") as store:
        yield lambda count: [store.submit([new()])[0].id for _ in range(count)]


def test_a_watch_goes_on_over_a_network_that_cuts_it(
    served: Served, submit: Callable[[int], list[str]]
) -> None:
    """Each event once and in order, over connections that end within a message, by a close or by a reset."""
    with NetworkProxy(served.port) as proxy, Client(proxy.url, served.token) as client:
        watch, ids = client.watch(), submit(12)
        seen = []
        for fault in ("cut_answer_after_bytes", "reset_answer_after_bytes"):
            proxy.set(Fault(**{fault: 2500}))
            seen += [next(watch) for _ in range(6)]
        watch.close()
    assert [one.process_id for one in seen if isinstance(one, Event)] == ids
    assert proxy.counts.cut >= 4


def test_a_watch_of_a_server_that_is_away_fails_and_can_be_asked_again(
    served: Served, submit: Callable[[int], list[str]]
) -> None:
    with NetworkProxy(served.port) as proxy, Client(proxy.url, served.token) as client:
        watch = client.watch()
        with proxy.behaving(mode=Mode.REFUSE), pytest.raises(CalveError, match="does not answer") as away:
            next(watch)
        assert away.value.code == "server_unavailable"
        [made] = submit(1)
        with watch:
            event = next(watch)
    assert isinstance(event, Event)
    assert event.process_id == made


def test_a_watch_says_what_the_server_refuses(served: Served) -> None:
    with Client(served.url, served.token) as client:
        watch = client.watch()
    with Client(served.url, make_token()[1]) as stranger, pytest.raises(CalveError) as refused:
        next(stranger.watch(after=watch.cursor))
    assert refused.value.code == "token_wrong"


def test_statements_answer_with_rows(client: Client, request: pytest.FixtureRequest) -> None:
    assert client.sql("SELECT arrayJoin([1, 2]) AS a, 'x' AS b") == [{"a": 1, "b": "x"}, {"a": 2, "b": "x"}]
    to = f"lake.ns.sql_{request.node.callspec.params['client']}"
    alter = f"ALTER TABLE db.t EXPORT PARTITION ID '0' TO TABLE {to}"
    [made] = client.sql(alter)
    assert made == {"process": client.processes(to=to)[0].id, "joined": False}
    assert client.sql(alter) == [made | {"joined": True}]
    assert client.sql(f"KILL EXPORT PARTITION WHERE transaction_id = '{made['process']}'")[0]["kill_status"]
    assert client.sql("SYSTEM START EXPORTS") == []
    with pytest.raises(CalveError, match="sql\\(\\) reads rows, not CSV"):
        client.sql("SELECT 1 FORMAT CSV")
    with pytest.raises(CalveError, match="nosuch"):
        client.sql("SELECT * FROM system.nosuch")


def test_a_long_list_is_whole(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE", 1)
    to = "lake.ns.paged"
    client.export("db.t", to, all=True)
    assert len(client.processes(to=to)) == 3
    assert len(client.processes(to=to, limit=2)) == 2
