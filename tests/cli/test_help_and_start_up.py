"""`calve --help` teaches, and starts without anything heavy."""

import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from calve.cli.main import COMMANDS
from calve.model.process import NewProcess, new_process_id
from calve.store import open_store
from support.calve_command import Run

HEAVY = (
    "pyspark",
    "py4j",
    "pyiceberg",
    "chdb",
    "pyarrow",
    "numpy",
    "obstore",
    "rich.progress",
    "prometheus_client",
    "fastapi",
    "uvicorn",
    "jinja2",
    "sqlalchemy.dialects.postgresql",
)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command.name))
def test_every_command_has_examples_and_the_shared_options(command: click.Command) -> None:
    text = command.get_help(click.Context(command, info_name=f"calve {command.name}"))
    assert f"calve {command.name}" in text.split("Examples:")[1]
    for option in ("--json", "--config", "--debug", "--help"):
        assert option in text
    assert command.help


def test_help_begins_with_the_options_of_the_command_itself(run: Run) -> None:
    text = run("serve", "--help").out
    assert text.index("--with-worker") < text.index("--json") < text.index("--debug")


@pytest.mark.parametrize("name", [str(command.name) for command in COMMANDS])
def test_every_example_is_a_command_that_parses(name: str) -> None:
    command = next(command for command in COMMANDS if command.name == name)
    for example in command.examples:
        words = shlex.split(example)
        arguments = words[words.index("calve") + 2 :]
        command.make_context(name, arguments)


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_nobody_to_read_what_is_said_is_no_error(closed: str) -> None:
    script = f"exec {shlex.quote(sys.executable)} -m calve.cli nonsense --json {closed}"
    answer = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 2
    assert "No such command 'nonsense'" in (answer.stderr if closed == ">&-" else answer.stdout)


def test_help_lists_the_commands_in_the_order_a_person_meets_them(run: Run) -> None:
    answer = run("--help")
    assert answer.code == 0
    places = [answer.out.index(f"\n  {command.name} ") for command in COMMANDS]
    assert places == sorted(places)


def queued(folder: Path) -> str:
    new = NewProcess(
        id=new_process_id(), kind="export", source="main:db.t", destination="lake.ns.t", lane="catalog:lake",
        needs=(), request="{}",
    )  # fmt: skip
    with open_store(f"sqlite:///{folder}/calve.db") as store:
        return store.submit([new])[0].id


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["ps"],
        ["ps", "--workers"],
        ["ps", "--help"],
        ["why"],
        ["events"],
        ["show"],
        ["config"],
        ["init", "x"],
    ],
)
def test_start_up_imports_nothing_heavy(arguments: list[str], tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "calve.toml").write_text('[source.main]\nurl = "chdb://x"\n')
    if arguments[0] in ("why", "events", "show"):
        arguments = [*arguments, queued(tmp_path)]
    code = (
        "import sys\n"
        "from calve.cli.main import run\n"
        f"assert run({arguments!r}) == 0\n"
        f"found = [name for name in {HEAVY!r} if name in sys.modules]\n"
        "assert not found, found\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr


def test_a_server_looks_outside_without_pandas() -> None:
    """PyArrow would import it, and it is a seventh of the server's memory."""
    code = (
        "import sys\n"
        "from calve.app.desk import load_outside\n"
        "from calve.cli.serve import without_pandas\n"
        "with without_pandas():\n"
        "    load_outside()\n"
        "assert 'pyarrow.dataset' in sys.modules and 'pandas' not in sys.modules\n"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
