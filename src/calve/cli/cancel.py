"""`calve cancel`."""

from collections.abc import Sequence

import click

from calve.cli import output
from calve.cli.command import Session, command
from calve.cli.exits import DONE, FAILED, REFUSED
from calve.model.process import Process
from calve.model.states import PROCESS_TERMINAL, ProcessState


@command("cancel", examples=["calve cancel 7k2m", "calve cancel batch-x4t9 --no-wait"])
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until they have stopped.")
def cancel(session: Session, ids: tuple[str, ...], wait: bool) -> int:
    """Stop processes. What is published stays; what was written is kept for a retry, then removed."""
    from calve.app.view import process_json
    from calve.control.cancel import cancel as ask

    store = session.app.store
    answers = [ask(store, process_id) for process_id in session.app.find(ids)]
    processes = [answer.process for answer in answers]
    if wait:
        processes = _stopped(session, processes)
    documents = [process_json(process) for process in processes]
    lines = [
        f"{process.id}  {process.state.value}  {'' if wait else answer.message}".rstrip()
        for answer, process in zip(answers, processes, strict=True)
    ]
    session.answer(documents[0] if len(documents) == 1 else documents, "\n".join(lines))
    # Asked in time and ended otherwise all the same: a publish that was under way had happened.
    late = [process for process in processes if process.state in PROCESS_TERMINAL - {ProcessState.CANCELLED}]
    for process in late:
        output.warning(f"process {process.id}: too late: it is {process.state}, and stays so")
    waiting = [process for process in processes if wait and process.state not in PROCESS_TERMINAL]
    for process in waiting:
        _say_unreached(process)
    return REFUSED if late else FAILED if waiting else DONE


def _stopped(session: Session, processes: Sequence[Process]) -> list[Process]:
    """Until they have ended; by a worker of our own where none would carry it out. Not waited for are
    those that nobody can end who is here."""
    from calve.app.work import Company, can_be_stopped, own_canceller

    app = session.app
    live = [process for process in processes if process.state not in PROCESS_TERMINAL]
    live = [process for process in live if can_be_stopped(app, process)]
    if not live:
        return list(processes)
    with Company(app, live, lambda: own_canceller(app, live)) as company:
        for _ in company.follow():
            pass
    return [app.store.process(process.id) for process in processes]


def _say_unreached(process: Process) -> None:
    output.warning(
        f"process {process.id}: the cancel is noted, and carried out by a worker whose configuration reaches"
        f" {', '.join(sorted(process.needs))}; none runs, and this one does not"
    )
