"""Actions: read as the command line reads them, accepted together, carried out once."""

import queue
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import pytest

from calve.app.actions import COMMANDS, PATIENCE, Actions, ActionThreads, parse, read
from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.desk import Desk
from calve.cli.command import SHARED
from calve.cli.main import calve
from calve.model.access import Action, ActionQuery, Caller, Role
from calve.model.errors import CalveError, RefusedError, UnavailableError, UsageError
from calve.model.process import NewProcess, ProcessId, ProcessQuery, new_process_id
from calve.model.states import ProcessState
from calve.testing.contracts.contract import claim_one, move

LOCAL = Caller(name="local", role=Role.ADMIN)
SETTINGS = """
[source.main]
url = "chdb://clickhouse"
[source.slow]
url = "http://127.0.0.1:1"
[source.quick]
url = "http://127.0.0.1:1"
[catalog.lake]
type = "sql"
uri = "sqlite:///catalog.db"
"""
ONLY_WHO_WAITS = {"wait", "no_wait", "timeout_seconds", "dry_run", *SHARED}
SAMPLES = {"casts": "a=long", "renames": "a=b", "older_than": "90d", "read_data": "5%"}


@pytest.fixture
def facade(tmp_path: Path) -> Iterator[Calve]:
    (tmp_path / "calve.toml").write_text(SETTINGS)
    with Calve(load_config(tmp_path / "calve.toml", environ={})) as made:
        yield made


@pytest.fixture
def desk(facade: Calve) -> Desk:
    return Desk(facade)


@pytest.fixture
def actions(desk: Desk, facade: Calve) -> Actions:
    return Actions(desk, facade.registry, now=facade.now)


def submit(facade: Calve) -> str:
    made = NewProcess(id=new_process_id(), kind="export", source="main:db.t", destination="lake.ns.t", lane="x", needs=(), request="{}")  # fmt: skip
    return facade.registry.submit([made])[0].id


def end(facade: Calve, process: str) -> None:
    store = facade.registry
    move(store, claim_one(store, ProcessId(process)), ProcessState.CANCELLED)


def retries(facade: Calve, process: str) -> list[str]:
    return [one.id for one in facade.processes(ProcessQuery(retry_of=ProcessId(process)))]


def row(facade: Calve, action: Action) -> Action:
    return facade.registry.actions(ActionQuery(ids=(action.id,)))[0]


def of_the_command_line(name: str) -> click.Command:
    context = click.Context(calve)
    above: Any = calve
    if name in ("create", "restore", "verify", "delete"):
        above = calve.get_command(context, "backup")
    found: click.Command = above.get_command(context, "cancel" if name == "kill" else name)
    return found


def options_of_the_command_line() -> Iterator[Any]:
    for name in COMMANDS:
        for option in of_the_command_line(name).params:
            if isinstance(option, click.Option) and option.name not in ONLY_WHO_WAITS:
                yield pytest.param(name, option, id=f"{name} {option.opts[0]}")


@pytest.mark.parametrize(("name", "option"), list(options_of_the_command_line()))
def test_an_option_of_the_command_line_is_spelled_the_same(
    desk: Desk, name: str, option: click.Option
) -> None:
    value = SAMPLES.get(option.name or "", "7")
    if isinstance(option.type, click.Choice):
        value = option.type.choices[0]
    for spelled in (*option.opts, *option.secondary_opts):
        words = [f"{name} x", spelled, *([] if option.is_flag else [value])]
        _, given = read(desk, " ".join(words))
        _, plain = read(desk, f"{name} x")
        assert given != plain


def test_words_become_arguments(desk: Desk) -> None:
    line = "export 'main:db.`my t`' --partition 202401 --partition=202402 --to lake.ns.t --no-create --cast id=long --file-mb 64"
    assert parse(desk, line) == (
        "export",
        {
            "table": "main:db.`my t`", "partitions": ["202401", "202402"], "to": "lake.ns.t", "create": False,
            "casts": {"id": "long"}, "file_mb": 64,
        },
    )  # fmt: skip
    assert parse(desk, "create nightly -t 'db.*,other.t' --rbac") == (
        "backup_create",
        {"name": "nightly", "tables": ["db.*", "other.t"], "rbac": True},
    )
    assert parse(desk, "verify nightly --read-data 5%") == (
        "backup_verify",
        {"name": "nightly", "read_share": 0.05},
    )
    assert parse(desk, "create nightly") == ("backup_create", {"name": "nightly", "tables": ["*.*"]})
    assert parse(desk, "kill a b") == ("cancel", {"ids": ["a", "b"]})


