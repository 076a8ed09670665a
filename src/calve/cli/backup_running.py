"""Running a backup or a restore to its end: progress by bytes, with the rate and the time left."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from calve.app.view import process_json
from calve.app.work import Company, own_worker
from calve.cli import exits, output, words
from calve.cli.command import Session
from calve.cli.running import Interrupted, no_worker_warning, say_how_to_go_on
from calve.model.process import Process
from calve.model.states import ProcessState


def hand_over(session: Session, process: Process, *, resumed: bool, no_wait: bool) -> int:
    """A process that was just accepted: run it to the end, or say who will."""
    if resumed and not session.json:
        output.say(f"going on with process {process.id}: what it has done stands")
    if no_wait:
        no_worker_warning(session, [process])
        session.answer(document(process), process.id)
        return exits.DONE
    ended = _run(session, process)
    session.answer(document(ended), sentence(ended))
    for name, why in _detail(ended).get("skipped", []):
        output.warning(f"{name}: {why}")
    if ended.error and ended.state is not ProcessState.COMPLETED:
        output.error(ended.error)
    return exits.of_process(ended)


def document(process: Process) -> dict[str, Any]:
    return process_json(process) | {"detail": _detail(process)}


def sentence(process: Process) -> str:
    what = f"{process.id}  {process.state.value}  {process.source} -> {process.destination}"
    if process.state is not ProcessState.COMPLETED or not process.finished_at:
        return what
    took = words.duration(process.finished_at - process.created_at)
    moved = _detail(process).get("moved_bytes")
    new = "" if moved is None else f" ({words.size(moved)} of them new)"
    return (
        f"{what}  {words.counted(process.rows, 'row')}, {words.counted(process.files, 'part')}, "
        f"{words.size(process.bytes)}{new}, {took}"
    )


def _detail(process: Process) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(process.result) if process.result else {}
    return found


def _run(session: Session, process: Process) -> Process:
    app = session.app
    company = Company(app, [process], lambda: own_worker(app, [process.id]))
    try:
        with company:
            return _watch(session, process, (found[0] for found in company.follow()))
    except KeyboardInterrupt:
        say_how_to_go_on([process], own=company.is_own, config_path=session.config_path)
        raise Interrupted from None


def _watch(session: Session, process: Process, snapshots: Iterator[Process]) -> Process:
    if output.is_terminal(sys.stderr):
        return _bar(session, snapshots, process)
    return _lines(session, snapshots, process)


def _total(session: Session, process: Process, known: int) -> int:
    """Known once it is planned."""
    if known or not process.planned:
        return known
    plan = session.app.store.plan(process.id)
    return int(json.loads(plan).get("bytes", 0)) if plan else 0


def _bar(session: Session, snapshots: Iterator[Process], last: Process) -> Process:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True, no_color=not output.wants_colour(sys.stderr))
    with Progress(*columns, console=console, transient=True) as bars:
        bar, total = bars.add_task(last.kind, total=None), 0
        for last in snapshots:
            total = _total(session, last, total)
            text = f"{last.kind}  {last.state.value:<10}"
            bars.update(bar, description=text, total=total or None, completed=min(last.bytes, total))
    return last


def _lines(session: Session, snapshots: Iterator[Process], last: Process) -> Process:
    """A line when the state changes, and one for each tenth of the bytes."""
    began, total = time.monotonic(), 0
    said: tuple[ProcessState, int] | None = None
    for last in snapshots:
        total = _total(session, last, total)
        tenth = 10 * last.bytes // max(1, total)
        if said != (last.state, tenth) and not session.json:
            said = (last.state, tenth)
            output.say(
                f"{last.id}  {last.state.value}  {_progress(last, total, time.monotonic() - began)}".rstrip()
            )
    return last


def _progress(process: Process, total: int, seconds: float) -> str:
    parts: Sequence[str] = ()
    if total and process.state is ProcessState.RUNNING:
        rate = process.bytes / max(seconds, 0.001)
        parts = (f"{words.size(process.bytes)} of {words.size(total)}", f"{words.size(rate)}/s")
        if rate:
            parts = (*parts, f"{words.seconds((total - process.bytes) / rate)} left")
    if process.error and process.state is not ProcessState.COMPLETED:
        parts = (*parts, output.one_line(process.error.message))
    return ", ".join(parts)
