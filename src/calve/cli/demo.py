"""`calve demo`."""

from pathlib import Path

import click

from calve.cli.command import Session, command


@command("demo", examples=["calve demo", "calve demo --rows 10000000 --dir /tmp/big-demo"])
@click.option(
    "--rows", default=2_000_000, show_default=True, metavar="N", type=click.IntRange(1), help="Rows to make."
)
@click.option(
    "--dir",
    "folder",
    default="calve-demo",
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The folder to leave it in.",
)
def demo(session: Session, rows: int, folder: Path) -> int:
    """A whole export on embedded defaults, read back by two engines and compared with the source.

    Needs no service and no configuration. Running it again makes its folder anew.
    """
    from calve.cli.demonstrating import run_demo

    return run_demo(session, rows, folder)
