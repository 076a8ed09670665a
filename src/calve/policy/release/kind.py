"""The release kind: a partition leaves its table, after the lake was proven to have its rows.

    (nothing)    the lake is told first: its key is never replaced from now on       MARKED
    MARKED       the view reads the lake; then the parts move into quarantine         MOVING
    MOVING       nothing more can move; what was moved is known by its hashes         MOVED
    MOVED        the rows in quarantine are those of the lake's newest head           QUARANTINED

The row of the release says how far it came, and each step looks at the world before it changes anything. What takes
rows away is announced first, in one transaction with everything that must allow it; the guard is read before the
conditions are. A process that must end before QUARANTINED walks all the way back (`fence`), so that at no time a row is neither
in the table nor proven elsewhere.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from calve.clickhouse.tier import obstacles
from calve.clickhouse.tier.quarantine import QuarantineAttempt, Where, closed_table
from calve.control.kind import AdoptedWork, Fenced, NothingToDo, Planned, Published
from calve.destination.content import unchanged
from calve.destination.names import DestinationAddress
from calve.destination.proof import Scan
from calve.iceberg.released import ReleaseMark
from calve.model.change import Intend, Item, NewRelease, Permit, PublishNote, ReleaseTo, Result
from calve.model.errors import PermanentError, RefusedError, TemporaryError
from calve.model.process import Process
from calve.model.reach import Service
from calve.model.states import ReleaseState
from calve.model.tier import RELEASE, Release
from calve.policy.proof.lake_read import LakeRead, LakeReader
from calve.policy.proof.plan import ProofPlan
from calve.policy.release.plan import NAME, ReleaseJournal, ReleasePlan, ReleaseRequest
from calve.policy.release.ports import ReleasePorts, SeenPartition
from calve.policy.release.row import find_release, looked_at
from calve.policy.release.way_back import MOVE, MutatedSinceError, WayBack

_MARK = "mark"
_STEPS = 8  # at most, in one try


class ReleaseKind(LakeReader):
    """See `control.kind.Kind` for what each call promises."""

    name = NAME

    def __init__(self, ports: ReleasePorts) -> None:
        self._ports = ports

    def plan(
        self, process: Process, pins: Sequence[object], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        made = self._ports.survey(ReleaseRequest.from_json(process.request), process.id)
        return Planned(plan=made.to_json(), tasks=made.proof.new_tasks)

    def lake(self, process: Process, plan: str) -> tuple[ProofPlan, DestinationAddress]:
        read = ReleasePlan.from_json(plan)
        return read.proof, read.request.address

    def keys(self, address: DestinationAddress) -> Mapping[str, str]:
        return self._ports.keys(address)

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        """Of `note` only the journal's form is used, which notes and announces at once."""
        return _Departure(self._ports, process, ReleasePlan.from_json(plan), receipts).carry_out()

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        read = ReleasePlan.from_json(plan)
        release = find_release(self._ports, read.request, process.id)
        if release is None:
            return Fenced()  # its row is written before anything is sent
        if release.state is ReleaseState.QUARANTINED:
            return _published(read, release)
        try:
            WayBack(ports=self._ports, process=process, plan=read, release=release).walk(_why(process))
        except MutatedSinceError:
            # RETURNING until a person insists: nothing leaves by it, and nothing comes back by itself.
            return Fenced()
        return Fenced()

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        return ""

    def probe(self, service: Service, process: Process) -> None:
        self._ports.probe(service, ReleaseRequest.from_json(process.request).address)


def _why(process: Process) -> str:
    """A process that ran out of tries or of time need not have met an error."""
    if process.cancel_requested:
        return "it was cancelled"
    return process.error.message if process.error else "it did not end within its tries and its time"


def _published(plan: ReleasePlan, release: Release) -> Published:
    result = Result(
        rows=release.rows, files=0, bytes=0, snapshot_id=plan.proof.scan.snapshot_id, detail=release.sums
    )
    return Published(result=result, message=f"moved {release.rows} rows to {release.place}")


