"""Where a partition stands under a policy: one state from facts alone. Total and pure; the first rule that fits decides.

Nothing here is remembered. A program that starts, a second worker and a forecast with another `now` get the same answer
from the same facts.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from calve.policy.policy import LateRows, Policy

SKEW_AT_MOST = timedelta(minutes=5)
LOOKS_KEPT = 3  # so many times `look_every` a look may be old
KEPT_AT_LEAST = timedelta(minutes=1)  # a look at many tables takes a while
RETRY_AT_MOST = timedelta(hours=24)


class State(StrEnum):
    HOT = "HOT"  # not over yet, or still changing
    DUE = "DUE"
    EXPORTING = "EXPORTING"
    EXPORTED = "EXPORTED"
    VERIFIED = "VERIFIED"
    GRACE = "GRACE"  # proven, and it leaves its table once its grace is over
    RELEASING = "RELEASING"
    QUARANTINED = "QUARANTINED"  # out of its table, and proven; a person can undo it
    DROPPED = "DROPPED"  # the lake has the only copy
    CHANGED = "CHANGED"  # rows came after the export, and are exported again
    HELD = "HELD"  # a person decides
    BLOCKED = "BLOCKED"


# Why new rows could not be told from old ones. It stays so until the partition changes.
INSEPARABLE = frozenset({"mixed_merge", "rows_gone", "parts_came_back", "blocks_unknown"})


class NextAction(StrEnum):
    """What would start."""

    EXPORT = "export"
    APPEND = "append"
    REPLACE = "replace"
    PROVE = "proof"
    RELEASE = "release"


EXPORTS = frozenset({NextAction.EXPORT, NextAction.APPEND, NextAction.REPLACE})
STARTS = EXPORTS | {NextAction.RELEASE}  # what a run begins, and its limits count


@dataclass(frozen=True, kw_only=True)
class ExportFacts:
    """The export of a partition, as the destination and the store know it."""

    process: str
    unchanged: bool  # since, at the source
    missing: bool = False  # from the destination
    released: bool = False
    grows: bool = False  # every block and row is still there, and nothing was changed: only rows were added
    known: bool = True  # to this store, which can then prove it
    proven: bool | None = None  # None: nobody has looked, or not as the policy asks
    depth: str = ""  # of that proof
    proving: str = ""  # a process that proves it
    unproven: "Failure | None" = None  # the last process that ended without an answer


@dataclass(frozen=True, kw_only=True)
class ReleaseFacts:
    """What is known of a partition that may leave its table, or did."""

    approved: bool = False  # somebody approved releases by this policy as it is
    proven_at: datetime | None = None  # row by row
    rival: bool = False  # another policy of this configuration releases from the table
    over: str = ""  # why its time is not over for good: a code
    live: str = ""  # a process that moves it, out or back
    state: str = ""  # of its last release
    error: str = ""  # with which that one went back
    moved: bool = False  # and its rows had left
    back_at: datetime | None = None  # when they were back, or were let stay
    since: "Failure | None" = None  # the last start that ended before anything left


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The last start for this content that failed."""

    code: str
    at: datetime
    times: int  # in a row
    policy: str = ""  # its hash then; "": whatever the rules are, trying again changes nothing


@dataclass(frozen=True, kw_only=True)
class PartitionFacts:
    """All that is known of one partition at one moment."""

    policy: Policy
    now: datetime  # of the store, or the source's if that is earlier
    looked_at: datetime | None = None  # the last look that succeeded
    skew: timedelta = timedelta()  # source's clock less the store's
    shared: bool = False  # another policy exports the table to the same destination
    alone: bool = True  # no other table of the policy goes to its destination
    there: bool = True  # at the source
    closed_at: datetime | None = None  # None: no time key
    changed_at: datetime | None = None  # when this content was first seen
    bytes: int = 0
    mutating: bool = False  # an ALTER has not reached every part
    live: str = ""  # a process that exports it
    export: ExportFacts | None = None
    failure: Failure | None = None
    held: bool = False  # somebody wants its rows to stay
    release: ReleaseFacts = field(default_factory=ReleaseFacts)


@dataclass(frozen=True, kw_only=True)
class PartitionStanding:
    state: State
    code: str = ""  # why, of those aside
    until: datetime | None = None  # it changes by itself then, if nothing else happens
    next: NextAction | None = None  # what starts now


def stand(facts: PartitionFacts) -> PartitionStanding:
    if facts.live:
        return PartitionStanding(state=State.EXPORTING)
    if (unknown := _unknown(facts)) is not None:
        return unknown
    if facts.release.live:
        return PartitionStanding(state=State.RELEASING)
    export = facts.export
    if export is None:
        return _not_exported(facts)
    if export.released and (out := _out(facts, export)) is not None:
        return out
    if export.missing:
        return _blocked("no_longer_there")
    if not facts.there:
        return (
            PartitionStanding(state=State.VERIFIED, code="gone_at_source")
            if export.proven
            else _verify(facts, export)
        )
    if not export.unchanged:
        return _late(facts, export)
    return _verify(facts, export)


def _unknown(facts: PartitionFacts) -> PartitionStanding | None:
    """Facts that are not to be trusted."""
    if facts.looked_at is None or facts.now - facts.looked_at > max(
        LOOKS_KEPT * facts.policy.look_every, KEPT_AT_LEAST
    ):
        return _blocked("source_unseen")
    if abs(facts.skew) > SKEW_AT_MOST:
        return _blocked("clock_skew")
    if not facts.alone:
        return _blocked("shared_destination")
    return _blocked("two_policies") if facts.shared else None


