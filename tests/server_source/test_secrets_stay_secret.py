"""P22: the password is in headers and nowhere else: searched for in all that a run leaves."""

import json
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from executor_child import ExecutorChild
from servers import PASSWORD, Place, pin_name

from calve.clickhouse.server.client import Credentials
from calve.clickhouse.server.fetch import Access
from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.model.errors import CalveError, UsageError
from support.network_proxy import Fault, NetworkProxy
from support.programs import free_ports

pytestmark = pytest.mark.services


def failure(action: Callable[[], object]) -> str:
    with pytest.raises(CalveError) as raised:
        action()
    return json.dumps(raised.value.info.to_json()) + repr(raised.value) + str(raised.value)


def test_P22_no_secret_in_a_pin_a_plan_or_a_log(
    place: Place, executor: ExecutorChild, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    pinned = place.pin(place.numbers())
    answer = executor.read(place.source(), pinned, "1")
    assert answer["rows"]
    assert PASSWORD not in pinned.to_json() + repr(pinned) + json.dumps(answer)
    assert PASSWORD not in caplog.text
    assert PASSWORD not in "".join(capfd.readouterr())


def test_P22_no_secret_in_an_error_of_the_control_plane(place: Place) -> None:
    (port,) = free_ports(1)
    dead = place.source(url=f"http://127.0.0.1:{port}")
    assert PASSWORD not in failure(lambda: dead.visit().__enter__())
    with place.source().visit() as session:
        assert PASSWORD not in failure(lambda: session.rows("SELECT nonsense"))
        # A server that repeats what it was asked repeats no secret of ours.
        assert PASSWORD not in failure(lambda: session.rows(f"SELECT `{PASSWORD}` FROM system.one"))
    wrong = place.source(user=PASSWORD)
    assert "refuses the user or the password" in failure(lambda: wrong.visit().__enter__())


@pytest.mark.parametrize("fault", [Fault(cut_answer_after_bytes=500), Fault(reset_answer_after_bytes=0)])
def test_P22_no_secret_in_an_error_of_an_executor(
    place: Place, executor: ExecutorChild, fault: Fault
) -> None:
    """The password is in a statement of the engine there, and engines quote their statements."""
    pinned = place.pin(place.numbers())
    with NetworkProxy(int(place.url.rsplit(":", 1)[1]), fault=fault) as proxy:
        detail = {**pinned.relation.detail, "replica": proxy.url}
        cut = executor.read(
            place.source(), replace(pinned, relation=replace(pinned.relation, detail=detail)), "1"
        )
    assert cut["error"]["retryable"]
    assert PASSWORD not in json.dumps(cut)
    broken = replace(pinned, relation=replace(pinned.relation, structure="`a` NoSuchType"))
    answer = executor.read(place.source(), broken, "1")
    assert answer["error"]
    assert PASSWORD not in json.dumps(answer)


def test_P22_no_secret_in_any_command_line(place: Place, executor: ExecutorChild) -> None:
    pinned = place.pin(place.numbers())
    executor.read(place.source(), pinned, "1")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue  # it ended meanwhile
            assert PASSWORD.encode() not in command, command


def test_P22_no_secret_at_the_server(today: Place) -> None:
    """Neither in the clone's DDL nor among the running queries."""
    name = pin_name()
    today.pin(today.numbers(), name)
    found = today.ask(f"SELECT create_table_query AS text FROM system.tables WHERE name = '{name}'")
    found += today.ask("SELECT query AS text FROM system.processes")
    assert PASSWORD not in str(found)


def test_P22_credentials_do_not_show_themselves() -> None:
    shown = repr(Credentials(user="u", password=PASSWORD)) + repr(Access(password=PASSWORD))
    shown += repr(ServerOptions(url="http://h", password=PASSWORD))
    assert PASSWORD not in shown


def test_P22_a_password_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        ServerSource("main", ServerOptions(url=f"http://user:{PASSWORD}@host:8123"))
    assert PASSWORD not in str(refused.value) + refused.value.hint
    assert "password_file" in refused.value.hint
