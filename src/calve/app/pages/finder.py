"""Search: ids, tables, backups, partitions and error codes, each by the cheapest look that finds it."""

from collections.abc import Iterator
from datetime import UTC, datetime

from calve.app import view
from calve.app.backups.facts import backup_rows
from calve.app.pages.document import head
from calve.app.pages.overview import Overview
from calve.app.view import Json
from calve.app.wiring import App
from calve.model.errors import UsageError
from calve.model.process import BATCH_PREFIX, BatchId, Process, ProcessQuery
from calve.model.states import ProcessState

LEAST, MOST = 2, 200  # characters
OF_EACH = 20
AMONG = 5000  # processes that are looked through for a partition
_FAILED = 200
_PIECES = 5  # of a thousand backups
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def search(app: App, overview: Overview, text: str) -> Json:
    wanted = text.strip()
    if not LEAST <= len(wanted) <= MOST:
        raise UsageError(
            f"give {LEAST} to {MOST} characters",
            code="bad_search",
            hint="the beginning of an id, or part of a name",
        )
    document = head(app)
    hits = [
        *_ids(app, wanted),
        *_tables(overview, wanted),
        *_policies(app, wanted),
        *_backups(app, wanted),
        *_partitions(app, wanted),
        *_codes(app, wanted),
    ]
    unique = list({(one["kind"], one["title"], str(one["href"])): one for one in hits}.values())
    note = "" if unique else (
        f"Nothing fits {wanted!r}. Ids are found by their beginning, partitions by their whole name among the"
        f" {AMONG:,} newest processes."
    )  # fmt: skip
    return document | {"q": text, "hits": unique, "note": note, "subjects": [], "commands": {}}


def _ids(app: App, wanted: str) -> Iterator[Json]:
    low = wanted.lower()
    if low.isascii() and low.replace("-", "").isalnum():
        for one in app.registry.ids_from(low, OF_EACH):
            yield _process(one)
    if wanted.startswith(BATCH_PREFIX):
        found = app.store.processes(ProcessQuery(batch=BatchId(wanted), limit=1))
        for one in found:
            yield _hit("batch", wanted, f"{one.kind} of {one.source}", "page", batch=wanted)


def _tables(overview: Overview, wanted: str) -> Iterator[Json]:
    low, found = wanted.lower(), 0
    for row in overview.counts().rows:
        if low in row["source"].lower() or low in row["destination"].lower():
            given = {"source": row["source"], "to": row["destination"]}
            yield _hit("table", row["source"], f"to {row['destination']}", "table", **given)
            found += 1
            if found == OF_EACH:
                return


def _policies(app: App, wanted: str) -> Iterator[Json]:
    for one in app.config.policies:
        if wanted.lower() in one.name.lower():
            source = f"{one.source or app.config.default_source}:{one.tables}"
            yield _hit("policy", one.name, f"{source} to {one.to}", "policy", name=one.name)
    for hold in app.registry.holds():
        if wanted == hold.id:
            yield _hit("hold", hold.id, f"{hold.name}: {hold.reason}", "policies")


def _backups(app: App, wanted: str) -> Iterator[Json]:
    """As they were last seen, the newest first."""
    low, found = wanted.lower(), 0
    for row in backup_rows(app.registry, app.config.backup_url, limit=_PIECES):
        if low in row["name"].lower():
            yield _hit(
                "backup",
                row["name"],
                f"made {row.get('created_at') or 'at an unknown time'}",
                "backup",
                name=row["name"],
            )
            found += 1
            if found == OF_EACH:
                return


def _partitions(app: App, wanted: str) -> Iterator[Json]:
    for one in app.registry.with_partition(wanted, among=AMONG, limit=OF_EACH):
        yield _hit("partition", wanted, f"{one.kind} {one.id} of {one.source}", "sheet", id=one.id)


def _codes(app: App, wanted: str) -> Iterator[Json]:
    low = wanted.lower()
    for one in app.registry.ends(_EPOCH, state=ProcessState.FAILED, limit=_FAILED):
        if low in one.code.lower():
            what = f"{one.kind} {one.process_id} of {one.source}"
            yield _hit("error", one.code, what, "sheet", id=one.process_id)


def _process(process: Process) -> Json:
    state = view.served_json(process)["state"]
    sub = f"{process.kind}, {state}, {process.source or process.destination}"
    return _hit("process", process.id, sub, "sheet", id=process.id)


def _hit(kind: str, title: str, sub: str, page: str, **given: str) -> Json:
    return {"kind": kind, "title": title, "sub": sub, "href": [page, given]}
