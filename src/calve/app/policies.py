"""Policies at work: a worker looks on an interval, evaluates, and queues exports and proofs as they are due.

Nothing here is remembered that matters: what is under way, what failed and what was started is read from the store, so
that any number of workers may do this at once. One of them looks; the store refuses what was started before or is
more than a limit allows. An export of a policy is an ordinary process; what it cannot export it says when it is planned.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from calve.app.exports import export_request
from calve.app.holds import matching
from calve.app.policy_look import PartitionLook, TableLook, last_look, look
from calve.app.proof import prove
from calve.app.values import Selection
from calve.app.wiring import App
from calve.clickhouse.sql.tokens import TableName
from calve.export.request import ExportOptions
from calve.export.submit import new_process, of_partition
from calve.model.access import Asked, Proof
from calve.model.errors import CalveError, LockedError, NotFoundError, RefusedError
from calve.model.process import GuardedTable, Process, ProcessId, ProcessQuery, Start, Starts
from calve.model.states import PROCESS_LIVE, ProcessState
from calve.model.tier import POLICY_HALT, Hold
from calve.policy.calendar import local_day
from calve.policy.policy import Policy
from calve.policy.stand import Action, ExportFacts, Facts, Failure, Standing, stand

_LOG = logging.getLogger(__name__)
_TICK_SECONDS = 15.0
_PROOFS_A_TICK = 4
_PROOF_SECONDS = 3600.0  # between two tries, and the longest that one may take
_MOST = 10_000
_OLDEST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Stood:
    """One partition of a policy, and where it stands."""

    table: TableLook
    partition: PartitionLook
    facts: Facts
    standing: Standing
    attempt: int = 1  # that would start next
    holds: tuple[Hold, ...] = ()

    @property
    def order(self) -> tuple[datetime, str]:
        """By time, never by the text of an id alone."""
        return self.partition.lower or self.partition.changed_at or _OLDEST, self.partition.id


def evaluate(app: App, policy: Policy, looks: Sequence[TableLook]) -> list[Stood]:
    """Where each partition stands, by what was last seen and what the store knows now; oldest first."""
    return sorted((one for table in looks for one in _stood(app, policy, table)), key=lambda one: one.order)


def _stood(app: App, policy: Policy, table: TableLook) -> Iterator[Stood]:
    store, ids = app.store, [one.id for one in table.partitions]
    query = ProcessQuery(
        source=table.source, destination=table.destination, kind="export", states=PROCESS_LIVE, limit=_MOST
    )
    live = {id: process.id for process in store.processes(query) for id in process.partitions}
    starts: dict[str, list[Start]] = {}
    for start in store.starts(table.identity, table.destination, ids) if table.identity else ():
        starts.setdefault(start.partition, []).append(start)
    exported = list(dict.fromkeys(ProcessId(one.process) for one in table.partitions if one.process))
    proofs: dict[str, bool] = {}
    for proof in reversed(app.registry.proofs(exported)):  # the newest counts
        proofs[proof.process_id] = proof.ok
    skew = timedelta(seconds=table.skew_seconds)
    shared = _is_shared(app, policy, table)
    guarded = GuardedTable(identity=table.identity, uuid=table.uuid, name=table.source)
    standing_holds = app.registry.holds()
    for one in table.partitions:
        holds = tuple(matching(standing_holds, guarded, one.id))
        tried = [start for start in starts.get(one.id, ()) if start.content == one.content]
        facts = Facts(
            policy=policy,
            now=store.now() + min(timedelta(), skew),
            looked_at=table.looked_at,
            skew=skew,
            shared=shared,
            there=one.there,
            closed_at=one.closed_at,
            changed_at=one.changed_at,
            bytes=one.bytes,
            mutating=table.mutating,
            live=live.get(one.id, ""),
            export=_export(app, one, proofs) if one.process else None,
            failure=_failure(app, tried),
            held=bool(holds),
        )
        attempt = len(tried) + 1
        yield Stood(
            table=table, partition=one, facts=facts, standing=stand(facts), attempt=attempt, holds=holds
        )


def _is_shared(app: App, policy: Policy, table: TableLook) -> bool:
    """Whether another policy of this configuration exports the table to the same place."""
    source = policy.source or app.config.default_source
    return any(
        other.name != policy.name
        and (other.source or app.config.default_source) == source
        and other.names(table.database, table.table)
        and other.destination(table.database, table.table) == policy.destination(table.database, table.table)
        for other in app.config.policies
    )


def _export(app: App, one: PartitionLook, proofs: dict[str, bool]) -> ExportFacts:
    proven = proofs.get(one.process)
    return ExportFacts(
        process=one.process,
        unchanged=one.unchanged,
        missing=one.missing,
        released=one.released,
        grows=one.grows,
        known=proven is not None or _process(app, one.process) is not None,
        proven=proven,
    )


def _failure(app: App, tried: Sequence[Start]) -> Failure | None:
    """Of the newest start; `tried` are those of one content, newest first."""
    last = _process(app, tried[0].process_id) if tried else None
    if last is None or last.state not in (ProcessState.FAILED, ProcessState.CANCELLED):
        return None
    return Failure(
        code=last.error.code if last.error else "cancelled",
        at=last.finished_at or last.created_at,
        times=len(tried),
        policy=tried[0].hash,
    )


def _process(app: App, id: str) -> Process | None:
    try:
        return app.store.process(ProcessId(id))
    except NotFoundError:
        return None


def is_paused(app: App, policy: Policy) -> bool:
    return any(one.kind == POLICY_HALT and one.source in ("", policy.name) for one in app.store.halts())


def start(app: App, policy: Policy, stood: Sequence[Stood]) -> list[Process]:
    """Queue the exports that are due, oldest first, within the limits. A run takes no more once it has begun."""
    now = app.store.now()
    day = local_day(now, policy.zone).isoformat()
    live, spent = app.store.started(policy.name, day)
    if live:
        return []
    begun: list[Process] = []
    for one in stood:
        if one.standing.next not in (Action.EXPORT, Action.REPLACE):
            continue
        if len(begun) == policy.partitions_per_run:
            break
        if policy.bytes_per_day and spent + one.partition.bytes > policy.bytes_per_day:
            continue  # a smaller one may still fit
        process = _begin(app, policy, one, day)
        if process is not None:
            begun.append(process)
            spent += one.partition.bytes
    return begun


def _begin(app: App, policy: Policy, one: Stood, day: str) -> Process | None:
    """None where another was first, or the limits were reached meanwhile."""
    table, action = one.table, one.standing.next
    assert action is not None
    name = TableName(
        source=policy.source or app.config.default_source, database=table.database, table=table.table
    )
    selection = Selection(partitions=(one.partition.id,))
    options = ExportOptions(force=action is Action.REPLACE)
    request = export_request(app, str(name), table.destination, selection, options)
    new = new_process(app, of_partition(request, one.partition.id), table.identity)
    item = Start(
        policy=policy.name,
        hash=policy.hash,
        action=action.value,
        identity=table.identity,
        partition=one.partition.id,
        destination=table.destination,
        content=one.partition.content,
        attempt=one.attempt,
        bytes=one.partition.bytes,
        day=day,
        process_id=new.id,
    )
    starts = Starts(items=(item,), at_once=policy.partitions_per_run, bytes_a_day=policy.bytes_per_day)
    asked = Asked(who=f"policy {policy.name}", verb="export", subject=table.source)
    try:
        # If we die here, the process and its start are there, or neither.
        return app.store.submit([new], asked=asked, starts=starts)[0]
    except LockedError:
        return None  # somebody exports it by hand
    except RefusedError as error:
        if error.code not in ("already_started", "over_limit"):
            raise
        return None


def verify(app: App, stood: Sequence[Stood]) -> list[str]:
    """Prove exports that nobody has proven, a few at a time; the processes that were looked at."""
    due = dict.fromkeys(one.partition.process for one in stood if one.standing.next is Action.VERIFY)
    done: list[str] = []
    for id in due:
        if len(done) == _PROOFS_A_TICK:
            break
        if not app.registry.claim_look(
            id, "policy-proof", again_seconds=_PROOF_SECONDS, lease_seconds=_PROOF_SECONDS
        ):
            continue
        done.append(id)
        try:
            proof = prove(app, ProcessId(id))
        except CalveError as error:
            _LOG.warning("proving process %s: %s", id, error.message)
            app.registry.fail_look(id, "policy-proof", error.message)
            continue
        # If we die here, it was proven and nobody knows: it is proven again in an hour.
        app.registry.record_proof(
            Proof(
                process_id=ProcessId(id),
                ok=proof.ok,
                depth="destination",
                detail="; ".join(proof.faults)[:500],
            )
        )
    return done


def tick(app: App, policy: Policy) -> list[Process]:
    """Look if it is time, and start what is due; what was started."""
    looks = look(app, policy, again=policy.look_every)
    if looks is None or is_paused(app, policy):
        return []
    stood = evaluate(app, policy, looks)
    begun: list[Process] = []
    if policy.window is None or policy.window.is_open(app.store.now()):
        begun = start(app, policy, stood)
    verify(app, stood)
    return begun


def standing_now(app: App, policy: Policy) -> list[Stood]:
    """From the store alone."""
    return evaluate(app, policy, last_look(app, policy))


@contextmanager
def following_policies(app: App) -> Iterator[None]:
    """Carry out the policies of the configuration for as long as the block lasts. A tick
    that fails is tried again at the next: the thread never ends by an error."""
    stop = threading.Event()
    thread = threading.Thread(target=_run, args=(app, stop), name="calve-policies", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=2 * app.limits.call_seconds)


def _run(app: App, stop: threading.Event) -> None:
    while not stop.is_set():
        for policy in app.config.policies:
            try:
                for process in tick(app, policy):
                    _LOG.info("policy %s: process %s exports %s", policy.name, process.id, process.source)
            except CalveError as error:
                _LOG.warning("policy %s: %s", policy.name, error.message)
            except Exception:  # noqa: BLE001 - the border of the thread: it must not end
                _LOG.warning("policy %s failed; retrying", policy.name, exc_info=True)
            if stop.is_set():
                return
        stop.wait(_TICK_SECONDS)
