"""`calve worker`."""

import logging
import signal
import sys
from types import FrameType

import click

from calve.cli import output
from calve.cli.command import CliSession, command


@command("worker", examples=["calve worker", "calve worker --until-idle"])
@click.option("--until-idle", is_flag=True, help="Exit once nothing is left to do.")
def worker(session: CliSession, until_idle: bool) -> None:
    """Run a worker: do the work of every process that this configuration reaches.

    SIGTERM or Ctrl-C drains it: no new tasks start, and running ones finish or are handed back. A
    second signal stops it quickly, and still safely: another worker takes over what was under way.
    """
    logging.basicConfig(
        stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING
    )
    logging.getLogger("calve").setLevel(logging.INFO)  # a line for each process that is planned or ends
    program = session.calve.worker()

    def stop(_number: int, _frame: FrameType | None) -> None:
        program.request_stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    output.say(f"worker {program.id} reaches {', '.join(sorted(session.config.reach))}; Ctrl-C drains it")
    program.run(until_idle=until_idle)
    session.answer({"worker": program.id}, "")
    output.say(f"worker {program.id} has ended; unfinished work waits for the next worker")