def _not_exported(facts: PartitionFacts) -> PartitionStanding:
    quiet_at = None if facts.changed_at is None else facts.changed_at + facts.policy.quiet
    if facts.closed_at is not None:
        due_at = facts.closed_at + facts.policy.export_after
    elif facts.changed_at is not None:
        due_at = facts.changed_at + facts.policy.export_after  # without a time key, its last change counts
    else:
        return _blocked("source_unseen")
    due_at = max(due_at, quiet_at or due_at)
    if facts.now < due_at:
        return PartitionStanding(state=State.HOT, until=due_at)
    return _start(facts, PartitionStanding(state=State.DUE, next=NextAction.EXPORT))


def _late(facts: PartitionFacts, export: ExportFacts) -> PartitionStanding:
    if facts.policy.on_late_rows is LateRows.APPEND:  # takes nothing away: released and held ones too
        failure = facts.failure
        if failure is not None and failure.policy == facts.policy.hash and failure.code in INSEPARABLE:
            return PartitionStanding(state=State.HELD, code=failure.code)
        return _once_quiet(facts, NextAction.APPEND)
    if export.released:
        return PartitionStanding(
            state=State.HELD, code="released"
        )  # whatever the policy says: it is never replaced
    if facts.policy.on_late_rows is LateRows.HOLD:
        return PartitionStanding(state=State.HELD, code="late_rows")
    if facts.held:
        return PartitionStanding(state=State.HELD, code="hold")
    if not export.grows:
        return PartitionStanding(state=State.HELD, code="rows_gone")
    return _once_quiet(facts, NextAction.REPLACE)


def _once_quiet(facts: PartitionFacts, action: NextAction) -> PartitionStanding:
    quiet_at = (facts.changed_at or facts.now) + facts.policy.quiet
    if facts.now < quiet_at:
        return PartitionStanding(state=State.CHANGED, until=quiet_at)
    return _start(facts, PartitionStanding(state=State.CHANGED, next=action))


def _verify(facts: PartitionFacts, export: ExportFacts) -> PartitionStanding:
    if export.proving:
        return PartitionStanding(state=State.EXPORTED)
    if export.proven is None and not export.known:
        return PartitionStanding(state=State.EXPORTED, code="unknown_process")
    if export.proven is None:
        return _unless(export.unproven, facts, PartitionStanding(state=State.EXPORTED, next=NextAction.PROVE))
    return _proven(facts) if export.proven else _blocked("proof_failed")


def _out(facts: PartitionFacts, export: ExportFacts) -> PartitionStanding | None:
    """Of what left its table; None where rows have come since, which are exported like others."""
    release, state = facts.release, facts.release.state
    if export.missing or state == "LOST":
        return _blocked("released_rows_missing")
    if state in ("MARKED", "MOVING", "MOVED"):
        return PartitionStanding(state=State.RELEASING)
    if state == "RETURNING":  # and no process brings it back
        return PartitionStanding(state=State.HELD, code="halfway")
    if facts.there and not export.unchanged:
        return None
    if release.back_at is not None and facts.looked_at is not None and facts.looked_at < release.back_at:
        # The mark that was seen is gone. Nothing starts before the next look.
        stays = PartitionStanding(state=State.GRACE)
        return _came_back(release) if release.moved else _unless(release.since, facts, stays)
    if state not in ("QUARANTINED", "DROPPING", "DROPPED"):
        return PartitionStanding(state=State.HELD, code="released_elsewhere")
    return PartitionStanding(state=State.DROPPED if state == "DROPPED" else State.QUARANTINED)


def _proven(facts: PartitionFacts) -> PartitionStanding:
    """It stays, unless the policy releases and nothing is against it."""
    release, policy = facts.release, facts.policy
    if not policy.releases:
        return PartitionStanding(state=State.VERIFIED)
    if release.state == "RETURNED" and release.moved:
        return _came_back(release)
    if release.rival:
        return _blocked("two_policies")
    if release.over:
        return PartitionStanding(state=State.VERIFIED, code=release.over)
    if release.proven_at is None:
        return PartitionStanding(state=State.VERIFIED, code="not_by_value")
    leaves_at = release.proven_at + policy.release_after
    if facts.now < leaves_at:
        return PartitionStanding(state=State.GRACE, until=leaves_at)
    if facts.held:
        return PartitionStanding(state=State.HELD, code="hold")
    if not release.approved:
        return PartitionStanding(state=State.HELD, code="not_approved")
    wanted = PartitionStanding(state=State.GRACE, next=NextAction.RELEASE)
    return _blocked("mutation") if facts.mutating else _unless(release.since, facts, wanted)


def _came_back(release: ReleaseFacts) -> PartitionStanding:
    code = "undone" if release.error.startswith("undone") else "came_back"
    return PartitionStanding(state=State.HELD, code=code)


def _start(facts: PartitionFacts, wanted: PartitionStanding) -> PartitionStanding:
    """Unless something is in the way that time or a person removes."""
    return _blocked("mutation") if facts.mutating else _unless(facts.failure, facts, wanted)


def _unless(failure: Failure | None, facts: PartitionFacts, wanted: PartitionStanding) -> PartitionStanding:
    """What failed lately waits, longer each time."""
    if failure is None or failure.policy not in ("", facts.policy.hash):
        return wanted
    again = again_at(failure.at, failure.times)
    if facts.now < again:
        return PartitionStanding(state=State.BLOCKED, code=failure.code, until=again)
    return wanted


def again_at(failed_at: datetime, times: int) -> datetime:
    """When to try again what failed so often."""
    later: timedelta = timedelta(hours=1) * 2 ** min(times - 1, 10)
    return failed_at + min(later, RETRY_AT_MOST)


def _blocked(code: str) -> PartitionStanding:
    return PartitionStanding(state=State.BLOCKED, code=code)