@pytest.mark.parametrize(
    "line",
    [
        "", "drop everything", "create 'x", "create", "export db.t", "create x --tables", "create x y --tables t",
        "create x --tables t --nonsense", "export t --to d --cast id", "export t --to d --file-mb many",
        "export t --to d --codec rar", "cancel", "create x --rbac=maybe --tables t", "kill " + "x" * 5000,
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_read_says_why(desk: Desk, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(desk, line)
    assert caught.value.hint


def test_all_lines_are_accepted_or_none(actions: Actions, facade: Calve) -> None:
    operator = Caller(name="ci", role=Role.OPERATOR)
    with pytest.raises(CalveError) as caught:
        actions.accept(operator, ["cancel a", "delete nightly"])
    assert caught.value.code == "role"
    with pytest.raises(UsageError):
        actions.accept(operator, ["cancel a", "nonsense"])
    assert facade.registry.actions(ActionQuery()) == []
    assert [one.command for one in actions.accept(operator, ["cancel a", "retry b"])] == [
        "cancel a",
        "retry b",
    ]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("create ../nightly", "backup_name"), ("create 'a b'", "backup_name"), ("delete nightly/..", "backup_name"),
        ("restore @1", "backup_name"), ("verify " + "x" * 101, "backup_name"),
        ("export 'a b.t' --all --to lake.ns.t", "table_name"), ("export nowhere:db.t --all --to lake.ns.t", "source_not_configured"),
        ("export db.t --all --to lake", "destination_name"), ("export db.t --all --to nowhere.ns.t", "catalog_not_configured"),
    ],
)  # fmt: skip
def test_names_that_nothing_can_have_are_not_accepted(
    actions: Actions, facade: Calve, line: str, code: str
) -> None:
    with pytest.raises(UsageError) as caught:
        actions.accept(LOCAL, ["cancel a", line])
    assert caught.value.code == code
    assert caught.value.hint
    assert facade.registry.actions(ActionQuery()) == []


def test_a_key_makes_the_same_lines_the_same_actions(actions: Actions) -> None:
    first = actions.accept(LOCAL, ["cancel a", "retry b"], key="k")
    assert actions.accept(LOCAL, ["cancel a", "retry b"], key="k") == first
    assert actions.accept(Caller(name="other", role=Role.ADMIN), ["cancel a"], key="k") != first[:1]
    with pytest.raises(RefusedError) as caught:
        actions.accept(LOCAL, ["cancel c"], key="k")
    assert caught.value.code == "key_reused"


def test_one_claims_an_action_and_records_how_it_went(actions: Actions, facade: Calve) -> None:
    process = submit(facade)
    done, failed = actions.accept(LOCAL, [f"cancel {process}", "cancel nosuchprocess"])
    claimed = actions.claim(10)
    assert [one.id for one in claimed] == [done.id, failed.id]
    assert actions.claim(10) == []
    for one in claimed:
        actions.carry_out(one)
    assert facade.find([process])[0].cancel_requested
    assert row(facade, done).error == ""
    assert "nosuchprocess" in row(facade, failed).error
    assert [(one["operation_id"], one["status"]) for one in actions.rows()] == [
        (failed.id, "error"),
        (done.id, "success"),
    ]


def test_a_retry_begun_twice_makes_one_process(actions: Actions, facade: Calve) -> None:
    """A server did it and died before it could say so; another takes the action up."""
    process = submit(facade)
    end(facade, process)
    [action] = actions.accept(LOCAL, [f"retry {process}"])
    dying = Actions(Desk(facade), DiesAtRecording(facade.registry), now=facade.now)  # type: ignore[arg-type]
    with pytest.raises(KilledError):
        dying.carry_out(action)
    assert row(facade, action).done_at is None
    [made] = retries(facade, process)
    end(facade, made)  # so that without the key there would be another one
    actions.carry_out(action)
    assert retries(facade, process) == [made] == list(row(facade, action).processes)
    assert [one["status"] for one in actions.rows()] == ["cancel"]


def test_a_revoked_token_stops_what_waits(actions: Actions, facade: Calve) -> None:
    token = facade.token_new("operator", name="ci")
    process = submit(facade)
    first, second = actions.accept(
        Caller(name="ci", role=Role.OPERATOR), [f"cancel {process}", f"cancel {process}"]
    )
    facade.token_revoke((token["name"],))
    actions.carry_out(first)
    assert "revoked" in row(facade, first).error
    assert not facade.find([process])[0].cancel_requested
    assert row(facade, second).done_at is None


def test_a_service_that_is_down_is_waited_for_and_not_for_ever(facade: Calve) -> None:
    later = timedelta()
    actions = Actions(DownDesk(facade), facade.registry, now=lambda: facade.now() + later)
    [action] = actions.accept(LOCAL, ["cancel a"])
    actions.carry_out(action)
    assert row(facade, action).done_at is None
    later = PATIENCE
    actions.carry_out(action)
    assert row(facade, action).error == "the source is down"


def test_actions_of_a_slow_service_hold_up_no_others(facade: Calve) -> None:
    desk = SlowDesk(facade)
    actions = Actions(desk, facade.registry, now=facade.now)
    lines = [f"export slow:db.t{number} --all --to lake.ns.t" for number in range(5)]
    slow = actions.accept(LOCAL, [*lines, "export quick:db.t --all --to lake.ns.t"])
    threads = ActionThreads(actions, at_once=3, per_service=2, poll_seconds=0.05)
    try:
        assert desk.done.get(timeout=30) == "quick:db.t"  # it came last, and ended first
        assert desk.most == 2
        desk.go.set()
        assert {desk.done.get(timeout=30) for _ in lines} == {f"slow:db.t{number}" for number in range(5)}
    finally:
        desk.go.set()
        threads.close()
    assert len(slow) == 6
    assert desk.most == 2


def test_an_action_that_takes_longer_than_its_lease_is_not_begun_again_beside_itself(facade: Calve) -> None:
    desk, registry = SlowDesk(facade), AlwaysClaims(facade.registry)
    actions = Actions(desk, registry, now=facade.now)  # type: ignore[arg-type]
    actions.accept(LOCAL, ["export slow:db.t --all --to lake.ns.t"])
    threads = ActionThreads(actions, poll_seconds=0.01)
    try:
        registry.claimed_often.wait(30)
        assert desk.most == 1
    finally:
        desk.go.set()
        threads.close()


def test_an_action_that_takes_longer_than_its_lease_is_held_until_it_is_done(facade: Calve) -> None:
    desk, registry = SlowDesk(facade), CountsHolds(facade.registry)
    actions = Actions(desk, registry, now=facade.now)  # type: ignore[arg-type]
    [action] = actions.accept(LOCAL, ["export slow:db.t --all --to lake.ns.t"])
    threads = ActionThreads(actions, poll_seconds=0.01, hold_seconds=0.0)
    try:
        assert registry.held.wait(30)
        since, until = registry.claimed_until, row(facade, action).claimed_until
        assert since and until and until > since
        assert facade.registry.claim_actions(limit=9, lease_seconds=30) == []
    finally:
        desk.go.set()
        threads.close()


class SlowDesk(Desk):
    """Exports of the source `slow` take until `go`."""

    def __init__(self, facade: Calve) -> None:
        super().__init__(facade)
        self.go = threading.Event()
        self.done: queue.Queue[str] = queue.Queue()
        self.running = self.most = 0
        self._lock = threading.Lock()

    def perform(self, caller: Caller, verb: str, arguments: Any, *, key: str = "") -> Any:
        if arguments["table"].startswith("slow:"):
            with self._lock:
                self.running += 1
                self.most = max(self.most, self.running)
            self.go.wait(30)
            with self._lock:
                self.running -= 1
        self.done.put(arguments["table"])
        return {"processes": []}


class AlwaysClaims:
    """A registry whose leases are always past."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry
        self._claims = 0
        self.claimed_often = threading.Event()

    def claim_actions(self, *, limit: int, lease_seconds: float) -> Any:
        self._claims += 1
        if self._claims > 5:
            self.claimed_often.set()
        return self._registry.claim_actions(limit=limit, lease_seconds=0.0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)


class CountsHolds:
    """Says when an action was held after it had been claimed."""

    def __init__(self, registry: Any) -> None:
        self._registry = registry
        self.claimed_until: datetime | None = None
        self.held = threading.Event()

    def claim_actions(self, *, limit: int, lease_seconds: float) -> Any:
        found = self._registry.claim_actions(limit=limit, lease_seconds=lease_seconds)
        self.claimed_until = next((one.claimed_until for one in found), self.claimed_until)
        return found

    def hold_actions(self, ids: Any, lease_seconds: float) -> None:
        self._registry.hold_actions(ids, lease_seconds)
        self.held.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)


class DownDesk(Desk):
    def perform(self, *_: Any, **__: Any) -> Any:
        raise UnavailableError("the source is down", code="source_unavailable", service="source:main")


class KilledError(BaseException):
    pass


class DiesAtRecording:
    def __init__(self, registry: Any) -> None:
        self._registry = registry

    def __getattr__(self, name: str) -> Any:
        if name == "record_action":
            raise KilledError
        return getattr(self._registry, name)
