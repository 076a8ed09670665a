"""`calve retry`."""

import click

from calve.cli import output
from calve.cli.command import Session, command


@command("retry", examples=["calve retry 7k2m", "calve retry batch-x4t9 --no-wait"])
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
@click.option("--no-wait", is_flag=True, help="Print the ids and return; a worker does the work.")
def retry(session: Session, ids: tuple[str, ...], no_wait: bool) -> int:
    """Run processes again that failed or were cancelled: new ones, which take up what still stands.

    Of a batch, those that completed are left out.
    """
    from calve.cli.running import hand_over
    from calve.control.retry import retry as again
    from calve.model.ids import BATCH_PREFIX, new_batch_id
    from calve.model.states import ProcessState

    store = session.app.store
    found = session.app.find(ids)
    if any(text.startswith(BATCH_PREFIX) for text in ids):
        found = [each for each in found if store.process(each).state is not ProcessState.COMPLETED]
        if not found:
            output.say(f"nothing to retry: all of {', '.join(ids)} is COMPLETED")
    batch = new_batch_id() if len(found) > 1 else None
    # If we die here, some are accepted and some not: each is whole, and asking again refuses those.
    accepted = [again(store, process_id, batch=batch) for process_id in found]
    return hand_over(session, accepted, no_wait=no_wait, as_list=len(accepted) > 1)
