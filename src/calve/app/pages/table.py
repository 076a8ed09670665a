"""One source table and its destination: the last look at both, and over it what the store knows since.

Partitions come in pieces of the sighting: a page of 200 reads one or two of them. A look is as old as it says; a
partition that was exported since is marked so, and is not counted again.
"""

from collections.abc import Sequence
from typing import Any

from calve.app import view
from calve.app.backups.facts import backup_rows, proven
from calve.app.commands import command
from calve.app.destination import as_stored
from calve.app.pages.counts import summary_of
from calve.app.pages.document import Remembered, head, with_why
from calve.app.pages.sightings import PIECE, pair
from calve.app.policies.holds import matching
from calve.app.processes import source_table
from calve.app.statements import statements
from calve.app.view import Json
from calve.app.wiring import App
from calve.model.errors import UsageError
from calve.model.process import GuardedTable, Process, ProcessId, ProcessQuery
from calve.model.record import fields_of, rows_of
from calve.model.seen import ProcessEnd, Sighting
from calve.model.states import PROCESS_LIVE, ProcessState

PAGE = 200
FILTERED_PIECES = 20  # above it a filter would read too much
_STATES = ("", "no", "unchanged", "changed", "missing", "gone")
_NEWEST = 10
_MOST = 200
_NEEDED = ("id", "process", "exported")  # of a partition that was seen


