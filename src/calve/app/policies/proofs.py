"""Proofs that policies queue of exports that nobody has proven, and what the kind of proofs reaches."""

from collections import Counter
from collections.abc import Sequence

from calve.app.destination import parse_destination
from calve.app.policies.evaluation import Stood
from calve.app.wiring import App
from calve.control.kind import Kind
from calve.control.ports import Store
from calve.model.access import Asked, Proof
from calve.model.errors import LockedError
from calve.model.limits import Limits
from calve.model.process import Process
from calve.policy.policy import Policy, Verify
from calve.policy.proof.plan import ProofRequest
from calve.policy.stand import NextAction

_PROOFS_AT_ONCE = 8  # of one table: what exports goes first


def prove(app: App, policy: Policy, stood: Sequence[Stood]) -> list[Process]:
    """Queue proofs of exports that nobody has proven, a few at a time for each table; what was queued."""
    begun: list[Process] = []
    under_way = Counter(
        one.table.source for one in _once(stood) if one.facts.export and one.facts.export.proving
    )
    for one in _once(stood):
        if one.standing.next is not NextAction.PROVE or under_way[one.table.source] >= _PROOFS_AT_ONCE:
            continue
        process = begin_proof(app, policy, one, stood)
        if process is not None:
            begun.append(process)
            under_way[one.table.source] += 1
    return begun


def _once(stood: Sequence[Stood]) -> list[Stood]:
    """One of the partitions that a process exported together."""
    return list({one.partition.process: one for one in reversed(stood) if one.partition.process}.values())[
        ::-1
    ]


def begin_proof(app: App, policy: Policy, one: Stood, stood: Sequence[Stood]) -> Process | None:
    table, export = one.table, one.partition.process
    source = policy.source or app.config.default_source
    address = parse_destination(table.destination, app.config)
    request = ProofRequest(
        export=export,
        source=source,
        database=table.database,
        table=table.table,
        catalog=address.catalog,
        identifier=address.identifier,
        storage=address.storage,
        sample=policy.verify is Verify.SAMPLE,
    )
    new = request.process(
        source=table.source,
        destination=table.destination,
        partitions=[each.partition.id for each in stood if each.partition.process == export],
        needs=(app.source(source).need,),
        deadline_seconds=app.limits.process_hours * 3600,
    )
    asked = Asked(who=f"policy {policy.name}", verb="proof", subject=table.source)
    try:
        # If we die here, the process is there or not; the next look finds out.
        return app.store.submit([new], asked=asked)[0]
    except LockedError:
        return None  # another worker was first


class ProofReach:
    """The application as the proof kind sees it."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.source = app.source
        self.destination = app.destination

    @property
    def limits(self) -> Limits:
        return self._app.limits

    @property
    def store(self) -> Store:
        return self._app.store

    def record_proof(self, proof: Proof) -> None:
        self._app.registry.record_proof(proof)


def proof_kind(app: App) -> Kind:
    from calve.policy.proof.kind import ProofKind

    return ProofKind(ProofReach(app))
