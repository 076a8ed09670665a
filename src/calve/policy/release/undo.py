"""The kind `return`: a person brings a partition back out of quarantine. Once that is announced it is carried through, and a cancel
comes too late; unless a mutation came since the rows left, which is looked for until they move."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from calve.clickhouse.tier.quarantine import QuarantineAttempt, QuarantinePlace, Where
from calve.control.kind import AdoptedWork, Fenced, Kind, NothingToDo, Planned, Published
from calve.control.ports import TaskOrder, TaskResult
from calve.model.errors import PermanentError, RefusedError
from calve.model.process import NewProcess, Process, Task
from calve.model.reach import Service
from calve.model.record import Record
from calve.model.states import ReleaseState
from calve.model.tier import Release
from calve.policy.release.plan import BACK, ReleaseJournal, ReleasePlan, ReleaseRequest
from calve.policy.release.ports import HotSide, ReleasePorts
from calve.policy.release.row import found_release, result_of
from calve.policy.release.way_back import MutatedSinceError, WayBack, misfit, refuse_later_mutations


@dataclass(frozen=True, kw_only=True)
class ReturnRequest(Record):
    release: str  # the process that moved the partition out
    of: ReleaseRequest
    insist: bool = False  # though rows came late, or were deleted meanwhile

    def process(self, *, needs: Sequence[str], locks: Sequence[str], deadline_seconds: float) -> NewProcess:
        made = self.of.process(BACK, needs=needs, locks=locks, deadline_seconds=deadline_seconds)
        return replace(made, request=self.to_json())


class ReturnKind(Kind):
    """See `control.kind.Kind` for what each call promises."""

    name = BACK

    def __init__(self, ports: ReleasePorts) -> None:
        self._ports = ports

    def plan(
        self, process: Process, pins: Sequence[object], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        request = ReturnRequest.from_json(process.request)
        plan, release = found_release(self._ports, request.of, request.release)
        if release.state is ReleaseState.RETURNED:
            return NothingToDo(result=result_of(release), message="its rows are in the table already")
        self._refuse(request, plan, release)
        return Planned(plan=process.request, tasks=())

    def order(self, process: Process, plan: str, task: Task, attempt: int) -> TaskOrder:
        raise PermanentError("a return has no tasks", code="internal")

    def find_receipt(self, process: Process, plan: str, task: Task) -> TaskResult | None:
        return None

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        request = ReturnRequest.from_json(plan)
        of, release = found_release(self._ports, request.of, request.release)
        if release.state is ReleaseState.QUARANTINED:
            self._refuse(request, of, release)
            note("return")
        return self._walk(process, request, of, release)

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        request = ReturnRequest.from_json(plan)
        of, release = found_release(self._ports, request.of, request.release)
        if release.state not in (ReleaseState.RETURNING, ReleaseState.RETURNED):
            return Fenced()
        try:
            return self._walk(process, request, of, release)
        except MutatedSinceError:
            return Fenced()  # nothing of it comes back any more

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        return ""

    def probe(self, service: Service, process: Process) -> None:
        self._ports.probe(service, ReturnRequest.from_json(process.request).of.address)

    def _walk(
        self, process: Process, request: ReturnRequest, plan: ReleasePlan, release: Release
    ) -> Published:
        way = WayBack(ports=self._ports, process=process, plan=plan, release=release, insist=request.insist)
        way.walk("undone by a person")
        return Published(result=result_of(release), message=f"brought {release.rows} rows back")

    def _refuse(self, request: ReturnRequest, plan: ReleasePlan, release: Release) -> None:
        """What came after the move, and would be undone or doubled with it."""
        where = f"partition {release.partition} of {request.of.name}"
        if release.state not in (ReleaseState.QUARANTINED, ReleaseState.RETURNING):
            raise RefusedError(
                f"{where} is {release.state} and cannot be brought back from quarantine",
                code="not_in_quarantine",
                hint="calve policy explain TABLE PARTITION",
            )
        hot, journal = self._ports.hot(plan), ReleaseJournal.from_json(release.parts)
        seen = hot.look()
        attempt = journal.attempt(seen.table, release)
        placements = hot.placements(attempt)
        if release.state is ReleaseState.QUARANTINED and {one.where for one in placements} != {
            Where.QUARANTINE
        }:
            raise RefusedError(
                f"the rows of {where} are no longer in {release.place}", code="released_rows_missing"
            )
        misfit(hot, attempt, RefusedError)
        if release.state is ReleaseState.QUARANTINED:
            _refuse_strangers(hot, attempt, release, placements)
        if request.insist:
            return
        if late := sum(part.rows for one in placements for part in one.late):
            raise RefusedError(
                f"{where} has {late} rows that came after the move",
                code="not_empty",
                hint="--force puts the others beside them; the partition is then HELD until it is exported again",
            )
        refuse_later_mutations(plan, release, seen)


def _refuse_strangers(
    hot: HotSide, attempt: QuarantineAttempt, release: Release, placements: Sequence[QuarantinePlace]
) -> None:
    """What somebody did to the quarantine, before it is in the table. Rows are read only where files are other ones."""
    strangers = [part for one in placements for part in one.held if part.hash not in attempt.hashes]
    whole = all(sum(part.rows for part in one.held) == release.rows for one in placements)
    if (whole and not strangers) or (sums := str(hot.held(attempt))) == release.sums:
        return
    names = ", ".join(f"'{part.name}'" for part in strangers[:3])
    raise RefusedError(
        f"{release.place} has other rows ({sums}) than left the table ({release.sums}): somebody changed it; nothing was moved",
        code="quarantine_changed",
        hint=f"look at {names}, which never left the table, and ALTER TABLE {release.place} DROP PART what was added"
        if strangers
        else f"rows are missing there; the lake has them: {release.destination}",
    )
