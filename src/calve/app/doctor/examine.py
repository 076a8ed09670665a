"""The probes, one after another. One that fails stops none of the others."""

from collections.abc import Callable, Iterator
from functools import partial

from calve.app.doctor import optimize, parts, work
from calve.app.doctor.finding import Finding
from calve.app.wiring import App
from calve.model.errors import CalveError

Probe = Callable[[App], Iterator[Finding]]


def examine(app: App, *, spark: bool = True) -> Iterator[Finding]:
    """Findings as they are made. `spark` starts a session and runs the engine on an executor."""
    probes: list[tuple[str, Probe]] = [
        ("configuration", parts.configuration),
        ("store", parts.store),
        ("workers", work.workers),
        ("destinations", work.breakers),
        ("pins", work.pins),
        ("processes", work.processes),
        ("files", work.leftovers),
    ]
    probes += [(f"source:{name}", partial(parts.source, name=name)) for name in app.config.sources]
    probes += [(f"catalog:{name}", partial(parts.catalog, name=name)) for name in app.config.catalogs]
    probes += [(f"storage:{prefix}", partial(parts.storage, prefix=prefix)) for prefix in app.config.storages]
    probes.append(("java", parts.java))
    if spark:
        probes.append(("spark", parts.spark))
        probes += [
            (f"optimize:{name}", partial(optimize.seen_by_spark, name=name)) for name in app.config.catalogs
        ]
    for part, probe in probes:
        try:
            yield from probe(app)
        except CalveError as error:
            yield Finding(part=part, ok=False, words=error.message, remedy=error.hint)
