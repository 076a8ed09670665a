"""Where the rows of a partition go that leaves its table, and how they come back: the port, and the way by MOVE PARTITION.

Nothing here decides that a partition may leave: the caller of `take_out` has proven the rows elsewhere, announced the
statement and read every obstacle. The invariants that live here:

- one place for each attempt: what is in it is of this attempt alone;
- a destructive statement names only an object that an earlier, harmless one made for this attempt. `close` takes that
  name away, so a statement that wakes up late finds nothing to put rows into (tried: code 60). No time-out is trusted;
- where the parts are decides, never what a statement answered. Parts are told by the hash of their files, which survives
  MOVE both ways (tried), and parts without rows count nowhere: a MOVE leaves one for each part that went (tried).
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Protocol

from calve.clickhouse import still
from calve.clickhouse.errors import number_of
from calve.clickhouse.source import Session, Statements
from calve.clickhouse.sql.create_table import columns_with_ttl, parse
from calve.clickhouse.sql.tokens import TableName, name, string
from calve.clickhouse.tables import TableInfo
from calve.model.errors import CalveError, PermanentError, RefusedError

DATABASE = "calve_released"
_UNKNOWN_TABLE = 60
_EXISTS = 57


@dataclass(frozen=True, kw_only=True)
class QuarantineAttempt:
    """One try at taking one partition out. Journaled as it is before anything happens: it is the only memory."""

    table: TableInfo
    partition: str
    number: int  # of all attempts at this table, in any store
    process: str
    top: int  # the highest block of the partition when it was announced: late rows are above it
    hashes: frozenset[str]  # of the parts that it was announced for, and of all that were seen held since

    def noted(self, seen: "QuarantinePlace") -> "QuarantineAttempt":
        """With what is held: a merge before the move makes other files. To be journaled before `put_back`, because parts
        that come back get new block numbers (tried), and nothing else tells them from late rows."""
        return replace(self, hashes=self.hashes | {part.hash for part in seen.held if part.hash})


@dataclass(frozen=True, kw_only=True)
class HeldPart:
    """A part with rows, as the source lists it."""

    name: str
    rows: int
    bytes: int
    hash: str  # of all files; "" where the source does not say
    min_block: int


class Where(StrEnum):
    """Of the rows of an attempt."""

    TABLE = "table"  # nothing left it
    QUARANTINE = "quarantine"  # all of it left, once; late rows may be in the table
    BOTH = "both"  # the server died inside: the same parts are at both places
    DIVIDED = "divided"  # some here, some there: replicas lag, or parts were merged since
    NOWHERE = "nowhere"


@dataclass(frozen=True, kw_only=True)
class QuarantinePlace:
    """Where the parts of an attempt are, at one server."""

    live: tuple[HeldPart, ...]
    held: tuple[HeldPart, ...]
    closed: bool  # nothing that was announced can add to it
    top: int
    known: frozenset[str]  # hashes, as journaled

    @property
    def where(self) -> Where:
        hashes = {part.hash for part in self.held}
        old = [part for part in self.live if self._is_old(part)]
        if not self.held:
            return Where.TABLE if old else Where.NOWHERE
        if not old:
            return Where.QUARANTINE
        both = hashes <= {part.hash for part in old} and "" not in hashes
        return Where.BOTH if both else Where.DIVIDED

    @property
    def copies(self) -> tuple[HeldPart, ...]:
        """Parts in quarantine that the table has too, file for file."""
        live = {part.hash for part in self.live} - {""}
        return tuple(part for part in self.held if part.hash in live)

    @property
    def holds_all(self) -> bool:
        """Whether every old part of the table is such a copy: then what is in quarantine is whole."""
        hashes = {part.hash for part in self.held} - {""}
        return bool(self.held) and all(part.hash in hashes for part in self.live if self._is_old(part))

    @property
    def late(self) -> tuple[HeldPart, ...]:
        """Parts of the table that are not of the attempt."""
        return tuple(part for part in self.live if not self._is_old(part))

    def _is_old(self, part: HeldPart) -> bool:
        return (
            part.min_block <= self.top
            or part.hash in self.known
            or any(part.hash == held.hash for held in self.held)
        )


class Quarantine(Protocol):
    """At one server. Every call may be repeated after any crash, by any worker. Only `take_out` and `put_back` move rows.
    `calve.testing.contracts.quarantine` has these obligations as tests."""

    def prepare(self, attempt: QuarantineAttempt) -> None:
        """Make the place. Moves nothing. RefusedError (`quarantine_taken`) where another process made it."""

    def take_out(self, attempt: QuarantineAttempt, query_id: str) -> None:
        """Move the partition's rows out of the table, as one statement under that id. NotFoundError or PermanentError
        once the attempt was closed; whatever it raises, `placement` says what happened."""

    def close(self, attempt: QuarantineAttempt, query_ids: Sequence[str]) -> None:
        """From now on no `take_out` or `put_back` of this attempt that was sent before can move anything; those under way have ended."""

    def put_back(self, attempt: QuarantineAttempt, query_id: str) -> None:
        """Move the rows of a closed attempt back into the table. Rows that came late stay."""

    def misfits(self, attempt: QuarantineAttempt) -> tuple[str, ...]:
        """Columns that the table has lost or changed since: nothing comes back before it has them again. What it got since
        is no obstacle."""

    def placement(self, attempt: QuarantineAttempt) -> QuarantinePlace:
        """By looking, never by memory."""


class MovingQuarantine:
    """By MOVE PARTITION into `calve_released.<uuid>_<n>`, which can be read, and is in backups. The name that MOVE knows
    is `…_open`; a return has a name of its own as well, and `close` takes away both."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def prepare(self, attempt: QuarantineAttempt) -> None:
        session, table = self._session, attempt.table
        still.refuse_inline_disk(table)
        what, comment = f"quarantine {attempt.number} of {table}", f"calve {attempt.process}"
        found = self._found(attempt)
        if not found:
            made = open_table(attempt)
            # If we die here, an empty database is left, which every quarantine uses.
            session.execute(f"CREATE DATABASE IF NOT EXISTS {name(DATABASE)}", what=what)
            text = still.create(
                table,
                made,
                self._engine(attempt),
                still.known_settings(session),
                more="fsync_part_directory",
                comment=comment,
            )
            try:
                # If we die here, a table without rows is left, and the next try finds it.
                session.execute(text, what=what)
            except CalveError as error:
                if number_of(error) != _EXISTS:
                    raise
            found = self._found(attempt)
        foreign = [row["name"] for row in found if row["comment"] != comment]
        if foreign:
            raise RefusedError(
                f"{DATABASE}.{foreign[0]} was made by another process than {attempt.process}",
                code="quarantine_taken",
                hint="each attempt has a number of its own; look at that table before you remove it",
            )
        for row in found:
            made = TableName(source=None, database=DATABASE, table=row["name"])
            still.strip_column_ttls(session, made, "")
            still.stop_merges(session, made, "")
        self._refuse_ttl(attempt)

    def take_out(self, attempt: QuarantineAttempt, query_id: str) -> None:
        # If we die here, the parts are in the table or in this attempt's own place: `placement` says where.
        self._move(attempt.table.full_name, open_table(attempt), attempt, query_id)

    def close(self, attempt: QuarantineAttempt, query_ids: Sequence[str]) -> None:
        for stage in (open_table, back_table):
            self._rename(attempt, stage(attempt), closed_table(attempt))
        for query_id in query_ids:
            end(self._session, query_id)

    def put_back(self, attempt: QuarantineAttempt, query_id: str) -> None:
        back = back_table(attempt)
        names = {row["name"] for row in self._found(attempt)}
        if open_table(attempt).table in names:
            raise PermanentError(
                f"quarantine {attempt.number} of {attempt.table} is not closed", code="not_closed"
            )
        self._rename(attempt, closed_table(attempt), back)
        self._follow_columns(attempt, back)
        # If we die here, the parts are at either place: `placement` says where.
        self._move(back, attempt.table.full_name, attempt, query_id)

    def misfits(self, attempt: QuarantineAttempt) -> tuple[str, ...]:
        now, found = _stored(attempt.table), []
        for place in self._found(attempt):
            held = _stored(self._session.describe(DATABASE, place["name"]))
            found += [f"{name(one)} {type}" for one, type in held.items() if now.get(one) != type]
        return tuple(found)

    def _follow_columns(self, attempt: QuarantineAttempt, place: TableName) -> None:
        """MOVE wants the same columns at both places. A column that the table got since changes no part."""
        held = _stored(self._session.describe(DATABASE, place.table))
        for one, type in _stored(attempt.table).items():
            if one not in held:
                # If we die here, the quarantine has some of them: the next try adds the others.
                self._session.execute(
                    f"ALTER TABLE {place.sql} ADD COLUMN IF NOT EXISTS {name(one)} {type}",
                    what=f"quarantine {attempt.number} of {attempt.table}",
                )

    def placement(self, attempt: QuarantineAttempt) -> QuarantinePlace:
        found = [row["name"] for row in self._found(attempt)]
        held = [
            part
            for one in found
            for part in parts(
                self._session, TableName(source=None, database=DATABASE, table=one), attempt.partition
            )
        ]
        live = parts(self._session, attempt.table.full_name, attempt.partition)
        closed = open_table(attempt).table not in found
        return QuarantinePlace(
            live=live, held=tuple(held), closed=closed, top=attempt.top, known=attempt.hashes
        )

    def thin(self, attempt: QuarantineAttempt, query_id: str) -> None:
        """Remove the copies from a closed quarantine: a return then brings each part once."""
        for row in self._found(attempt):
            place = TableName(source=None, database=DATABASE, table=row["name"])
            mine = {part.name for part in parts(self._session, place, attempt.partition)}
            for part in self.placement(attempt).copies:
                if part.name in mine:
                    # If we die here, the next try goes on with the copies that are left.
                    self._session.execute(
                        f"ALTER TABLE {place.sql} DROP PART {string(part.name)}",
                        what=f"copy {part.name} of {attempt.table}",
                        query_id=query_id,
                    )

    def remove(self, attempt: QuarantineAttempt, process: str, query_id: str) -> None:
        """Delete what is in quarantine, under a name that only `process` knows."""
        doomed = doomed_table(attempt, process)
        self._rename(attempt, closed_table(attempt), doomed)
        # If we die here, it is deleted or not: `is_gone` says.
        self._session.execute(
            f"DROP TABLE IF EXISTS {doomed.sql} SYNC",
            what=f"quarantine {attempt.number} of {attempt.table}",
            query_id=query_id,
        )

    def spare(self, attempt: QuarantineAttempt, process: str, query_ids: Sequence[str]) -> None:
        """Take that name away again: a statement that wakes up late deletes nothing."""
        for query_id in query_ids:
            end(self._session, query_id)
        self._rename(attempt, doomed_table(attempt, process), closed_table(attempt), self._doomed(attempt))

    def is_gone(self, attempt: QuarantineAttempt, process: str) -> bool:
        return not self._found(attempt) and doomed_table(attempt, process).table not in self._doomed(attempt)

    def _doomed(self, attempt: QuarantineAttempt) -> set[str]:
        prefix = string(f"{closed_table(attempt).table}_drop_")
        found = self._session.rows(
            f"SELECT name FROM system.tables WHERE database = {string(DATABASE)} AND startsWith(name, {prefix})",
            what=f"quarantine of {attempt.table}",
        )
        return {row["name"] for row in found}

    def _move(self, out_of: TableName, into: TableName, attempt: QuarantineAttempt, query_id: str) -> None:
        replicated = attempt.table.clause.replicated
        self._session.execute(
            f"ALTER TABLE {out_of.sql} MOVE PARTITION ID {string(attempt.partition)} TO TABLE {into.sql}",
            {"alter_sync": "2"}
            if replicated
            else {},  # else its two log entries may pass each other (#37808)
            what=f"moving partition {attempt.partition} of {attempt.table}",
            query_id=query_id,
        )

    def _rename(
        self, attempt: QuarantineAttempt, old: TableName, new: TableName, known: Set[str] = frozenset()
    ) -> None:
        """Once: the next try finds the new name."""
        names = known or {row["name"] for row in self._found(attempt)}
        if old.table not in names:
            return
        try:
            # If we die here, it has the one name or the other.
            self._session.execute(
                f"RENAME TABLE {old.sql} TO {new.sql}", what=f"quarantine of {attempt.table}"
            )
        except CalveError as error:
            if number_of(error) != _UNKNOWN_TABLE:  # another worker was first
                raise

    def place(self, attempt: QuarantineAttempt) -> str:
        """The name of its table, whatever its stage; "" where there is none."""
        return next((row["name"] for row in self._found(attempt)), "")

    def _found(self, attempt: QuarantineAttempt) -> list[dict[str, Any]]:
        """The tables of this attempt, whatever its stage."""
        names = [one(attempt).table for one in (open_table, closed_table, back_table)]
        return self._session.rows(
            f"SELECT name, comment, create_table_query AS text, engine_full AS engine FROM system.tables WHERE database = {string(DATABASE)} "
            f"AND name IN ({', '.join(map(string, names))}) ORDER BY name",
            what=f"quarantine of {attempt.table}",
        )

    def _refuse_ttl(self, attempt: QuarantineAttempt) -> None:
        """Read back, as the server has it."""
        for row in self._found(attempt):
            if columns_with_ttl(row["text"]) or parse(row["engine"]).ttl:
                raise PermanentError(
                    f"{DATABASE}.{row['name']} has a TTL, which would remove rows from it",
                    code="quarantine_ttl",
                )

    def _engine(self, attempt: QuarantineAttempt) -> str:
        """MOVE is possible between two replicated tables or two that are not. The path in Keeper is the attempt's own."""
        table, clause = attempt.table, attempt.table.clause
        arguments = list(clause.family_arguments)
        if not clause.replicated:
            return f"{clause.family}({', '.join(arguments)})" if arguments else clause.family
        found = self._session.rows(
            "SELECT zookeeper_path AS path, replica_name AS replica FROM system.replicas "
            f"WHERE database = {string(table.database)} AND table = {string(table.name)}",
            what=f"table {table}",
        )
        if not found:
            raise PermanentError(f"table {table} is in no row of system.replicas", code="replicas")
        digest = hashlib.sha256(found[0]["path"].encode()).hexdigest()[:32]
        own = [string(f"/calve/released/{digest}/{attempt.number}"), string(found[0]["replica"])]
        return f"{clause.name}({', '.join([*own, *arguments])})"


