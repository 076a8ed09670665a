"""The backup kind: what the control plane calls, step by step. Keeps no state between calls."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from calve import __version__
from calve.archive import backups
from calve.archive.access import HIDDEN
from calve.archive.location import Location
from calve.archive.manifest import Manifest, SchemaEntry, TableEntry
from calve.archive.ports import BackupPorts, probe
from calve.archive.vault import Vault
from calve.backup import publish
from calve.backup.access import AccessSurvey, read_access, read_policies
from calve.backup.far import FarParts
from calve.backup.frozen import Frozen, freeze
from calve.backup.plan import BackupPlan, BackupReceipt, Reuse, Upload, divide, draft_context
from calve.backup.request import BackupRequest
from calve.backup.schema import detached_parts, read_schema
from calve.backup.task import BackupPayload
from calve.control.kind import AdoptedWork, Fenced, Kind, NothingToDo, Planned, Published
from calve.control.ports import TaskOrder, TaskResult
from calve.model.change import NewPin, PinChange
from calve.model.errors import CalveError, DamagedError, NotFoundError, RefusedError
from calve.model.process import NewTask, Pin, Process, Task
from calve.model.reach import Service
from calve.model.states import PinState
from calve.tasks.attempts import left_by, made_before, order_for, stored, upload_pace

NAME = "backup"
TASK_FUNCTION = "calve.backup.task:run"


class BackupKind(Kind):
    """See `control.kind.Kind` for what each call promises."""

    name = NAME

    def __init__(self, ports: BackupPorts) -> None:
        self._ports = ports

    # -- pins ---------------------------------------------------------------------------------------

    def pins(self, process: Process, attempt: int) -> tuple[NewPin, ...]:
        """One for each table. Attempts count pins, so no number ever comes again."""
        request = BackupRequest.from_json(process.request)
        return tuple(
            NewPin(
                name=f"calve-{process.id}-{attempt + at}",
                source=request.source,
                detail=Frozen(database=database, name=name).to_json(),
            )
            for at, (database, name) in enumerate(request.tables)
        )

    def take(self, process: Process, pins: Sequence[Pin]) -> list[PinChange]:
        """In one visit: an embedded source takes longer to open than to freeze a table."""
        request = BackupRequest.from_json(process.request)
        changes: list[PinChange] = []
        if not pins:
            return changes
        far = FarParts(self._ports, request.source, process.id)
        with self._ports.source(request.source).visit() as session:
            for pin in pins:
                wanted = Frozen.from_json(pin.detail)
                try:
                    frozen = freeze(session, request, wanted.database, wanted.name, pin.name, far)
                except CalveError:
                    far.forget()
                    raise
                changes.append(PinChange(name=pin.name, after=PinState.TAKEN, detail=frozen.to_json()))
        return changes

    def release(self, pin: Pin) -> None:
        self._ports.source(pin.source).release(pin.name, pin.detail)

    def pin_tasks(self, process: Process, plan: str, number: int) -> tuple[str, range] | None:
        for span in _read(plan).pins:
            if span.first <= number < span.end:
                return span.pin, range(span.first, span.end)
        return None

    # -- planning -----------------------------------------------------------------------------------

    def plan(
        self, process: Process, pins: Sequence[Pin], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        request = BackupRequest.from_json(process.request)
        location = self._ports.location()
        location_id = location.made_identity()
        keys = location.keys()
        if (done := refuse_taken(location, request, process.id)) is not None:
            return NothingToDo(result=publish.result_of(done), message=f"backup {done.name} was made before")
        before = made_before(location.storage, location.parts_of(process.id), location.under_way(process.id))
        vault = location.vault
        frozen = [(pin.name, _addressed(Frozen.from_json(pin.detail), vault)) for pin in pins]
        uploads, tasks, spans = divide(frozen, task_bytes_mb=self._ports.limits.task_bytes_mb)
        key = keys.next_of(request.name)
        manifest = self._draft(process, request, location_id, key.number, [one for _, one in frozen], vault)
        plan = BackupPlan(
            process_id=process.id,
            key=str(key),
            location=location.url,
            location_id=location_id,
            manifest=vault.seal_text(manifest.to_json(), draft_context(process.id)),
            uploads=uploads,
            tasks=tasks,
            pins=spans,
            reuse=reusable(location, location_id, uploads, adopted),
            bytes=sum(upload.bytes for upload in uploads),
        )
        return Planned(
            plan=plan.to_json(),
            tasks=tuple(
                NewTask(number=number, spec="", attempts_before=before) for number in range(len(tasks))
            ),
            spent_pins=plan.spent_pins,
        )

    def _draft(
        self,
        process: Process,
        request: BackupRequest,
        location_id: str,
        number: int,
        frozen: Sequence[Frozen],
        vault: Vault,
    ) -> Manifest:
        tables = tuple(one.table for one in frozen if one.table is not None)
        with self._ports.source(request.source).visit() as session:
            schema = read_schema(session, [table.full_name for table in tables], request.schemas)
            found = read_policies(session, tables)
            if request.rbac:
                everything = read_access(session, encrypted=vault.encrypts)
                known = {entry.title for entry in everything.entries}
                kept = tuple(entry for entry in found.entries if entry.title not in known)
                found = AccessSurvey(
                    entries=(*kept, *everything.entries), remarks=(*found.remarks, *everything.remarks)
                )
            detached = detached_parts(session, [table.full_name for table in tables])
        missing = [table.full_name for table in tables if table.full_name not in schema.order]
        skipped = tuple((f"{one.database}.{one.name}", one.skipped) for one in frozen if one.skipped)
        return Manifest(
            name=request.name,
            number=number,
            process_id=process.id,
            location_id=location_id,
            source=request.source,
            created_at=process.created_at.isoformat(),
            calve_version=__version__,
            databases=schema.databases,
            functions=schema.functions,
            order=(*missing, *schema.order),  # what was dropped since it was frozen is still restored
            tables=tables,
            schemas=schema.schemas,
            skipped=skipped + schema.notes,
            access=found.entries,
            rbac=request.rbac,
            schedule=request.schedule,
            remarks=(*_partial(request), *found.remarks, *detached, *_hidden(tables, schema.schemas)),
        )

    # -- tasks --------------------------------------------------------------------------------------

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        limits = self._ports.limits
        payload = BackupPayload.of(
            _read(plan),
            task=task.number,
            attempt=attempt,
            storage=self._ports.location_properties(),
            buckets=self._ports.bucket_properties(BackupRequest.from_json(process.request).source),
            hard_links=self._ports.hard_links,
            connect_seconds=limits.connect_seconds,
            call_seconds=limits.call_seconds,
            pace=upload_pace(limits),
        )
        near = self._ports.disks_are_near(BackupRequest.from_json(process.request).source)
        return order_for(process, task, attempt, function=TASK_FUNCTION, payload=payload.to_json(), near=near)

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        location = self._location(_read(plan))
        uri = location.receipt(process.id, task.number, task.attempt)
        text = stored(location.storage, uri)
        return left_by(task, text, BackupReceipt.from_json, lambda receipt: len(receipt.parts))

    # -- publishing ---------------------------------------------------------------------------------

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        read = _read(plan)
        found = [BackupReceipt.from_json(text) for text in receipts]
        return publish.publish(self._location(read), read, found, note)

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        read = _read(plan)
        return publish.fence(self._location(read), read)

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        read = _read(plan)
        return publish.undo(self._location(read), read)

    def probe(self, service: Service, process: Process) -> None:
        probe(self._ports, service)

    def _location(self, plan: BackupPlan) -> Location:
        """The plan's own: a worker whose configuration changed goes on where the work began."""
        configured = self._ports.location()
        return Location(plan.location, configured.storage, signing_key=configured.signing_key)


