"""The view over a table and its lake: rows of partitions that are read from the lake come from there, all others from
the table, and no row from both.

The cold half reads a table that is pinned to one metadata file. Without a catalog, ClickHouse would take
the newest file that it finds, which may be one whose commit was lost (L19).

Every column is qualified: an unqualified name in a WHERE means the SELECT's alias, so a bound would be put on what was
cast (tried). Bounds are put on the column as it is stored, so that they prune files. The hot half comes first:
the engine computes the set there, before it looks up the cold table, so a set is never newer than the cold table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from calve.clickhouse.source import Statements
from calve.clickhouse.sql import tokens, types
from calve.clickhouse.sql.tokens import Sort, TableName, name, string
from calve.clickhouse.tables import Column, TableInfo
from calve.clickhouse.tier.alignment import Aligned, NotAlignedError, align, throw, zoned
from calve.clickhouse.tier.residency import DATABASE, Resident, instant_text, residency_table, scalar
from calve.model.errors import RefusedError

_OLDEST = (25, 3)  # has iceberg_metadata_file_path
_NOT_STORED = ("ALIAS", "EPHEMERAL")
_WHOLE = frozenset(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64))


def cold_table(uuid: str) -> TableName:
    return TableName(source=None, database=DATABASE, table=f"{uuid}_cold")


def trial_table(uuid: str) -> TableName:
    """A cold table that nobody reads yet: what is wrong with a newer state of the lake shows there first."""
    return TableName(source=None, database=DATABASE, table=f"{uuid}_trial")


def comment(uuid: str) -> str:
    """What distinguishes a view of ours from others."""
    return f"calve view of {uuid}"


@dataclass(frozen=True, kw_only=True)
class ViewColumn:
    """One column of the view: how each half has it."""

    name: str
    type: str
    hot: str
    cold: Aligned


@dataclass(frozen=True, kw_only=True)
class ViewText:
    """All that the statements of one view need."""

    table: TableInfo
    view: TableName
    columns: tuple[ViewColumn, ...]
    id: str  # of a cold row's partition, as the table would file it
    wrong: tuple[str, ...]  # conditions over columns of the key, none of which may hold in a cold partition
    bound: tuple[str, str] | None  # the column that bounds are put on, and how an instant is written for it

    def create(self) -> str:
        table = self.table
        declared = ", ".join(f"{name(one.name)} {one.type}" for one in self.columns)
        hot = ", ".join(f"{one.hot} AS {name(one.name)}" for one in self.columns)
        cold = ", ".join(f"{one.cold.guarded} AS {name(one.name)}" for one in self.columns)
        cold_ids = f"tupleElement({self._set}, 1)"
        return (
            f"CREATE OR REPLACE VIEW {self.view.sql} ({declared}) SQL SECURITY INVOKER COMMENT {string(comment(table.uuid))} "
            f"AS SELECT {hot} FROM {table.sql} AS h WHERE NOT has({cold_ids}, h._partition_id) "
            f"UNION ALL SELECT {cold} FROM {cold_table(table.uuid).sql} AS c WHERE {self._where(cold_ids)}"
        )

    def counts(self, residents: Sequence[Resident]) -> str:
        """Rows of each of these partitions as the cold half would find them, in the trial table."""
        ids = f"[{', '.join(string(one.id) for one in residents)}]"
        found = f"has({ids}, {self.id})"
        if self.bound is not None:
            lowest, highest = min(one.lower for one in residents), max(one.upper for one in residents)
            found += f" AND {self._bounds(_sql(lowest), _sql(highest))}"
        return f"SELECT {self.id} AS id, count() AS rows FROM {trial_table(self.table.uuid).sql} AS c WHERE {found} GROUP BY id"

    def cold_rows(self, one: Resident, relation: TableName | None = None) -> str:
        """All rows of a partition, as the cold half has them now, or another table that reads the lake."""
        cold = ", ".join(f"{column.cold.guarded} AS {name(column.name)}" for column in self.columns)
        found = f"{self.id} = {string(one.id)}"
        if self.bound is not None:
            found += f" AND {self._bounds(_sql(one.lower), _sql(one.upper))}"
        return f"SELECT {cold} FROM {(relation or cold_table(self.table.uuid)).sql} AS c WHERE {found}"

    @property
    def _set(self) -> str:
        return scalar(self.table.uuid, f"{self.table.database}.{self.table.name}")

    def _where(self, cold_ids: str) -> str:
        found = f"has({cold_ids}, {self.id})"
        conditions = [found]
        if self.bound is not None:
            conditions.append(self._bounds(f"tupleElement({self._set}, 2)", f"tupleElement({self._set}, 3)"))
        conditions += [f"{throw(f'{found} AND {wrong}')} = 0" for wrong in self.wrong]
        return " AND ".join(conditions)

    def _bounds(self, lower: str, upper: str) -> str:
        assert self.bound is not None
        column, written = self.bound
        return f"{column} >= {written.format(lower)} AND {column} <= {written.format(upper)}"


def _sql(at: datetime) -> str:
    return f"toDateTime64({string(instant_text(at))}, 6, 'UTC')"


def pin(session: Statements, table: TableInfo, relation: TableName, engine: str, metadata: str) -> None:
    """Let a table of ours read one state of the lake table, by a metadata file relative to its folder."""
    if tuple(int(number) for number in table.version.split(".")[:2]) < _OLDEST:
        raise RefusedError(
            f"ClickHouse {table.version} of source {session.source} cannot read a given state of an Iceberg table",
            code="server_version",
            hint="from 25.3 on it can",
        )
    session.execute(f"CREATE DATABASE IF NOT EXISTS {name(DATABASE)}", what=f"view of {table}")
    # If we die here, a view reads the newer state by the set from before, whose rows were counted in it.
    session.execute(
        f"CREATE OR REPLACE TABLE {relation.sql} ENGINE = {engine} SETTINGS iceberg_metadata_file_path = {string(metadata)}",
        what=f"the cold half of {table}",
    )


def columns_of(session: Statements, relation: TableName) -> dict[str, types.Type]:
    """As this server reads them."""
    found = session.rows(
        f"SELECT name, type FROM system.columns WHERE database = {string(relation.database)} "
        f"AND table = {string(relation.table)} ORDER BY position",
        what=f"table {relation}",
    )
    return {row["name"]: types.parse(row["type"]) for row in found}


def compose(
    session: Statements,
    table: TableInfo,
    view: TableName,
    lake: Mapping[str, types.Type],
    *,
    exclude: Sequence[str] = (),
    time_column: str = "",
) -> ViewText:
    """RefusedError with every column that cannot be had exactly."""
    columns: list[ViewColumn] = []
    refused: list[str] = []
    by_key: dict[str, Aligned] = {}
    key = _key_columns(table)
    for column in table.columns:
        shown = column.default_kind not in _NOT_STORED and column.name not in exclude
        if not shown and column.name not in key:
            continue
        try:
            cold = _cold(column, lake, table.timezone)
        except NotAlignedError as error:
            refused.append(f"{column.name}: {error}")
            continue
        if column.name in key:
            by_key[column.name] = cold
            cold = Aligned(sql=cold.sql)  # compared in the WHERE
        if shown:
            hot = f"h.{name(column.name)}"
            columns.append(ViewColumn(name=column.name, type=column.type, hot=hot, cold=cold))
    if refused:
        lines = "".join(f"\n  {line}" for line in refused)
        raise RefusedError(
            f"the lake does not have columns of {table} as the table has them:{lines}",
            code="view_columns",
            hint="export with --evolve to add columns that are missing, or omit columns from the view with --exclude",
        )
    return ViewText(
        table=table,
        view=view,
        columns=tuple(columns),
        id=_id(session, table, {column: one.sql for column, one in by_key.items()}),
        wrong=tuple(one.wrong for one in by_key.values() if one.wrong),
        bound=_bound(table, time_column, lake),
    )


def check_key(session: Statements, text: ViewText, partition_id: str) -> None:
    """RefusedError where the expression does not file a row of the table as the table does."""
    table = text.table
    hot = {column: f"h.{name(column)}" for column in _key_columns(table)}
    found = session.rows(
        f"SELECT {_id(session, table, hot)} AS made FROM {table.sql} AS h "
        f"WHERE h._partition_id = {string(partition_id)} LIMIT 1",
        what=f"table {table}",
    )
    if found and found[0]["made"] not in (partition_id, ""):
        raise RefusedError(
            f"rows of partition {partition_id} of {table} would be filed under {found[0]['made']} by the view",
            code="view_key",
            hint="the server's time zone may have changed since they were inserted",
        )


def drop(session: Statements, uuid: str, view: TableName | None) -> None:
    """The view first, which needs the others. Twice is harmless; what is not ours is left."""
    if view is not None and owner(session, view) == uuid:
        # If we die here, the view is gone and the next try drops the rest.
        session.execute(f"DROP VIEW IF EXISTS {view.sql}", what=f"view {view}")
    for table in (trial_table(uuid), cold_table(uuid), residency_table(uuid)):
        session.execute(f"DROP TABLE IF EXISTS {table.sql}", what=f"table {table}")


def owner(session: Statements, view: TableName) -> str | None:
    """The uuid of the table that a view of ours is over; "" for what is not ours; None where there is nothing."""
    found = session.rows(
        "SELECT engine, comment FROM system.tables "
        f"WHERE database = {string(view.database)} AND name = {string(view.table)}",
        what=f"view {view}",
    )
    if not found:
        return None
    prefix = comment("")
    ours = found[0]["engine"] == "View" and found[0]["comment"].startswith(prefix)
    return str(found[0]["comment"].removeprefix(prefix)) if ours else ""


def _cold(column: Column, lake: Mapping[str, types.Type], zone: str) -> Aligned:
    """From the column of that name; flattened Nested columns are one column of structs in the lake."""
    hot = zoned(types.parse(column.type), zone)
    group, dot, field = column.name.partition(".")
    if dot and isinstance(hot, types.Array):
        match lake.get(group):
            case types.Array(types.Tuple(elements)):
                places = {one.name: place for place, one in enumerate(elements, start=1)}
                place = places.get(field.replace(".", "_"), 0)
                if place:
                    made = align(hot.inner, elements[place - 1].type, f"tupleElement(e, {place})").guarded
                    return Aligned(sql=f"CAST(arrayMap(e -> {made}, c.{name(group)}), {string(str(hot))})")
        raise NotAlignedError("the lake has no such column")
    found = column.name.replace(".", "_")
    if found not in lake:
        raise NotAlignedError("the lake has no such column")
    return align(hot, lake[found], f"c.{name(found)}")


def _key_columns(table: TableInfo) -> tuple[str, ...]:
    known = {column.name for column in table.columns}
    return tuple(dict.fromkeys(word.value for word in _names(table.partition_key) if word.value in known))


def _names(key: str) -> list[tokens.Token]:
    words = list(tokens.tokens(key))
    return [
        word
        for word, following in zip(words, [*words[1:], None], strict=True)
        if word.sort in (Sort.NAME, Sort.QUOTED) and (following is None or following.text != "(")
    ]


def _id(session: Statements, table: TableInfo, columns: Mapping[str, str]) -> str:
    """A row's partition id. Whole numbers and dates by their digits; anything else by the engine's own function, which
    is slow and always right."""
    members = tokens.members(table.partition_key)
    if not members:
        raise RefusedError(
            f"table {table} has no partitions, so none of it can be read from the lake",
            code="unpartitioned",
        )
    if any(word.text in (".", ">") for word in tokens.tokens(table.partition_key)):
        raise RefusedError(f"the partition key of {table} is too complex for a view", code="view_key")
    asked = ", ".join(f"{member} AS {name(f'k{place}')}" for place, member in enumerate(members))
    kinds = [
        row["type"]
        for row in session.rows(f"DESCRIBE TABLE (SELECT {asked} FROM {table.sql})", what=f"table {table}")
    ]
    made = [_replaced(member, columns) for member in members]
    if all(kind in _WHOLE or kind == "Date" for kind in kinds):
        texts = [
            f"toString(toYYYYMMDD({one}))" if kind == "Date" else f"toString({one})"
            for one, kind in zip(made, kinds, strict=True)
        ]
        dashed = ", '-', ".join(texts)
        return texts[0] if len(texts) == 1 else f"concat({dashed})"
    # Of NULL it is NULL. No partition has the id "", so one of NULLs cannot be cold: its rows are counted as none.
    return f"ifNull(partitionId({', '.join(made)}), '')"


def _replaced(member: str, columns: Mapping[str, str]) -> str:
    """The expression over other columns."""
    text = member
    for word in reversed(_names(member)):
        if word.value in columns:
            text = text[: word.start] + columns[word.value] + text[word.end :]
    return text


def _bound(table: TableInfo, column: str, lake: Mapping[str, types.Type]) -> tuple[str, str] | None:
    """Where there is an instant for it, and NULL is no value of the column: NULL is within no bounds."""
    found = next((one.type for one in table.columns if one.name == column), "")
    if not found or types.is_nullable(types.parse(found)):
        return None
    match types.strip_wrappers(lake[column]):
        case types.DateTime64():
            return f"c.{name(column)}", "{}"
        case types.Simple("Date32"):
            return f"c.{name(column)}", "toDate32({})"
        case _:
            return None
