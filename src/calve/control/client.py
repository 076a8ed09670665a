"""Queuing a request once: the same request again joins what is under way (T16).

Watching processes until they end, for a progress bar. Reads only.

Asking a process to stop. The worker that owns it carries it out; a terminal state never turns (L18).

Running an ended process again: a new process under the same locks that adopts what still stands.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from calve.control.ports import Store, StoreReader
from calve.model.access import Asked
from calve.model.errors import DamagedError, LockedError, Outcome, RefusedError, StoreError
from calve.model.process import BatchId, Breaker, NewProcess, Process, ProcessId, new_batch_id, new_process_id
from calve.model.refusals import being_cancelled
from calve.model.states import PROCESS_TERMINAL, ProcessState

_READS_THAT_MAY_FAIL = 10  # in a row: a store that blinks ends no watching
LIVE_AT_MOST = 100_000
_PINNING = frozenset({"export", "backup"})  # kinds that hold a source still while they read it
_TRIES = 5  # at submitting beside others who ask for the same


class _AskedStore:
    """Its writes on behalf of a caller carry who asked; all else is the store's own."""

    def __init__(self, store: Store, asked: Asked) -> None:
        self._store = store
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def submit(self, new: Sequence[NewProcess], *, joined: Sequence[ProcessId] = ()) -> list[Process]:
        return self._store.submit(new, joined=joined, asked=self._asked)

    def request_cancel(self, process_id: ProcessId) -> Process:
        return self._store.request_cancel(process_id, asked=self._asked)


def asked_store(store: Store, asked: Asked) -> Store:
    return cast(Store, _AskedStore(store, asked))


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """The processes that do what was asked for."""

    processes: tuple[Process, ...]
    joined: frozenset[ProcessId] = frozenset()  # those among them that the same request had begun before

    @property
    def process(self) -> Process:
        """The only one."""
        [process] = self.processes
        return process


def submit_once(
    store: Store,
    same: Callable[[Process], bool],
    new: Callable[[Sequence[Process]], Sequence[NewProcess]],
) -> Submitted:
    """Join the live processes that the same request began, and queue what `new` says is left to do beside
    them. LockedError where another request does some of it, or where what would be joined is being
    cancelled.

    Of two who ask at the same moment the locks refuse one, who looks again and joins the other."""
    for tries_left in reversed(range(_TRIES)):
        joined = [process for process in store.live(LIVE_AT_MOST) if _same(same, process)]
        for process in joined:
            if process.cancel_requested:
                raise being_cancelled(process)
        missing = new(joined)
        try:
            # if we die here, what is missing is queued or not; asked again, it is joined or queued
            queued = store.submit(missing, joined=[one.id for one in joined])
        except LockedError as error:
            if not tries_left or not _same(same, store.process(ProcessId(error.holder))):
                raise
            continue
        return Submitted(processes=(*joined, *queued), joined=frozenset(one.id for one in joined))
    raise AssertionError("the last try raises")


def _same(same: Callable[[Process], bool], process: Process) -> bool:
    """Not one whose row or request cannot be read: nobody works on it, so to join it would be no work (T10)."""
    try:
        return not process.damaged and same(process)
    except DamagedError:
        return False


@dataclass(frozen=True, kw_only=True)
class Progress:
    processes: tuple[Process, ...]

    @property
    def tasks_done(self) -> int:
        return sum(process.tasks.done for process in self.processes)

    @property
    def tasks_total(self) -> int:
        """Known once all are planned; grows until then."""
        return sum(process.tasks.total for process in self.processes)

    @property
    def rows(self) -> int:
        return sum(process.rows for process in self.processes)

    @property
    def bytes(self) -> int:
        return sum(process.bytes for process in self.processes)

    @property
    def ended(self) -> bool:
        """One that is damaged does not go on either."""
        return all(process.state in PROCESS_TERMINAL or process.damaged for process in self.processes)


