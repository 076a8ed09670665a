"""What keeps rows of a table from being read, or kept, anywhere else than in it: each with a code of its own.

Read from the source as it is now; nothing is remembered. An obstacle that cannot be looked at is one.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from calve.clickhouse.errors import ACCESS_DENIED, number_of
from calve.clickhouse.source import Session, Statements
from calve.clickhouse.sql.create_table import columns_with_ttl
from calve.clickhouse.sql.tokens import Sort, TableName, split_arguments, string, tokens
from calve.clickhouse.tables import TableInfo, patch_parts
from calve.clickhouse.tier.losses import known_loss
from calve.model.errors import PermanentError, RefusedError

_PLAIN = ("MergeTree", "ReplicatedMergeTree")  # the others combine rows in merges, or are untested
_ZERO_COPY = "allow_remote_fs_zero_copy_replication"
_PATCHED = ("enable_block_number_column", "enable_block_offset_column")
TTL_MARGIN = timedelta(hours=48)


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """Why a partition may not leave its table."""

    code: str
    words: str


def find(session: Session, table: TableInfo, partition: str) -> tuple[Obstacle, ...]:
    """All of them, so that a person can remove them at once. What is known of the lake, of policies and of replicas is not
    here: it is not the source's to say."""
    return tuple(
        Obstacle(code=code, words=words)
        for code, words in (
            *_of_table(session, table),
            *_of_ttl(session, table, partition),
            *_of_changes(session, table, partition),
        )
    )


Found = Iterator[tuple[str, str]]


def _of_table(session: Session, table: TableInfo) -> Found:
    if not table.partition_key:
        yield "unpartitioned", "the table has no partitions"
    if not table.uuid:
        yield "no_uuid", "the table has no uuid"
    if table.engine not in _PLAIN:
        yield "engine", f"merges of {table.engine} combine rows, or it is untested"
    if loss := known_loss(table.version, replicated=table.clause.replicated):
        yield "server_version", loss
    if table.row_policies or table.policies_hidden:
        yield "row_policies", "row policies do not hold for what left the table"
    if table.settings.get("disk", "").replace(" ", "").lower().startswith("disk("):
        yield "inline_disk", "the table defines its disk in its own settings"
    if all(_setting(session, table, one) for one in _PATCHED):
        yield "lightweight_updates", "an UPDATE that races with the move would be lost"
    if table.clause.replicated and _setting(session, table, _ZERO_COPY):
        yield "zero_copy", "replicas share their files"


def _setting(session: Session, table: TableInfo, name: str) -> bool:
    """Of the table, else of the server."""
    value = table.settings.get(name)
    if value is None:
        found = session.rows(f"SELECT value FROM system.merge_tree_settings WHERE name = {string(name)}")
        value = found[0]["value"] if found else "0"
    return value.strip("'") not in ("0", "false")


def _of_ttl(session: Session, table: TableInfo, partition: str) -> Found:
    """A TTL that removes or changes rows, and may do so before long; or nobody can say when."""
    if columns := columns_with_ttl(table.create_query):
        yield "ttl_first", f"column {columns[0]} has a TTL, and no part says when it is due"
    if not any(removes_rows(rule) for rule in split_arguments(table.clause.ttl)):
        return
    found = session.rows(
        "SELECT count() AS parts, countIf(toUnixTimestamp(delete_ttl_info_max) = 0) AS unknown, "
        "toUnixTimestamp(min(delete_ttl_info_min)) AS first, toUnixTimestamp(now()) AS now FROM system.parts "
        f"WHERE active AND rows > 0 AND database = {string(table.database)} AND table = {string(table.name)} "
        f"AND partition_id = {string(partition)}",
        what=f"TTL of {table}",
    )[0]
    if found["unknown"] or any(
        " GROUP " in f" {rule.upper()} " for rule in split_arguments(table.clause.ttl)
    ):
        yield "ttl_first", "parts of the partition do not say when their TTL is due"
    elif found["parts"] and found["first"] < found["now"] + TTL_MARGIN.total_seconds():
        yield "ttl_first", "a TTL removes rows of the partition within 48 hours, or has begun to"


def removes_rows(rule: str) -> bool:
    """Not one that moves rows to another disk, or compresses them anew."""
    words = [word.text.upper() for word in tokens(rule) if word.sort is Sort.NAME]
    pairs = set(itertools.pairwise(words))
    return not ({("TO", "DISK"), ("TO", "VOLUME")} & pairs or "RECOMPRESS" in words)


def _of_changes(session: Session, table: TableInfo, partition: str) -> Found:
    """MOVE takes a pending mutation for done and does not apply it (#120902): an acknowledged DELETE would be lost."""
    name = table.full_name
    if pending := session.unfinished_mutations(name):
        yield "mutation", f"mutation {pending[0].id} has not reached every part"
    if patches := patch_parts(session, name, [partition]):
        yield "patches", f"patch {patches[0]} has not reached every part"


def refuse(obstacles: Sequence[Obstacle], table: TableInfo, partition: str) -> None:
    """RefusedError with all of them, under the code of the first."""
    if obstacles:
        lines = "".join(f"\n  {one.code}: {one.words}" for one in obstacles)
        raise RefusedError(
            f"partition {partition} of {table} cannot leave its table:{lines}", code=obstacles[0].code
        )


def refuse_row_policies(session: Statements, table: TableInfo, cold: TableName) -> None:
    """What policies hide in the table, equal ones must hide on the cold side. RefusedError otherwise."""
    if not table.row_policies and not table.policies_hidden:
        return
    wanted = _policies(session, TableName(source=None, database=table.database, table=table.name))
    found = _policies(session, cold)
    if wanted is None or found is None or wanted != found:
        raise RefusedError(
            f"table {table} has row policies, and what they hide would show on the cold side",
            code="row_policies",
            hint=f"create policies with the same conditions and users on {cold.sql}: it need not exist for that",
        )


def _policies(session: Statements, table: TableName) -> frozenset[str] | None:
    """Each as its condition and users; None where they are not shown."""
    try:
        found = session.rows(
            "SELECT toString((ifNull(select_filter, ''), is_restrictive, apply_to_all, arraySort(apply_to_list), "
            "arraySort(apply_to_except))) AS policy FROM system.row_policies "
            f"WHERE database = {string(table.database)} AND table IN ({string(table.table)}, '')",
            what=f"row policies of {table}",
        )
    except PermanentError as error:
        if number_of(error) != ACCESS_DENIED:
            raise
        return None
    return frozenset(row["policy"] for row in found)
