"""What the store knows of backups: how they were last seen, and what ever proved one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from calve.app.view import Json
from calve.control.registry import ServedStore
from calve.model.process import ProcessId, ProcessQuery
from calve.model.record import fields_of, rows_of
from calve.model.states import ProcessState

_RESTORES = 200
RESTORED = "restored"  # how, of a restore and of a drill that restored a sample


@dataclass(frozen=True, kw_only=True)
class Proven:
    """The newest proof of a backup, good or bad."""

    at: datetime
    how: str
    ok: bool = True


def backup_rows(store: ServedStore, location: str, *, first: int = 0, limit: int = 1) -> list[Json]:
    """Backups as they were last seen, newest first; of so many pieces."""
    pieces = store.sighting_body(location, "backups", first=first, limit=limit)
    rows = rows_of(pieces, "name")
    return [row for row in rows if not row.get("contents") or row.keys() >= {"source", "created_at"}]


def proven(store: ServedStore, location: str, rows: Sequence[Json]) -> dict[str, Proven]:
    """By the name of the backup: read back, or restored, after it was made."""
    return {name: max(found, key=lambda one: one.at) for name, found in _since_made(store, location, rows)}


def restored(store: ServedStore, location: str, rows: Sequence[Json]) -> dict[str, Proven]:
    """By the name of the backup: when it last was restored whole, or a sample of it."""
    some = {
        name: [one for one in found if one.how == RESTORED and one.ok]
        for name, found in _since_made(store, location, rows)
    }
    return {name: max(found, key=lambda one: one.at) for name, found in some.items() if found}


def _since_made(
    store: ServedStore, location: str, rows: Sequence[Json]
) -> Iterator[tuple[str, list[Proven]]]:
    """Those of an earlier backup of the name do not count."""
    made_at = {row["name"]: row.get("created_at") or "" for row in rows}
    for name, found in _known(store, location, rows).items():
        if name in made_at:
            made = datetime.fromisoformat(made_at[name]) if made_at[name] else None
            if some := [one for one in found if made is None or one.at >= made]:
                yield name, some


def _known(store: ServedStore, location: str, rows: Sequence[Json]) -> dict[str, list[Proven]]:
    named: dict[str, list[Proven]] = {}
    by_process = {ProcessId(row["process"]): row["name"] for row in rows if row.get("process")}
    for proof in store.proofs(list(by_process)):
        if proof.made_at:
            found = Proven(at=proof.made_at, how=proof.depth, ok=proof.ok)
            named.setdefault(by_process[proof.process_id], []).append(found)
    for seen in store.sightings_of("proof", list({row["name"] for row in rows})):
        known = fields_of(seen.summary)
        if seen.seen_at:
            how = f"{known.get('read_bytes', 0) / max(known.get('bytes', 0), 1):.0%} of the data"
            found = Proven(at=seen.seen_at, how=how, ok=bool(known.get("whole")))
            named.setdefault(seen.subject, []).append(found)
    done = frozenset({ProcessState.COMPLETED})
    for one in store.processes(ProcessQuery(kind="restore", states=done, limit=_RESTORES)):
        place, _, name = one.source.rpartition("/")
        if place == location.rstrip("/") and one.finished_at:
            named.setdefault(name, []).append(Proven(at=one.finished_at, how=RESTORED))
    return named
