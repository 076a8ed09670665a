"""Tables of the lake that may hold the only copy of rows: what the last count found, and what their bucket keeps."""

from collections.abc import Iterator

from calve.app.destination import parse_table
from calve.app.doctor.finding import Finding
from calve.app.pages.cards.policies import halfway, kept_out
from calve.app.policies.guard import standing
from calve.app.wiring import App
from calve.objects.protection import protection
from calve.objects.storage import Bounds

_LIVE = 1000


def counts(app: App) -> Iterator[Finding]:
    """From the store: a worker counts them each day."""
    now = app.store.now()
    for one in standing(app):
        part, found = f"released:{one.destination}", one.summary
        if one.missing:
            yield Finding(
                part=part,
                ok=False,
                words=f"released_rows_missing: {one.missing} of {found['rows']} released rows are gone: {one.why}",
                remedy="stop what writes to the table; " + "; or ".join(found.get("repair", ())),
            )
        elif one.is_late(app, now) or one.error:
            yield Finding(
                part=part,
                ok=True,
                warning=True,
                words=f"released rows were last counted at {one.seen_at}"
                + (f": {one.error}" if one.error else ""),
                remedy="run a worker whose configuration has this catalog: calve worker",
            )
        else:
            unread = (
                f"; {found['unread']} of {found['files']} files were not read yet" if found["unread"] else ""
            )
            waiting = f"; {found['waiting']}" if found["waiting"] else ""
            words = f"{found['rows']} released rows of {found['keys']} keys are there{unread}{waiting}"
            yield Finding(part=part, ok=True, warning=bool(waiting), words=words)


def moving(app: App) -> Iterator[Finding]:
    """What moves a partition out of its table, or back, for longer than it should."""
    unknown = app.registry.unknown_outcomes(_LIVE)
    live = app.store.live(_LIVE)
    for release, process in kept_out(app, live, unknown):
        yield Finding(
            part=f"release:{process.id}",
            ok=False,
            words=f"partition {release.partition} of {process.source} is in {release.place}: its release has failed, and a mutation"
            " came since",
            remedy=f"calve policy undo '{process.source}' {release.partition} --force brings back what it changed or deleted, too",
        )
    for one in halfway(live, unknown, app.store.now()):
        error = one.error
        yield Finding(
            part=f"{one.kind}:{one.id}",
            ok=False,
            words=f"partition {', '.join(one.partitions)} of {one.source} is half-way"
            f"{f': {error.message}' if error else ''}; its rows are in the table, in calve_released, or at both",
            remedy=error.hint if error and error.hint else f"calve why {one.id}",
        )


def buckets(app: App) -> Iterator[Finding]:
    """What is deleted in such a bucket should not be gone at once."""
    from calve.iceberg.tables import load

    limits = app.limits
    bounds = Bounds(connect_seconds=limits.connect_seconds, call_seconds=limits.call_seconds)
    for one in standing(app):
        address = parse_table(one.destination, app.config)
        location = load(app.catalog(address.catalog), address.identifier).location()
        properties = {
            name: value
            for name, value in app.catalog_properties(address.catalog).items()
            if isinstance(value, str)
        }
        found = protection(location, properties, bounds)
        yield Finding(
            part=f"released:{one.destination}",
            ok=True,
            warning=not found.keeps,
            words=f"{location}: {found.words}",
            remedy=""
            if found.keeps
            else "the table has rows that left their source: turn on versioning with a lifecycle"
            " rule for old versions, or Object Lock with a default retention",
        )
