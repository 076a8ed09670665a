"""`calve why`."""

import click

from calve.cli.command import Session, command


@command("why", examples=["calve why 7k2m", "calve why batch-x4t9"])
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
def why(session: Session, ids: tuple[str, ...]) -> None:
    """Say in one sentence what a process waits for."""
    from calve.control.why import why as reason

    store = session.app.store
    found = [store.process(process_id) for process_id in session.app.find(ids)]
    answers = [
        {"id": process.id, "state": process.state.value, "why": reason(store, process)} for process in found
    ]
    text = "\n".join(
        answer["why"] if len(answers) == 1 else f"{answer['id']}  {answer['why']}" for answer in answers
    )
    session.answer(answers[0] if len(answers) == 1 else answers, text)