@dataclass(frozen=True, kw_only=True)
class Standing(Progress):
    """Where followed processes stand at one moment."""

    own_worker: bool  # a worker in this program does the work
    sizes: Mapping[ProcessId, int] = field(
        default_factory=dict
    )  # bytes to move, of planned backups, restores
    outages: Mapping[ProcessId, Breaker] = field(default_factory=dict)  # what is down, of those that wait

    @property
    def pinned(self) -> bool:
        """Whether the source may change: what each will read is held still, or it needs none of it."""
        return all(
            process.planned or process.state in PROCESS_TERMINAL or process.kind not in _PINNING
            for process in self.processes
        )


def follow(
    reader: StoreReader,
    ids: Sequence[ProcessId],
    *,
    wait: Callable[[float], object],
    poll_seconds: float = 0.5,
) -> Iterator[Progress]:
    """Where the processes stand, at once and after each wait, until all have ended. Processes that
    ended are not read again. `wait` is `time.sleep`, or anything that can be interrupted."""
    known: dict[ProcessId, Process] = {}
    failed = 0
    while True:
        try:
            for process_id in ids:
                last = known.get(process_id)
                if last is None or last.state not in PROCESS_TERMINAL:
                    known[process_id] = reader.process(process_id)
            failed = 0
        except StoreError:
            failed += 1
            if failed >= _READS_THAT_MAY_FAIL:
                raise
        else:
            progress = Progress(processes=tuple(known[process_id] for process_id in ids))
            yield progress
            if progress.ended:
                return
        wait(poll_seconds)


@dataclass(frozen=True, kw_only=True)
class CancelAnswer:
    process: Process
    accepted: bool  # it was asked to stop, now or before; False: it had ended already
    message: str


def cancel(store: Store, process_id: ProcessId) -> CancelAnswer:
    process = store.request_cancel(process_id)
    if process.state is ProcessState.CANCELLED:
        return CancelAnswer(process=process, accepted=True, message="it is already cancelled")
    if process.state in PROCESS_TERMINAL:
        return CancelAnswer(
            process=process, accepted=False, message=f"too late: it is already {process.state}"
        )
    if process.state is ProcessState.PUBLISHING:
        message = "it is publishing; the publish is stopped if it has not happened yet"
    else:
        message = "it is being stopped"
    return CancelAnswer(process=process, accepted=True, message=message)


def retry(store: Store, *ids: ProcessId) -> Submitted:
    """Submit the same requests again, all or none, or join the retries that are under way; in the order
    given. RefusedError if one completed, has not ended, or may yet turn out to have been published."""
    old = [store.process(process_id) for process_id in ids]
    for process in old:
        _check(process)
    batch = new_batch_id() if len(old) > 1 else None

    def missing(joined: Sequence[Process]) -> list[NewProcess]:
        begun = {process.retry_of for process in joined}
        return [_again(process, batch) for process in old if process.id not in begun]

    made = submit_once(store, lambda process: process.retry_of in ids, missing)
    places = {process_id: place for place, process_id in enumerate(ids)}
    in_order = sorted(made.processes, key=lambda process: places.get(process.retry_of or process.id, 0))
    return Submitted(processes=tuple(in_order), joined=made.joined)


def _again(old: Process, batch: BatchId | None) -> NewProcess:
    return NewProcess(
        id=new_process_id(),
        kind=old.kind,
        source=old.source,
        destination=old.destination,
        lane=old.lane,
        needs=old.needs,
        request=old.request,
        partitions=old.partitions,
        locks=old.locks,
        batch=batch,
        priority=old.priority,
        deadline_seconds=(old.deadline_at - old.created_at).total_seconds(),
        retry_of=old.id,
    )


def _check(old: Process) -> None:
    if old.state is ProcessState.COMPLETED:
        raise RefusedError(
            f"process {old.id} is COMPLETED; there is nothing to retry",
            code="completed",
            hint=f"calve show {old.id}",
        )
    if old.state not in PROCESS_TERMINAL:
        raise RefusedError(
            f"process {old.id} has not ended: it is {old.state}",
            code="not_ended",
            hint=f"calve wait {old.id}, or calve cancel {old.id}",
        )
    if old.error is not None and old.error.outcome is Outcome.UNKNOWN:
        raise RefusedError(
            f"it is not known yet whether process {old.id} was published: {old.error.message}",
            code="outcome_unknown",
            hint=f"calve why {old.id}; a worker looks for it as soon as {old.destination} answers",
        )
