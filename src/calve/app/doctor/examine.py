"""The probes, one after another. One that fails stops none of the others, except those that would only
say the same again: one finding for one cause."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from calve.app.doctor import lake, parts, work
from calve.app.doctor.finding import Finding
from calve.app.wiring import App
from calve.model.errors import CalveError, StoreError
from calve.policy.schedule import Schedule


@dataclass(frozen=True, kw_only=True)
class Probe:
    part: str
    look: Callable[[App], Iterator[Finding]]
    after: frozenset[str] = field(default_factory=frozenset)  # parts without which it would say the same


def examine(app: App, *, spark: bool = True) -> Iterator[Finding]:
    """Findings as they are made. `spark` starts a session and runs the engine on an executor."""
    failed: set[str] = set()
    said: set[str] = set()
    for probe in _probes(app, spark=spark):
        if probe.after & failed:
            continue
        try:
            for finding in probe.look(app):
                if not finding.ok:
                    failed.add(finding.part)
                yield finding
        except StoreError as error:
            if "store" not in failed:
                failed.add("store")
                yield Finding(part="store", ok=False, words=error.message, remedy=error.hint)
        except CalveError as error:
            failed.add(probe.part)
            if error.message not in said:  # a store that may not be opened, say, is met by several
                said.add(error.message)
                yield Finding(part=probe.part, ok=False, words=error.message, remedy=error.hint)
    if "store" not in failed:
        yield from work.breakers(app, failed)


def _views(app: App, *, source: str) -> Iterator[Finding]:
    from calve.app.doctor import views  # which needs all that a view is made of

    yield from views.views(app, source=source)


def _schedule(app: App, *, schedule: Schedule) -> Iterator[Finding]:
    from calve.app.doctor import schedules  # which needs all that backups are made of

    yield from schedules.schedule(app, schedule)


def _released(app: App, *, bucket: bool) -> Iterator[Finding]:
    from calve.app.doctor import releases  # which needs the clients of catalogs

    if bucket:
        yield from releases.buckets(app)
        return
    yield from releases.counts(app)
    yield from releases.moving(app)


def _probes(app: App, *, spark: bool) -> Iterator[Probe]:
    store = frozenset({"store"})
    yield Probe(part="configuration", look=parts.configuration)
    yield Probe(part="files", look=parts.readable_by_others)
    yield Probe(part="store", look=parts.store)
    yield Probe(part="workers", look=work.workers, after=store)
    yield Probe(part="pins", look=work.pins, after=store)
    yield Probe(part="processes", look=work.processes, after=store)
    yield Probe(part="notices", look=work.notices, after=store)
    yield Probe(part="released", look=partial(_released, bucket=False), after=store)
    yield Probe(part="released:buckets", look=partial(_released, bucket=True), after=store)
    for name in app.config.sources:
        yield Probe(part=f"source:{name}", look=partial(parts.source, name=name))
        yield Probe(
            part=f"views:{name}", look=partial(_views, source=name), after=frozenset({f"source:{name}"})
        )
    for name in app.config.catalogs:
        yield Probe(part=f"catalog:{name}", look=partial(parts.catalog, name=name))
        after = frozenset({f"catalog:{name}"})
        yield Probe(part=f"commits:{name}", look=partial(lake.commits, name=name), after=after)
    for prefix in app.config.storages:
        yield Probe(part=f"storage:{prefix}", look=partial(parts.storage, prefix=prefix))
    yield Probe(part="backups", look=parts.backups)
    for one in app.config.schedules:
        yield Probe(part=f"schedule:{one.name}", look=partial(_schedule, schedule=one), after=store)
    yield Probe(part="leftovers", look=work.leftovers, after=store)
    yield Probe(part="java", look=parts.java)
    if spark:
        yield Probe(part="spark", look=parts.spark, after=frozenset({"java"}))
        for name in app.config.catalogs:
            yield Probe(
                part=f"optimize:{name}",
                look=partial(parts.seen_by_spark, name=name),
                after=frozenset({"java", "spark", f"catalog:{name}"}),
            )
