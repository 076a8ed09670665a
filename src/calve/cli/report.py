"""What the commands that queue work share: run it to the end, or say who will; report how it ended."""

import shlex
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import closing
from typing import Any

from calve.app.front import Standing
from calve.app.view import process_json
from calve.cli import output, progress
from calve.cli.command import PINNED, CliSession
from calve.model.errors import ErrorInfo
from calve.model.process import Process
from calve.model.record import fields_of
from calve.model.states import PROCESS_TERMINAL, ProcessState

_PLANS_READ = 20


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or a timeout, while processes were under way; how to go on has been said."""

    is_explained = True


def run_to_the_end(
    session: CliSession,
    processes: Sequence[Process],
    *,
    own_worker: bool = True,
    timeout_seconds: float | None = None,
) -> list[Process]:
    """Follow them with a progress bar; with a worker of our own where there is none."""
    if own_worker and session.server:
        warn_without_worker(session, [one for one in processes if one.state not in PROCESS_TERMINAL])
    follow = session.calve.run if own_worker else session.calve.follow
    last = _followed(session, processes, follow, timeout_seconds)
    if not last.ended:
        _say_how_to_go_on(session, last, "timed out waiting; the work is not stopped.")
        raise Interrupted
    if own_worker:
        _say_notes(session, last.processes)
    return list(last.processes)


def _say_notes(session: CliSession, processes: Sequence[Process]) -> None:
    """What planning remarked of what was asked for: a lossy cast, a mutation that is ignored, parts unmerged.
    Plans may be large, and those of one batch mostly have the same notes: a few are read."""
    if not session.json:
        for note in session.calve.notes([process.id for process in processes[:_PLANS_READ]]):
            session.say(f"note: {note}")


def leave(
    session: CliSession, queued: Sequence[Process], *, no_wait: str, timeout_seconds: float | None = None
) -> list[Process]:
    """`--no-wait`: leave them to the workers, once the source may change or, with `queued`, at once."""
    processes = list(queued)
    if no_wait == PINNED and (not session.server or session.calve.has_workers(queued)):
        last = _followed(session, queued, session.calve.pin, timeout_seconds)
        if not last.pinned:
            _say_how_to_go_on(session, last, "timed out: not all of the data is pinned yet.")
            raise Interrupted
        processes = list(last.processes)
        _say_notes(session, processes)
    say_queued(session, processes)
    return processes


def _followed(
    session: CliSession,
    processes: Sequence[Process],
    follow: Callable[..., Generator[Standing, None, None]],
    timeout_seconds: float | None,
) -> Standing:
    ids = [process.id for process in processes]
    last = Standing(processes=tuple(processes), own_worker=False)
    try:
        with (
            closing(follow(ids, timeout_seconds=timeout_seconds)) as standings,
            progress.display(quiet=session.json) as shown,
        ):
            for last in standings:
                shown.update(last)
    except KeyboardInterrupt:
        _say_how_to_go_on(session, last, "interrupted: nothing is lost, and nothing is published twice.")
        raise Interrupted from None
    return last


def hand_over(
    session: CliSession,
    queued: Sequence[Process],
    *,
    no_wait: str | None,
    as_list: bool = False,
    joined: Collection[str] = (),
    timeout_seconds: float | None = None,
    document: Callable[[Process], dict[str, Any]] = process_json,
) -> int:
    """Processes that were just queued or joined: run them to the end, or say who will."""
    if not queued:
        session.answer([], "")
        return output.DONE
    say_taken_up(session, queued, joined)
    if no_wait:
        left = leave(session, queued, no_wait=no_wait, timeout_seconds=timeout_seconds)
        documents = [document(process) for process in left]
        session.answer(documents if as_list else documents[0], "\n".join(process.id for process in left))
        say_errors(left)
        return output.worst(output.of_process(process) for process in left)
    say_batch(session, queued)
    ended = run_to_the_end(session, queued, timeout_seconds=timeout_seconds)
    return report(session, ended, as_list=as_list, document=document)


def say_taken_up(session: CliSession, processes: Sequence[Process], joined: Collection[str]) -> None:
    """What the same request began earlier and this command goes on with."""
    if under_way := [process for process in processes if process.id in joined]:
        what = output.listed([process.id for process in under_way])
        batches = ", ".join(dict.fromkeys(f" of {process.batch}" for process in under_way if process.batch))
        session.say(
            f"the same request is under way: joining {'process' if len(under_way) == 1 else 'processes'}"
            f" {what}{batches}; if the worker was killed, its work is taken over once its lease is past"
        )
    for process in processes:
        if process.retry_of and process.id not in joined:
            session.say(
                f"process {process.id} retries process {process.retry_of}; work of that one that is still valid is kept"
            )


def say_batch(session: CliSession, queued: Sequence[Process]) -> None:
    for batch in dict.fromkeys(process.batch for process in queued if process.batch):
        session.say(
            f"batch {batch}: {output.counted(sum(one.batch == batch for one in queued), 'process', 'processes')}"
        )


def say_queued(session: CliSession, queued: Sequence[Process]) -> None:
    """`--no-wait`: what was queued, how to follow it, and whether a worker is there to do it."""
    say_batch(session, queued)
    session.say(f"follow with: {_command(session)} wait {_ids(queued)}")
    if live := [process for process in queued if process.state not in PROCESS_TERMINAL]:
        warn_without_worker(session, live)


def warn_without_worker(session: CliSession, processes: Sequence[Process]) -> None:
    if not session.calve.has_workers(processes):
        output.warning("no worker is running to do the work; start one with: calve worker")


def _say_how_to_go_on(session: CliSession, last: Standing, what: str) -> None:
    """Commands that can be pasted: a batch by its one id, the configuration where it was given."""
    calve, ids = _command(session), _ids(last.processes)
    output.say(f"\n{what}")
    go_on = (
        f"repeat this command, or start a worker: {calve} worker"
        if last.own_worker
        else f"{calve} wait {ids}"
    )
    output.say(f"to go on:  {go_on}")
    output.say(f"to stop:   {calve} cancel {ids}")


def _command(session: CliSession) -> str:
    if session.server_url:
        return f"calve --server {shlex.quote(session.server_url)}"
    return "calve" if session.config_path is None else f"calve --config {shlex.quote(session.config_path)}"


def _ids(processes: Sequence[Process]) -> str:
    return " ".join(dict.fromkeys(process.batch or process.id for process in processes))


def report(
    session: CliSession,
    processes: Sequence[Process],
    *,
    as_list: bool,
    document: Callable[[Process], dict[str, Any]] = process_json,
) -> int:
    """The processes as data, how each ended in words, and the exit code."""
    documents = [document(process) for process in processes]
    session.answer(
        documents if as_list else documents[0], "\n".join(sentence(process) for process in processes)
    )
    say_total(session, processes)
    say_errors(processes, skipped=document is process_json)
    return output.worst(output.of_process(process) for process in processes)


def say_total(session: CliSession, processes: Sequence[Process]) -> None:
    """The last line of a batch."""
    if len(processes) > 1:
        states = (ProcessState.COMPLETED, ProcessState.FAILED, ProcessState.CANCELLED)
        counts = ((sum(one.state is state for one in processes), state.value.lower()) for state in states)
        session.say(
            f"total: {len(processes)} processes ({', '.join(f'{n} {word}' for n, word in counts if n)}), "
            f"{output.counted(sum(one.rows for one in processes), 'row')}, "
            f"{output.counted(sum(one.files for one in processes), 'file')}, "
            f"{output.size(sum(one.bytes for one in processes))}"
        )


def say_errors(processes: Sequence[Process], *, skipped: bool = True) -> None:
    """`skipped` also names what a backup skipped, where nothing else has."""
    for process in processes:
        if process.state is ProcessState.COMPLETED:
            for name, why in _result(process).get("skipped", ()) if skipped else ():
                output.warning(f"{name}: {why}")
        elif process.damaged:
            output.error(damaged(process))
        elif process.error and process.state in PROCESS_TERMINAL:
            output.error(process.error)


def damaged(process: Process) -> ErrorInfo:
    return ErrorInfo(
        code="damaged",
        message=f"process {process.id} is set aside: its row in the store is damaged: {process.damaged}",
        hint="calve doctor",
    )


def sentence(process: Process) -> str:
    """How a process ended, in one line."""
    taken = " ".join(filter(None, (process.source, output.listed(process.partitions))))
    where = f"{taken} -> {process.destination}"
    if process.source == process.destination:  # an optimize stays where it is
        where = process.destination
    what = f"{process.id}  {process.state.value}  {where}"
    if process.state is not ProcessState.COMPLETED:
        return what
    amounts = [
        output.counted(process.rows, "row"),
        output.counted(process.files, "part" if process.kind in ("backup", "restore") else "file"),
        output.size(process.bytes) + _new_bytes(process),
    ]
    if process.snapshot_id:
        amounts.append(f"snapshot {process.snapshot_id}")
    if process.finished_at:
        amounts.append(output.duration(process.finished_at - process.created_at))
    return f"{what}  {', '.join(amounts)}"


def _new_bytes(process: Process) -> str:
    """How much of a backup was not stored before."""
    moved = _result(process).get("moved_bytes") if process.kind == "backup" else None
    return "" if moved is None else f" ({output.size(moved)} of them new)"


def _result(process: Process) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if process.kind in ("backup", "restore") and process.result:
        found = fields_of(process.result)
    return found
