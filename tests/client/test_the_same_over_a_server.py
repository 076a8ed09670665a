"""`calve --server` answers as `calve` does: the same output, the same JSON, the same exit codes."""

import re
import shlex
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Thread

import click
import pytest

from calve import Client
from calve.app.calve import Calve
from calve.app.config import load_config
from calve.app.config.template import render
from calve.cli.main import COMMANDS
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.client import pages
from calve.model.errors import UsageError
from calve.model.process import ProcessQuery
from support.calve_command import Answer, Run, in_this_process
from support.local_runner import LocalRunner
from support.long_process import begin_a_long_one
from support.served import Served


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("both")
    (made / "calve.toml").write_text(render())
    with EmbeddedSource("main", made / "clickhouse", create=True).visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute(
            "CREATE TABLE db.t (id UInt64, m UInt8) ENGINE = MergeTree PARTITION BY m ORDER BY id"
        )
        session.execute("INSERT INTO db.t SELECT number, number % 3 FROM numbers(300)")
    return made


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """A server on the folder, in which an export of one partition has completed and one was cancelled."""
    with ExitStack() as stack:
        served = Served(folder)
        stack.callback(served.close)
        client = stack.enter_context(Client(served.url, served.token))
        done = client.export("db.t", "lake.ns.t", partitions=["0"])
        gone = client.export("db.t", "lake.ns.t", partitions=["1"])
        client.cancel(gone.process.id)
        runner = LocalRunner()
        stack.callback(runner.close)
        calve = stack.enter_context(Calve(load_config(folder / "calve.toml", environ={}), runner=runner))
        with closing(calve.run([done.process.id, gone.process.id])) as standings:
            for _ in standings:
                pass
        client.export("db.t", "lake.ns.waits", partitions=["1", "2"])
        begin_a_long_one(calve.registry, tasks=2100)
        yield served.url


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return in_this_process(folder, capsys, monkeypatch)


@pytest.fixture
def ids(folder: Path, url: str) -> dict[str, str]:
    with Calve(load_config(folder / "calve.toml", environ={})) as calve:
        found = calve.processes(ProcessQuery())
    return {one.state.value: one.id for one in found} | {
        "BATCH": str(next(one.batch for one in found if one.batch))
    }


def comparable(answer: Answer) -> tuple[int, str, str]:
    """Without what differs from one second to the next."""
    ages = re.compile(r"\b(\d+[smh] )?\d+[smh]( ago)?\b")
    return answer.code, *(re.sub(" +", " ", ages.sub("AGE", text)) for text in (answer.out, answer.err))


