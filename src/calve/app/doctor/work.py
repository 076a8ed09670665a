"""Probes of the work: workers, destinations that are down, pins and processes that need a person."""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import timedelta

from calve import __version__
from calve.app.doctor.finding import Finding
from calve.app.wiring import App
from calve.control.steps.publish import LEFT_IN_PLACE
from calve.model.errors import DamagedError, Outcome
from calve.model.process import Pin, Process, ProcessId, ProcessQuery
from calve.model.states import PIN_HELD, PROCESS_TERMINAL, Leftovers, PinState, ProcessState, TaskState

_LOOKED_AT = 1000  # the newest
_OVERDUE = timedelta(hours=1)


def workers(app: App) -> Iterator[Finding]:
    """A worker that is silent matters while it holds work that nobody can take over. Its last error is
    history (`calve ps --workers`): a cause that lasts is found by its own probe."""
    alive = app.live_workers()
    held = Counter(process.owner for process in app.store.live())
    for worker in app.store.workers():
        if worker in alive or worker.draining or not held[worker.id] or alive:
            continue
        silent = app.store.now() - worker.heartbeat_at
        yield Finding(
            part=f"worker:{worker.id}",
            ok=True,
            warning=True,
            words=f"silent for {silent // timedelta(seconds=1)} s, and no other worker runs to take over"
            f" its {held[worker.id]} processes",
            remedy="calve worker",
        )
    others = [worker for worker in alive if worker.version != __version__]
    if others:
        versions = sorted({worker.version or "unnamed" for worker in others})
        unknown = any(not worker.version for worker in others)
        yield Finding(
            part="workers",
            ok=True,
            warning=True,
            words=f"{len(others)} of {len(alive)} run another version ({', '.join(versions)}) than this one,"
            f" {__version__}: {', '.join(worker.id for worker in others[:5])}"
            + ("; a worker that names no version does not honour halts" if unknown else ""),
            remedy="restart them with this version",
        )
    words = f"{len(alive)} running" if alive else "none is running; commands start their own"
    yield Finding(part="workers", ok=True, words=words)


def breakers(app: App, failed: Collection[str]) -> Iterator[Finding]:
    """Services that workers found to be down, except those that a probe has just found to be: `failed`."""
    for breaker in app.store.breakers():
        if breaker.service not in failed:
            yield Finding(
                part=breaker.service,
                ok=True,
                warning=True,
                words=f"workers could not reach it since {breaker.opened_at:%Y-%m-%d %H:%M:%S} UTC:"
                f" {breaker.reason}",
                remedy="nothing to do: its processes wait, and go on as soon as it answers",
            )


def pins(app: App) -> Iterator[Finding]:
    """Holds on source data that should be gone and are not (L31, L32)."""
    held = app.store.pins(states=PIN_HELD)
    stuck = 0
    for pin in held:
        ended = app.store.process(pin.process_id).state in PROCESS_TERMINAL
        if pin.state is PinState.RELEASING and _keeps_failing(pin, app.config.limits.release_attempts):
            stuck += 1
            reason = pin.error.message if pin.error else "no reason given"
            yield Finding(
                part=f"pin:{pin.name}",
                ok=False,
                words=f"of {pin.source} could not be released in {pin.release_attempts} attempts: {reason}",
                remedy=(pin.error.hint if pin.error else "")
                or "workers keep trying; start one: calve worker",
            )
        elif ended and not app.live_workers():
            yield Finding(
                part=f"pin:{pin.name}",
                ok=True,
                warning=True,
                words=f"of {pin.source} waits to be released, and no worker is running",
                remedy="calve worker",
            )
    yield Finding(part="pins", ok=not stuck, words=f"{len(held)} held")


def _keeps_failing(pin: Pin, attempts: int) -> bool:
    """Or will: an error that does not go away by itself needs a person after the first try."""
    return pin.release_attempts >= attempts or (pin.error is not None and not pin.error.retryable)


def processes(app: App) -> Iterator[Finding]:
    """Those that cannot be read (T10); ended ones whose outcome is still unknown."""
    for process in app.store.processes(ProcessQuery(limit=_LOOKED_AT)):
        if process.damaged:
            yield Finding(
                part=f"process:{process.id}",
                ok=False,
                words=f"nobody works on it, its row in the store is damaged: {process.damaged}",
                remedy=f"restore the row from a backup of the store, or write what can be read: {_repair(process)}",
            )
    for process in app.store.processes(ProcessQuery(states=frozenset({ProcessState.FAILED}))):
        if process.error and process.error.outcome is Outcome.UNKNOWN:
            yield Finding(
                part=f"process:{process.id}",
                ok=False,
                words=f"unknown whether it was published: {process.error.message}",
                remedy=f"a worker finds out as soon as the catalog answers: calve worker; then calve show {process.id}",
            )


