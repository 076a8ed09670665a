"""Released rows are counted again every day, by whichever worker is first, and files are read back in rotation.

What was found is a sighting of the destination: pages, `calve doctor`, metrics and the next count read it. Its body
is what the next count needs, heirs and checks of files; it is written before the tag moves, so it never knows less than
the tag says.
"""

import json
import logging
import socket
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from calve.app.destination import parse_table
from calve.app.pages.counts import summary_of
from calve.app.threads import beside
from calve.app.view import Json
from calve.app.wiring import App
from calve.destination.names import DestinationAddress
from calve.model.codec import Malformed, decode
from calve.model.errors import CalveError
from calve.model.reach import is_folder
from calve.model.seen import RELEASED, Sighting
from calve.model.states import ReleaseState

if TYPE_CHECKING:
    from calve.iceberg.rotation import Checked

_LEASE_SECONDS = 3600.0
_TICK_SECONDS = 60.0
_LIST_SECONDS = 600.0
_PIECE = 1000
_MOST_PIECES = 1000
_SHOWN = 10
_LATE = 3  # so many intervals without a count
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class GuardSeen:
    """What was last found of one table with released rows."""

    destination: str
    seen_at: datetime | None
    error: str  # why the newest count failed
    summary: Json

    @property
    def missing(self) -> int:
        found = self.summary.get("missing")
        return found if isinstance(found, int) else 0

    @property
    def why(self) -> str:
        found = self.summary.get("faults")
        return "; ".join(map(str, found)) if isinstance(found, list) else ""

    def is_late(self, app: App, now: datetime) -> bool:
        most = timedelta(hours=_LATE * app.limits.guard_hours)
        return self.seen_at is not None and now - self.seen_at > most


def standing(app: App) -> list[GuardSeen]:
    """Of all tables that had released rows when they were last counted; from the store alone."""
    found = []
    for one in app.registry.sightings(RELEASED):
        summary = summary_of(one)
        if summary.get("keys"):
            found.append(
                GuardSeen(destination=one.subject, seen_at=one.seen_at, error=one.error, summary=summary)
            )
    return found


def count_released(app: App, destination: str) -> Json | None:
    """Count now, check a share of the files, move the tag; what was found. None where nothing is released."""
    from calve.iceberg.guard import Recount, move_tag, recount
    from calve.iceberg.rotation import check_some
    from calve.iceberg.tables import load, receipts_location

    address = parse_table(destination, app.config)
    catalog = app.catalog(address.catalog)
    share = app.limits.guard_mb * 1_000_000
    heirs, checked = _kept(app, destination)
    found: Recount | None = recount(catalog, address.identifier, heirs, share)
    if found is None:
        _keep(app, destination, {"keys": 0}, {}, {})
        return None
    table = load(catalog, address.identifier)
    held = {one.path for one in found.files}
    known = {path: one for path, one in checked.items() if path in held}
    checks = check_some(
        table,
        app.destination(address).storage(),
        receipts_location(catalog, table),
        found.files,
        known,
        now=app.store.now().timestamp(),
        most_bytes=max(0, share - found.read_bytes),
    )
    known |= checks.checked
    summary = _summary(found, known) | {
        "missing": found.missing + checks.missing,
        "faults": [*found.faults, *checks.faults][:_SHOWN],
        "read_bytes": found.read_bytes + checks.bytes,
    }
    summary["repair"] = _repair(app, address, found) if summary["missing"] else []
    _keep(app, destination, summary, found.heirs, {path: asdict(one) for path, one in known.items()})
    if found.tag != found.tag_before and not checks.faults:
        move_tag(catalog, address.identifier, found)
    return summary


def _summary(found: Any, known: Mapping[str, Any]) -> Json:
    times = [one.at for one in known.values()]
    unread = [one.path for one in found.files if one.path not in known]
    return {
        "keys": len(found.keys),
        "rows": sum(one.rows for one in found.keys),
        "files": len(found.files),
        "unread": len(unread),
        "oldest_check": min(times) if times else None,
        "head": found.head,
        "tag": found.tag,
        "waiting": found.waiting,
        "partitions": sorted({one.input[1] for one in found.keys if one.missing})[:_SHOWN],
    }


