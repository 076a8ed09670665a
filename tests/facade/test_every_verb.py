"""The façade has every verb of the command line, and each has a role; what the desk serves fits what it takes."""

import inspect
from dataclasses import fields

import click
import pytest

from calve.app.calve import Calve
from calve.app.desk import SERVED
from calve.app.front import Front
from calve.app.values import BackupOptions, ExportOptions, Keep, OptimizeOptions, RestoreOptions, Selection
from calve.app.verbs.roles import VERBS, Reach
from calve.cli.main import COMMANDS
from calve.model.access import Role

# Commands whose verb has another name, those that work without a configuration, and one that carries any verb.
NAMED_OTHERWISE = {
    "ps": "processes",
    "config": "settings",
    "wait": "follow",
    "version": "versions",
    "view": "view_show",
}
WITHOUT_VERB = {"serve", "demo", "init", "sql", "spark_package"}
NOT_VERBS = {"close", "on_behalf", "wants"}


def methods(of: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(of, inspect.isfunction) if not name.startswith("_")}


def commands() -> list[str]:
    return [name for command in COMMANDS for name in _names(command)]


def _names(command: click.Command, above: str = "") -> list[str]:
    """A group in a group is called by its own name alone."""
    if not isinstance(command, click.Group):
        return ["_".join(filter(None, (above, str(command.name))))]
    return [name for below in command.commands.values() for name in _names(below, str(command.name))]


def test_a_verb_without_a_role_fails() -> None:
    assert methods(Calve) - NOT_VERBS == set(VERBS)
    assert all(verb.name == name and isinstance(verb.role, Role) for name, verb in VERBS.items())


# What the command line has no command for.
ONLY_SERVED = {
    "source_tables",
    "seen",
    "attention",
    "tables",
    "table",
    "sheet",
    "vault",
    "tiering",
    "system",
    "search",
    "page",
    "servers",
    "breakers",
    "halts",
    "halt",
    "lift",
    "proofs",
    "keys",
    "audit",
    "feed",
    "tasks",
    "totals",
}


def test_a_front_has_every_verb_of_the_command_line() -> None:
    assert methods(Front) - NOT_VERBS == set(VERBS) - ONLY_SERVED
    for name in set(VERBS) - ONLY_SERVED:
        mine, theirs = (inspect.signature(getattr(of, name)).parameters for of in (Calve, Front))
        assert [mine[one] for one in theirs] == list(theirs.values()), name
        # More than a front asks for: how a server reads long lists.
        own = [mine[one] for one in mine if one not in theirs]
        assert all(one.kind is one.KEYWORD_ONLY and one.default is not one.empty for one in own), name


def test_every_verb_is_served_but_those_that_need_the_program_that_asks() -> None:
    assert {name for name, verb in VERBS.items() if verb.reach is not Reach.HERE} == set(SERVED)


@pytest.mark.parametrize(
    ("verb", "values"),
    [
        ("export", (ExportOptions, Selection)),
        ("export_preview", (ExportOptions, Selection)),
        ("backup_create", (BackupOptions,)),
        ("backup_restore", (RestoreOptions,)),
        ("restore_preview", (RestoreOptions,)),
        ("backup_prune", (Keep,)),
        ("optimize", (OptimizeOptions,)),
        ("optimize_preview", (OptimizeOptions,)),
    ],
)
def test_what_is_served_has_every_option_of_the_verb(verb: str, values: tuple[type, ...]) -> None:
    own = {field.name for value in values for field in fields(value)}
    assert set(SERVED[verb].options) - own <= set(inspect.signature(getattr(Calve, verb)).parameters)
    assert own <= set(SERVED[verb].options)


def test_an_option_with_a_role_of_its_own_is_one_that_the_verb_takes() -> None:
    for name, verb in VERBS.items():
        served = SERVED[name].options if name in SERVED else {}
        assert {*verb.raised, *verb.lowered} <= set(served), name
        assert all(role.may(verb.role) for role in verb.raised.values()), name
        assert all(verb.role.may(role) for role in verb.lowered.values()), name


@pytest.mark.parametrize("name", [name for name in commands() if name not in WITHOUT_VERB])
def test_every_command_has_its_verb(name: str) -> None:
    assert NAMED_OTHERWISE.get(name, name) in VERBS


def test_every_verb_is_typed() -> None:
    for name in VERBS:
        signature = inspect.signature(getattr(Calve, name))
        assert signature.return_annotation is not inspect.Signature.empty, name
        for parameter in list(signature.parameters.values())[1:]:
            assert parameter.annotation is not inspect.Parameter.empty, f"{name}({parameter.name})"


def test_no_verb_takes_options_of_any_name_and_type() -> None:
    for name in VERBS:
        for parameter in inspect.signature(getattr(Calve, name)).parameters.values():
            assert parameter.kind is not inspect.Parameter.VAR_KEYWORD, f"{name}(**{parameter.name})"
