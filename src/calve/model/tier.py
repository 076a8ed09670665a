"""Rows that leave a table: holds, intents, approvals, what programs say of policies, and releases.

The invariant of this module: nothing that takes rows away is announced unless `check_intent` lets it. It is pure; a
store calls it in the transaction that holds the table's guard, and a hold takes the same guard. So a hold and an
intent never miss each other: the intent meets the hold, or the hold's answer names the intent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from calve.model.access import Halt
from calve.model.change import Change, Intend, NewRelease, Permit, PublishNote, ReleaseTo
from calve.model.errors import NotFoundError, RefusedError
from calve.model.process import GuardedTable, Process, ProcessId, random_text
from calve.model.refusals import conflict, illegal_change, illegal_transition
from calve.model.states import RELEASE_TRANSITIONS, ProcessState, ReleaseState, may_move

POLICY_HALT = "policy"  # the kind of a halt that pauses a policy, whose name is its source
RELEASE = "release"  # the step of a policy that a `Permit` is for
# Of one partition and destination at most one release is here.
RELEASE_OPEN = frozenset(
    {ReleaseState.MARKED, ReleaseState.MOVING, ReleaseState.MOVED, ReleaseState.RETURNING}
)


def new_hold_id() -> str:
    return f"hold-{random_text(6)}"


@dataclass(frozen=True, kw_only=True)
class Hold:
    """Somebody wants rows to stay. It matches by identity, uuid or name: a table that was renamed is held, and so is
    another that took its name."""

    id: str
    name: str  # of the table, as processes name it
    who: str
    reason: str
    identity: str = ""  # "" and uuid "": the table was not there when the hold was made
    uuid: str = ""
    partition: str = ""  # "" means all
    made_at: datetime | None = None
    until_at: datetime | None = None  # None: until it is released
    released_at: datetime | None = None
    released_by: str = ""

    @property
    def table(self) -> GuardedTable:
        return GuardedTable(identity=self.identity, uuid=self.uuid, name=self.name)

    def matches(self, table: GuardedTable, partition: str) -> bool:
        return self.partition in ("", partition) and is_same_table(self.table, table)

    def stands(self, now: datetime) -> bool:
        return self.released_at is None and (self.until_at is None or now < self.until_at)


def is_same_table(one: GuardedTable, other: GuardedTable) -> bool:
    pairs = ((one.identity, other.identity), (one.uuid, other.uuid), (one.name, other.name))
    return any(mine and mine == theirs for mine, theirs in pairs)


@dataclass(frozen=True, kw_only=True)
class Intent:
    """A step that changes something outside, announced before it was carried out. Open until somebody looked."""

    seq: int
    process_id: ProcessId
    identity: str
    uuid: str
    name: str
    partition: str
    step: str
    query_id: str
    detail: str
    made_at: datetime
    done_at: datetime | None = None
    result: str = ""

    @property
    def table(self) -> GuardedTable:
        return GuardedTable(identity=self.identity, uuid=self.uuid, name=self.name)


@dataclass(frozen=True, kw_only=True)
class HoldAdded:
    """The hold, and the steps that were announced before it and may still be carried out. Nothing after them will be."""

    hold: Hold
    open: tuple[Intent, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Approval:
    """That somebody allowed something of exactly this hash, for one table and destination."""

    what: str  # as `Permit.what`
    hash: str
    identity: str
    destination: str
    who: str
    policy: str = ""
    seq: int = 0
    made_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Announced:
    """What one program's configuration says of a policy."""

    program: str
    name: str
    hash: str
    body: str = ""
    seen_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Release:
    """One attempt at moving a partition out of its table, and where its rows are."""

    process_id: ProcessId
    identity: str
    partition: str
    destination: str
    attempt: int
    state: ReleaseState = ReleaseState.MARKED
    version: int = 1
    place: str = ""  # the quarantine
    rows: int = 0
    sums: str = ""  # JSON
    parts: str = ""  # JSON
    keys: str = ""  # JSON: hashes of export keys in the lake, and the processes that exported them
    made_at: datetime | None = None
    moved_at: datetime | None = None
    settled_at: datetime | None = (
        None  # its rows were proven in quarantine; of one that returned: they are back
    )
    counted_at: datetime | None = None
    checked_at: datetime | None = None
    backup: str = ""
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a store found while it held the guard."""

    version: int  # of the guard
    holds: Sequence[Hold] = ()  # that stand and match
    halts: Sequence[Halt] = ()
    announced: Sequence[Announced] = ()  # by programs that are alive
    approved: bool = False


def check_shape(process: Process, change: Change) -> None:
    """What a change with an intent must have, whatever the store holds."""
    intend, note = change.one(Intend), change.one(PublishNote)
    if len(change.all(Intend)) > 1:
        raise illegal_change(process.id, "one step is announced at a time")
    if intend is None:
        return
    if process.state is not ProcessState.PUBLISHING:
        raise illegal_change(process.id, f"it announces a step while {process.state}")
    if not (note.text if note else process.publish_sent):
        raise illegal_change(process.id, "a step is announced with the note of what to look for")
    if not (intend.table.identity and intend.table.name and intend.partition and intend.step):
        raise illegal_change(process.id, "a step is announced for a partition of a table that is known")
    permit = intend.permit
    if permit is not None and not (permit.hash and permit.destination):
        raise illegal_change(process.id, "a permit names the hash and the destination that were approved")
    if permit is not None and permit.what == RELEASE and not permit.policy:
        raise illegal_change(process.id, "a release is permitted by a policy")


def check_intent(process: Process, intend: Intend, found: Situation) -> None:
    """ConflictError where the guard moved; RefusedError for what forbids the step. A step that only brings rows back
    has no permit and needs none: a hold must never keep rows away from their table."""
    if found.version != intend.version:
        raise conflict(process.id, f"the guard of {intend.table.name} moved: read the holds again")
    if intend.permit is None:
        return
    if found.holds:
        raise held(intend, found.holds[0])
    _check_policy(intend, intend.permit, found)
    if not found.approved:
        policy = intend.permit.policy
        hint = f"calve policy approve {policy} --dry-run" if policy else "calve policy drop TABLE PARTITION"
        raise _refused(intend, "nobody approved it", code="not_approved", hint=hint)


def _check_policy(intend: Intend, permit: Permit, found: Situation) -> None:
    if not permit.policy:
        return
    if any(one.kind == POLICY_HALT and one.source in ("", permit.policy) for one in found.halts):
        hint = f"calve policy resume {permit.policy}"
        raise _refused(intend, f"policy {permit.policy} is paused", code="paused", hint=hint)
    by_program: dict[str, str] = {one.program: "" for one in found.announced}
    by_program |= {one.program: one.hash for one in found.announced if one.name == permit.policy}
    if not by_program or set(by_program.values()) != {permit.hash}:
        other = sorted(name for name, hash in by_program.items() if hash != permit.hash)
        said = f"{', '.join(other[:3])} has another" if other else "no running program has it"
        raise _refused(
            intend,
            f"policy {permit.policy} is not as it was planned ({said})",
            code="policy_differs",
            hint="give all workers the same configuration; the policy is evaluated again",
        )


def held(intend: Intend, hold: Hold) -> RefusedError:
    said = f"hold {hold.id} of {hold.who}: {hold.reason}"
    return _refused(intend, said, code="held", hint=f"calve hold release {hold.id}")


def _refused(intend: Intend, why: str, *, code: str, hint: str) -> RefusedError:
    return RefusedError(
        f"{intend.step} of partition {intend.partition} of {intend.table.name} is not allowed: {why};"
        " nothing was changed",
        code=code,
        hint=hint,
    )


def no_such_hold(id: str) -> NotFoundError:
    return NotFoundError(f"no hold {id!r} in this store", code="hold_not_found", hint="calve hold list --all")


def new_release(process: Process, given: NewRelease, others: Sequence[Release], now: datetime) -> Release:
    """`others` are those of the table. ConflictError where the attempt was made, or one is under way."""
    for one in others:
        if one.attempt == given.attempt or one.process_id == process.id:
            raise conflict(process.id, f"attempt {one.attempt} was made by process {one.process_id}")
        same = (one.partition, one.destination) == (given.partition, given.destination)
        if same and one.state in RELEASE_OPEN:
            raise conflict(
                process.id, f"process {one.process_id} is {one.state} with partition {given.partition}"
            )
    return Release(
        process_id=process.id,
        identity=given.identity,
        partition=given.partition,
        destination=given.destination,
        attempt=given.attempt,
        keys=given.keys,
        made_at=now,
    )


def release_after(process: Process, change: ReleaseTo, before: Release | None, now: datetime) -> Release:
    """The row after; what the change does not give stays. Times are those of the first arrival."""
    if before is None:
        raise conflict(process.id, f"there is no release of process {change.release or process.id}")
    if not may_move(RELEASE_TRANSITIONS, before.state, change.state):
        raise illegal_transition(
            process.id, f"no transition of its release from {before.state} to {change.state}"
        )
    given = {name: getattr(change, name) for name in ("place", "rows", "sums", "parts", "backup", "error")}
    times = {
        ReleaseState.MOVED: "moved_at",
        ReleaseState.QUARANTINED: "settled_at",
        ReleaseState.RETURNED: "settled_at",
    }
    stamped = {times[change.state]: now} if change.state in times else {}
    kept = {name: value for name, value in given.items() if value is not None}
    return replace(before, state=change.state, version=before.version + 1, **kept | stamped)
