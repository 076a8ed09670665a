"""Counts of all work, kept in memory (see `kept`) with an age that pages say.

Nothing is decided by them, and what is wrong is never listed from them. Making them reads every process.
"""

from collections import Counter
from datetime import datetime, timedelta

from calve.app.backup_facts import backup_rows, proven
from calve.app.counts import DAY_SECONDS, DAYS, QUARTER_SECONDS, Backed, Counts, Pair
from calve.app.kept import Kept
from calve.control.registry import ServedStore
from calve.model.process import ProcessId

QUARTERS = 96
_SIGHTINGS = 20_000
_LIVE = 1000
_ENDED = 1000


class Overview(Kept[Counts]):
    """Of one program."""

    def __init__(self, store: ServedStore) -> None:
        super().__init__(self.look, "overview")
        self._store = store

    def counts(self) -> Counts:
        return self.get()

    def look(self) -> Counts:
        """Made now, by the caller."""
        store = self._store
        totals = store.totals()
        made = Counts(
            at=totals.at,
            totals=totals,
            days=tuple(store.work_done(totals.at - timedelta(days=DAYS), piece_seconds=DAY_SECONDS)),
            quarters=tuple(store.work_done(totals.at - timedelta(days=1), piece_seconds=QUARTER_SECONDS)),
            pairs={one.subject: one for one in store.sightings("pair", limit=_SIGHTINGS)},
            health={one.subject: one for one in store.sightings("health", limit=_SIGHTINGS)},
            backups=tuple(store.sightings("backups")),
            backed_up=_backed_up(store),
            newest=_newest(store, totals.at),
            live=Counter((one.source, one.destination) for one in store.live(_LIVE) if one.kind == "export"),
        )
        _ = made.rows  # here, and not by the first page that shows them
        return made


def _backed_up(store: ServedStore) -> dict[str, Backed]:
    found: dict[str, Backed] = {}
    for place in [one.subject for one in store.sightings("backups")]:
        rows = backup_rows(store, place)
        proofs = proven(store, place, rows)
        for row in rows:
            proof = proofs.get(row["name"])
            good = proof if proof and proof.ok else None
            made = Backed(
                name=row["name"],
                made_at=row.get("created_at", ""),
                proven_at=good.at if good else None,
                depth=good.how if good else "",
            )
            for table in row.get("contents") or ():
                found.setdefault(f"{row['source']}:{table}", made)
    return found


def _newest(store: ServedStore, now: datetime) -> dict[Pair, ProcessId]:
    found: dict[Pair, ProcessId] = {}
    for one in store.ends(now - timedelta(days=DAYS), limit=_ENDED):
        if one.kind == "export":
            found.setdefault((one.source, one.destination), one.process_id)
    return found
