"""Where the partitions of a table are read from: the table itself, or the lake. A table of its own at the source says so,
and the view over both asks it.

A row is one partition's place since one generation; the newest counts. A flip is one INSERT of one block, so a query sees
all of it or nothing, and flips of different partitions never undo each other. The view reads the whole set by one scalar
sub-query whose text is the same wherever it stands: the engine computes it once a query, so both halves have the
same set, and the bounds of that set (R9, R10). Never `IN`, whose set each half would build for itself.

A query that began before a flip may still read by the old set. Whoever removes rows after a flip waits for those.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from calve.clickhouse.source import Statements
from calve.clickhouse.sql.tokens import TableName, name, string
from calve.model.errors import DamagedError, PermanentError, TemporaryError
from calve.model.record import fields_of

DATABASE = "calve_views"
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)  # of DateTime64
LATEST = datetime(2299, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
_COLUMNS = (
    "generation UInt64, writer String, id String, cold Bool, lower DateTime64(6, 'UTC'), upper DateTime64(6, 'UTC'), "
    "at DateTime64(6, 'UTC') DEFAULT now64(6)"
)
_AT_ONCE = {"async_insert": "0", "insert_deduplicate": "0"}


@dataclass(frozen=True, kw_only=True)
class Resident:
    """Where one partition is read from. The bounds hold every row of it; they only save reading."""

    id: str
    cold: bool
    lower: datetime = EARLIEST
    upper: datetime = LATEST  # included, so that the last instant has a bound too
    generation: int = 0
    writer: str = ""

    @property
    def order(self) -> tuple[int, str]:
        return self.generation, self.writer


@dataclass(frozen=True, kw_only=True)
class OlderQuery:
    """A query that may still read by a set from before."""

    id: str
    user: str
    seconds: float


def residency_table(uuid: str) -> TableName:
    return TableName(source=None, database=DATABASE, table=f"{uuid}_residency")


def create(session: Statements, uuid: str, about: str) -> None:
    """Make it, without a row: the view is an error until `put` has written all that is cold. Twice is harmless."""
    table = residency_table(uuid)
    what = f"the residency {table}"
    # If we die here, an empty database is left, which the next try uses.
    session.execute(f"CREATE DATABASE IF NOT EXISTS {name(DATABASE)}", what=what)
    # If we die here, a table without rows is left, which the next try fills.
    session.execute(
        f"CREATE TABLE IF NOT EXISTS {table.sql} ({_COLUMNS}) ENGINE = MergeTree ORDER BY (id, generation, writer) "
        f"COMMENT {string(about)}",
        what=what,
    )
    session.execute(f"ALTER TABLE {table.sql} MODIFY COMMENT {string(about)}", what=what)


def comment_of(session: Statements, uuid: str) -> str | None:
    """What `create` was given; None where there is none."""
    table = residency_table(uuid)
    found = session.rows(
        "SELECT comment FROM system.tables "
        f"WHERE database = {string(table.database)} AND name = {string(table.table)}",
        what=f"the residency {table}",
    )
    return str(found[0]["comment"]) if found else None


def about(uuid: str, comment: str) -> dict[str, Any]:
    """The table, the destination and the view that `create` was given, and more. DamagedError where a comment says none."""
    found = fields_of(comment)
    if not all(isinstance(found.get(word), str) and found[word] for word in ("table", "to", "view")):
        raise DamagedError(
            f"the comment of {residency_table(uuid)} does not say which view reads it",
            code="damaged",
            hint="make the view again: calve view TABLE --to DEST --as DATABASE.NAME",
        )
    return found


def read(session: Statements, uuid: str) -> dict[str, Resident]:
    """The newest row of each partition that was ever read from the lake; all that is not named is hot."""
    found = session.rows(
        "SELECT id, max((generation, writer)) AS newest, argMax(cold, (generation, writer)) AS cold, "
        "toUnixTimestamp64Micro(argMax(lower, (generation, writer))) AS lower, "
        "toUnixTimestamp64Micro(argMax(upper, (generation, writer))) AS upper "
        f"FROM {residency_table(uuid).sql} WHERE id != '' GROUP BY id ORDER BY id",
        what="reading where partitions are read from",
    )
    return {
        row["id"]: Resident(
            id=row["id"],
            cold=bool(row["cold"]),
            lower=_instant(row["lower"]),
            upper=_instant(row["upper"]),
            generation=int(row["newest"][0]),
            writer=row["newest"][1],
        )
        for row in found
    }


def stamped(
    residents: Iterable[Resident], before: Mapping[str, Resident], writer: str
) -> tuple[Resident, ...]:
    """As the generation after all that were read, on any replica."""
    generation = 1 + max((one.generation for one in before.values()), default=0)
    return tuple(replace(one, generation=generation, writer=writer) for one in residents)


def put(session: Statements, uuid: str, residents: Iterable[Resident]) -> None:
    """Write what this replica does not have yet, all at once, and see that it counts.

    TemporaryError (`residency_conflict`) where somebody wrote of the same partition at the same time."""
    here, mine = read(session, uuid), tuple(residents)
    missing = [one for one in mine if one.id not in here or here[one.id].order < one.order]
    if not session.rows(f"SELECT 1 AS one FROM {residency_table(uuid).sql} LIMIT 1"):
        missing.append(Resident(id="", cold=False))  # that nothing is cold is said by a row, too
    if missing:
        # If we die here, all of them are flipped or none: the next try reads which.
        write(session, uuid, missing)
        here = read(session, uuid)
    lost = [one.id for one in mine if here.get(one.id) != one]
    if lost:
        raise TemporaryError(
            f"somebody else wrote where partition {lost[0]} is read from at the same time",
            code="residency_conflict",
            hint="check it with calve view TABLE, then retry",
        )


def write(session: Statements, uuid: str, residents: Sequence[Resident]) -> None:
    """One block: it is inserted as a whole."""
    values = ", ".join(
        f"({one.generation}, {string(one.writer)}, {string(one.id)}, {int(one.cold)}, {string(instant_text(one.lower))}, {string(instant_text(one.upper))})"
        for one in residents
    )
    session.execute(
        f"INSERT INTO {residency_table(uuid).sql} (generation, writer, id, cold, lower, upper) VALUES {values}",
        _AT_ONCE,
        what="writing where partitions are read from",
    )


def newest(replicas: Iterable[Mapping[str, Resident]]) -> dict[str, Resident]:
    """Of what the replicas say of each partition, the last word."""
    found: dict[str, Resident] = {}
    for replica in replicas:
        for id, one in replica.items():
            if id not in found or found[id].order < one.order:
                found[id] = one
    return found


def scalar(uuid: str, shown: str) -> str:
    """Ids, lowest and highest bound of what is cold, as one tuple: never half of one generation. An error where the
    table that says so is empty, and where it is gone."""
    table = residency_table(uuid).sql
    missing = string(f"calve: the residency of {shown} is missing")
    return (
        "(SELECT tuple(groupArrayIf(id, last.1), minIf(last.2, last.1), maxIf(last.3, last.1)) FROM "
        f"(SELECT id, argMax((cold, lower, upper), (generation, writer)) AS last FROM {table} GROUP BY id) "
        f"HAVING throwIf(count() = 0, {missing}) = 0)"
    )


def clock(session: Statements) -> str:
    """The server's own time, to ask for older queries by."""
    return str(session.rows("SELECT toString(now64(6, 'UTC')) AS now")[0]["now"])


def older_queries(session: Statements, since: str) -> list[OlderQuery]:
    """Queries of anybody that began before, by the server's own clock. This look is none of them."""
    if session.embedded:
        return []  # one process at a time has the folder
    try:
        found = session.rows(
            "SELECT query_id, user, elapsed FROM system.processes WHERE "
            f"subtractMicroseconds(now64(6, 'UTC'), toInt64(elapsed * 1e6)) <= toDateTime64({string(since)}, 6, 'UTC') "
            "AND query_id != queryID() ORDER BY elapsed DESC",
            what="looking for older queries",
        )
    except PermanentError as error:
        raise PermanentError(
            f"cannot see the queries of others at source {session.source}: {error.message}",
            code="grants",
            hint="GRANT SELECT ON system.processes, which shows who still reads what was moved",
        ) from None
    return [OlderQuery(id=row["query_id"], user=row["user"], seconds=float(row["elapsed"])) for row in found]


def _instant(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(microseconds))


def instant_text(instant: datetime) -> str:
    """As DateTime64(6, 'UTC') reads it."""
    return instant.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