@lru_cache(maxsize=16)
def _read(plan: str) -> BackupPlan:
    """A plan of thousands of parts is asked for once for each of its tasks."""
    return BackupPlan.from_json(plan)


def _addressed(one: Frozen, vault: Vault) -> Frozen:
    """By the names that its parts have in the location."""
    if one.table is None or not vault.encrypts:
        return one
    parts = tuple(replace(part, address=vault.address(part.address)) for part in one.table.parts)
    return replace(one, table=replace(one.table, parts=parts))


def _partial(request: BackupRequest) -> tuple[tuple[str, str], ...]:
    if not request.partitions:
        return ()
    return (("other partitions", f"only these were asked for: {', '.join(request.partitions)}"),)


def _hidden(tables: Sequence[TableEntry], schemas: Sequence[SchemaEntry]) -> tuple[tuple[str, str], ...]:
    described: list[TableEntry | SchemaEntry] = [*tables, *schemas]
    return tuple(
        (f"secrets of {one.database}.{one.name}", "the server does not show them: put them back by hand")
        for one in described
        if HIDDEN in one.create
    )


def refuse_taken(location: Location, request: BackupRequest, process_id: str = "") -> Manifest | None:
    """The backup that this very process made, before the store was put back from a copy that does not know (D1)."""
    try:
        found = backups.find(location, request.name, unsigned=True)
    except NotFoundError:
        return None
    if found.process_id == process_id:
        return found
    raise RefusedError(
        f"there is a backup {request.name} in {location.url} already, made at {found.created_at}",
        code="backup_exists",
        hint=f"give another name, or delete that one: calve backup delete {request.name}",
    )


def reusable(
    location: Location, location_id: str, uploads: Sequence[Upload], adopted: AdoptedWork | None
) -> dict[str, Reuse]:
    """Where each content is stored already, as far as it is known. The task looks again."""
    wanted = {upload.address for upload in uploads}
    reuse: dict[str, Reuse] = {}
    for manifest in backups.readable(location):
        if len(reuse) == len(wanted):
            break
        if manifest.location_id != location_id:
            continue  # copied here from elsewhere: what it names may not be
        key = f"{manifest.name}@{manifest.number}"
        for part in manifest.places.values():
            if part.address in wanted and part.address not in reuse:
                reuse[part.address] = Reuse(place=part.place, index_sha256=part.index_sha256, key=key)
    return _adopted(location_id, wanted, adopted) | reuse


def _adopted(location_id: str, wanted: set[str], adopted: AdoptedWork | None) -> dict[str, Reuse]:
    """What the process that this one retries has stored: only in the very same location (P15)."""
    if adopted is None:
        return {}
    try:
        if BackupPlan.from_json(adopted.plan).location_id != location_id:
            return {}
        receipts = [BackupReceipt.from_json(text) for text in adopted.receipts]
    except DamagedError:
        return {}  # otherwise every retry would fail on it (T8)
    return {
        part.address: Reuse(place=part.place, index_sha256=part.index_sha256, key="")
        for receipt in receipts
        for part in receipt.parts
        if part.moved and part.address in wanted
    }
