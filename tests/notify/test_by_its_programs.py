"""`[notify]` and `[ping]` as a person uses them: the configuration, the commands, a server that is killed."""

import json
import sqlite3
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.notices import notifying
from calve.control.registry import ServedStore
from calve.model.errors import UsageError
from calve.model.states import ProcessState
from calve.store import open_store
from calve.testing.contracts.contract import claimed, move, new
from support.calve_command import Run, in_this_process
from support.receiver import Bad, Receiver, receiver
from support.served import Served

SECRET = "canary-of-the-webhook"


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return in_this_process(tmp_path, capsys, monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ServedStore]:
    opened = open_store(f"sqlite:///{tmp_path}/calve.db")
    yield opened
    opened.close()


def configured(folder: Path, hook: Receiver, more: str = "") -> Path:
    file = folder / "calve.toml"
    file.write_text(f"""
[notify.ops]
url = "{hook.url(f"/{SECRET}")}"
secret = "{SECRET}"
[ping.nightly]
success = "{hook.url(f"/{SECRET}/ok")}"
fail = "{hook.url(f"/{SECRET}/fail")}"
{more}""")
    return file


def test_a_person_tries_a_target(run: Run, tmp_path: Path, hook: Receiver) -> None:
    configured(tmp_path, hook)
    assert run("notify", "test", "ops").out == "notify.ops: 127.0.0.1 answered 200 to test\n"
    assert run("notify", "test", "nightly", "--json").json == {
        "target": "ping.nightly", "host": "127.0.0.1", "event": "success", "status": 200,
    }  # fmt: skip
    assert [got.method for got in hook.got] == ["POST", "GET"]
    assert json.loads(hook.got[0].body)["event"] == "test"
    hook.then = 500
    answer = run("notify", "test", "ops")
    answer.is_error(1, "could not notify notify.ops: 127.0.0.1 answered 500", "check the URL of [notify.ops]")
    assert SECRET not in answer.err
    run("notify", "test", "nobody").is_error(3, "no target 'nobody'", "[notify.nobody]")
    with Calve(load_config(tmp_path / "calve.toml", environ={})) as calve:
        entries = calve.audit(limit=10)["entries"]
    assert {(one["verb"], one["subject"]) for one in entries} == {
        ("notify_test", "notify.ops"),
        ("notify_test", "ping.nightly"),
    }


def test_no_url_and_no_secret_is_shown_anywhere(
    run: Run, tmp_path: Path, hook: Receiver, store: ServedStore
) -> None:
    configured(tmp_path, hook)
    hook.then = 410
    store.follow_target("notify.ops")
    move(store, claimed(store), ProcessState.FAILED)
    config = load_config(tmp_path / "calve.toml", environ={})
    with notifying(config, store, last_seconds=10):
        pass
    assert SECRET not in repr(config)
    shown = run("config")
    assert "http://127.0.0.1/********" in shown.out
    doctor = run("doctor", "--no-spark")
    assert "warn notify.ops: 1 of its notices were not taken and given up" in doctor.out
    assert "hint: calve notify test notify.ops" in doctor.out
    assert run("support", "--output", "report.zip").code == 0
    with zipfile.ZipFile(tmp_path / "report.zip") as bundle:
        report = b"".join(bundle.read(name) for name in bundle.namelist())
    assert SECRET not in shown.out + shown.err + doctor.out + doctor.err
    assert SECRET.encode() not in report
    assert SECRET not in repr(store.given_up(10))


def test_what_happens_while_a_program_tells_is_sent_before_it_ends(
    tmp_path: Path, hook: Receiver, store: ServedStore
) -> None:
    config = load_config(configured(tmp_path, hook), environ={})
    for target in ("notify.ops", "ping.nightly"):
        store.follow_target(target)
    with notifying(config, store, last_seconds=10):
        move(store, claimed(store), ProcessState.FAILED)
    assert sorted((got.method, got.headers["x-calve-event"]) for got in hook.got) == [
        ("GET", "fail"),
        ("POST", "failed"),
    ]
    with pytest.raises(KeyboardInterrupt), notifying(config, store, last_seconds=10):
        raise KeyboardInterrupt  # nobody waits then


