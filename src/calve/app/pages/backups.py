"""Backups on a page: as they were last seen, what proved each, and what the store did since."""

from collections import Counter
from datetime import datetime, timedelta

from calve.app import view
from calve.app.backups.facts import Proven, backup_rows, proven, restored
from calve.app.backups.schedule_view import schedule_list
from calve.app.commands import command
from calve.app.pages.counts import summary_of
from calve.app.pages.document import Remembered, head, with_why
from calve.app.pages.sightings import PIECE
from calve.app.view import Json
from calve.app.wiring import App
from calve.model.errors import NotFoundError
from calve.model.process import Process, ProcessQuery
from calve.model.states import PROCESS_LIVE, ProcessState

PAGE = 200
DAYS = 91
_NEWEST = 50
_FAILED = 500
_PIECES = 5


def vault(app: App, *, name: str = "", page: int = 1) -> Json:
    """`name`: one backup alone, with its tables as far as they were seen."""
    document = head(app)
    store, location = app.store, app.config.backup_url
    seen = app.registry.sighting(location, "backups")
    rows = backup_rows(app.registry, location, limit=_PIECES)
    made = store.processes(ProcessQuery(kind="backup", limit=_NEWEST))
    rows = [*_since(made, rows, seen.seen_at if seen else None), *rows]
    proofs = proven(app.registry, location, rows)
    restores_proven = restored(app.registry, location, rows)
    restores = store.processes(ProcessQuery(kind="restore", limit=_NEWEST))
    shown = [row for row in rows if not name or row["name"] == name]
    if name and not shown:
        raise NotFoundError(
            f"no backup {name} was seen in {location}",
            code="no_backup",
            hint="calve backup list; a page shows it once the server has looked",
        )
    pages = max(1, -(-len(shown) // PAGE))
    page = min(max(page, 1), pages)
    reader, live = Remembered(store), [one for one in (*made, *restores) if one.state in PROCESS_LIVE]
    now = reader.now()
    return document | {
        "location": location,
        "seen": {
            "at": view.time_json(seen.seen_at) if seen else None,
            "by": seen.seen_by if seen else "",
            "tried_at": view.time_json(seen.tried_at) if seen else None,
            "error": seen.error if seen else "",
        },
        "name": name,
        "backups": [_backup(row, proofs, whole=bool(name)) for row in shown[(page - 1) * PAGE :][:PAGE]],
        "total": len(shown),
        "page": page,
        "pages": pages,
        "complete": len(rows) < PIECE * _PIECES,
        "stored_bytes": summary_of(seen).get("stored_bytes"),
        "restored_at": view.time_json(max((one.at for one in restores_proven.values()), default=None)),
        "schedules": [] if name else schedule_list(app),
        "calendar": _calendar(app, rows, proofs, now),
        "live": with_why(reader, live),
        "restores": with_why(reader, [one for one in restores if not name or _named(one.source) == name]),
        "subjects": [["backups", location]],
        "commands": {
            "list": command("backup_list"),
            **({"show": command("backup_show", name=name)} if name else {}),
            **({"verify": command("backup_verify", name=name)} if name else {}),
            **({"restore": command("backup_restore", name=name)} if name else {}),
            **({"delete": command("backup_delete", name=name)} if name else {}),
        },
    }


def _named(place: str) -> str:
    return place.rpartition("/")[2]


def _since(made: list[Process], rows: list[Json], seen_at: datetime | None) -> list[Json]:
    """Backups that this store has made since the last look: what deleting them would free nobody knows yet."""
    known = {row.get("process") for row in rows}
    return [
        {
            "name": _named(one.destination),
            "created_at": one.finished_at.isoformat(),
            "source": one.source.partition(":")[0],
            "process": one.id,
            "rows": one.rows,
            "bytes": one.bytes,
            "error": None,
            "not_seen": True,
        }
        for one in made
        if one.state is ProcessState.COMPLETED
        and one.finished_at
        and (seen_at is None or one.finished_at > seen_at)
        and one.id not in known
    ]


def _backup(row: Json, proofs: dict[str, Proven], *, whole: bool) -> Json:
    proof = proofs.get(row["name"])
    own = row.get("own_bytes")
    shown = {name: value for name, value in row.items() if name != "contents"}
    return shown | {
        "shares": row["bytes"] - own if own is not None else None,
        "frees": own,
        "proven": {"at": view.time_json(proof.at), "how": proof.how, "ok": proof.ok} if proof else None,
        "not_seen": row.get("not_seen", False),
        **({"contents": row.get("contents")} if whole else {}),
    }


def _calendar(app: App, rows: list[Json], proofs: dict[str, Proven], now: datetime) -> list[Json]:
    """The last days of UTC, oldest first: how many backups were made, proven, and failed."""
    first = now.date() - timedelta(days=DAYS - 1)
    since = now - timedelta(days=DAYS)
    failed = app.registry.ends(since, state=ProcessState.FAILED, kind="backup", limit=_FAILED)
    days = {
        "made": Counter((row.get("created_at") or "")[:10] for row in rows),
        "proven": Counter(one.at.date().isoformat() for one in proofs.values() if one.ok),
        "failed": Counter(one.finished_at.date().isoformat() for one in failed),
    }
    return [
        {"day": day, **{name: counts[day] for name, counts in days.items()}}
        for day in ((first + timedelta(days=at)).isoformat() for at in range(DAYS))
    ]
