"""Whether all replicas of a table are there and done: not the ones that answer, but all that the table has."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier.obstacles import Obstacle


@dataclass(frozen=True, kw_only=True)
class Replica:
    """One replica of a table, as its own server says."""

    name: str
    uuid: str
    total: int
    active: int
    read_only: bool
    queued: int  # entries that concern the partition, or may


def look(session: Session, table: TableInfo, partition: str) -> Replica | None:
    """None for a table that is not replicated."""
    if not table.clause.replicated:
        return None
    where = f"database = {string(table.database)} AND table = {string(table.name)}"
    found = session.rows(
        "SELECT replica_name AS name, total_replicas AS total, active_replicas AS active, is_readonly AS read_only "
        f"FROM system.replicas WHERE {where}",
        what=f"replicas of {table}",
    )
    # A new part's name begins with its partition; an entry without one may concern any.
    queued = session.rows(
        f"SELECT count() AS n FROM system.replication_queue WHERE {where} "
        f"AND (new_part_name = '' OR startsWith(new_part_name, {string(partition + '_')}))",
        what=f"queue of {table}",
    )
    if not found:
        return Replica(name="", uuid=table.uuid, total=0, active=0, read_only=True, queued=0)
    row = found[0]
    return Replica(
        name=row["name"],
        uuid=table.uuid,
        total=int(row["total"]),
        active=int(row["active"]),
        read_only=bool(row["read_only"]),
        queued=int(queued[0]["n"]),
    )


def obstacles(replicas: Sequence[Replica]) -> Iterator[Obstacle]:
    """Of a replicated table, asked at every server that the source names."""
    for one in replicas:
        if one.read_only:
            yield _obstacle(
                f"replica {one.name or '(unnamed)'} is read-only, or reports nothing about itself"
            )
        elif one.active != one.total:
            yield _obstacle(f"{one.active} of {one.total} replicas are active")
        elif one.queued:
            yield _obstacle(f"replica {one.name} has {one.queued} entries in its queue for the partition")
    named = {one.name for one in replicas}
    total = max((one.total for one in replicas), default=0)
    if len(named) != total:
        yield _obstacle(
            f"the table has {total} replicas, and the url of the source names {len(named)}: name all of them"
        )


def _obstacle(words: str) -> Obstacle:
    return Obstacle(code="replicas", words=words)