def table(app: App, source: str, to: str, *, page: int = 1, exported: str = "") -> Json:
    """`exported`: only partitions that stand so."""
    document = head(app)
    source, to = source_table(app, source), as_stored(to, app.config)
    if exported not in _STATES:
        raise UsageError("invalid exported", code="bad_option", hint=f"give one of {', '.join(_STATES[1:])}")
    subject = pair(source, to)
    seen = app.registry.sighting(subject, "pair")
    rows, total, complete, page = _partitions(app, seen, subject, page, exported)
    query = ProcessQuery(source=source, destination=to, kind="export", limit=_MOST)
    live = app.store.processes(_of(query, PROCESS_LIVE))
    since = _since(app, seen, source, to)
    reader = Remembered(app.store)
    halt = next((one for one in reader.halts() if one.kind == "export" and one.source in ("", source)), None)
    proofs = _proofs(app, [row["process"] for row in rows if row["process"]])
    held = {one.process_id for one in app.registry.old_pins(reader.now(), _MOST)}
    holds, named = app.registry.holds(), GuardedTable(identity="", uuid="", name=source)
    backups = _backups(app, source)
    known, health = summary_of(seen), summary_of(app.registry.sighting(to, "health"))
    snapshots = app.registry.sighting_body(to, "health")
    newest = app.store.processes(_of(query, frozenset(), _NEWEST))
    given = {"table": source, "to": to}
    return document | {
        "source": source,
        "destination": to,
        "seen": {
            "at": view.time_json(seen.seen_at) if seen else None,
            "by": seen.seen_by if seen else "",
            "tried_at": view.time_json(seen.tried_at) if seen else None,
            "error": seen.error if seen else "",
        },
        "known": bool(newest),
        "sentence": sentence(known.get("counts"), known.get("partitions", 0)),
        "counts": known.get("counts"),
        "partitions": [
            row
            | {
                "verified": proofs.get(row["process"]),
                "live": _live(row["id"], live),
                "held": [
                    *(f"held by {one.who}: {one.reason}" for one in matching(holds, named, row["id"])),
                    *(
                        f"frozen by {one.id}"
                        for one in live
                        if one.id in held and row["id"] in one.partitions
                    ),
                ],
                "backup": backups.get(row["id"]),
                "dropped": row["exported"] == "gone",
                "since_seen": next((one.process_id for one in since if row["id"] in one.partitions), None),
            }
            for row in rows
        ],
        "total": total,
        "page": page,
        "pages": max(1, -(-total // PAGE)),
        "exported": exported,
        "complete": complete,
        "halt": view.plain_json(halt) if halt else None,
        "health": health or None,
        "snapshots": rows_of(snapshots[:1]) if snapshots else None,
        "sizes": _sizes(app, to, health),
        "read": statements(to, health.get("location", ""), app.config),
        "processes": with_why(reader, newest),
        # Of a pair that had no export nobody looks by himself.
        "subjects": [
            *([["pair", subject], ["health", to]] if newest else []),
            ["backups", app.config.backup_url],
        ],
        "commands": {
            "partitions": command("partitions", **given),
            "export": command("export_preview", **given, all=True),
            "halt": command("halt", table=source),
        },
    }


def sentence(counts: Json | None, total: int) -> str:
    if counts is None:
        return "Nobody has looked at this table yet."
    done, gone = counts["exported"] + counts["changed"], counts.get("gone", 0)
    said = [f"{done} of {total - gone} partitions {'is' if done == 1 else 'are'} exported"]
    if counts["changed"]:
        said.append(f"{counts['changed']} of them changed since")
    if counts["missing"]:
        said.append(f"{counts['missing']} exported and gone from the destination")
    if gone:
        said.append(f"{gone} exported and gone from the source")
    return f"{', '.join(said)}."


def _of(query: ProcessQuery, states: frozenset[ProcessState], limit: int = _MOST) -> ProcessQuery:
    return ProcessQuery(
        source=query.source, destination=query.destination, kind=query.kind, states=states, limit=limit
    )


def _partitions(
    app: App, seen: Sighting | None, subject: str, page: int, exported: str
) -> tuple[list[Json], int, bool, int]:
    """The rows of a page, how many there are, whether these are all that were asked for, and which page it is: the last
    one if there are fewer."""
    total = int(summary_of(seen).get("partitions", 0))
    if seen is None or not seen.pieces:
        return [], total, not total, 1
    if not exported:
        page, start = _page(page, total)
        piece = start // PIECE
        found = rows_of(app.registry.sighting_body(subject, "pair", first=piece), *_NEEDED)
        return found[start - piece * PIECE :][:PAGE], total, True, page
    pieces = app.registry.sighting_body(subject, "pair", limit=FILTERED_PIECES)
    fitting = [row for row in rows_of(pieces, *_NEEDED) if row["exported"] == exported]
    page, start = _page(page, len(fitting))
    return fitting[start : start + PAGE], len(fitting), seen.pieces <= FILTERED_PIECES, page


def _page(page: int, total: int) -> tuple[int, int]:
    """One that there is, and where it begins."""
    page = min(max(page, 1), max(1, -(-total // PAGE)))
    return page, (page - 1) * PAGE


def _since(app: App, seen: Sighting | None, source: str, to: str) -> list[ProcessEnd]:
    """Exports of the pair that completed after the look."""
    if seen is None or seen.seen_at is None:
        return []
    found = app.registry.ends(
        seen.seen_at, state=ProcessState.COMPLETED, kind="export", source=source, limit=_MOST
    )
    return [one for one in found if one.destination == to and one.finished_at > seen.seen_at]


def _proofs(app: App, ids: Sequence[ProcessId]) -> dict[str, Json]:
    """The newest of each."""
    found: dict[str, Json] = {}
    for one in app.registry.proofs(list(dict.fromkeys(ids))[:_MOST]):
        made = {"at": view.time_json(one.made_at), "ok": one.ok, "depth": one.depth}
        found.setdefault(one.process_id, made)
    return found


def _backups(app: App, source: str) -> dict[str, Json]:
    """By partition: the newest backup that has it."""
    name, _, table = source.partition(":")
    place = app.config.backup_url
    rows = [row for row in backup_rows(app.registry, place) if table in (row.get("contents") or ())]
    proofs = proven(app.registry, place, rows) if rows else {}
    found: dict[str, Json] = {}
    for row in rows:
        if row["source"] == name:
            proof = proofs.get(row["name"])
            proven_at = view.time_json(proof.at) if proof and proof.ok else None
            made = {"name": row["name"], "at": row["created_at"], "proven_at": proven_at}
            for partition in row["contents"][table]:
                found.setdefault(partition, made)
    return found


def _sizes(app: App, to: str, health: Json) -> Json:
    """Files by size as they were last seen, and before the last optimize: counts for the same classes."""
    query = ProcessQuery(kind="optimize", destination=to, states=frozenset({ProcessState.COMPLETED}), limit=1)
    optimized = app.store.processes(query)
    before = fields_of(optimized[0].result).get("before", {}).get("sizes") if optimized else None
    return {
        "now": health.get("sizes"),
        "before": before,
        "optimize_id": optimized[0].id if optimized else None,
    }


def _live(partition: str, live: Sequence[Process]) -> dict[str, Any] | None:
    for one in live:
        if partition in one.partitions:
            share = one.tasks.done / one.tasks.total if one.tasks.total else 0.0
            return {"id": one.id, "state": one.state.value, "share": round(share, 3)}
    return None
