"""Whether Spark sees the tables that PyIceberg sees: what optimizing stands on, and exporting does not."""

import json
from collections.abc import Iterator

from calve.app.doctor.finding import Finding
from calve.app.wiring import App
from calve.control.ports import TaskOrder
from calve.model.ids import new_process_id


def seen_by_spark(app: App, *, name: str) -> Iterator[Finding]:
    """One table of the catalog, looked at by both. Fetches nothing: it reports jars that are not here."""
    from calve.app.optimizer import OptimizeReach, all_tables
    from calve.iceberg import tables
    from calve.optimize.driver_work import look_payload
    from calve.spark.catalog_conf import jars_for, spark_catalog
    from calve.spark.jars import cached

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