def _repair(app: App, address: DestinationAddress, found: Any) -> list[str]:
    """What puts the rows back, the surest first."""
    ways = []
    short = {(one.input[0], one.input[1]) for one in found.keys if one.missing}
    for identity in sorted({identity for identity, _ in short if identity}):
        for one in app.registry.releases(identity, str(address)):
            if one.state is ReleaseState.QUARANTINED and (identity, one.partition) in short:
                table = app.store.process(one.process_id).source
                ways.append(f"calve policy undo '{table}' {one.partition}: its parts are still at the source")
    if found.tag and found.tag != found.head:
        name = ".".join(address.identifier)
        ways.append(
            f"in Spark: CALL {address.catalog}.system.rollback_to_snapshot('{name}', {found.tag}), the last state that is"
            f" proven to have them; then `calve partitions` shows what was exported since, and `calve export --force` puts it back"
        )
    ways.append(
        "calve backup list: restore the table under another name from a backup that has the partition"
    )
    return ways


def _kept(app: App, destination: str) -> tuple[dict[str, list[str]], "dict[str, Checked]"]:
    """Heirs and checks. What cannot be read is not known: files are then read again, and heirs are looked for."""
    from calve.iceberg.rotation import Checked

    heirs: dict[str, list[str]] = {}
    checked: dict[str, Checked] = {}
    for text in app.registry.sighting_body(destination, RELEASED, limit=_MOST_PIECES):
        for row in _rows(text):
            try:
                path, keys, check = decode(tuple[str, list[str], Checked | None], row)
            except Malformed:
                continue
            if keys:
                heirs[path] = keys
            if check:
                checked[path] = check
    return heirs, checked


def _rows(text: str) -> list[Any]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return rows if isinstance(rows, list) else []


def _keep(
    app: App, destination: str, summary: Json, heirs: Mapping[str, list[str]], checked: Mapping[str, Json]
) -> None:
    rows = [[path, heirs.get(path, []), checked.get(path)] for path in sorted({*heirs, *checked})]
    body = [json.dumps(rows[start : start + _PIECE]) for start in range(0, len(rows), _PIECE)]
    made = Sighting(
        subject=destination, what=RELEASED, summary=json.dumps(summary), seen_by=socket.gethostname()
    )
    # If we die here, the last count stays as it was, and the tag has not moved.
    app.registry.put_sighting(made, body)


def tick(app: App) -> list[str]:
    """Count the tables that are due and that nobody else counts now; which they were."""
    counted = []
    for destination in _destinations(app):
        again = app.limits.guard_hours * 3600
        # If we die after this, another worker counts once the claim has run out.
        if not app.registry.claim_look(
            destination, RELEASED, again_seconds=again, lease_seconds=_LEASE_SECONDS
        ):
            continue
        try:
            count_released(app, destination)
            counted.append(destination)
        except CalveError as error:  # one table stops no other
            _LOG.warning("released rows of %s were not counted: %s", destination, error.message)
            app.registry.fail_look(destination, RELEASED, error.message)
    return counted


def _destinations(app: App) -> list[str]:
    """The tables of catalogs that this store ever published to."""
    published = {
        one.destination for one in app.registry.totals().latest if one.kind == "export" and one.completed_at
    }
    return sorted(
        one for one in published if not is_folder(one) and one.partition(".")[0] in app.config.catalogs
    )


def guarding(app: App) -> AbstractContextManager[None]:
    """Count for as long as the block lasts."""
    return beside("calve-guard", partial(_run, app), 2 * app.limits.call_seconds)


def _run(app: App, stop: threading.Event) -> None:
    while not stop.wait(_TICK_SECONDS):
        try:
            tick(app)
        except CalveError as error:
            _LOG.warning("released rows are not counted now: %s", error.message)
        except Exception:  # noqa: BLE001 - the border of the thread: it must not end
            _LOG.warning("counting released rows failed; retrying", exc_info=True)
