"""Probes of views over tables and their lakes: each server answers by them, and reads no more than it must.

That a condition on time prunes parts of the table shows in EXPLAIN; that it prunes files of the lake does not, so one
closed partition is counted, and the server's own counters say how many files that took.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from calve.app.doctor.finding import Finding
from calve.app.wiring import App
from calve.clickhouse.source import Session
from calve.clickhouse.sql import types
from calve.clickhouse.sql.tokens import TableName, name, parse, string
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier import residency
from calve.clickhouse.tier.residency import Resident, instant_text
from calve.model.errors import CalveError, DamagedError
from calve.policy.bounds import TimeKey, time_key

_PARTS = re.compile(r"Parts: (\d+)/(\d+)")
_READ = "IcebergMetadataReturnedObjectInfos"
_PRUNED = ("IcebergMinMaxIndexPrunedFiles", "IcebergPartitionPrunedFiles")


@dataclass(frozen=True, kw_only=True)
class Pruning:
    """Of one question about one closed partition: what was read of what there is."""

    parts: tuple[int, int]
    files: tuple[int, int]

    @property
    def lost(self) -> str:
        """What is read whole, for a person."""
        read, there = self.parts
        if read == there > 1:
            return f"the hot half reads {read} of {there} parts"
        read, there = self.files
        return f"the cold half reads {read} of {there} files" if read == there > 1 else ""


def views(app: App, *, source: str) -> Iterator[Finding]:
    """Nothing where the source has no view of ours."""
    part = f"views:{source}"
    if app.config.source(source).embedded and not app.config.source(source).folder.exists():
        return
    for visit in app.source(source).visits():
        with visit as session:
            found = session.rows(
                "SELECT name, comment FROM system.tables WHERE endsWith(name, '_residency') "
                f"AND database = {string(residency.DATABASE)} ORDER BY name",
                what="views",
            )
            for row in found:
                yield _finding(session, part, row["name"].removesuffix("_residency"), row["comment"])


def _finding(session: Session, part: str, uuid: str, comment: str) -> Finding:
    try:
        about = residency.about(uuid, comment)
    except DamagedError as error:
        return Finding(part=part, ok=False, words=error.message, remedy=error.hint)
    again = f"calve view {about['table']} --to {about['to']} --as {about['view']}"
    words = f"{about['view']} over {about['table']} and {about['to']}"
    try:
        seen = pruning(session, uuid, parse(about["table"]), parse(about["view"]))
    except CalveError as error:
        return Finding(
            part=part, ok=False, words=f"{words}: {error.message}", remedy=f"make it again: {again}"
        )
    if seen is None:
        return Finding(part=part, ok=True, words=f"{words} answers")
    if seen.lost:
        version = session.rows("SELECT version() AS version")[0]["version"]
        return Finding(
            part=part,
            ok=True,
            warning=True,
            words=f"{words}: pruning is lost: {seen.lost} for one partition on ClickHouse {version}",
            remedy=f"answers are right but slow; make it again: {again}",
        )
    return Finding(part=part, ok=True, words=f"{words} answers, and prunes")


def pruning(session: Session, uuid: str, table: TableName, view: TableName) -> Pruning | None:
    """None where there is no partition to ask about: it answers all the same."""
    info = session.describe(table.database, table.table)
    cold = [one for one in residency.read(session, uuid).values() if one.cold]
    key = time_key(info.partition_key, {one.name: one.type for one in info.columns}, info.timezone)
    bounded = [one for one in cold if one.lower != residency.EARLIEST]
    if not bounded or not isinstance(key, TimeKey):
        session.rows(f"SELECT 1 AS one FROM {view.sql} LIMIT 1", what=f"view {view}")
        return None
    where = _within(info, key.column, min(bounded, key=lambda one: one.lower))
    asked = f"SELECT count() AS n FROM {view.sql} WHERE {where}"
    explained = session.rows(f"EXPLAIN indexes = 1 {asked}", what=f"view {view}")
    parts = [
        (int(found[1]), int(found[2]))
        for row in explained
        for found in _PARTS.finditer(" ".join(map(str, row.values())))
    ]
    before = _events(session)
    session.rows(asked, what=f"view {view}")
    after = _events(session)
    moved = {event: after.get(event, 0) - before.get(event, 0) for event in (_READ, *_PRUNED)}
    return Pruning(
        parts=(min((read for read, _ in parts), default=0), max((there for _, there in parts), default=0)),
        files=(moved[_READ], sum(moved.values())),
    )


def _within(table: TableInfo, column: str, one: Resident) -> str:
    kind = next(
        types.strip_wrappers(types.parse(found.type)) for found in table.columns if found.name == column
    )
    form = "toDate32({})" if kind in (types.Simple("Date"), types.Simple("Date32")) else "{}"
    lower, upper = (
        form.format(f"toDateTime64({string(instant_text(at))}, 6, 'UTC')") for at in (one.lower, one.upper)
    )
    return f"{name(column)} >= {lower} AND {name(column)} < {upper}"


def _events(session: Session) -> dict[str, int]:
    wanted = ", ".join(map(string, (_READ, *_PRUNED)))
    found = session.rows(f"SELECT event, value FROM system.events WHERE event IN ({wanted})", what="events")
    return {row["event"]: int(row["value"]) for row in found}
