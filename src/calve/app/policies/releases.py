"""Releases, as the application has them: what the kinds reach, and the view that turns with a partition."""

import logging
import os
import secrets
import socket
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime

from calve.app.policies.proofs import ProofReach
from calve.app.policies.release_backup import check_backup
from calve.app.policies.residents import turn_hot
from calve.app.policies.tier import view_create
from calve.app.threads import beside
from calve.app.wiring import App
from calve.clickhouse.sql.tokens import TableName, parse, string
from calve.clickhouse.tables import TableInfo, name_of
from calve.clickhouse.tier import residency
from calve.clickhouse.tier.quarantine import QuarantineAttempt
from calve.control.kind import Kind
from calve.destination.names import DestinationAddress
from calve.iceberg.released import ReleasedTable
from calve.model.change import Change, Item
from calve.model.errors import CalveError, NotFoundError, RefusedError
from calve.model.process import GuardedTable, Lease, Process, ProcessId
from calve.model.reach import Service
from calve.model.tier import Announced, Intent, Release
from calve.policy.proof.kind import ProofKind
from calve.policy.release.plan import ReleasePlan, ReleaseRequest
from calve.policy.release.ports import ColdSide, HotSide, ShownSide
from calve.policy.release.sides import LakeSide, TableSide
from calve.policy.release.survey import survey
from calve.policy.release.view import differs

_LOG = logging.getLogger(__name__)
_ANNOUNCE_SECONDS = 15.0
# What this program is called where programs say which policies they have.
PROGRAM = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def announce(app: App) -> None:
    """Say what this program's configuration says of policies. Without any it says nothing: it starts none either."""
    said = [
        Announced(program=PROGRAM, name=policy.name, hash=policy.hash, body=policy.words)
        for policy in app.config.policies
    ]
    if said:
        # If we die here, it is forgotten in a minute.
        app.registry.announce(PROGRAM, said)


