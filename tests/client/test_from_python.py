"""`from calve import Client`: what is public, and that it answers alike here and through a server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import calve
from calve import CalveError, Client, Event, Process, ProcessState
from calve.app.config.template import render
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.client.client import Reset
from calve.client.tables import Document, Table
from support.served import Served


def test_what_is_public() -> None:
    assert calve.__all__ == ["CalveError", "Client", "Event", "Process", "ProcessState", "__version__"]
    assert all(getattr(calve, name) is not None for name in calve.__all__)
    assert {name for name in vars(Client) if not name.startswith("_")} == {
        "backup", "backups", "cancel", "close", "events", "export", "health", "local", "optimize", "partitions",
        "process", "processes", "restore", "retry", "verify", "wait", "watch", "why", "workers",
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
