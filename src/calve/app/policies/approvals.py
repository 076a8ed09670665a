"""Releases that wait for a person, as the worker noted them who evaluated the policy: pages and notices ask the store alone."""

import json
import socket
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import TYPE_CHECKING

from calve.app.wiring import App
from calve.model.record import rows_of
from calve.model.seen import Sighting
from calve.model.tier import RELEASE
from calve.policy.policy import Policy

if TYPE_CHECKING:
    from calve.app.policies.evaluation import Stood

WHAT = "approvals"


@dataclass(frozen=True, kw_only=True)
class WaitingRelease:
    """Of one table of a policy, by the rules that it has now."""

    policy: str
    hash: str
    source: str
    destination: str
    identity: str
    partitions: int
    rows: int
    since: datetime | None = None


_NOTED = [item.name for item in fields(WaitingRelease) if item.name != "since"]


def note(app: App, policy: Policy, stood: "Sequence[Stood]") -> None:
    found: dict[str, list[Stood]] = {}
    for one in stood:
        if one.standing.code == "not_approved":
            found.setdefault(one.table.source, []).append(one)
    tables = [
        WaitingRelease(
            policy=policy.name,
            hash=policy.hash,
            source=source,
            destination=some[0].table.destination,
            identity=some[0].table.identity,
            partitions=len(some),
            rows=sum(one.partition.rows for one in some),
        )
        for source, some in found.items()
    ]
    summary = json.dumps([{name: value for name, value in asdict(one).items() if value} for one in tables])
    last = app.registry.sighting(policy.name, WHAT)
    if summary == (last.summary if last else "[]"):
        return
    seen = Sighting(subject=policy.name, what=WHAT, summary=summary, seen_by=socket.gethostname())
    # If we die here, the last note stands until the next look.
    app.registry.put_sighting(seen)


def waiting(app: App) -> list[WaitingRelease]:
    """By the policies as they are configured, without what was approved since it was noted."""
    hashes = {one.name: one.hash for one in app.config.policies if one.releases}
    noted = app.registry.sightings_of(WHAT, list(hashes)) if hashes else []
    if not noted:
        return []
    approved = {
        (one.hash, one.identity, one.destination) for one in app.registry.approvals() if one.what == RELEASE
    }
    # What cannot be read is passed over (T10): the next look notes it again.
    found = [
        WaitingRelease(**{name: given.get(name, 0) for name in _NOTED}, since=seen.seen_at)
        for seen in noted
        for given in rows_of([seen.summary], "policy", "hash", "identity", "destination")
    ]
    return [
        one
        for one in found
        if one.hash == hashes.get(one.policy) and (one.hash, one.identity, one.destination) not in approved
    ]
