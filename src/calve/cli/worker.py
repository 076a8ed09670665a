"""`calve worker`."""

import logging
import signal
import sys
from types import FrameType

import click

from calve.cli import output
from calve.cli.command import Session, command


@command("worker", examples=["calve worker", "calve worker --until-idle"])
@click.option(
    "--until-idle", is_flag=True, help="End once nothing is left to do, in place of waiting for more."
)
def worker(session: Session, until_idle: bool) -> None:
    """Do the work of every process this configuration reaches, until told to stop.

    SIGTERM or Ctrl-C drains: no new tasks, running ones finish or are handed back. A second one is
    quick, and still safe: whoever takes over finds what was under way.
    """
    from calve.app.optimizing import optimizing
    from calve.app.work import is_idle

    logging.basicConfig(
        stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING
    )
    logging.getLogger("calve").setLevel(logging.INFO)  # a line for each process that is planned or ends
    app = session.app
    loop = app.worker()

    def stop(_number: int, _frame: FrameType | None) -> None:
        loop.request_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    output.say(f"worker {loop.id} reaches {', '.join(sorted(app.config.reach))}; Ctrl-C drains it")
    with optimizing(app):
        loop.run(until=(lambda: is_idle(app)) if until_idle else lambda: False)
    session.answer({"worker": loop.id}, "")
    output.say(f"worker {loop.id} has ended; what is not done waits for the next one")
