"""What a person asked for, as it is stored with the process and read by every worker; and its key.

The export key is the identity of the input: one key is published once, by whichever process comes first.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from calve.clickhouse.parts.content import parse_name
from calve.destination.content import (
    block_ranges,
    increments_by_input,
    input_of,
    merged_since,
    parts_gone,
    released,
    unchanged,
    with_increments,
)
from calve.destination.names import DestinationAddress
from calve.destination.outcome import EarlierExport
from calve.destination.plan import KeyPlan, PartPlan
from calve.destination.port import FoundTable
from calve.export.iceberg_types import LOSSY
from calve.model.errors import RefusedError
from calve.model.reach import piece_of
from calve.model.record import SPACED, Record


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """How rows are exported, as a person asks for it; each field is an option of `calve export`."""

    where: str = ""
    final: bool = False
    force: bool = False
    discard_deletes: bool = False
    allow_shrink: bool = False
    allow_overlap: bool = False
    create: bool = True
    evolve: bool = False
    partition_by: str = ""
    casts: Mapping[str, str] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    mutations: str = "refuse"  # "wait": until they are done; "ignore": export the rows as before them
    ignore_row_policies: bool = False
    from_backup: str = ""  # the name of a backup: its parts are read, and the source is not asked
    file_mb: int = 0  # --file-mb; 0: as the table or the configuration says
    codec: str = ""  # --codec; "": as the table says
    unsigned: bool = False  # accept a backup that is not signed, where [backup] has a signing key
    include: tuple[str, ...] = ()  # ALIAS columns to export
    renames: Mapping[str, str] = field(default_factory=dict)  # columns of the table: old name -> new name
    new_parts: bool = False  # of partitions that were exported before, what was added since
    plan_hash: str = (
        ""  # --plan: of the dry run that was agreed to; in a process's request that of its own share
    )


@dataclass(frozen=True, kw_only=True)
class ExportRequest(ExportOptions, Record, layout=SPACED):
    """One process's request. Fields added later have defaults: older requests stay readable (L12)."""

    source: str  # the name in the configuration
    database: str
    table: str
    catalog: str
    identifier: tuple[str, ...]  # namespace and table
    partitions: tuple[str, ...]  # partition ids
    parts: tuple[str, ...] = ()  # --part: only these
    storage: str = ""  # plain Parquet: the [storage] section that a worker must have
    chosen: str = ""  # how the partitions were chosen, in one canonical text; "" in requests of v0.1

    @property
    def address(self) -> DestinationAddress:
        """Where the export goes."""
        return DestinationAddress(catalog=self.catalog, identifier=self.identifier, storage=self.storage)

    @property
    def source_table(self) -> str:
        return f"{self.source}:{self.database}.{self.table}"

    @property
    def destination(self) -> str:
        return str(self.address)

    @property
    def selection(self) -> str:
        """What of the partition is exported, in one canonical text, "" for all of it: part of the key."""
        given = {
            "parts": sorted(self.parts),
            "where": self.where,
            "final": self.final,
            "lossy": {
                name: kind for name, kind in self.casts.items() if kind.lower().split()[-1:] == [LOSSY]
            },
        }
        chosen = {name: value for name, value in given.items() if value}
        return json.dumps(chosen, sort_keys=True) if chosen else ""

    @property
    def asked(self) -> str:
        """What was asked for, of whichever partitions: the same request again asks for the same (T16)."""
        exclude, include = tuple(sorted(self.exclude)), tuple(sorted(self.include))
        same = replace(
            self, partitions=(), parts=(), unsigned=False, exclude=exclude, include=include, plan_hash=""
        )
        return same.to_json()

    def within(self, partitions: Collection[str]) -> "ExportRequest":
        """The same request of these partitions alone, without the parts that are of its others. A name
        that does not tell its partition (of a table of old syntax) is kept: without any part left,
        all of a partition would be exported."""
        others = frozenset(self.partitions) - frozenset(partitions)
        mine = tuple(part for part in self.parts if _partition_of(part) not in others)
        return replace(self, partitions=tuple(partitions), parts=mine)


def _partition_of(part: str) -> str:
    """The partition id that a part's name begins with."""
    parsed = parse_name(part)
    return parsed.partition_id if parsed else ""


