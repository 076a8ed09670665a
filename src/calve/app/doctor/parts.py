"""Probes of what Calve stands on: configuration, store, sources, catalogs, Java, Spark.

Whether Spark sees the tables that PyIceberg sees: what optimizing stands on, and exporting does not.

Files that hold, or may come to hold, a secret: nobody else should be able to read them.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

from calve.app.doctor import lake
from calve.app.doctor.finding import Finding
from calve.app.wiring import App
from calve.control.ports import TaskOrder, TaskResult
from calve.destination.names import RECEIPTS_PROPERTY, receipts_hint
from calve.model.errors import DeniedError, PermanentError
from calve.model.process import new_process_id
from calve.model.states import PinState
from calve.objects.uri import is_served


def configuration(app: App) -> Iterator[Finding]:
    config = app.config
    where = str(config.file) if config.file else "the environment"
    if not config.sources:
        yield _lacks("source", where)
    if not config.catalogs:
        yield _lacks("catalog", where)
    if config.sources and config.catalogs:
        yield Finding(part="configuration", ok=True, words=where)


def _lacks(section: str, where: str) -> Finding:
    return Finding(
        part="configuration",
        ok=False,
        words=f"{where} has no {section}",
        remedy=f"add a [{section}.NAME]; `calve init` in an empty folder shows one",
    )


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def store(app: App) -> Iterator[Finding]:
    live = len(app.store.live())
    yield Finding(part="store", ok=True, words=f"answers; {_counted(live, 'process', 'processes')} under way")


def source(app: App, *, name: str) -> Iterator[Finding]:
    config = app.config.source(name)
    if config.embedded and not config.folder.exists():
        yield Finding(
            part=f"source:{name}",
            ok=True,
            warning=True,
            words=f"the data folder {config.folder} does not exist yet",
            remedy=f"set [source.{name}] url to your ClickHouse; see docs/clickhouse-server.md for how an"
            " embedded folder is made",
        )
        return
    with app.source(name).visit() as session:
        version = session.rows("SELECT version() AS version", what=f"source {name}")[0]["version"]
        query = "SELECT count() AS tables FROM system.tables WHERE engine LIKE '%MergeTree' AND database != 'system'"
        tables = session.rows(query, what=f"source {name}")[0]["tables"]
        words = (f"ClickHouse {version}, {_counted(tables, 'MergeTree table')}", *session.remarks())
        pinned = session.pin_names()
    yield Finding(part=f"source:{name}", ok=True, words="; ".join(words))
    yield from _strangers(app, name, pinned)


def _strangers(app: App, name: str, pinned: tuple[str, ...]) -> Iterator[Finding]:
    """Pins that the journal has never heard of (L32). It was asked after the source: what was taken
    meanwhile was journaled before."""
    journaled = {pin.name for pin in app.store.pins(states=frozenset(PinState))}
    strangers = [one for one in pinned if one not in journaled]
    if strangers:
        yield Finding(
            part=f"source:{name}",
            ok=False,
            words=f"holds {len(strangers)} pins that this store does not know: {', '.join(strangers[:5])}",
            remedy="they belong to another installation, or to a store that was lost; if nobody needs them,"
            " drop those tables of calve_pins, or remove those folders below shadow",
        )


def catalog(app: App, *, name: str) -> Iterator[Finding]:
    """The catalog answers, and an object can be put into its warehouse and removed again."""
    from calve.iceberg.errors import catalog_call

    opened = app.catalog(name)
    with catalog_call(name, "listing namespaces"):
        namespaces = len(opened.list_namespaces())
    given = app.config.catalog(name)
    # A table bucket takes nothing but tables; what is written beside them has a place of its own then.
    place = str(given.get(RECEIPTS_PROPERTY) or given.get("warehouse", ""))
    words = f"answers; {_counted(namespaces, 'namespace')}"
    served = is_served(place)
    part = f"catalog:{name}"
    lacking: list[Finding] = []
    if served:
        lacking = _write_catalog(app, part, name, place)
        words += f"; {place} can be written"
    if not lacking:
        yield Finding(part=part, ok=True, words=words)
    yield from lacking
    if served:
        yield from _upload_cleanup(app, part, name, place)


def storage(app: App, *, prefix: str) -> Iterator[Finding]:
    """An object can be put there and removed again."""
    part = f"storage:{prefix}"
    lacking = list(lake.writable(app, part, prefix, prefix))
    yield from lacking or [Finding(part=part, ok=True, words="can be written")]
    yield from _upload_cleanup(app, part, prefix, prefix)


def backups(app: App) -> Iterator[Finding]:
    """Every manifest of the backup location can be read (T10). Says nothing where there is no backup."""
    from calve.archive.backups import listed
    from calve.archive.vault import KeyMissingError

    found = listed(app.backups())
    if found:
        yield Finding(part="backups", ok=True, words=_counted(len(found), "backup"))
    for one in found:
        if one.error is not None:
            locked = isinstance(one.error, KeyMissingError)
            words, hint = one.error.message, one.error.hint
            yield Finding(part=f"backup:{one.key.name}", ok=locked, warning=locked, words=words, remedy=hint)


def _upload_cleanup(app: App, part: str, name: str, place: str) -> Iterator[Finding]:
    """A warning, not a failure, where parts of uploads that killed programs left may stay for ever."""
    found = app.storage(name).upload_cleanup(place)
    if not found.automatic:
        yield Finding(part=part, ok=True, warning=True, words=f"{place}: {found.words}", remedy=found.remedy)


def _write_catalog(app: App, part: str, name: str, place: str) -> list[Finding]:
    """As an export would be refused: a bucket of tables needs another place for receipts."""
    try:
        found = list(lake.writable(app, part, name, place))
    except DeniedError as error:
        raise DeniedError(error.message, code=error.code, hint=receipts_hint(name)) from None
    return found + list(lake.written_by_pyiceberg(app, part, name, place))


def java(_app: App) -> Iterator[Finding]:
    from calve.spark.java import java_home

    yield Finding(part="java", ok=True, words=str(java_home()))


def spark(app: App) -> Iterator[Finding]:
    """A session starts, and an executor's Python runs the engine."""
    from calve.spark.jvm_files import log_file

    results: list[TaskResult] = []
    order = TaskOrder(
        process_id=new_process_id(), number=0, attempt=1, function="calve.app.doctor.task:run", payload=""
    )
    runner = app.runner
    runner.run("calve-doctor", [order], results.append)
    if not results:
        raise PermanentError(
            f"Spark ({app.config.spark.master}) started, but a task did not come back",
            code="spark_task_lost",
            hint=f"Spark's log is {log_file(os.getpid())}; see [spark] in the configuration",
        )
    if results[0].error:
        raise PermanentError(
            f"Spark ({app.config.spark.master}): {results[0].error.message}",
            code=results[0].error.code,
            hint=results[0].error.hint or "every executor needs Calve and its dependencies installed",
        )
    granted = app.granted()
    yield Finding(
        part="spark",
        ok=True,
        words=f"{app.config.spark.master}, {runner.slots} slots{f' ({granted})' if granted else ''}; an executor ran ClickHouse {results[0].receipt};"
        f" each program's Spark log is {log_file('PID')}",
    )


