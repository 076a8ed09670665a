"""Where the rows of a partition arrive before they are in its table: a scratch table that nothing else fills or reads.

Same structure, no TTL, merges off, in a database of our own, so neither materialized views nor a TTL see the rows on their way.
What is in it was put there by one try of one process. `close` takes away the name that a MOVE knows: one that wakes up late
finds nothing to move. Where the parts are decides, never what a statement answered.
"""

from dataclasses import dataclass

from calve.clickhouse import still
from calve.clickhouse.errors import number_of
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import TableName, name, string
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier.quarantine import HeldPart, end, parts
from calve.model.errors import CalveError

DATABASE = "calve_untier"
_CLOSED = "_closed"
_UNKNOWN_TABLE = 60
# Columns that ClickHouse would compute are given, as the table had them; and each row is inserted as it is.
_INSERT = {
    "insert_allow_materialized_columns": "1",
    "async_insert": "0",
    "insert_deduplicate": "0",
    "optimize_on_insert": "0",
}


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """Of one partition of one table, for one process. Every call may be repeated after any crash."""

    session: Session
    table: TableInfo
    partition: str
    process: str

    def scratches(self) -> list[str]:
        """All that this process made, whatever their stage."""
        found = self.session.rows(
            f"SELECT name FROM system.tables WHERE database = {string(DATABASE)} "
            f"AND comment = {string(self._comment)} ORDER BY name",
            what="scratch tables",
        )
        return [row["name"].removesuffix(_CLOSED) for row in found]

    def fill(self, scratch: str, select: str, *, query_id: str, seconds: float) -> None:
        """Make it and put the rows in, once for each name."""
        made, what = _named(scratch), f"bringing back partition {self.partition} of {self.table}"
        arguments = ", ".join(self.table.clause.family_arguments)
        engine = f"{self.table.clause.family}({arguments})" if arguments else self.table.clause.family
        # If we die here, an empty database is left, which every process uses.
        self.session.execute(f"CREATE DATABASE IF NOT EXISTS {name(DATABASE)}", what=what)
        text = still.create(
            self.table, made, engine, still.known_settings(self.session), comment=self._comment
        )
        # If we die here, a scratch table is left, with rows or without: the next try drops it and takes another name.
        self.session.execute(text, what=what)
        still.strip_column_ttls(self.session, made, "")
        still.stop_merges(self.session, made, "")
        columns = ", ".join(name(one) for one in self._columns())
        self.session.execute(
            f"INSERT INTO {made.sql} ({columns}) SELECT {columns} FROM ({select})",
            _INSERT,
            what=what,
            seconds=seconds,
            query_id=query_id,
        )

    def _columns(self) -> list[str]:
        return [one.name for one in self.table.columns if one.default_kind not in ("ALIAS", "EPHEMERAL")]

    def held(self, scratch: str) -> tuple[HeldPart, ...]:
        """Of the partition; () where there is no such table."""
        return tuple(
            part
            for one in (scratch, scratch + _CLOSED)
            for part in parts(self.session, _named(one), self.partition)
        )

    def live(self) -> tuple[HeldPart, ...]:
        return parts(self.session, self.table.full_name, self.partition)

    def move(self, scratch: str, query_id: str) -> None:
        # If we die here, the parts are in the scratch table or in the table: the next try looks.
        self.session.execute(
            f"ALTER TABLE {_named(scratch).sql} MOVE PARTITION ID {string(self.partition)} TO TABLE {self.table.sql}",
            what=f"moving partition {self.partition} into {self.table}",
            query_id=query_id,
        )

    def close(self, scratch: str, query_id: str) -> None:
        """From now on no `move` of it can move anything; one that was under way has ended."""
        end(self.session, query_id)
        try:
            # If we die here, it has the one name or the other.
            self.session.execute(
                f"RENAME TABLE {_named(scratch).sql} TO {_named(scratch + _CLOSED).sql}", what=scratch
            )
        except CalveError as error:
            if number_of(error) != _UNKNOWN_TABLE:  # it was closed, or dropped, before
                raise

    def drop(self, scratch: str) -> None:
        """Twice is harmless."""
        for one in (scratch, scratch + _CLOSED):
            self.session.execute(f"DROP TABLE IF EXISTS {_named(one).sql} SYNC", what=f"scratch table {one}")

    @property
    def _comment(self) -> str:
        return f"calve {self.process}"


def scratch_table(scratch: str, session: Session) -> TableInfo:
    return session.describe(DATABASE, scratch)


def _named(scratch: str) -> TableName:
    return TableName(source=None, database=DATABASE, table=scratch)


def partitions(session: Session, scratch: str) -> set[str]:
    """Ids of those that have rows."""
    found = session.rows(
        "SELECT DISTINCT partition_id AS id FROM system.parts WHERE active AND rows > 0 "
        f"AND database = {string(DATABASE)} AND table = {string(scratch)}",
        what="scratch tables",
    )
    return {row["id"] for row in found}
