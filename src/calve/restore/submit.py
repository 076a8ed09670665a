"""From the words of `calve backup restore` to a queued process. What can be refused is refused here."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from calve.archive import backups
from calve.archive.manifest import Manifest
from calve.archive.ports import BackupPorts
from calve.control.client import Submitted, submit_once
from calve.control.ports import Store
from calve.model import reach
from calve.model.errors import NotFoundError, Outcome, UsageError
from calve.model.process import Lock, NewProcess, Process, ProcessQuery, new_process_id
from calve.model.states import PROCESS_LIVE, Leftovers, ProcessState
from calve.restore.kind import NAME
from calve.restore.plan import APPEND, REFUSE, REPLACE, Item, RestoreRequest
from calve.restore.schema import inner_of


@dataclass(frozen=True, kw_only=True)
class RestoreOptions:
    """As a person asks for it; each field is an option of `calve backup restore`."""

    tables: tuple[str, ...] = ()  # patterns; none means all
    into: str = ""  # --as: "db2", or "db2.t2" for one table
    schema_only: bool = False
    data_only: bool = False
    existing: str = REFUSE
    partitions: tuple[str, ...] = ()
    unsigned: bool = False
    rbac: bool = False
    without_row_policies: bool = False
    again: bool = False
    plan_hash: str = ""  # --plan: of the dry run that was agreed to

    def __post_init__(self) -> None:
        if self.schema_only and self.data_only:
            raise UsageError(
                "--schema-only and --data-only exclude each other",
                code="selection",
                hint="give neither for both",
            )
        if self.existing not in (REFUSE, APPEND, REPLACE):
            raise UsageError(
                f"invalid choice {self.existing!r} for tables that exist",
                code="existing",
                hint="give refuse, append or replace",
            )
        if self.rbac and self.into:
            raise UsageError(
                "--rbac restores users and grants under their own names, and --as does not",
                code="selection",
                hint="restore the tables with --as, and then the users: --rbac --schema-only --existing append",
            )
        if self.data_only and self.existing == REFUSE:
            raise UsageError(
                "--data-only restores into tables that exist",
                code="existing",
                hint="give --existing append or --existing replace as well",
            )

    def asked(self, backup: str, source: str) -> str:
        """What is to be restored, so that the same command again is known as the same."""
        first = ("tables", "into", "schema_only", "data_only", "existing", "partitions")
        flags = [name for name in ("rbac", "without_row_policies", "again") if getattr(self, name)]
        return json.dumps([backup, source, *(getattr(self, name) for name in first), *flags])


def request_of(
    ports: BackupPorts, backup: str, source: str, options: RestoreOptions | None = None
) -> RestoreRequest:
    """Which objects of which backup, and what they will be called."""
    asked = options or RestoreOptions()
    manifest = backups.find(ports.location(), backup, unsigned=asked.unsigned)
    names = [table.full_name for table in manifest.tables] + [one.full_name for one in manifest.schemas]
    chosen = _chosen(manifest, names, asked.tables)
    return RestoreRequest(
        backup=manifest.name,
        number=manifest.number,
        backup_process=manifest.process_id,
        source=source,
        items=tuple(_item(name, asked.into, alone=len(chosen) == 1) for name in chosen),
        seed="",
        asked=asked.asked(backup, source),
        schema=not asked.data_only,
        data=not asked.schema_only,
        existing=asked.existing,
        partitions=asked.partitions,
        unsigned=asked.unsigned,
        rbac=asked.rbac,
        row_policies=not asked.without_row_policies,
        again=asked.again,
    )


def submit(ports: BackupPorts, store: Store, request: RestoreRequest) -> Submitted:
    """Queue it; join what the same request has under way; go on from where it failed."""
    return submit_once(
        store,
        lambda process: _is_same(request, process),
        lambda joined: [] if joined else [_new_process(ports, store, request)],
    )


def _is_same(request: RestoreRequest, process: Process) -> bool:
    if process.kind != NAME:
        return False
    other = RestoreRequest.from_json(process.request)
    return (other.asked, other.backup_process) == (request.asked, request.backup_process)


def seed_of(store: Store, request: RestoreRequest) -> str:
    """The one that a restore of this request would go on with; a random one if it begins anew."""
    same = [
        one for one in store.processes(ProcessQuery(kind=NAME, destination=_destination(request), limit=1))
        if one.state in PROCESS_LIVE and _is_same(request, one)
    ]  # fmt: skip
    earlier = same[0] if same else _left_by_an_earlier_run(store, _destination(request), request)
    return RestoreRequest.from_json(earlier.request).seed if earlier else str(new_process_id())


def _destination(request: RestoreRequest) -> str:
    return f"{request.source}:{_listed(request)}"


def _new_process(ports: BackupPorts, store: Store, request: RestoreRequest) -> NewProcess:
    location, process_id = ports.location(), new_process_id()
    destination = _destination(request)
    earlier = _left_by_an_earlier_run(store, destination, request)
    seed = RestoreRequest.from_json(earlier.request).seed if earlier else str(process_id)
    return NewProcess(
        id=process_id,
        kind=NAME,
        source=f"{location.url}/{request.backup}",
        destination=destination,
        lane=reach.backup(location.url),
        needs=(reach.source(request.source), reach.backup(location.url)),
        request=replace(request, seed=seed).to_json(),
        partitions=request.partitions,
        locks=tuple(Lock(name=_lock(request, item)) for item in request.items),
        deadline_seconds=ports.limits.process_hours * 3600,
        retry_of=earlier.id if earlier else None,
    )


def _chosen(
    manifest: Manifest, names: Sequence[tuple[str, str]], patterns: Sequence[str]
) -> list[tuple[str, str]]:
    for pattern in patterns:
        if not any(fnmatchcase(".".join(name), pattern) for name in names):
            shown = ", ".join(".".join(name) for name in names[:5])
            raise NotFoundError(
                f"backup {manifest.name} has no table that {pattern!r} means",
                code="no_table",
                hint=f"it has {shown}; see: calve backup show {manifest.name}",
            )
    chosen = [
        name for name in names if not patterns or any(fnmatchcase(".".join(name), one) for one in patterns)
    ]
    # What a materialized view keeps its rows in goes with the view.
    everything = RestoreRequest(
        backup="", number=0, backup_process="", source="", seed="",
        items=tuple(_item(name, "", alone=False) for name in names),
    )  # fmt: skip
    inner = inner_of(manifest, everything)
    return chosen + [table for table, view in inner.items() if view.origin in chosen and table not in chosen]


def _item(name: tuple[str, str], into: str, *, alone: bool) -> Item:
    database, parted, table = into.partition(".")
    if parted and not alone:
        raise UsageError(
            f"--as {into} names one table, and several are restored",
            code="restore_name",
            hint="give a database alone, or choose one table with --tables",
        )
    return Item(database=name[0], name=name[1], to_database=database or name[0], to_name=table or name[1])


def _lock(request: RestoreRequest, item: Item) -> str:
    text = json.dumps(["restore", request.source, *item.target])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _listed(request: RestoreRequest) -> str:
    names = sorted(".".join(item.target) for item in request.items)
    return ",".join(names[:3]) + (f",… ({len(names)})" if len(names) > 3 else "")


def _left_by_an_earlier_run(store: Store, destination: str, request: RestoreRequest) -> Process | None:
    """The last of these, if it failed: the tables it made are ours by its seed."""
    for old in store.processes(ProcessQuery(kind=NAME, destination=destination, limit=1)):
        ended_badly = old.state in (ProcessState.FAILED, ProcessState.CANCELLED)
        known = old.error is None or old.error.outcome is not Outcome.UNKNOWN
        free = old.leftovers not in (Leftovers.ADOPTED, Leftovers.UNDOING)
        if ended_badly and known and free and _is_same(request, old):
            return old
    return None
