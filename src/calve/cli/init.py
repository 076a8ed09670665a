"""`calve init`."""

from pathlib import Path

import click

from calve.cli import output
from calve.cli.command import Session, command


@command("init", examples=["calve init", "calve init my-lake"])
@click.argument("folder", metavar="[DIR]", default=".", type=click.Path(path_type=Path))
def init(session: Session, folder: Path) -> None:
    """Write a calve.toml with embedded defaults and every key explained.

    A file that is there already is left as it is.
    """
    from calve.app.config.template import write

    file = write(folder)
    session.answer({"file": str(file.absolute())}, str(file))
    if not session.json:
        output.say("Look through it, then: calve doctor")