def _stored(table: TableInfo) -> dict[str, str]:
    """Types of the columns that parts have, by name."""
    return {one.name: one.type for one in table.columns if one.default_kind not in ("ALIAS", "EPHEMERAL")}


def twins(hashes: Iterable[str]) -> frozenset[str]:
    """Those that are there more than once; parts without a hash are like no other."""
    return frozenset(hash for hash, count in Counter(hashes).items() if hash and count > 1)


def closed_table(attempt: QuarantineAttempt) -> TableName:
    return TableName(source=None, database=DATABASE, table=f"{attempt.table.uuid}_{attempt.number}")


def open_table(attempt: QuarantineAttempt) -> TableName:
    """The name that `take_out` knows."""
    return TableName(source=None, database=DATABASE, table=f"{attempt.table.uuid}_{attempt.number}_open")


def back_table(attempt: QuarantineAttempt) -> TableName:
    """The name that `put_back` knows."""
    named = f"{attempt.table.uuid}_{attempt.number}_back_{attempt.process}"
    return TableName(source=None, database=DATABASE, table=named)


def doomed_table(attempt: QuarantineAttempt, process: str) -> TableName:
    """The name that `remove` knows."""
    named = f"{closed_table(attempt).table}_drop_{process}"
    return TableName(source=None, database=DATABASE, table=named)


def end(session: Statements, query_id: str) -> None:
    """End what runs under that id, and wait for its end. In an embedded engine nothing outlives its visit."""
    if not session.embedded:
        session.execute(
            f"KILL QUERY WHERE query_id = {string(query_id)} SYNC", what=f"ending query {query_id}"
        )


def parts(session: Statements, table: TableName, partition: str) -> tuple[HeldPart, ...]:
    """The active parts of a partition that have rows."""
    found = session.rows(
        "SELECT name, rows, bytes_on_disk AS bytes, hash_of_all_files AS hash, min_block_number AS min_block "
        f"FROM system.parts WHERE active AND rows > 0 AND database = {string(table.database)} "
        f"AND table = {string(table.table)} AND partition_id = {string(partition)} ORDER BY name",
        what=f"parts of {table}",
    )
    return tuple(
        HeldPart(
            name=row["name"],
            rows=row["rows"],
            bytes=row["bytes"],
            hash=row["hash"],
            min_block=row["min_block"],
        )
        for row in found
    )