def notices(app: App) -> Iterator[Finding]:
    """Targets that missed notices in the week for which those are kept."""
    lost = app.registry.given_up(_LOOKED_AT)
    for key, count in Counter(notice.target for notice in lost).items():
        last = next(notice for notice in lost if notice.target == key)
        yield Finding(
            part=key,
            ok=True,
            warning=True,
            words=f"{count} of its notices were not taken and given up, the last at"
            f" {last.ended_at:%Y-%m-%d %H:%M:%S} UTC: {last.error}",
            remedy=f"calve notify test {key}",
        )
    if app.config.notify or app.config.pings:
        waiting = app.registry.totals().notices_waiting
        yield Finding(part="notices", ok=True, words=f"{waiting} waiting to be sent")


def _repair(process: Process) -> str:
    """A statement that makes the row readable again. What the columns held is lost, so a process that failed and
    may have been published is looked up once more. One that is completed or under way needs no error."""
    outcome = Outcome.UNKNOWN if process.publish_sent else Outcome.NOT_APPLIED
    error = {
        "code": "damaged",
        "message": "the error that was here could not be read",
        "outcome": outcome.value,
    }
    has_error = process.state in (ProcessState.FAILED, ProcessState.CANCELLED)
    columns: dict[str, list[str] | dict[str, str] | None] = {
        "needs": [f"source:{process.source.partition(':')[0]}", process.lane],
        "partitions": [],
        "locks": [],
        "error": error if has_error else None,
    }
    sets = ", ".join(
        f"{name} = NULL" if value is None else f"{name} = '{json.dumps(value)}'"
        for name, value in columns.items()
        if f"`{name}`" in process.damaged
    )
    return f"UPDATE processes SET {sets} WHERE id = '{process.id}'"


def leftovers(app: App) -> Iterator[Finding]:
    """Files that an undo had to leave, because nothing proved them unused, and that are still there;
    files of attempts that lost, which nobody has deleted in time (T13)."""
    for process in app.store.processes(ProcessQuery(states=PROCESS_TERMINAL, kind="export")):
        try:
            yield from _left_by(app, process)
        except DamagedError as error:  # of one process: the others are still looked at (T10)
            yield Finding(
                part=f"process:{process.id}",
                ok=False,
                words=f"whether it left files is not known: {error.message}",
                remedy=f"every name of its files contains calve-{process.id}",
            )


def _left_by(app: App, process: Process) -> Iterator[Finding]:
    if process.state is ProcessState.COMPLETED:
        yield from _lost(app, process)
    if process.leftovers is Leftovers.GONE:
        reason = _left(app, process.id)
        files = _files(app, process.id) if reason else ()
        if files:
            yield Finding(
                part=f"process:{process.id}",
                ok=False,
                words=f"left {len(files)} files, for example {files[0]}; {reason}",
                remedy="check whether a table still needs them; if none does, delete them: every name"
                f" contains calve-{process.id}",
            )


def _lost(app: App, process: Process) -> Iterator[Finding]:
    if process.cleanup_at is None or process.cleanup_at > app.store.now() - _OVERDUE:
        return
    from calve.destination.receipt import Receipt

    done = app.store.tasks(process.id, frozenset({TaskState.DONE}))
    named = {file.path for task in done if task.receipt for file in Receipt.from_json(task.receipt).files}
    files = [uri for uri in _files(app, process.id) if uri not in named]
    if files:
        yield Finding(
            part=f"process:{process.id}",
            ok=False,
            words=f"{len(files)} files that it wrote and did not publish are left, for example {files[0]}",
            remedy="calve worker",
        )


def _left(app: App, process_id: ProcessId) -> str:
    """Why the undo left files; "" where it left none."""
    undone = [event.message for event in app.store.events(process_id) if event.name == "undone"]
    return undone[-1] if undone and undone[-1].startswith(LEFT_IN_PLACE) else ""


def _files(app: App, process_id: ProcessId) -> tuple[str, ...]:
    from calve.destination.names import DestinationAddress
    from calve.destination.plan import ExportPlan

    text = app.store.plan(process_id)
    if text is None:
        return ()
    plan = ExportPlan.from_json(text)
    to = plan.destination
    address = DestinationAddress(catalog=to.catalog, identifier=to.identifier)
    return app.destination(address).files_of(process_id, plan)