def test_a_command_that_works_by_itself_tells_before_it_ends(
    run: Run, tmp_path: Path, hook: Receiver, store: ServedStore
) -> None:
    configured(tmp_path, hook, '[source.main]\nurl = "chdb://clickhouse"\n')
    (process,) = store.submit([new(lock="a")])
    assert run("cancel", process.id).code == 0
    assert store.process(process.id).state is ProcessState.CANCELLED
    assert [(got.method, got.headers["x-calve-event"]) for got in hook.got] == [("GET", "fail")]


@pytest.mark.programs
def test_a_server_that_is_killed_while_it_sends_leaves_the_notice_to_the_next(
    tmp_path: Path, hook: Receiver, store: ServedStore
) -> None:
    configured(tmp_path, hook)
    store.follow_target("notify.ops")
    store.follow_target("ping.nightly")
    process = move(store, claimed(store), ProcessState.FAILED)
    hook.then = Bad.HANGS
    first = Served(tmp_path)
    hook.wait_for(2)
    first.program.kill()  # SIGKILL
    with sqlite3.connect(tmp_path / "calve.db") as database:  # as if the lease of what it sent were over
        database.execute("UPDATE notices SET not_before = NULL")
    hook.then = 200
    second = Served(tmp_path)
    try:
        got = hook.wait_for(4)
    finally:
        second.close()
    assert sorted(one.id for one in got[:2]) == sorted(one.id for one in got[2:])
    assert {json.loads(one.body)["process"]["id"] for one in got if one.body} == {process.id}
    assert SECRET not in (tmp_path / "serve.log").read_text()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[notify.ops]\nurl = "ftp://{secret}/x"', "not an http:// or https:// URL"),
        ('[notify.ops]\nurl = "http:///{secret}"', "not an http:// or https:// URL"),
        ('[notify.ops]\nurl = "http://h:99999/{secret}"', "not an http:// or https:// URL"),
        ('[notify.ops]\nurl = "http://h/{secret} x"', "not an http:// or https:// URL"),
        ('[notify.ops]\nurl = "http://u:{secret}@h/"', "a user or password is not supported"),
        ('[notify.ops]\nurl = "http://h/{secret}"\non = ["fail"]', "notify.ops.on.0"),
        ('[notify.ops]\nurl = "http://h/{secret}"\nform = "teams"', "notify.ops.form"),
        ('[notify."a b"]\nurl = "http://h/{secret}"', 'invalid name notify."a b"'),
        ('[notify.ops]\nsecret = "{secret}"', "notify.ops.url is missing"),
        ('[notify]\nurl = "http://h/{secret}"', "outside a section"),
        ('[ping.n]\nkind = "export"', "give at least one of start, success and fail"),
        ('[ping.n]\nfail = "{secret}"', "not an http:// or https:// URL"),
        ('[ping.n]\nurl = "http://h/{secret}"', "unknown key ping.n.url"),
    ],
)
def test_a_wrong_target_is_refused_without_repeating_its_secret(
    run: Run, tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "calve.toml").write_text(text.format(secret=SECRET))
    with pytest.raises(UsageError) as caught:
        load_config(tmp_path / "calve.toml", environ={})
    assert words in caught.value.message
    assert SECRET not in caught.value.message + caught.value.hint
    assert SECRET not in run("config", "--debug").err


def test_targets_may_come_from_the_environment_and_from_files(tmp_path: Path) -> None:
    (tmp_path / "url").write_text("https://h/x\n")
    environ: dict[str, Any] = {
        "CALVE_NOTIFY__OPS__URL_FILE": str(tmp_path / "url"),
        "CALVE_NOTIFY__OPS__ON": "failed, done",
        "CALVE_PING__NIGHTLY__SUCCESS": "https://h/y",
    }
    config = load_config(environ=environ, cwd=tmp_path)
    assert (config.notify["ops"]["url"], config.notify["ops"]["on"]) == ("https://h/x", ["failed", "done"])
    assert config.pings["nightly"]["success"] == "https://h/y"
