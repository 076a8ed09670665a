"""What `export`, `demo`, `retry` and `wait` share: run processes to the end and say how it went."""

import shlex
from collections.abc import Sequence

from calve.app.view import process_json
from calve.app.work import Company, has_workers, own_worker
from calve.cli import exits, output, progress, words
from calve.cli.command import Session
from calve.model.process import Process
from calve.model.states import ProcessState


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while processes were under way; how to go on has been said."""

    is_explained = True


def run_to_the_end(
    session: Session, processes: Sequence[Process], *, bring_worker: bool = True
) -> list[Process]:
    """Follow them with a progress bar; a worker of our own where there is none."""
    app = session.app
    ids = [process.id for process in processes]
    company = Company(app, processes, (lambda: own_worker(app, ids)) if bring_worker else None)
    try:
        with company:
            return progress.watch(company.follow(), quiet=session.json)
    except KeyboardInterrupt:
        say_how_to_go_on(processes, own=company.is_own, config_path=session.config_path)
        raise Interrupted from None


def hand_over(session: Session, accepted: Sequence[Process], *, no_wait: bool, as_list: bool) -> int:
    """Processes that were just accepted: run them to the end, or say who will."""
    if not accepted:
        session.answer([], "")
        return exits.DONE
    if no_wait:
        no_worker_warning(session, accepted)
        documents = [process_json(process) for process in accepted]
        session.answer(documents if as_list else documents[0], "\n".join(process.id for process in accepted))
        return exits.DONE
    if accepted[0].batch and not session.json:
        output.say(f"batch {accepted[0].batch}: {len(accepted)} processes")
    return report(session, run_to_the_end(session, accepted), as_list=as_list)


def no_worker_warning(session: Session, processes: Sequence[Process]) -> None:
    if not has_workers(session.app, processes):
        output.warning("no worker is there to do the work; start one with: calve worker")


def say_how_to_go_on(processes: Sequence[Process], *, own: bool, config_path: str | None) -> None:
    """Commands that can be pasted: a batch by its one id, the configuration where it was given."""
    calve = "calve" if config_path is None else f"calve --config {shlex.quote(config_path)}"
    shown = " ".join(dict.fromkeys(process.batch or process.id for process in processes))
    output.say("\ninterrupted: nothing is lost, and nothing is published twice.")
    output.say(f"to go on:  {calve} {'worker' if own else f'wait {shown}'}")
    output.say(f"to stop:   {calve} cancel {shown}")


def report(session: Session, processes: Sequence[Process], *, as_list: bool) -> int:
    """The processes as data, how each ended in words, and the exit code."""
    documents = [process_json(process) for process in processes]
    session.answer(
        documents if as_list else documents[0], "\n".join(sentence(process) for process in processes)
    )
    for process in processes:
        if process.error and process.state is not ProcessState.COMPLETED:
            output.error(process.error)
    return exits.worst(exits.of_process(process) for process in processes)


def sentence(process: Process) -> str:
    """How a process ended, in one line."""
    taken = " ".join(filter(None, (process.source, words.listed(process.partitions))))
    where = f"{taken} -> {process.destination}"
    if process.source == process.destination:  # an optimize stays where it is
        where = process.destination
    what = f"{process.id}  {process.state.value}  {where}"
    if process.state is not ProcessState.COMPLETED:
        return what
    took = words.duration(process.finished_at - process.created_at) if process.finished_at else ""
    return (
        f"{what}  {words.counted(process.rows, 'row')}, {words.counted(process.files, 'file')}, "
        f"{words.size(process.bytes)}, snapshot {process.snapshot_id}, {took}"
    )