class _Departure:
    """One try at the steps that are left."""

    def __init__(
        self, ports: ReleasePorts, process: Process, plan: ReleasePlan, receipts: Sequence[str]
    ) -> None:
        self._ports, self._process, self._plan = ports, process, plan
        self._hot, self._cold, self._shown = ports.hot(plan), ports.cold(plan), ports.shown(plan)
        where = f"{plan.request.destination}, partition {plan.request.partition}"
        self._read = LakeRead(proof=plan.proof, where=where)
        self._lake = self._read.sums(receipts)
        self._allowed_now: tuple[SeenPartition, Scan] | None = (
            None  # an announcement is good for one statement
        )

    def carry_out(self) -> Published:
        for _ in range(_STEPS):
            release = find_release(self._ports, self._plan.request, self._process.id)
            match release.state if release else None:
                case None:
                    self._begin()
                case ReleaseState.MARKED if release:
                    self._leave(release)
                case ReleaseState.MOVING if release:
                    self._arrive(release)
                case ReleaseState.MOVED if release:
                    self._prove(release)
                case ReleaseState.QUARANTINED if release:
                    return _published(self._plan, release)
                case state:
                    raise PermanentError(f"the release is {state}: nothing leaves by it", code="returned")
        raise TemporaryError("the release takes more steps than there are", code="internal")

    # -- the steps ----------------------------------------------------------------------------------

    def _begin(self) -> None:
        version, seen, scan = self._conditions()
        others = self._ports.releases(self._plan.request.identity, "")
        number = 1 + max([seen.number, *(one.attempt for one in others)])
        new = NewRelease(
            identity=self._plan.request.identity,
            partition=self._plan.request.partition,
            destination=self._plan.request.destination,
            attempt=number,
            keys=json.dumps({self._plan.key_hash: self._plan.request.export}),
        )
        # If we die here, the row is there and nothing was sent, or neither.
        self._journal(self._intend(_MARK, version), new)
        self._allowed_now = seen, scan

    def _leave(self, release: Release) -> None:
        self._mark(release)
        if self._shown is not None:
            # If we die here, the view reads from the lake what is still in the table too: the same rows.
            self._shown.turn(cold=True)
            if older := self._shown.older():
                raise TemporaryError(
                    f"query {older} began before the view read partition {release.partition} from the lake",
                    code="older_queries",
                    hint="the rows stay until it has ended; it is retried automatically",
                )
        seen = self._hot.look()
        attempt = QuarantineAttempt(
            table=seen.table,
            partition=release.partition,
            number=release.attempt,
            process=self._process.id,
            top=seen.top,
            hashes=seen.hashes,
        )
        # If we die here, an empty place is left, which the next try uses.
        self._hot.prepare(attempt)
        version, seen, _ = self._conditions()
        attempt = QuarantineAttempt(**{**vars(attempt), "top": seen.top, "hashes": seen.hashes})
        journal = ReleaseJournal(
            top=seen.top,
            hashes=tuple(sorted(seen.hashes)),
            mutations=seen.mutations,
            twins=tuple(sorted(seen.twins)),
        )
        place = str(closed_table(attempt))
        moving = ReleaseTo(state=ReleaseState.MOVING, place=place, parts=journal.to_json())
        self._move(attempt, version, moving)

    def _mark(self, release: Release) -> None:
        """Of the head whose rows are proven, and no other."""
        if self._cold.is_marked(self._process.id):
            return
        if self._allowed_now is None:
            version, seen, scan = self._conditions()
            self._journal(self._intend(_MARK, version))
        else:
            (seen, scan), self._allowed_now = self._allowed_now, None
        mark = ReleaseMark(
            process=self._process.id,
            store=self._ports.store_id(),
            attempt=release.attempt,
            rows=self._lake.rows,
            sums=str(self._lake),
            place=f"{seen.table.uuid}_{release.attempt}",
            input=self._plan.input,
        )
        # If we die here, the mark stands or not: the next try looks; one that arrives after the way back is refused.
        self._cold.mark(self._process.id, mark, scan.snapshot_id)

    def _arrive(self, release: Release) -> None:
        attempt = self._attempt(release)
        found = {seen.where for seen in self._hot.placements(attempt)}
        if found == {Where.TABLE}:
            version, _, _ = self._conditions()
            self._move(attempt, version)
            return
        if found != {Where.QUARANTINE}:
            raise TemporaryError(
                f"partition {release.partition} of {attempt.table} is not in the same place on every server:"
                f" {', '.join(sorted(found))}",
                code="divided",
                hint="it is checked again, and goes back into its table if that persists",
            )
        # If we die here, the place is closed or not; closing it again finds out.
        self._hot.close(attempt, self._moves())
        for seen in self._hot.placements(attempt):
            attempt = attempt.noted(seen)
        journal = ReleaseJournal.from_json(release.parts)
        noted = replace(journal, hashes=tuple(sorted(attempt.hashes)))
        # If we die here, it is looked at and noted again.
        self._journal(ReleaseTo(state=ReleaseState.MOVED, parts=noted.to_json()))

    def _prove(self, release: Release) -> None:
        """Nothing else permits a release: the rows that left are the rows of the lake, as it is now."""
        attempt = self._attempt(release)
        found = {seen.where for seen in self._hot.placements(attempt) if seen.closed}
        if found != {Where.QUARANTINE}:
            raise PermanentError(
                f"the rows of partition {release.partition} are no longer in {release.place}",
                code="quarantine_changed",
            )
        held = self._hot.held(attempt)
        self._read.same(self._cold)
        if held != self._lake:
            raise PermanentError(
                f"{self._process.destination} does not have the rows that left partition {release.partition} of"
                f" {self._plan.request.name}: {self._lake} there, {held} in quarantine; they go back",
                code="quarantine_differs",
                hint=f"calve verify {self._plan.request.export} --deep says which columns differ",
            )
        if self._shown is not None and (where := self._shown.differs(attempt)):
            raise PermanentError(
                f"the view does not show the rows that left partition {release.partition}: {where}",
                code="view_differs",
                hint="bring the view up to date: calve view TABLE --to DEST --as NAME",
            )
        done = ReleaseTo(state=ReleaseState.QUARANTINED, rows=held.rows, sums=str(held))
        # If we die here, it is proven again.
        self._journal(done)

    # -- what all of them need ----------------------------------------------------------------------

    def _conditions(self) -> tuple[int, SeenPartition, Scan]:
        """All that must hold right before rows leave, read after the guard: what changes since then is refused."""
        self._ports.announce()
        version = self._ports.guard(self._plan.guarded)
        self._ports.check_view(self._plan)
        seen, request = self._hot.look(), self._plan.request
        obstacles.refuse(seen.obstacles, seen.table, request.partition)
        if (seen.table.uuid, seen.table.identity) != (self._plan.uuid, request.identity):
            raise RefusedError(f"{request.name} is now a different table", code="source_changed")
        if not unchanged(self._plan.content, seen.content):
            raise RefusedError(
                f"partition {request.partition} of {request.name} has changed since it was exported",
                code="source_changed",
                hint="calve policy explain says more; its new rows are exported first",
            )
        return version, seen, self._read.same(self._cold)

    def _move(self, attempt: QuarantineAttempt, version: int, *also: Item) -> None:
        query_id = f"calve-{self._process.id}-out-{len(self._ports.intents(self._process.id))}"
        # If we die here, it is announced, and the next try finds the parts where they were.
        self._journal(self._intend(MOVE, version, query_id), *also)
        # If we die here, the parts are in the table or in this attempt's own place: the next try looks.
        self._hot.take_out(attempt, query_id)

    def _intend(self, step: str, version: int, query_id: str = "") -> Intend:
        request = self._plan.request
        permit = Permit(
            what=RELEASE, hash=request.hash, destination=request.destination, policy=request.policy
        )
        return Intend(
            table=self._plan.guarded,
            partition=request.partition,
            step=step,
            version=version,
            permit=permit,
            query_id=query_id,
        )

    def _journal(self, *items: Item) -> None:
        """With the end of what was announced before: somebody has looked by now."""
        done = looked_at(self._ports, self._process)
        self._ports.journal(self._process, PublishNote("release"), *done, *items)

    def _attempt(self, release: Release) -> QuarantineAttempt:
        return ReleaseJournal.from_json(release.parts).attempt(self._hot.look().table, release)

    def _moves(self) -> list[str]:
        found = self._ports.intents(self._process.id)
        return [one.query_id for one in found if one.step == MOVE]
