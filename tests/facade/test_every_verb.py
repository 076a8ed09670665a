"""The façade has every verb of the command line, each listed as reading or changing."""

import inspect

import click
import pytest

from calve.app.calve import VERBS, Calve
from calve.cli.main import COMMANDS

# Commands whose verb has another name, and the two that work without a configuration.
NAMED_OTHERWISE = {"ps": "processes", "config": "settings", "wait": "follow"}
WITHOUT_CONFIGURATION = {"demo", "init"}
NOT_VERBS = {"close"}


def commands() -> list[str]:
    names = []
    for command in COMMANDS:
        below = command.commands if isinstance(command, click.Group) else {"": command}
        names += ["_".join(filter(None, (str(command.name), name))) for name in below]
    return names


def test_a_verb_without_an_entry_fails() -> None:
    methods = {name for name, _ in inspect.getmembers(Calve, inspect.isfunction) if not name.startswith("_")}
    assert methods - NOT_VERBS == set(VERBS)
    assert all(verb.name == name for name, verb in VERBS.items())


@pytest.mark.parametrize("name", [name for name in commands() if name not in WITHOUT_CONFIGURATION])
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
