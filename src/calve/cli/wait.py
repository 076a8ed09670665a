"""`calve wait`."""

import click

from calve.cli.command import Session, command


@command("wait", examples=["calve wait 7k2m", "calve wait batch-x4t9 --json"])
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
def wait(session: Session, ids: tuple[str, ...]) -> int:
    """Follow processes until they have ended; the exit code is theirs. Ctrl-C stops only the following."""
    from calve.cli.running import no_worker_warning, report, run_to_the_end
    from calve.model.states import PROCESS_TERMINAL

    store = session.app.store
    found = [store.process(process_id) for process_id in session.app.find(ids)]
    live = [process for process in found if process.state not in PROCESS_TERMINAL]
    if live:
        no_worker_warning(session, live)
    ended = run_to_the_end(session, found, bring_worker=False)
    return report(session, ended, as_list=len(ended) > 1)
