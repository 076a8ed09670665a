"""`calve wait`, `calve cancel`, `calve retry`: processes that exist, followed, stopped, run again."""

from collections.abc import Sequence
from contextlib import closing

import click

from calve.cli import output
from calve.cli.command import CliSession, command, ids_argument, no_wait_option, timeout_option
from calve.cli.output import DONE, FAILED, REFUSED
from calve.model.process import Process
from calve.model.states import PROCESS_TERMINAL, ProcessState


@command("wait", examples=["calve wait 7k2m", "calve wait batch-x4t9 --timeout 30m --json"])
@ids_argument
@timeout_option
def wait(session: CliSession, ids: tuple[str, ...], timeout_seconds: float | None) -> int:
    """Wait until processes have ended; the exit code is theirs. Ctrl-C stops only the waiting."""
    from calve.cli.report import report, run_to_the_end, warn_without_worker

    found = session.calve.find(ids)
    live = [process for process in found if process.state not in PROCESS_TERMINAL]
    if live:
        warn_without_worker(session, live)
    ended = run_to_the_end(session, found, own_worker=False, timeout_seconds=timeout_seconds)
    return report(session, ended, as_list=len(ended) > 1)


@command("cancel", examples=["calve cancel 7k2m", "calve cancel batch-x4t9 --no-wait"])
@ids_argument
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until they have stopped.")
def cancel(session: CliSession, ids: tuple[str, ...], wait: bool) -> int:
    """Stop processes. What is published stays; files written so far are kept for a retry, then removed.

    Does not wait for processes that no reachable worker can end.
    """
    from calve.app.view import process_json

    answers = session.calve.cancel(ids)
    processes = [answer.process for answer in answers]
    if wait:
        processes = _stopped(session, processes)
    lines = [
        f"{process.id}  {process.state.value}  {'' if wait else answer.message}".rstrip()
        for answer, process in zip(answers, processes, strict=True)
    ]
    session.answer_each([process_json(process) for process in processes], "\n".join(lines))
    # Asked in time and ended otherwise all the same: a publish that was under way had happened.
    late = [process for process in processes if process.state in PROCESS_TERMINAL - {ProcessState.CANCELLED}]
    for process in late:
        output.warning(f"process {process.id}: too late to cancel: it is {process.state}")
    waiting = [process for process in processes if wait and process.state not in PROCESS_TERMINAL]
    asked = "the server's" if session.server else "this"
    for process in waiting:
        output.warning(
            f"process {process.id}: the cancel is recorded. A worker whose configuration reaches"
            f" {', '.join(sorted(process.needs))} will carry it out; none is running, and {asked}"
            " configuration does not reach it"
        )
    return REFUSED if late else FAILED if waiting else DONE


def _stopped(session: CliSession, processes: Sequence[Process]) -> list[Process]:
    with closing(session.calve.stop(processes)) as standings:
        for _ in standings:
            pass
    return session.calve.find([process.id for process in processes])


@command("retry", examples=["calve retry 7k2m", "calve retry batch-x4t9 --no-wait"])
@ids_argument
@no_wait_option
@timeout_option
def retry(
    session: CliSession, ids: tuple[str, ...], no_wait: str | None, timeout_seconds: float | None
) -> int:
    """Run failed or cancelled processes again, as new processes that reuse what is already done.

    Of a batch, those that completed are skipped.
    """
    from calve.cli.report import hand_over

    made = session.calve.retry(ids)
    queued = made.processes
    if not queued:
        output.say(f"nothing to retry: all of {', '.join(ids)} is COMPLETED")
    return hand_over(
        session,
        queued,
        joined=made.joined,
        no_wait=no_wait,
        as_list=len(queued) > 1,
        timeout_seconds=timeout_seconds,
    )
