"""`calve events`."""

import click

from calve.cli.command import Session, command
from calve.cli.show import event_lines

_PAGE = 1000


@command("events", examples=["calve events 7k2m", "calve events 7k2m --json"])
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
def events(session: Session, ids: tuple[str, ...]) -> None:
    """Show what happened to a process, oldest first."""
    from calve.app.view import event_json

    store = session.app.store
    found = []
    for process_id in session.app.find(ids):
        after = 0
        while page := store.events(process_id, after=after, limit=_PAGE):
            found.extend(page)
            after = page[-1].number
    session.answer([event_json(event) for event in found], event_lines(found) if found else "")