class KeyedPartition(Protocol):
    """A partition as the source shows it now, or as a pin holds it."""

    @property
    def id(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def named(self) -> str: ...  # the content of the parts that were named; "" where it is not known


def key_plans(
    request: ExportRequest,
    identity: str,
    partitions: Iterable[KeyedPartition],
    uuid: str,
    parts: Iterable[PartPlan] = (),
) -> tuple[KeyPlan, ...]:
    """One key for each partition; `parts` are all of theirs, where they are known."""
    plans = []
    tops: dict[str, int] = {}
    for part in parts:
        tops[part.partition_id] = max(part.max_block, tops.get(part.partition_id, 0))
    for one in partitions:
        # Of the parts that were named, only those of this partition count.
        selection = request.within((one.id,)).selection
        text = key_text(identity=identity, partition=one.id, selection=selection, uuid=uuid)
        plans.append(
            KeyPlan(
                partition=one.id,
                hash=key_hash(text),
                content=(one.named or "parts") if request.parts else one.content,
                text=text,
                rows=one.rows,
                top=0 if selection else tops.get(one.id, 0),
            )
        )
    return tuple(plans)


def key_text(*, identity: str, partition: str, selection: str, uuid: str) -> str:
    """The readable form: what is hashed, and nothing else."""
    return json.dumps([identity, partition, selection, uuid], ensure_ascii=False)


def key_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def lock_names(request: ExportRequest, *, identity: str, partition: str) -> tuple[str, ...]:
    """Whatever is selected of a partition, only one process at a time may export it to one table:
    otherwise overlapping selections could pass each other unseen (D8). Only parts are known to hold
    other rows than others: each locks its own blocks."""
    text = json.dumps(["export", identity, partition, request.destination], ensure_ascii=False)
    whole = hashlib.sha256(text.encode()).hexdigest()[:32]
    blocks = block_ranges(request.within((partition,)).selection)
    if blocks is None:
        return (whole,)
    return tuple(piece_of(whole, first, last) for first, last in sorted(set(blocks)))


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """One key that was published before."""

    partition: str
    export: EarlierExport
    unchanged: bool
    rows_now: int
    merged: bool = False  # its parts are others now, in a table whose block numbers can begin again
    parts_gone: bool = False  # blocks that were exported are in no part of the source any more
    obstacle: RefusedError | None = None  # why its new parts cannot be exported alone

    @property
    def shrinks(self) -> bool:
        """Whether replacing it would lose rows that the source no longer has (T19)."""
        if self.unchanged or self.export.missing:
            return False  # there is nothing to lose
        return self.rows_now < self.export.rows or self.parts_gone

    @property
    def sentence(self) -> str:
        """For a person: what is there, and what changed."""
        by = f"exported by process {self.export.process_id} in snapshot {self.export.snapshot_id}"
        if self.export.missing:
            return f"partition {self.partition} was {by}, and is no longer there: {self.export.missing}"
        if self.unchanged:
            seen = f"partition {self.partition} is already {by}, and unchanged since"
            return f"{seen} but for merges" if self.merged else seen
        counts = f"{self.export.rows} rows then, {self.rows_now} now"
        if self.export.rows == self.rows_now:
            counts = f"{self.rows_now} rows then and now, in other parts"
        return f"partition {self.partition} was {by} and has changed since: {counts}"

    def refusal(self, request: ExportRequest) -> RefusedError:
        if self.obstacle is not None:
            return self.obstacle
        if self.export.released:
            return released(request.source_table, self.export)
        said = f"{request.source_table}: {self.sentence}"
        if self.shrinks:
            lost = max(self.export.rows - self.rows_now, 0)
            what = f"{lost} of {self.export.rows} exported rows" if lost else "rows that were exported"
            if lost and self.parts_gone:  # of the rows that are there now, some may be others
                what = f"at least {what}"
            return RefusedError(
                f"{said}; replacing it would lose {what}, which the source no longer has",
                code="would_shrink",
                hint="keep the export as it is, or bring the rows back at the source:"
                " they were dropped, deleted, merged or expired there",
            )
        if self.export.missing:
            deletes = " --discard-deletes" if self.export.deleted else ""
            return RefusedError(said, code="no_longer_there", hint=f"--force{deletes} puts it back, once")
        return RefusedError(
            said, code="changed_since", hint="--force replaces what was exported with what is there now"
        )

    def is_held_back(self, request: ExportRequest) -> bool:
        """Whether it is neither skipped as unchanged nor replaced, but refused."""
        if request.force and not self.export.released:
            return self.shrinks and not request.allow_shrink
        return request.force or not self.unchanged or bool(self.export.missing)


def exported(
    table: FoundTable,
    key_hash: str,
    input: tuple[str, str],
    increments: Mapping[tuple[str, str], Sequence[EarlierExport]],
) -> EarlierExport | None:
    """The last export of a key; of a whole partition, as it stands with what was added since."""
    whole = table.find_export(key_hash)
    if whole is None or input not in increments:
        return whole
    joined = with_increments(whole, input, increments)
    there = [table.find_export(one.key_hash) or one for one in joined.increments]
    lost = next((one for one in there if one.missing), None)
    return (
        joined
        if lost is None or joined.missing
        else replace(joined, missing=lost.missing, deleted=lost.deleted)
    )


def look_up(table: FoundTable, wanted: Sequence[KeyPlan], exports: Iterable[EarlierExport]) -> list[Earlier]:
    """The keys among these that the table has already; `exports` are all that it remembers of their partitions."""
    found, increments = [], increments_by_input(exports)
    for key in wanted:
        identity, partition, selection = input_of(key)
        export = exported(table, key.hash, (identity, partition), {} if selection else increments)
        if export is not None:
            found.append(
                Earlier(
                    partition=key.partition,
                    export=export,
                    unchanged=unchanged(export.content, key.content),
                    rows_now=key.rows,
                    merged=merged_since(export.content, key.content),
                    parts_gone=parts_gone(export.content, key.content),
                )
            )
    return found
