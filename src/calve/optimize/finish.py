"""What comes after all tasks, in this order: tidy, expire, clean, and say what was gained.

Each part is idempotent and begins with a look, so a crash anywhere costs one look more. None of
them makes rows appear or vanish, so nothing needs a fence.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate

from calve.control.kind import Published
from calve.iceberg import tables
from calve.iceberg.errors import catalog_call
from calve.iceberg.health.entries import collect, dangling_paths
from calve.iceberg.health.findings import manifests_needed
from calve.iceberg.health.report import FULL_AT, judge
from calve.iceberg.health.settings import Settings, settings_of
from calve.iceberg.health.stats import TableStats
from calve.iceberg.publish.commit import CommitAnswer, TableCommit, send
from calve.model.change import Result
from calve.model.errors import PermanentError
from calve.model.process import Process
from calve.model.record import loads
from calve.optimize import driver_work
from calve.optimize.cleanup import Cleaned, clean
from calve.optimize.expiry import Expired, expire
from calve.optimize.plan import OptimizePlan
from calve.optimize.ports import OptimizePorts

_SUMMED = ("rewritten_files", "added_files", "rewritten_rows", "added_rows", "rewritten_bytes",
           "added_bytes", "removed_delete_files", "added_delete_files")  # fmt: skip


def finish(ports: OptimizePorts, process: Process, plan: OptimizePlan, receipts: Sequence[str]) -> Published:
    """One attempt. If it raises, the next attempt finds what was done."""
    catalog = ports.catalog(plan.catalog)
    table = _load(catalog, plan)
    settings = settings_of(table.metadata.properties)
    now = ports.store.now()
    stats = _collect(catalog, table, settings)
    tidied = _tidy(ports, process, plan, table, stats, settings)
    if plan.full:
        _note_full(ports, process, plan, int(process.created_at.timestamp() * 1000))
    expired = Expired()
    if plan.expire:
        commit = driver_work.expiry_commit(ports, process, plan) if driver_work.needs_spark(table) else None
        expired = expire(
            catalog, plan.identifier, settings, ports.store, now, besides=process.id, commit=commit
        )
    cleaned = Cleaned()
    if plan.orphans:
        cleaned = clean(catalog, plan.identifier, settings, ports.store, ports.limits, now)
    looked_at, table = table.metadata_location, _load(catalog, plan)
    if table.metadata_location != looked_at:
        stats = _collect(catalog, table, settings)
    after = summary_of(plan, table, stats, settings, process)
    return _published(plan, receipts, tidied, expired, cleaned, after)


def summary_of(
    plan: OptimizePlan, table: Table, stats: TableStats, settings: Settings, process: Process
) -> dict[str, Any]:
    """The numbers that are compared before and after."""
    name = ".".join((plan.catalog, *plan.identifier))
    found = judge(name, table, stats, settings, now=process.created_at)
    return {
        "score": found.score,
        "files": found.files,
        "bytes": found.bytes,
        "rows": found.rows,
        "delete_files": found.position_delete_files
        + found.equality_delete_files
        + found.dangling_delete_files,
        "manifests": found.manifests,
        "snapshots": found.snapshots,
        "sizes": [one.files for one in found.sizes],
    }


def _load(catalog: Catalog, plan: OptimizePlan) -> Table:
    table = tables.load(catalog, plan.identifier)
    if str(table.metadata.table_uuid) != plan.uuid:
        raise PermanentError(
            f"table {'.'.join(plan.identifier)} was dropped and created again: its uuid is"
            f" {table.metadata.table_uuid}, the plan's is {plan.uuid}",
            code="destination_replaced",
            hint=f"calve optimize {plan.catalog}.{'.'.join(plan.identifier)}",
        )
    return table


def _collect(catalog: Catalog, table: Table, settings: Settings) -> TableStats:
    with catalog_call(catalog.name, f"reading metadata of table {'.'.join(table.name())}"):
        return collect(table, settings)


def drops_dangling(table: Table, stats: TableStats) -> bool:
    """Whether there are delete files to drop that no longer delete anything. Where a table has global
    deletes and one file may hold several (format v3), they cannot be told apart, and stay."""
    if _may_be_global(table) and driver_work.needs_spark(table):
        return False
    return stats.dangling_deletes > 0


def _may_be_global(table: Table) -> bool:
    """There Iceberg's own search is wrong: it looks for data of a delete's own spec only, and would
    drop an unpartitioned spec's equality deletes, which apply to every spec (P19)."""
    specs = table.metadata.specs()
    return len(specs) > 1 and any(spec.is_unpartitioned() for spec in specs.values())


