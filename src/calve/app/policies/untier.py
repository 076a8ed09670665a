"""`calve untier`: which lake table a partition comes back from, and what the kind reaches."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from calve.app.destination import parse_table
from calve.app.exports import export_request
from calve.app.policies.lake import lake_engine, lake_metadata
from calve.app.policies.proofs import ProofReach
from calve.app.policies.residents import partition_value, turn_hot
from calve.app.values import Selection
from calve.app.wiring import App
from calve.clickhouse.parts.partitions import id_among
from calve.control.client import Submitted, submit_once
from calve.control.kind import Kind
from calve.control.ports import Store
from calve.destination.names import DestinationAddress
from calve.destination.outcome import EarlierExport
from calve.export.request import ExportOptions, lock_names
from calve.iceberg.destination import IcebergTable
from calve.iceberg.released import ReleasedTable
from calve.model.access import Asked
from calve.model.errors import NotFoundError, UsageError
from calve.model.process import NewProcess, Process, ProcessId, ProcessQuery
from calve.model.reach import Service, is_folder
from calve.model.states import ProcessState
from calve.model.tier import Hold
from calve.policy.bounds import time_key
from calve.policy.proof.kind import ProofKind
from calve.policy.untier.plan import NAME, UntierPlan, UntierRequest
from calve.policy.untier.sides import Sides
from calve.policy.untier.survey import of_releases, of_table, refuse, survey

_MOST = 10_000


def untier(app: App, store: Store, table: str, partition: str, source_table: str = "") -> Submitted:
    """Queue the return of a partition, named by its id or its value, from `source_table`, a table of a catalog; or join the
    one under way. RefusedError with all that the source says against it."""
    name = app.table(table)
    source = name.source or app.config.default_source
    shown = f"{source}:{name.database}.{name.table}"
    known = _exports(app, shown)
    there = _in_lake(app, source_table)
    visits = app.source(source).visits()
    with visits[0] as session:
        info = session.describe(name.database, name.table)
        ids = {id for one in known for id in one.partitions} | {one.id for one in session.partitions(info)}
        ids |= {one.input[1] for one in there if one.input[0] == info.identity}
        partition = id_among(session, info, partition, ids) or partition
        here = list(of_table(session, info, partition, len(visits)))
    to = source_table or _exported_to(known, shown, partition)
    address = parse_table(to, app.config)
    request = UntierRequest(
        source=source,
        database=name.database,
        table=name.table,
        partition=partition,
        destination=str(address),
        catalog=address.catalog,
        identifier=address.identifier,
    )
    export = export_request(
        app, str(request.name), str(address), Selection(partitions=(partition,)), ExportOptions()
    )
    new = request.process(
        NAME,
        needs=[app.source(source).need],
        locks=lock_names(export, identity=info.identity, partition=partition),
        deadline_seconds=app.limits.process_hours * 3600,
    )

    def missing(joined: Sequence[Process]) -> list[NewProcess]:
        """What is under way may have rows in the table already."""
        if joined:
            return []
        refuse([*here, *of_releases(app.registry.releases(info.identity, str(address)), request)], request)
        return [new]

    return submit_once(
        store, lambda process: process.kind == NAME and process.request == new.request, missing
    )


def _exports(app: App, source: str) -> list[Process]:
    """To tables of catalogs, that this store made of the table."""
    query = ProcessQuery(
        source=source, kind="export", states=frozenset({ProcessState.COMPLETED}), limit=_MOST
    )
    return [one for one in app.store.processes(query) if not is_folder(one.destination)]


def _in_lake(app: App, to: str) -> list[EarlierExport]:
    """Also what other stores exported."""
    found = app.destination(parse_table(to, app.config)).find() if to else None
    return list(found.exports()) if found else []


def _exported_to(known: Sequence[Process], source: str, partition: str) -> str:
    """The one table of a catalog that this store exported the partition to."""
    found = {one.destination for one in known if partition in one.partitions}
    if len(found) == 1:
        return found.pop()
    if found:
        raise UsageError(
            f"partition {partition} of {source} was exported to {', '.join(sorted(found))}",
            code="missing_option",
            hint="say which with --from",
        )
    raise NotFoundError(
        f"this store knows no export of partition {partition} of {source} to a table of a catalog",
        code="not_exported",
        hint="name it by its id or its value; calve partitions TABLE --to DEST lists those that are gone from the source",
    )


def untier_kind(app: App) -> Kind:
    from calve.policy.untier.kind import UntierKind

    return UntierKind(UntierReach(app))


@dataclass(frozen=True)
class UntierReach:
    """See `policy.untier_plan.UntierPorts`."""

    app: App

    def survey(self, request: UntierRequest, process_id: ProcessId) -> UntierPlan:
        app, source = self.app, self.app.source(request.source)
        with source.visit() as session:
            table = session.describe(request.database, request.table)
        key = time_key(table.partition_key, {one.name: one.type for one in table.columns}, table.timezone)
        return survey(
            ProofKind(ProofReach(app)),
            source,
            app.destination(request.address),
            app.registry.releases(table.identity, request.destination),
            request,
            partition_value(request.partition, key),
            process_id,
        )

    def sides(self, plan: UntierPlan, process_id: ProcessId) -> Sides:
        app, request = self.app, plan.request
        proofs = ProofKind(ProofReach(app))
        of = request.proof_of(plan.proof.export)
        lake = ReleasedTable(
            catalog=app.catalog(request.catalog), identifier=request.identifier, uuid=plan.lake_uuid
        )
        return Sides(
            source=app.source(request.source),
            plan=plan,
            process=process_id,
            lake=lake,
            scanned=lambda: proofs.scan(of, plan.proof.scan.boxes),
            pinned=lambda: _pinned(app, request),
            added=lambda: _hold(app, plan, process_id),
            lifted=lambda: _lift(app, process_id),
            turned=lambda: turn_hot(app, plan.request.source, plan.uuid, plan.request.partition),
            seconds=app.limits.task_seconds,
        )

    def keys(self, address: DestinationAddress) -> dict[str, str]:
        return dict(self.app.destination(address).executor_access().storage)

    def probe(self, service: Service, address: DestinationAddress) -> None:
        if not service.is_source:
            self.app.destination(address).probe()
            return
        with self.app.source(service.name).visit() as session:
            session.rows("SELECT 1", what="probing")


def _pinned(app: App, request: UntierRequest) -> tuple[str, str]:
    found = app.destination(request.address).find()
    if found is None:
        raise NotFoundError(f"{request.address} does not exist", code="no_destination")
    table = cast("IcebergTable", found).table
    engine = lake_engine(app, request.source, request.catalog, table.location().rstrip("/"))
    return engine, lake_metadata(request.address, table)


def _hold(app: App, plan: UntierPlan, process_id: str) -> None:
    by = f"untier {process_id}"
    hold = Hold(
        id=f"hold-{process_id}",
        name=plan.request.source_table,
        identity=plan.identity,
        uuid=plan.uuid,
        partition=plan.request.partition,
        who=by,
        reason="brought back from the lake",
    )
    app.registry.add_hold(hold, Asked(who=by, verb="hold_add", subject=str(plan.request.name)))


def _lift(app: App, process_id: str) -> None:
    """The hold was for rows that did not come."""
    id, by = f"hold-{process_id}", f"untier {process_id}"
    if any(one.id == id for one in app.registry.holds()):
        app.registry.release_hold(id, Asked(who=by, verb="hold_release", subject=id))
