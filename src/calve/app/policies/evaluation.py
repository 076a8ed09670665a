"""Policies evaluated: where each partition stands, by what was last seen and what the store knows now.

Nothing here is remembered that matters: what is under way, what failed and what was started is read from the store, so
that any number of workers may do this at once.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from calve.app.policies.holds import matching
from calve.app.policies.look import PartitionLook, TableLook, last_look
from calve.app.wiring import App
from calve.model.access import Proof
from calve.model.errors import UsageError
from calve.model.process import GuardedTable, Process, ProcessId, ProcessQuery, Start
from calve.model.record import fields_of
from calve.model.states import PROCESS_LIVE, ProcessState, ReleaseState
from calve.model.tier import RELEASE, Hold, Release
from calve.policy.policy import Policy, Verify
from calve.policy.proof import plan as proof_plan
from calve.policy.release.plan import BACK, NAME
from calve.policy.stand import (
    ExportFacts,
    Failure,
    NextAction,
    PartitionFacts,
    PartitionStanding,
    ReleaseFacts,
    stand,
)

_MOST = 10_000
_NO_ANSWER = frozenset({ProcessState.FAILED, ProcessState.CANCELLED})
_OLDEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Stood:
    """One partition of a policy, and where it stands."""

    table: TableLook
    partition: PartitionLook
    facts: PartitionFacts
    standing: PartitionStanding
    attempt: int = 1  # that would start next
    holds: tuple[Hold, ...] = ()
    proof: Proof | None = None

    @property
    def order(self) -> tuple[datetime, str]:
        """By time, never by the text of an id alone."""
        return self.partition.lower or self.partition.changed_at or _OLDEST, self.partition.id


def evaluate(app: App, policy: Policy, looks: Sequence[TableLook]) -> list[Stood]:
    """Where each partition stands, by what was last seen and what the store knows now; oldest first."""
    at = Counter(table.destination for table in looks)
    stood = (one for table in looks for one in _stood(app, policy, table, alone=at[table.destination] == 1))
    return sorted(stood, key=lambda one: one.order)


def _stood(app: App, policy: Policy, table: TableLook, *, alone: bool) -> Iterator[Stood]:
    """A few questions to the store for a table, however many partitions it has."""
    store, ids = app.store, [one.id for one in table.partitions]
    starts: dict[str, list[Start]] = {}
    for start in store.starts(table.identity, table.destination, ids) if table.identity else ():
        starts.setdefault(start.partition, []).append(start)
    tried = {
        one.id: [start for start in starts.get(one.id, ()) if start.content == one.content]
        for one in table.partitions
    }
    proofs = _Proofs.of(app, policy, table)
    asked = {ProcessId(one.process) for one in table.partitions if one.process not in proofs.made}
    asked |= {starts[0].process_id for starts in tried.values() if starts}
    known = {process.id: process for process in store.known(sorted(asked - {""}))}
    live = {id: process.id for process in _processes(app, table, "export") for id in process.partitions}
    skew = timedelta(seconds=table.skew_seconds)
    now = store.now() + min(timedelta(), skew)
    shared = _is_shared(app, policy, table)
    guarded = GuardedTable(identity=table.identity, uuid=table.uuid, name=table.source)
    standing_holds = app.registry.holds()
    releases = _Releases.of(app, policy, table) if table.identity else _Releases()
    for one in table.partitions:
        left = [each for each in tried[one.id] if each.action == NextAction.RELEASE]
        holds = tuple(matching(standing_holds, guarded, one.id))
        facts = PartitionFacts(
            policy=policy,
            now=now,
            looked_at=table.looked_at,
            skew=skew,
            shared=shared,
            alone=alone,
            there=one.there and not (one.released and one.rows == 0),  # a move leaves parts without rows
            closed_at=one.closed_at,
            changed_at=one.changed_at,
            bytes=one.bytes,
            mutating=table.mutating,
            live=live.get(one.id, ""),
            export=_export(one, proofs, known) if one.process else None,
            failure=_failure([each for each in tried[one.id] if each.action != NextAction.RELEASE], known),
            held=bool(holds),
            release=releases.facts(one, proofs.made.get(one.process), now, _failure(left, known)),
        )
        yield Stood(
            table=table,
            partition=one,
            facts=facts,
            standing=stand(facts),
            attempt=len(tried[one.id]) + 1,
            holds=holds,
            proof=proofs.made.get(one.process),
        )


def _processes(
    app: App, table: TableLook, kind: str, states: frozenset[ProcessState] = PROCESS_LIVE
) -> list[Process]:
    """Newest first."""
    return app.store.processes(
        ProcessQuery(
            source=table.source, destination=table.destination, kind=kind, states=states, limit=_MOST
        )
    )


@dataclass(frozen=True, kw_only=True)
class _Releases:
    """What is known of releases of a table's partitions."""

    key: str = ""  # why its partitions say no time
    newest: datetime | None = None  # when the newest partition begins
    approved: bool = False
    rival: bool = False
    live: Mapping[str, str] = field(default_factory=dict)  # by partition
    last: Mapping[str, Release] = field(default_factory=dict)

    @classmethod
    def of(cls, app: App, policy: Policy, table: TableLook) -> "_Releases":
        moving = [*_processes(app, table, NAME), *_processes(app, table, BACK)]
        begins = [one.lower for one in table.partitions if one.there and one.lower is not None]
        wanted = (RELEASE, policy.hash, table.identity, table.destination)
        return cls(
            key=table.key,
            newest=max(begins, default=None),
            approved=any(
                (one.what, one.hash, one.identity, one.destination) == wanted
                for one in app.registry.approvals()
            ),
            rival=any(other.releases for other in _others(app, policy, table)),
            live={id: one.id for one in moving for id in one.partitions},
            last={one.partition: one for one in app.registry.releases(table.identity, table.destination)},
        )

    def facts(
        self, one: PartitionLook, proof: Proof | None, now: datetime, failed: Failure | None
    ) -> ReleaseFacts:
        last = self.last.get(one.id)
        if last is not None and last.state is ReleaseState.RETURNED and not self._is_of(last, one.process):
            last = None  # it was exported again since
        by_value = proof is not None and proof.ok and proof.depth == proof_plan.Depth.ROWS
        return ReleaseFacts(
            approved=self.approved,
            proven_at=proof.made_at if proof is not None and by_value else None,
            rival=self.rival,
            over=self._over(one, now),
            live=self.live.get(one.id, ""),
            state=last.state.value if last else "",
            error=last.error if last else "",
            moved=last is not None and last.moved_at is not None,
            back_at=last.settled_at if last is not None and last.state is ReleaseState.RETURNED else None,
            since=failed,
        )

    def _is_of(self, release: Release, export: str) -> bool:
        return export in fields_of(release.keys).values()

    def _over(self, one: PartitionLook, now: datetime) -> str:
        """As `bounds.not_over` will say, by the last look."""
        if self.key:
            return self.key
        if one.lower is None or one.closed_at is None:
            return "no_bounds"
        if one.closed_at > now:
            return "not_over"
        return "newest_partition" if self.newest is not None and one.lower >= self.newest else ""


