"""The untier kind: a partition comes back from the lake into its table, where it has no rows.

    tasks      read the lake's rows on executors: their sums
    scratch    the source reads the same rows into a table of its own; its sums must be equal
    MOVE       parts go into the table as they are: no materialized view and no TTL sees them
    settle     the lake's marks go, and it remembers the parts as what was exported
    turn       a view reads the table again

Until the turn a view reads the lake, after it the table: each row is shown once at every moment. A hold is there before the
first row arrives. Each try has a scratch table of its own, noted before it is made; a try that may have moved its parts is closed
first and then looked at, so a stopped worker that wakes up moves nothing.
"""

from collections.abc import Callable, Mapping, Sequence

from calve.control.kind import AdoptedWork, Fenced, NothingToDo, Planned, Published
from calve.destination.names import DestinationAddress
from calve.model.change import Result
from calve.model.errors import PermanentError, RefusedError, TemporaryError
from calve.model.process import Process
from calve.model.reach import Service
from calve.model.states import ProcessState
from calve.policy.proof.lake_read import LakeReader
from calve.policy.proof.plan import ProofPlan, ProofReceipt
from calve.policy.proof.task import sums_of
from calve.policy.row_hash import RowSums
from calve.policy.untier.plan import NAME, UntierJournal, UntierPlan, UntierPorts, UntierRequest, UntierSides


class UntierKind(LakeReader):
    """See `control.kind.Kind` for what each call promises."""

    name = NAME

    def __init__(self, ports: UntierPorts) -> None:
        self._ports = ports

    def plan(
        self, process: Process, pins: Sequence[object], adopted: AdoptedWork | None
    ) -> Planned | NothingToDo:
        made = self._ports.survey(UntierRequest.from_json(process.request), process.id)
        return Planned(plan=made.to_json(), tasks=made.proof.new_tasks)

    def lake(self, process: Process, plan: str) -> tuple[ProofPlan, DestinationAddress]:
        read = UntierPlan.from_json(plan)
        return read.proof, read.request.address

    def keys(self, address: DestinationAddress) -> Mapping[str, str]:
        return self._ports.keys(address)

    def publish(
        self, process: Process, plan: str, receipts: Sequence[str], note: Callable[[str], None]
    ) -> Published:
        read = UntierPlan.from_json(plan)
        sides, lake = self._ports.sides(read, process.id), _lake(read, receipts)
        journal = _journal(process)
        if journal is None or not _arrived(sides, journal):
            journal = self._bring(process, read, sides, lake, note)
        return _finish(read, sides, journal)

    def _bring(
        self,
        process: Process,
        plan: UntierPlan,
        sides: UntierSides,
        lake: RowSums,
        note: Callable[[str], None],
    ) -> UntierJournal:
        """The rows into the table, by a scratch table of this try. Tries before it can no longer move anything."""
        sides.refuse()
        journal = UntierJournal(scratch=f"{plan.uuid}_{process.id}_{process.publish_attempts}")
        # If we die here, the scratch table is not there yet, and the next try takes another.
        note(journal.to_json())
        for old in sides.scratches():
            sides.drop(old)
        # If we die here, the hold is there or not: the next try adds it, under the same id.
        sides.hold()
        sides.fill(journal.scratch)
        found = sides.sums(journal.scratch)
        if found != lake:
            sides.drop(journal.scratch)
            raise PermanentError(
                f"ClickHouse reads other rows of partition {plan.request.partition} from {plan.request.destination}"
                f" ({found}) than are there ({lake}); nothing was brought back",
                code="untier_differs",
                hint="calve verify checks whether the lake has them; others may write to that table too",
            )
        journal = UntierJournal(
            scratch=journal.scratch, moving=True, hashes=tuple(sorted(sides.hashes(journal.scratch)))
        )
        # If we die here, its parts count as moved until somebody looked.
        note(journal.to_json())
        sides.refuse()
        # If we die here, the parts are in the scratch table or in the table: the next try closes it and looks.
        sides.move(journal.scratch)
        return journal

    def fence(self, process: Process, plan: str) -> Fenced | Published:
        """What is in the table already is brought to its end: a cancel comes too late."""
        read, journal = UntierPlan.from_json(plan), _journal(process)
        sides = self._ports.sides(read, process.id)
        if journal is not None and _arrived(sides, journal):
            return _finish(read, sides, journal)
        if journal is not None and not journal.moving:
            # If we die here, `undo` drops the rest. What may have moved stays to be looked at until then.
            _drop_all(sides)
        return Fenced()

    def undo(self, process: Process, plan: str, receipts: Sequence[str], used: Sequence[str]) -> str:
        """What did not arrive, and the hold that was for it."""
        sides = self._ports.sides(UntierPlan.from_json(plan), process.id)
        _drop_all(sides, but_the_hold=process.state is ProcessState.COMPLETED)
        return ""

    def probe(self, service: Service, process: Process) -> None:
        self._ports.probe(service, UntierRequest.from_json(process.request).address)


def _journal(process: Process) -> UntierJournal | None:
    return UntierJournal.from_json(process.publish_note) if process.publish_note else None


def _lake(plan: UntierPlan, receipts: Sequence[str]) -> RowSums:
    """What the tasks read. RefusedError where these are not the rows of the export alone."""
    own, others = sums_of([ProofReceipt.from_json(text) for text in receipts])
    lake = own if plan.proof.scan.whole else others
    extra = others.rows if plan.proof.scan.whole else 0
    if extra or lake.rows != plan.rows:
        raise RefusedError(
            f"{plan.request.destination} has {lake.rows + extra} rows of partition {plan.request.partition}, and"
            f" {plan.rows} were exported: some were deleted or added in the lake",
            code="lake_differs",
            hint="read them there, or copy what you need by hand",
        )
    return lake


def _drop_all(sides: UntierSides, *, but_the_hold: bool = False) -> None:
    for one in sides.scratches():
        sides.drop(one)
    if not but_the_hold:
        sides.unhold()


def _arrived(sides: UntierSides, journal: UntierJournal) -> bool:
    if not journal.moving:
        return False
    # If we die here, it is closed or not; closing it again finds out.
    sides.close(journal.scratch)
    return sides.has_arrived(journal.scratch)


def _finish(plan: UntierPlan, sides: UntierSides, journal: UntierJournal) -> Published:
    if not sides.has_arrived(journal.scratch):
        raise TemporaryError(
            f"the rows of partition {plan.request.partition} are not in the table yet",
            code="divided",
            hint="it is checked again",
        )
    # If we die here, the lake refuses to replace rows that are in the table again: the next try goes on.
    sides.settle(frozenset(journal.hashes))
    # If we die here, a view reads the lake, which has the same rows.
    sides.turn()
    # If we die here, an empty scratch table is left, which the next try, or undo, drops.
    sides.drop(journal.scratch)
    return Published(
        result=Result(rows=plan.rows, files=0, bytes=0),
        message=f"brought {plan.rows} rows back; hold hold-{plan.process_id} keeps them there",
    )
