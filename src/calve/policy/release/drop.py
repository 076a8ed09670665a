"""The kind `drop`: the rows of a quarantined partition are deleted at the source, as a person asked.

Everything that the release proved is proven again: the lake is read anew by tasks, the rows in quarantine are summed anew, and both
are what left the table. The statement names only an object that is renamed for this process first; `spare` takes the
name away, so a statement that wakes up late deletes nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from calve.clickhouse.tier.quarantine import QuarantineAttempt, Where
from calve.control.kind import AdoptedWork, Fenced, NothingToDo, Planned, Published
from calve.destination.names import DestinationAddress
from calve.model.change import Intend, Item, Permit, PublishNote, ReleaseTo
from calve.model.errors import PermanentError, RefusedError
from calve.model.process import NewProcess, Process
from calve.model.reach import Service
from calve.model.record import Record
from calve.model.states import ReleaseState
from calve.model.tier import Release
from calve.policy.proof.lake_read import LakeRead, LakeReader
from calve.policy.proof.plan import ProofPlan, grouped
from calve.policy.release.plan import ReleaseJournal, ReleasePlan, ReleaseRequest
from calve.policy.release.ports import ReleasePorts
from calve.policy.release.row import found_release, looked_at, result_of
from calve.policy.row_hash import RowSums

NAME = "drop"


@dataclass(frozen=True, kw_only=True)
class DropRequest(Record):
    release: str  # the process that moved the partition out
    of: ReleaseRequest
    hash: str  # of the plan that a person approved, which may be of several partitions
    grace_seconds: float  # since it was proven in quarantine
    backup: str  # that has it; "": a person accepted that the lake has the only copy

    def process(self, *, needs: Sequence[str], locks: Sequence[str], deadline_seconds: float) -> NewProcess:
        made = self.of.process(NAME, needs=needs, locks=locks, deadline_seconds=deadline_seconds)
        return replace(made, request=self.to_json())


@dataclass(frozen=True, kw_only=True)
class DropPlan(Record):
    request: DropRequest
    proof: ProofPlan  # what is read of the lake, as it is now


class DropKind(LakeReader):
    """See `control.kind.Kind` for what each call promises."""

    name = NAME

    def __init__(self, ports: ReleasePorts) -> None:
        self._ports = ports

    def plan(
        self, process: Process, pins: Sequence[object], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        request = DropRequest.from_json(process.request)
        of, release = found_release(self._ports, request.of, request.release)
        if release.state is ReleaseState.DROPPED:
            return NothingToDo(result=result_of(release), message="it is already dropped")
        scan = self._ports.cold(of).scan()
        proof = replace(of.proof, process_id=process.id, scan=scan, tasks=grouped(scan.files))
        made = DropPlan(request=request, proof=proof)
        _Departed(self._ports, process, made, of, release).refuse()
        self._ports.check_backup(of, release, request.backup, read=True)
        return Planned(plan=made.to_json(), tasks=proof.new_tasks)

    def lake(self, process: Process, plan: str) -> tuple[ProofPlan, DestinationAddress]:
        read = DropPlan.from_json(plan)
        return read.proof, read.request.of.address

    def keys(self, address: DestinationAddress) -> Mapping[str, str]:
        return self._ports.keys(address)

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        departed = self._departed(process, plan)
        if departed.release.state is not ReleaseState.DROPPED:
            departed.drop(receipts)
        return _published(departed.release)

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        departed = self._departed(process, plan)
        state = departed.release.state
        if state is ReleaseState.DROPPED or (state is ReleaseState.DROPPING and departed.is_dropped()):
            return _published(departed.release)
        return Fenced()

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        return ""

    def probe(self, service: Service, process: Process) -> None:
        self._ports.probe(service, DropRequest.from_json(process.request).of.address)

    def _departed(self, process: Process, plan: str) -> "_Departed":
        read = DropPlan.from_json(plan)
        of, release = found_release(self._ports, read.request.of, read.request.release)
        return _Departed(self._ports, process, read, of, release)


def _published(release: Release) -> Published:
    return Published(result=result_of(release), message=f"dropped {release.rows} rows of {release.place}")


class _Departed:
    """A partition in quarantine, and one try at dropping it."""

    def __init__(
        self, ports: ReleasePorts, process: Process, plan: DropPlan, of: ReleasePlan, release: Release
    ) -> None:
        self.release = release
        self._ports, self._process, self._plan, self._of = ports, process, plan, of
        self._hot, self._cold = ports.hot(of), ports.cold(of)
        self._where = f"partition {release.partition} of {of.request.name}"

    def drop(self, receipts: Sequence[str]) -> None:
        if self.release.state is ReleaseState.DROPPING and self._is_gone():
            self._journal(self._to(ReleaseState.DROPPED))
            return
        version, attempt = self._conditions(receipts)
        intend = Intend(
            table=self._of.guarded,
            partition=self.release.partition,
            step=NAME,
            version=version,
            permit=Permit(
                what=NAME, hash=self._plan.request.hash, destination=self._of.request.destination, policy=""
            ),
            query_id=f"calve-{self._process.id}-drop",
        )
        begins = self.release.state is ReleaseState.QUARANTINED
        moves = [self._to(ReleaseState.DROPPING, backup=self._plan.request.backup)] if begins else []
        # If we die here, it is announced, and the next try finds the rows where they were.
        self._journal(intend, *moves)
        # If we die here, the rows are gone or not: the next try looks, and proves all of it again.
        self._hot.remove(attempt, self._process.id, intend.query_id)
        if not self._hot.is_gone(attempt, self._process.id):
            raise PermanentError(f"{self.release.place} is still there", code="not_dropped")
        # If we die here, it is found gone.
        self._journal(self._to(ReleaseState.DROPPED))

    def is_dropped(self) -> bool:
        """Of a drop that must end: the rows stay if they are there, and no statement of it can remove them any more."""
        gone = self._is_gone()
        # If we die here, the next try finds the same.
        self._journal(self._to(ReleaseState.DROPPED if gone else ReleaseState.QUARANTINED))
        return gone

    def refuse(self) -> QuarantineAttempt:
        """What needs no rows to be read."""
        release, request = self.release, self._plan.request
        seen = self._hot.look()
        attempt = ReleaseJournal.from_json(release.parts).attempt(seen.table, release)
        if release.state not in (ReleaseState.QUARANTINED, ReleaseState.DROPPING):
            raise RefusedError(
                f"{self._where} is {release.state}",
                code="not_in_quarantine",
                hint="calve policy explain TABLE PARTITION",
            )
        assert release.settled_at is not None, "what is in quarantine was proven there"
        due = release.settled_at + timedelta(seconds=request.grace_seconds)
        if self._ports.now() < due:
            raise RefusedError(
                f"{self._where} is in quarantine for too short a time: until {due:%Y-%m-%d %H:%M} UTC it can be brought"
                " back",
                code="grace",
                hint="calve policy undo TABLE PARTITION brings it back",
            )
        if not self._cold.is_marked(release.process_id):
            raise RefusedError(
                f"{self._of.request.destination} no longer has the marks of this release",
                code="mark_missing",
                hint="calve doctor",
            )
        found = {one.where for one in self._hot.placements(attempt)}
        if found != {Where.QUARANTINE}:
            raise RefusedError(
                f"the rows of {self._where} are not all in {release.place}", code="quarantine_changed"
            )
        return attempt

    def _conditions(self, receipts: Sequence[str]) -> tuple[int, QuarantineAttempt]:
        """All of them, read after the guard."""
        version = self._ports.guard(self._of.guarded)
        if self.release.state is ReleaseState.DROPPING:
            self._spare()
        attempt = self.refuse()
        self._ports.check_backup(self._of, self.release, self._plan.request.backup, read=False)
        read = LakeRead(
            proof=self._plan.proof,
            where=f"{self._of.request.destination}, partition {self.release.partition}",
        )
        lake, held = read.sums(receipts), self._hot.held(attempt)
        left = RowSums.parse(self.release.sums)
        if not lake == held == left:
            raise PermanentError(
                f"{self._where}: {left} left the table, {held} are in quarantine, {lake} in the lake; nothing was dropped",
                code="quarantine_differs",
                hint="calve policy undo TABLE PARTITION brings it back",
            )
        read.same(self._cold)
        return version, attempt

    def _attempt(self) -> QuarantineAttempt:
        return ReleaseJournal.from_json(self.release.parts).attempt(self._hot.look().table, self.release)

    def _spare(self) -> None:
        # If we die here, the place has its own name or the drop's; sparing it again finds out.
        self._hot.spare(self._attempt(), self._process.id, [f"calve-{self._process.id}-drop"])

    def _is_gone(self) -> bool:
        self._spare()
        return self._hot.is_gone(self._attempt(), self._process.id)

    def _to(self, state: ReleaseState, *, backup: str | None = None) -> ReleaseTo:
        return ReleaseTo(state=state, release=self.release.process_id, backup=backup)

    def _journal(self, *items: Item) -> None:
        """With the end of what was announced before: somebody has looked by now."""
        done = looked_at(self._ports, self._process)
        self._ports.journal(self._process, PublishNote(NAME), *done, *items)