def manifest_specs(table: Table, stats: TableStats, settings: Settings) -> list[int]:
    """The specs whose manifests are to be rewritten; none where there are few enough."""
    if stats.manifests <= manifests_needed(stats, settings):
        return []
    return sorted(table.metadata.specs())


def _tidy(
    ports: OptimizePorts,
    process: Process,
    plan: OptimizePlan,
    table: Table,
    stats: TableStats,
    settings: Settings,
) -> dict[str, Any]:
    drops, specs = drops_dangling(table, stats), manifest_specs(table, stats, settings)
    if not drops and not specs:
        return {}
    ourselves = drops and _may_be_global(table)
    return driver_work.tidy(
        ports,
        process,
        plan,
        dangling=drops and not ourselves,
        dropped_deletes=dangling_paths(table, stats) if ourselves else (),
        manifest_specs=specs,
    )


def _note_full(ports: OptimizePorts, process: Process, plan: OptimizePlan, at_ms: int) -> None:
    """When everything was last rewritten: a property, because snapshots are expired."""
    catalog = ports.catalog(plan.catalog)
    table = _load(catalog, plan)
    if table.metadata.properties.get(FULL_AT) == str(at_ms):
        return
    if driver_work.needs_spark(table):
        driver_work.set_properties(ports, process, plan, {FULL_AT: str(at_ms)})
        return
    commit = TableCommit(
        requirements=(AssertTableUUID(uuid=table.metadata.table_uuid),),
        updates=(SetPropertiesUpdate(updates={FULL_AT: str(at_ms)}),),
    )
    # If we die here, the next attempt sets it again.
    reply = send(catalog, table, commit, "noting the full rewrite")
    if reply.answer is not CommitAnswer.LANDED and reply.error is not None:
        raise reply.error


def _published(
    plan: OptimizePlan,
    receipts: Sequence[str],
    tidied: dict[str, Any],
    expired: Expired,
    cleaned: Cleaned,
    after: dict[str, Any],
) -> Published:
    done = [loads(dict[str, Any], text, "a receipt of an optimize") for text in receipts]
    totals = {name: sum(item.get(name, 0) for item in (*done, tidied)) for name in _SUMMED}
    snapshots = [snapshot for item in (*done, tidied) for snapshot in item.get("snapshots", ())]
    detail = {
        "before": dict(plan.before),
        "after": after,
        **totals,
        "snapshots": snapshots,
        "manifests_rewritten": bool(tidied.get("replaced_manifests")),
        "expired": asdict(expired),
        "cleaned": asdict(cleaned),
        "seconds": round(sum(item.get("seconds", 0.0) for item in (*done, tidied)), 3),
    }
    before_score = plan.before.get("score", "?")
    message = (
        f"{totals['rewritten_files']} files became {totals['added_files']},"
        f" {expired.snapshots} snapshots expired, {expired.files + cleaned.orphans} files removed;"
        f" score {before_score} -> {after['score']}"
    )
    return Published(
        result=Result(
            rows=totals["added_rows"],
            files=totals["added_files"],
            bytes=totals["added_bytes"],
            snapshot_id=snapshots[-1] if snapshots else None,
            detail=json.dumps(detail, separators=(",", ":"), sort_keys=True),
        ),
        message=message,
    )


def with_wishes(settings: Settings, *, expire: bool | None, orphans: bool | None) -> Settings:
    """What a person asked for goes before what the table says; but no file of a table that shares its
    files with others is ever deleted."""
    if not settings.owns_files:
        return settings
    return replace(
        settings,
        expire=settings.expire if expire is None else expire,
        clean_orphans=settings.clean_orphans if orphans is None else orphans,
    )