@dataclass(frozen=True, kw_only=True)
class _Proofs:
    """What the store knows of proofs of a table's exports, by the export's process."""

    made: Mapping[str, Proof]  # the newest that is as deep as the policy asks
    live: Mapping[str, str]
    ended: Mapping[str, Failure]  # without an answer

    @classmethod
    def of(cls, app: App, policy: Policy, table: TableLook) -> "_Proofs":
        # In this order: one that ends meanwhile is seen as live, and not begun again.
        live = {_proves(one): one.id for one in _processes(app, table, proof_plan.NAME)}
        ended: dict[str, list[Process]] = {}
        for process in _processes(app, table, proof_plan.NAME, _NO_ANSWER):
            ended.setdefault(_proves(process), []).append(process)
        exported = list(dict.fromkeys(ProcessId(one.process) for one in table.partitions if one.process))
        made: dict[str, Proof] = {}
        for proof in reversed(app.registry.proofs(exported)):
            if policy.verify is Verify.SAMPLE or proof.depth != proof_plan.Depth.SAMPLE:
                made[proof.process_id] = proof
        return cls(made=made, live=live, ended={id: _ended(some) for id, some in ended.items()})


def _proves(process: Process) -> str:
    return str(fields_of(process.request).get("export", ""))


def _ended(newest_first: Sequence[Process], policy: str = "") -> Failure:
    last = newest_first[0]
    return Failure(
        code=last.error.code if last.error else "cancelled",
        at=last.finished_at or last.created_at,
        times=len(newest_first),
        policy=policy,
    )


def _is_shared(app: App, policy: Policy, table: TableLook) -> bool:
    """Whether another policy of this configuration exports the table to the same place."""
    to = _goes_to(policy, table)
    return any(_goes_to(other, table) == to for other in _others(app, policy, table))


def _goes_to(policy: Policy, table: TableLook) -> str:
    """ "" where its name is no part of a destination: nothing of it is exported."""
    try:
        return policy.destination(table.database, table.table)
    except UsageError:
        return ""


def _others(app: App, policy: Policy, table: TableLook) -> Iterator[Policy]:
    """Other policies of this configuration that name the table."""
    source = policy.source or app.config.default_source
    for other in app.config.policies:
        same = other.name != policy.name and (other.source or app.config.default_source) == source
        if same and other.names(table.database, table.table):
            yield other


def _export(one: PartitionLook, proofs: _Proofs, known: Mapping[ProcessId, Process]) -> ExportFacts:
    proof = proofs.made.get(one.process)
    return ExportFacts(
        process=one.process,
        unchanged=one.unchanged,
        missing=one.missing,
        released=one.released,
        grows=one.grows,
        known=proof is not None or one.process in known,
        proven=proof.ok if proof else None,
        depth=proof.depth if proof else "",
        proving=proofs.live.get(one.process, ""),
        unproven=proofs.ended.get(one.process),
    )


def _failure(tried: Sequence[Start], known: Mapping[ProcessId, Process]) -> Failure | None:
    """Of the newest start; `tried` are those of one content, newest first."""
    last = known.get(tried[0].process_id) if tried else None
    if last is None or last.state not in _NO_ANSWER:
        return None
    return replace(_ended([last], tried[0].hash), times=len(tried))


def standing_now(app: App, policy: Policy) -> list[Stood]:
    """From the store alone."""
    return evaluate(app, policy, last_look(app, policy))