def announcing(app: App) -> AbstractContextManager[None]:
    """Announce as long as the block lasts, beside all else: a program that is busy must not be taken for one that died."""

    def run(stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                announce(app)
            except CalveError as error:
                _LOG.warning(
                    "what the configuration says of policies could not be announced: %s", error.message
                )
            stop.wait(_ANNOUNCE_SECONDS)

    return beside("calve-announce", run, 2 * app.limits.call_seconds)


class ReleaseReach:
    """See `policy.release_ports.ReleasePorts`."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._proofs = ProofKind(ProofReach(app))

    def survey(self, request: ReleaseRequest, process_id: ProcessId) -> ReleasePlan:
        seen = self._table(request).look()
        view = _view(self._app, request, seen.table)
        destination = self._app.destination(request.address)
        return survey(self._proofs, destination, seen, request, process_id, view)

    def hot(self, plan: ReleasePlan) -> HotSide:
        return self._table(plan.request, plan)

    def _table(self, request: ReleaseRequest, plan: ReleasePlan | None = None) -> TableSide:
        return TableSide(
            source=self._app.source(request.source),
            name=request.name,
            partition=request.partition,
            now=self._app.store.now,
            proof=plan.proof if plan else None,
            uuid=plan.uuid if plan else "",
        )

    def cold(self, plan: ReleasePlan) -> ColdSide:
        request = plan.request
        table = ReleasedTable(
            catalog=self._app.catalog(request.catalog), identifier=request.identifier, uuid=plan.lake_uuid
        )
        return LakeSide(
            table=table, plan=plan, scanned=lambda: self._proofs.scan(request.proof, plan.proof.scan.boxes)
        )

    def shown(self, plan: ReleasePlan) -> ShownSide | None:
        return TurningView(app=self._app, plan=plan) if plan.view else None

    def check_view(self, plan: ReleasePlan) -> None:
        hot = [view for view, cold in _views(self._app, plan.request, plan.uuid) if not cold]
        if hot and not plan.view:
            raise RefusedError(
                f"view {hot[0]} was created in the meantime and reads partition {plan.request.partition} from the table",
                code="view_appeared",
                hint="nothing has left; the policy plans it again, with the view",
            )

    def keys(self, address: DestinationAddress) -> Mapping[str, str]:
        return self._app.destination(address).executor_access().storage

    def announce(self) -> None:
        announce(self._app)

    def now(self) -> datetime:
        return self._app.store.now()

    def check_backup(self, plan: ReleasePlan, release: Release, backup: str, *, read: bool) -> None:
        if backup:
            check_backup(self._app, plan, release, backup, read=read)

    def guard(self, table: GuardedTable) -> int:
        return self._app.registry.guard(table)

    def releases(self, identity: str, destination: str) -> list[Release]:
        return self._app.registry.releases(identity, destination)

    def intents(self, process_id: ProcessId) -> list[Intent]:
        return self._app.registry.intents(process_id)

    def store_id(self) -> str:
        return self._app.registry.feed_state().store_id

    def journal(self, process: Process, *items: Item) -> None:
        assert process.owner is not None
        lease = Lease(process_id=process.id, worker=process.owner, fence=process.fence)
        self._app.store.apply(lease, Change(*items))

    def plan_of(self, process_id: ProcessId) -> ReleasePlan:
        plan = self._app.store.plan(process_id)
        if plan is None:
            raise NotFoundError(
                f"this store has no plan of process {process_id}", code="not_found", hint="calve ps --all"
            )
        return ReleasePlan.from_json(plan)

    def probe(self, service: Service, address: DestinationAddress) -> None:
        if not service.is_source:
            self._app.destination(address).probe()
            return
        with self._app.source(service.name).visit() as session:
            session.rows("SELECT 1", what="probing")


def release_kind(app: App) -> Kind:
    from calve.policy.release.kind import ReleaseKind

    return ReleaseKind(ReleaseReach(app))


def return_kind(app: App) -> Kind:
    from calve.policy.release.undo import ReturnKind

    return ReturnKind(ReleaseReach(app))


def drop_kind(app: App) -> Kind:
    from calve.policy.release.drop import DropKind

    return DropKind(ReleaseReach(app))


# -- the view ---------------------------------------------------------------------------------------


def _view(app: App, request: ReleaseRequest, table: TableInfo) -> str:
    """The view that reads the partition from the table; "" for none. RefusedError while the view of the policy is not
    there: what left would not be in it."""
    found = _views(app, request, table.uuid)
    wanted = app.config.policy(request.policy).view_of(request.database, request.table)
    if wanted and {parse(one) for one, _ in found} != {parse(wanted)}:
        raise RefusedError(
            f"the view {wanted} of policy {request.policy} is not over {table}",
            code="no_view",
            hint=f"calve policy show {request.policy} says why it was not made",
        )
    return next((view for view, cold in found if not cold), "")


def _views(app: App, request: ReleaseRequest, uuid: str) -> list[tuple[str, bool]]:
    """At each server that has one: its name, and whether it reads the partition from the lake."""
    found: list[tuple[str, bool]] = []
    for visit in app.source(request.source).visits():
        with visit as session:
            comment = residency.comment_of(session, uuid)
            if comment is None:
                continue
            about = residency.about(uuid, comment)
            if about["to"] != request.destination:
                raise RefusedError(
                    f"view {about['view']} of {request.name} reads {about['to']}, and not {request.destination}",
                    code="view_elsewhere",
                    hint="make it over the destination of the policy, or drop it: calve view TABLE --drop",
                )
            here = residency.read(session, uuid).get(request.partition)
            found.append((about["view"], here is not None and here.cold))
    return found


@dataclass(frozen=True, kw_only=True)
class TurningView:
    """See `policy.release_ports.Shown`."""

    app: App
    plan: ReleasePlan

    def turn(self, *, cold: bool) -> None:
        if all(one == cold for one in self._cold()):
            return
        request = self.plan.request
        if not cold:
            turn_hot(self.app, request.source, self.plan.uuid, request.partition)
            return
        # If we die here, some servers read it from the one side and some from the other, which has the same rows.
        view_create(
            self.app, str(self._named()), request.destination, self.plan.view, cold=[request.partition]
        )

    def _named(self) -> TableName:
        """As the table is called by now."""
        name = self.plan.request.name
        with self.app.source(name.source or "").visit() as session:
            return replace(name_of(session, self.plan.uuid) or name, source=name.source)

    def _cold(self) -> list[bool]:
        """At each server."""
        found = []
        for visit in self.app.source(self.plan.request.source).visits():
            with visit as session:
                here = residency.read(session, self.plan.uuid).get(self.plan.request.partition)
                found.append(here is not None and here.cold)
        return found

    def differs(self, attempt: QuarantineAttempt) -> str:
        return differs(self.app.source(self.plan.request.source), self.plan, attempt)

    def older(self) -> str:
        table = residency.residency_table(self.plan.uuid)
        for visit in self.app.source(self.plan.request.source).visits():
            with visit as session:
                turned = session.rows(
                    f"SELECT toString(max(at)) AS at FROM {table.sql} WHERE id = {string(self.plan.request.partition)}"
                )
                older = residency.older_queries(session, turned[0]["at"])
                if older:
                    return f"{older[0].id} of {older[0].user}"
        return ""
