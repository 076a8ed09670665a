"""Answers of verbs that look outside, kept as the last known facts: pages show them with their age, and ask nobody.

Kept are answers about what the store knows already (pairs and destinations that had a process), the backups and the
installation, so that a reader cannot fill the store; and pairs that somebody who may export them asks to `keep`. What is kept is built field by field, never a whole answer of
another system. A store that does not take it costs the answer nothing.
"""

import json
import logging
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from calve.app.view import Json
from calve.control.registry import ServedStore
from calve.model.errors import CalveError
from calve.model.process import ProcessQuery
from calve.model.record import rows_of
from calve.model.seen import Sighting

PIECE = 1000  # partitions
MOST_PIECES = 50  # above it only the summary is kept
INSTALLATION = "installation"
_log = logging.getLogger("calve.app")
Kept = tuple[str, str, Json, Sequence[str]]  # subject, what, summary, body
Stored = Callable[[str], str]  # the name of a table as the store has it


def pair(source: str, destination: str) -> str:
    """The subject about a source table and its destination."""
    return f"{source} -> {destination}"


def keep(
    store: ServedStore,
    verb: str,
    given: Mapping[str, Any],
    answer: Any,
    *,
    source: Stored,
    destination: Stored,
) -> None:
    """Keep what a verb just answered, if it is of those that pages show."""
    try:
        made = _made(store, verb, given, answer, source, destination)
        if made is not None:
            subject, what, summary, body = made
            text = json.dumps(summary)
            # If we die here, the page shows what was seen before.
            store.put_sighting(
                Sighting(subject=subject, what=what, summary=text, seen_by=socket.gethostname()), body
            )
    except CalveError as error:
        _log.warning("what %s found is not kept for pages: %s", verb, error.message)
    except Exception:  # noqa: BLE001 - a defect here must not take the answer with it
        _log.exception("what %s found is not kept for pages", verb)


def _made(
    store: ServedStore, verb: str, given: Mapping[str, Any], answer: Any, source: Stored, destination: Stored
) -> Kept | None:
    match verb:
        case "partitions" if given.get("to"):
            table, to = source(given["table"]), destination(given["to"])
            known = given.get("keep") or store.processes(ProcessQuery(source=table, destination=to, limit=1))
            return (pair(table, to), "pair", *_pair(answer)) if known else None
        case "health":
            table = destination(given["table"])
            known = store.processes(ProcessQuery(destination=table, limit=1))
            return (table, "health", *_health(answer)) if known else None
        case "backup_list":
            rows = _with_contents(store, answer["location"], answer["backups"])
            if rows is None:
                return None
            newest = sorted(rows, key=lambda one: one.get("created_at") or "", reverse=True)
            made = [one for one in newest if not one.get("error")]
            summary = {"count": len(made), "stored_bytes": answer["stored_bytes"]}
            return answer["location"], "backups", summary, _pieces(newest)
        case "backup_verify":
            names = ("whole", "bytes", "read_bytes")
            summary = {name: answer[name] for name in names} | {"flaws": len(answer["flaws"])}
            return answer["name"], "proof", summary, ()
        case "doctor":
            counts = Counter(one["severity"] for one in answer)
            return INSTALLATION, "doctor", dict(counts), [json.dumps(answer)]
    return None


def _with_contents(store: ServedStore, location: str, rows: Sequence[Json]) -> list[Json] | None:
    """A list without its tables says less than a look: it takes them from the last one, for a backup never changes. None
    if that had not seen all of them: then the list is not kept, and the next look is not put off by it."""
    if all("contents" in one or one.get("error") for one in rows):
        return list(rows)
    known = {
        (one["name"], one.get("process")): one["contents"]
        for one in rows_of(store.sighting_body(location, "backups", limit=MOST_PIECES))
        if "contents" in one
    }
    found: list[Json] = []
    for one in rows:
        key = (one["name"], one.get("process"))
        if "contents" in one or one.get("error"):
            found.append(one)
        elif key in known:
            found.append({**one, "contents": known[key]})
        else:
            return None
    return found


def _pair(partitions: Sequence[Json]) -> tuple[Json, Sequence[str]]:
    counts = Counter(one["exported"] for one in partitions)
    summary = {
        "counts": {
            "exported": counts["unchanged"],
            "changed": counts["changed"],
            "new": counts["no"],
            "missing": counts["missing"],
            "gone": counts["gone"],
        },
        "partitions": len(partitions),
        "rows": sum(one["rows"] for one in partitions if one["exported"] != "gone"),
        "hot": sum(one["bytes"] for one in partitions),
    }
    newest = sorted(partitions, key=lambda one: (str(one["value"]), one["id"]), reverse=True)
    return summary, _pieces(newest)


def _health(found: Json) -> tuple[Json, Sequence[str]]:
    kept = ("score", "files", "rows", "bytes", "sizes", "snapshots", "partitions_due", "location")
    summary = {name: found[name] for name in kept} | {"parts": [dict(one) for one in found["parts"]]}
    return summary, [json.dumps(found["latest_snapshots"])]


def _pieces(rows: Sequence[Json]) -> list[str]:
    if len(rows) > PIECE * MOST_PIECES:
        return []
    return [json.dumps(rows[start : start + PIECE]) for start in range(0, len(rows), PIECE)]
