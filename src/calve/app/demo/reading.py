"""Reading the demo's table three times: the source, and the export by two engines that did not write it."""

from contextlib import closing

from calve.app.config import Config
from calve.app.demo.compare import Reading, read_by_clickhouse, read_by_pyiceberg, read_source
from calve.app.demo.data import DATABASE, TABLE
from calve.app.wiring import App
from calve.clickhouse.sql.table_name import parse
from calve.destination.plan import ExportPlan
from calve.iceberg import tables
from calve.model.ids import ProcessId


def readings(config: Config, process_id: ProcessId) -> list[Reading]:
    """The source first, then each reader of the exported table."""
    with closing(App(config)) as app:
        plan = ExportPlan.from_json(app.store.plan(process_id) or "")
        table = tables.load(app.catalog(plan.destination.catalog), plan.destination.identifier)
        with app.source(plan.source).visit() as visit:
            source = read_source(visit, parse(f"{DATABASE}.{TABLE}").sql, plan.columns, table)
            clickhouse = read_by_clickhouse(visit, table)
        return [source, read_by_pyiceberg(table), clickhouse]