READS = [
    "ps", "ps --all", "ps --all --json", "ps --all --ids", "ps --all --table db.t --to lake.ns.t --json",
    "ps --all --kind export --state completed --since 7d --limit 1", "ps --batch BATCH --json", "ps --workers",
    "ps --workers --json", "ps --table main:db.none", "show COMPLETED", "show COMPLETED --json", "show CANCELLED",
    "show BATCH --json", "events COMPLETED", "events COMPLETED --json", "why PENDING", "why BATCH --json", "why BATCH",
    "partitions db.t", "partitions db.t --to lake.ns.t --json", "partitions db.t --parts", "partitions db.t --parts --json",
    "export db.t --all --to lake.ns.t --dry-run", "export db.t --all --to lake.ns.t --dry-run --json",
    "export db.t --all --to ./folder/ --dry-run --json", "export db.t --partition 0 --to lake.ns.t",
    "export db.t --partition 0 --to lake.ns.t --json", "history", "history --json", "health lake.ns.t",
    "health lake.ns.t --json", "verify COMPLETED", "verify COMPLETED --json", "backup list", "backup list --json",
    "optimize lake.ns.t --dry-run", "optimize lake.ns.t --dry-run --full --sort 'id desc' --json", "config --json",
    "backup prune --keep-last 1 --dry-run --json", "token list --json", "show RUNNING", "show RUNNING --json",
    "show COMPLETED RUNNING PENDING --json", "version", "version --json", "history --limit 2000",
    "sql 'SELECT state, count() FROM calve.processes GROUP BY state ORDER BY state'", "doctor --no-spark --json",
    "wait COMPLETED", "backup prune --keep-last 1", "policy list", "policy list --json", "policy resume none",
    "backup schedule list", "backup schedule list --json", "hold list", "hold list db.t --all --json",
]  # fmt: skip
ERRORS = [
    "show nosuch", "show nosuch --json", "why nosuch", "retry COMPLETED", "retry PENDING --json", "verify CANCELLED",
    "partitions db.none", "partitions other:db.t", "export db.none --all --to lake.ns.t", "export db.t --all --to nolake.ns.t",
    "export db.t --partition 9 --to lake.ns.t --json", "export db.t --all --to lake.ns.t --where 'no such'", "health lake.ns.none",
    "backup show none", "backup delete none --json", "backup prune", "backup verify none", "cancel COMPLETED",
    "cancel COMPLETED --json", "optimize lake.ns.none", "wait CANCELLED", "sql 'SELECT * FROM system.parts'",
    "sql 'DROP TABLE db.t'", "backup create b --tables 'none.*'", "backup restore none", "backup show ../x", "token revoke none", "notify test none",
    "token new --role viewer --expires soon", "policy show none", "policy explain db.t 0 --json", "policy run none --dry-run",
    "policy pause none", "backup schedule show none", "backup drill none", "backup schedule run none --json", "hold add db.none --reason x", "hold release none", "view db.none", "view db.none --drop",
    "view db.none --to lake.ns.t --as db.all", "view db.t --cold 1",
    "policy undo db.t 0", "policy undo db.none 0 --json", "policy drop db.t 0", "policy drop db.t 0 --approve none --json",
    "policy approve none", "untier db.none 0 --json",
]  # fmt: skip


@pytest.mark.parametrize("command", READS)
def test_what_is_read(run: Run, url: str, ids: dict[str, str], command: str) -> None:
    here, there = both(run, url, ids, command)
    assert here.code == 0, here.err
    assert comparable(there) == comparable(here)


@pytest.mark.parametrize("command", ERRORS)
def test_what_is_refused(run: Run, url: str, ids: dict[str, str], command: str) -> None:
    here, there = both(run, url, ids, command)
    assert here.code in (1, 2, 3, 4), here.out
    assert comparable(there) == comparable(here)


def both(run: Run, url: str, ids: dict[str, str], command: str) -> tuple[Answer, Answer]:
    words = [ids.get(word, word) for word in shlex.split(command)]
    return run(*words), run(*words, "--server", url)


def test_work_that_is_queued_joined_and_stopped(run: Run, url: str) -> None:
    asked = ("export", "db.t", "--partition", "2", "--to", "lake.ns.queued", "--no-wait=queued", "--json")
    there = run(*asked, env={"CALVE_SERVER": url})
    assert there.code == 0
    assert "no worker is running" in there.err
    queued = run(*asked[:-1], "--server", url)
    assert queued.out == there.json["id"] + "\n"
    assert f"follow with: calve --server {url} wait {there.json['id']}" in queued.err
    assert run(*asked, env={"CALVE_SERVER": url}).json["id"] == run(*asked).json["id"] == there.json["id"]
    stopped = run("cancel", there.json["id"], "--no-wait", "--server", url)
    assert stopped.code == 0
    assert "it is being stopped" in stopped.out