def seen_by_spark(app: App, *, name: str) -> Iterator[Finding]:
    """One table of the catalog, looked at by both. Fetches nothing: it reports jars that are not here."""
    from calve.app.optimizer import OptimizeReach, all_tables
    from calve.iceberg import tables
    from calve.optimize.driver_work import look_payload
    from calve.spark.catalog_conf import jars_for, spark_catalog
    from calve.spark.java import cached

    part = f"optimize:{name}"
    properties = app.config.catalog(name)
    missing = [jar.file_name for jar in jars_for(spark_catalog(name, properties)) if cached(jar) is None]
    if missing:
        words = f"not set up yet; the first `calve optimize` downloads {', '.join(missing)}"
        yield Finding(part=part, ok=True, words=words)
        return
    identifier = next(all_tables(app.catalog(name)), None)
    if identifier is None:
        yield Finding(part=part, ok=True, words="no tables yet")
        return
    table = tables.load(app.catalog(name), identifier)
    head = table.metadata.current_snapshot()
    order = TaskOrder(
        process_id=new_process_id(),
        number=0,
        attempt=1,
        function="calve.spark.actions:look",
        payload=look_payload(table, name, properties),
        on_driver=True,
    )
    result = OptimizeReach(app).run_on_driver(order)
    shown = ".".join(identifier)
    if result.error is not None:
        yield Finding(part=part, ok=False, words=result.error.message, remedy=result.error.hint)
        return
    expected = None if head is None else str(head.snapshot_id)
    seen = json.loads(result.receipt)["snapshot_id"]
    if seen == expected:
        yield Finding(part=part, ok=True, words=f"Spark and PyIceberg see the same {shown}")
        return
    words = f"{shown}: Spark sees snapshot {seen}, PyIceberg {expected}"
    yield Finding(
        part=part,
        ok=False,
        words=words,
        remedy="run calve doctor again if something is writing to that table",
    )


_OTHERS = 0o077
_SECRET_FILE = re.compile(r"file (/.+) \(.*\)")  # the origin of a value that was read from `…_file`


def readable_by_others(app: App) -> Iterator[Finding]:
    for file in _files(app):
        if file.is_file() and file.stat().st_mode & _OTHERS:
            yield Finding(
                part="files",
                ok=True,
                warning=True,
                words=f"{file} may hold secrets, and others can read it (mode {file.stat().st_mode & 0o777:o})",
                remedy=f"chmod 600 {file}",
            )


def _files(app: App) -> Iterator[Path]:
    config = app.config
    if config.file:
        yield config.file
    scheme, parted, path = config.store_url.partition(":///")
    if parted and scheme.startswith("sqlite"):
        yield Path(path.partition("?")[0])
    named = (_SECRET_FILE.fullmatch(setting.origin) for setting in config.settings)
    yield from dict.fromkeys(Path(found[1]) for found in named if found)
