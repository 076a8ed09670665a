"""`calve init` and `calve config`."""

from pathlib import Path

import click

from calve.cli import words
from calve.cli.command import CliSession, command


@command("init", examples=["calve init", "calve init my-lake"])
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
def init(session: CliSession, folder: Path) -> None:
    """Write a calve.toml with embedded defaults and every key explained.

    An existing file is never overwritten.
    """
    from calve.app.config.template import write

    file = write(folder)
    session.answer({"file": str(file.absolute())}, str(file))
    session.say("Edit it, then check everything with: calve doctor")


@command("config", examples=["calve config", "calve config --json", "CALVE_LIMITS__SLOTS=4 calve config"])
def config(session: CliSession) -> None:
    """Show each setting and where it came from. Secrets are masked."""
    from calve.app.config.template import toml_value
    from calve.app.view import config_json

    found = session.config
    rows = [(setting.key, toml_value(setting.shown), setting.origin) for setting in found.settings]
    session.say(str(found.file or "no file: settings from the environment only"))
    session.answer(config_json(found), words.table(("KEY", "VALUE", "ORIGIN"), rows))
