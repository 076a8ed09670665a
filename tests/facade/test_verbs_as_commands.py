"""The command that a page shows does what its button does, and nothing else, whatever the names are."""

import shlex
import subprocess
from typing import Any

import click
import pytest

from calve.app.commands import _LINES, command, quoted
from calve.cli.main import calve as program

HOSTILE = [
    "db.events", "a b", "it's", '"', "$(rm -rf /)", "`id`", "a;b", "a\nb", "-rf", "--all", "é", "\u202eevil", "a\\b",
    "\t", "*", "~", "#x", "!x", "a'\n'b",
]  # fmt: skip
# The names of options, where the command line's own are others.
NAMES = {
    "destination": "to",
    "every": "all",
    "patterns": "tables",
    "read_data": "read_share",
    "names": "name",
}


def parsed(line: str) -> tuple[str, dict[str, Any]]:
    """As a shell splits it, and as the program reads it."""
    said = subprocess.run(
        ["bash", "-c", f"for word in {line}; do printf '%s\\0' \"$word\"; done"],
        capture_output=True, check=True,
    )  # fmt: skip
    words = said.stdout.decode().split("\0")[:-1]
    assert words.pop(0) == "calve"
    found: click.Command = program
    path = []
    while isinstance(found, click.Group):
        path.append(words.pop(0))
        found = found.commands[path[-1]] if path[-1] in found.commands else found.get_command(
            click.Context(found), path[-1]
        )  # fmt: skip
        assert found is not None
    with found.make_context(path[-1], list(words), resilient_parsing=False) as context:
        return " ".join(path), {NAMES.get(name, name): value for name, value in context.params.items()}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_shell_reads_a_name_as_it_is(name: str) -> None:
    said = subprocess.run(
        ["bash", "-c", f"printf %s {quoted(name)}"], capture_output=True, check=True
    ).stdout.decode()
    assert said == name
    assert quoted(name).isprintable(), "what cannot be seen is spelled out"


@pytest.mark.parametrize("name", HOSTILE)
def test_an_export_is_asked_for_with_the_same_arguments(name: str) -> None:
    path, found = parsed(
        command("export_preview", table=name, to="lake.ns.t", partitions=[name, "2"], force=True, where=name)
    )
    assert path == "export"
    assert (found["table"], found["to"], found["where"]) == (name, "lake.ns.t", name)
    assert found["partitions"] == (name, "2") and found["force"] and found["dry_run"] and not found["all"]


@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("cancel", {"ids": ("7k2m", "9x4t")}),
        ("retry", {"ids": ("7k2m",)}),
        ("verify", {"ids": ("7k2m",), "deep": True}),
        ("show", {"ids": ("7k2m",)}),
        ("why", {"ids": ("7k2m",)}),
        ("partitions", {"table": "db.t", "to": "lake.ns.t"}),
        ("health", {"table": "lake.ns.t", "orphans": True}),
        ("optimize", {"table": "lake.ns.t", "full": True, "sort": "id DESC"}),
        ("optimize_preview", {"table": "lake.ns.t", "dry_run": True}),
        ("export", {"table": "db.t", "to": "lake.ns.t", "all": True, "casts": {"a": "string"}}),
        ("backup_create", {"name": "nightly", "tables": ("db.*", "x.y"), "rbac": True}),
        ("backup_show", {"name": "nightly"}),
        ("backup_restore", {"name": "nightly", "into": "db_restored", "existing": "append"}),
        ("backup_list", {}),
        ("doctor", {}),
    ],
)
def test_each_verb_is_read_back_by_the_command_line(verb: str, given: dict[str, Any]) -> None:
    path, found = parsed(command(verb, **given))
    assert path == " ".join(word for word in _LINES[verb].words.split() if not word.startswith("-"))
    for name, value in given.items():
        expected = tuple(f"{a}={b}" for a, b in value.items()) if isinstance(value, dict) else value
        assert found[name] == expected or list(found[name]) == list(expected), name


def test_a_backup_is_verified_and_deleted_by_its_name() -> None:
    assert parsed(command("backup_verify", name="nightly", read_share="5%"))[1]["name"] == "nightly"
    assert tuple(parsed(command("backup_delete", name="-x y"))[1]["name"]) == ("-x y",)


def test_stopping_work_is_a_statement() -> None:
    assert shlex.split(command("halt", table="main:db.t")) == [
        "calve",
        "sql",
        "SYSTEM STOP EXPORTS main:db.t",
    ]
    assert shlex.split(command("lift", kind="backup")) == ["calve", "sql", "SYSTEM START BACKUPS"]


def test_arguments_that_say_nothing_are_left_out() -> None:
    assert command(
        "export", table="db.t", to="lake.a.b", force=False, where="", partitions=[], parts=None
    ) == ("calve export --to lake.a.b db.t")
    assert command("export", table="db.t", to="lake.a.b", all=True) == "calve export --to lake.a.b --all db.t"