def test_a_long_list_is_read_in_pages(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE", 2)
    for limit in ("1", "3", "200"):
        asked = ("ps", "--all", "--ids", "--limit", limit)
        assert run(*asked, "--server", url).out == run(*asked).out


def test_a_list_that_would_be_cut_is_refused(url: str) -> None:
    with Client(url) as client:
        for verb in ("processes", "history"):
            with pytest.raises(UsageError, match="limit is larger than 1000") as refused:
                client.ask(verb, limit=1001)
            assert "after=ID" in refused.value.hint


def test_tasks_of_a_long_process_come_in_pages(url: str, ids: dict[str, str]) -> None:
    with Client(url) as client:
        [shown] = client.ask("show", ids=[ids["RUNNING"]])
        assert ([one["number"] for one in shown["tasks"]], shown["tasks_next"]) == (list(range(1000)), 1000)
        last = client.ask("tasks", ids=[ids["RUNNING"]], first=2098)
        assert ([one["number"] for one in last["tasks"]], last["next"]) == ([2098, 2099], None)
        page = client.ask("tasks", ids=[ids["RUNNING"]], first=5, limit=2)
        assert [one["number"] for one in page["tasks"]] == [5, 6]
        assert page["next"] == {"process": ids["RUNNING"], "first": 7}
        both = client.ask("tasks", ids=[ids["COMPLETED"], ids["RUNNING"]], limit=1)
        assert [one["process"] for one in both["tasks"]] == [ids["COMPLETED"]]
        assert both["next"] == {"process": ids["COMPLETED"], "first": both["tasks"][0]["number"] + 1}
        rest = client.ask(
            "tasks", ids=[ids["COMPLETED"], ids["RUNNING"]], first=both["next"]["first"], limit=2
        )
        assert [(one["process"], one["number"]) for one in rest["tasks"]] == [
            (ids["RUNNING"], 0),
            (ids["RUNNING"], 1),
        ]
        counted = client.sql(f"SELECT count() AS n FROM calve.tasks WHERE process_id = '{ids['RUNNING']}'")
    assert counted == [{"n": 2100}]


def test_events_of_one_process_in_pages(url: str, ids: dict[str, str]) -> None:
    with Client(url) as client:
        whole = client.ask("events", ids=[ids["COMPLETED"]])
        assert client.ask("events", ids=[ids["COMPLETED"]], after=whole[0]["number"], limit=2) == whole[1:3]


def test_how_much_there_is_of_everything(url: str, ids: dict[str, str]) -> None:
    with Client(url) as client:
        totals = client.ask("totals")
    assert next(one for one in totals["tallies"] if one["state"] == "RUNNING")["count"] == 1
    assert totals["tasks_waiting"] == 2100
    assert {one["destination"] for one in totals["latest"] if one["completed_at"]} >= {"lake.ns.t"}


def test_a_wait_that_times_out_says_how_to_go_on(run: Run, url: str, ids: dict[str, str]) -> None:
    answer = run("wait", ids["PENDING"], "--timeout", "0s", "--server", url)
    assert answer.code == 130
    assert f"calve --server {url} cancel" in answer.err


NEEDS_THIS_PROGRAM = {"demo", "init", "worker", "serve", "spark package"}


def test_every_command_is_compared_or_refused() -> None:
    """But for `support`, whose bundle differs from one second to the next."""
    names = {
        f"{command.name} {name}".strip()
        for command in COMMANDS
        for name in (command.commands if isinstance(command, click.Group) else [""])
    }
    done = {one for one in names for line in READS + ERRORS if line == one or line.startswith(f"{one} ")}
    assert names - done == {"support"} | NEEDS_THIS_PROGRAM


def test_a_retry_and_a_bundle(run: Run, url: str, ids: dict[str, str], tmp_path: Path) -> None:
    retried = run("retry", ids["CANCELLED"], "--no-wait=queued", "--json", "--server", url)
    assert retried.json["retry_of"] == ids["CANCELLED"]
    again = run("retry", ids["CANCELLED"], "--no-wait=queued", "--json")
    assert again.json["id"] == retried.json["id"]
    stopped = run("cancel", retried.json["id"], "--server", url)
    assert (stopped.code, stopped.out) == (0, f"{retried.json['id']}  CANCELLED\n")
    file = tmp_path / "report.zip"
    assert run("support", "--output", str(file), "--server", url).code == 0
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_needs_this_program_is_refused(run: Run, url: str) -> None:
    run("serve", "--server", url).is_error(2, "calve serve runs here only", "omit --server")
    run("worker", "--server", url).is_error(2, "a worker runs where its configuration is", "omit --server")
    run("init", "--server", url).is_error(2, "calve init runs here only", "omit --server")
    run("demo", "--server", url).is_error(2, "calve demo runs here only", "omit --server")


def test_a_server_that_is_not_there(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    answer = run("ps", "--server", f"http://127.0.0.1:{port}")
    answer.is_error(1, "does not answer: Connection refused", "check that calve serve is running")


def test_a_folder_is_of_the_place_where_it_is_typed(run: Run, url: str, folder: Path, tmp_path: Path) -> None:
    shown = run(
        "export", "db.t", "--all", "--to", "./out/", "--dry-run", "--json", "--server", url, cwd=tmp_path
    )
    assert shown.json["destination"] == f"file://{tmp_path}/out/"


def test_a_reader_without_the_token_may_not_change_anything(run: Run, url: str, tmp_path: Path) -> None:
    """Elsewhere than in the server's folder there is no token that the command reads by itself."""
    assert run("ps", "--server", url, cwd=tmp_path).code == 0
    answer = run("export", "db.t", "--all", "--to", "lake.ns.x", "--server", url, cwd=tmp_path)
    answer.is_error(1, "local-reader is viewer, and export needs operator", "there is no token file")


def test_a_token_of_a_role(run: Run, url: str, tmp_path: Path) -> None:
    text = run("token", "new", "--role", "viewer", "--name", "grafana", "--server", url).out.strip()
    (tmp_path / "token").write_text(text)
    given = ("--server", url, "--token-file", str(tmp_path / "token"))
    assert run("ps", *given).code == 0
    run("cancel", "x", *given).is_error(1, "grafana is viewer, and cancel needs operator")
    wrong = text[:-1] + ("A" if text[-1] != "A" else "B")
    run("ps", "--server", url, env={"CALVE_TOKEN": wrong}).is_error(2, "the token is wrong")


def test_a_proof_is_remembered(
    url: str, ids: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with Client(url) as client:
        assert client.verify(ids["COMPLETED"])[0]["ok"]
        newest = client.ask("proofs", ids=[ids["COMPLETED"]])[0]
    assert (newest["ok"], newest["depth"], newest["detail"]) == (True, "destination", "")


def test_the_server_s_workers_do_the_work(run: Run, url: str, folder: Path) -> None:
    """The last one here: a worker does whatever waits in the folder."""
    asked = ("export", "db.t", "--partition", "2", "--to")
    runner = LocalRunner()
    with closing(runner), Calve(load_config(folder / "calve.toml", environ={}), runner=runner) as calve:
        program = calve.worker()
        thread = Thread(target=program.run)
        thread.start()
        try:
            done = run(*asked, "lake.ns.done", "--server", url)
            left = run(*asked, "lake.ns.left", "--no-wait", "--json", "--server", url)
            waited = run("wait", left.json["id"], "--json", "--server", url)
        finally:
            program.request_stop()
            thread.join(60)
    assert (done.code, left.code, waited.code) == (0, 0, 0), done.err + left.err + waited.err
    assert "COMPLETED  main:db.t 2 -> lake.ns.done  100 rows, 1 file" in done.out
    assert "no worker" not in done.err + left.err
    assert left.json["tasks"]["total"] == 1  # it is planned, so the partition may go
    assert (waited.json["state"], waited.json["rows"]) == ("COMPLETED", 100)
    again = run(*asked, "lake.ns.done", "--server", url)
    assert again.code == 0
    assert "unchanged since; skipped" in again.err
