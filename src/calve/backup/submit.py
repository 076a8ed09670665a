"""From the words of `calve backup create` to a queued process. What can be refused is refused here."""

from collections.abc import Sequence

from calve.archive.location import Location, checked_name
from calve.archive.ports import BackupPorts
from calve.backup.kind import NAME, refuse_taken
from calve.backup.request import BackupOptions, BackupRequest
from calve.backup.schema import match
from calve.control.client import Submitted, submit_once
from calve.control.ports import Store
from calve.model import reach
from calve.model.errors import Outcome, UsageError
from calve.model.process import Lock, NewProcess, Process, ProcessId, ProcessQuery, new_process_id
from calve.model.states import Leftovers, ProcessState
from calve.objects.uri import LOCAL, kind_of


def request_of(
    ports: BackupPorts,
    name: str,
    source: str,
    patterns: Sequence[str],
    options: BackupOptions | None = None,
    *,
    schedule: str = "",
) -> BackupRequest:
    """Look at the source, and say which tables the patterns mean now."""
    checked_name(name)
    if not patterns:
        raise UsageError("no tables are chosen", code="selection", hint="give --tables 'db.*,other.t'")
    with ports.source(source).visit() as session:
        found = match(session, patterns)
    return BackupRequest(
        name=name,
        source=source,
        patterns=tuple(patterns),
        tables=found.tables,
        schemas=found.schemas,
        schedule=schedule,
        **vars(options or BackupOptions()),
    )


def submit(ports: BackupPorts, store: Store, request: BackupRequest) -> Submitted:
    """Queue it; join what the same request has under way; go on from what it stored before it failed.
    RefusedError if there is a backup of that name."""

    def missing(joined: Sequence[Process]) -> list[NewProcess]:
        return [] if joined else [new_process(ports, store, request)]

    return submit_once(store, lambda process: _is_same(request, process), missing)


def new_process(ports: BackupPorts, store: Store, request: BackupRequest) -> NewProcess:
    """RefusedError if there is a backup of that name."""
    location = ports.location()
    _check_links(ports, location)
    refuse_taken(location, request)
    return _new_process(ports, store, location, request)


def _check_links(ports: BackupPorts, location: Location) -> None:
    if ports.hard_links and location.vault.seals:
        raise UsageError(
            "hard links keep files as they are: they cannot be encrypted or compressed",
            code="no_hard_links",
            hint="under [backup], set hard_links = false, or neither encryption_key nor compression",
        )
    if ports.hard_links and kind_of(location.url) != LOCAL:
        raise UsageError(
            f"{location.url} is not a folder: hard links need one",
            code="no_hard_links",
            hint="set hard_links = false under [backup], or give it a folder as url",
        )


def _is_same(request: BackupRequest, process: Process) -> bool:
    return process.kind == NAME and BackupRequest.from_json(process.request).asked == request.asked


def _new_process(ports: BackupPorts, store: Store, location: Location, request: BackupRequest) -> NewProcess:
    return NewProcess(
        id=new_process_id(),
        kind=NAME,
        source=f"{request.source}:{','.join(request.patterns)}",
        destination=destination_of(location, request.name),
        lane=reach.backup(location.url),
        needs=(reach.source(request.source), reach.backup(location.url)),
        request=request.to_json(),
        partitions=request.partitions,
        locks=(Lock(name=lock_of(location, request.name)),),
        deadline_seconds=ports.limits.process_hours * 3600,
        retry_of=_left_by_an_earlier_run(store, location, request),
    )


def lock_of(location: Location, name: str) -> str:
    return f"backup {location.url} {name}"


def destination_of(location: Location, name: str) -> str:
    return f"{location.url}/{name}"


def _left_by_an_earlier_run(store: Store, location: Location, request: BackupRequest) -> ProcessId | None:
    """The last process of that name, if it failed and what it stored still stands."""
    destination = destination_of(location, request.name)
    for old in store.processes(ProcessQuery(kind=NAME, destination=destination, limit=1)):
        ended_badly = old.state in (ProcessState.FAILED, ProcessState.CANCELLED)
        known = old.error is None or old.error.outcome is not Outcome.UNKNOWN
        same = _is_same(request, old)
        if ended_badly and known and same and old.leftovers is Leftovers.KEPT:
            return old.id
    return None
