"""One look at source and destination, for a dry run, a submission and a plan alike: what is explained is
what runs.

A dry run and a submission survey a source as a visit shows it and change nothing. Planning surveys
what its pin holds and prepares the destination first. All else is the same code.

All refusals of one request in one list, so that a command is fixed once and not five times.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, TypeVar

from calve.destination.content import of_partitions, refuse_overlap, refuse_released, refuse_unchained
from calve.destination.plan import ColumnPlan, DestinationPlan, KeyPlan, PartPlan, Slice
from calve.destination.port import Destination, FoundTable
from calve.export.choices import Choices
from calve.export.columns import SourceColumn, raise_refusals
from calve.export.layout import (
    Layout,
    Match,
    TargetTable,
    created,
    fitted,
    lay_out,
    match_schema,
    pending_renames,
    source_types,
    with_renames,
)
from calve.export.request import (
    Earlier,
    ExportOptions,
    ExportRequest,
    KeyedPartition,
    key_plans,
    look_up,
)
from calve.export.slices import partition_slices
from calve.export.spec import is_sorted_by, parse_partition_by, plan_spec
from calve.model.errors import NotFoundError, RefusedError, UnavailableError, UsageError
from calve.model.limits import Limits


class Refusals:
    """Refusals of checks that do not need each other."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._met: list[UsageError | RefusedError] = []

    @contextmanager
    def among(self) -> Iterator[None]:
        """A check whose refusal is kept for the list; the rest of the block is skipped."""
        try:
            yield
        except (UsageError, RefusedError) as error:
            self._met.append(error)
        except NotFoundError:
            self.raise_all()  # what was refused before is fixed first
            raise

    def raise_all(self) -> None:
        """One refusal as it is, several as one: a usage error only if all can be fixed in the command."""
        if len(self._met) <= 1:
            for only in self._met:
                raise only
            return
        kind = UsageError if all(isinstance(error, UsageError) for error in self._met) else RefusedError
        head = f"{self._table} cannot be exported as it is:"
        # One that is a list itself, of columns, becomes a part of this one.
        items = [error.message.removeprefix(f"{head}\n  ") for error in self._met]
        hints = "; ".join(dict.fromkeys(error.hint for error in self._met if error.hint))
        raise kind("\n  ".join([head, *items]), code="refused", hint=hints)


P = TypeVar("P", bound=KeyedPartition)
_MERGING = (
    "Replacing",
    "Summing",
    "Aggregating",
    "Collapsing",
    "VersionedCollapsing",
    "Graphite",
    "Coalescing",
)


@dataclass(frozen=True, kw_only=True)
class SourceView(Generic[P]):
    """The source's table, as a visit shows it or as a pin holds it."""

    identity: str
    engine: str
    columns: tuple[SourceColumn, ...]
    partition_key: str
    sorting_key: str
    partitions: tuple[P, ...]  # those asked for
    parts: tuple[PartPlan, ...]  # of those
    splits_parts: bool  # a part can be read by ranges
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A destination that exists, and how the source's columns go into it."""

    columns: tuple[ColumnPlan, ...]
    destination: DestinationPlan
    keys: tuple[KeyPlan, ...]  # of the chosen partitions


@dataclass(frozen=True, kw_only=True)
class Survey(Generic[P]):
    """A request that would be accepted: what would be exported, and what would not."""

    request: ExportRequest
    source: SourceView[P]
    target: TargetTable
    fit: Fit | None  # None where the destination does not exist, or could not be asked
    chosen: tuple[P, ...]  # to be exported
    parts: tuple[PartPlan, ...]  # of the chosen
    tasks: tuple[tuple[Slice, ...], ...]  # over `parts`
    unchanged: tuple[Earlier, ...]  # exported before, and the same: skipped
    changed: tuple[Earlier, ...]  # exported before, and changed, shrunk or gone since: refused as asked for
    replaced: tuple[Earlier, ...]  # exported before, and to be replaced by force
    notes: tuple[str, ...]
    unreachable: UnavailableError | None = None  # the destination could not be asked: planning will

    @property
    def exists(self) -> bool:
        """The destination, as far as it could be asked."""
        return self.fit is not None


def survey(
    destination: Destination,
    request: ExportRequest,
    source: SourceView[P],
    choices: Choices,
    limits: Limits,
    *,
    cores: int,
    prepare: bool = False,
    refusals: Refusals | None = None,
) -> Survey[P]:
    """`prepare` creates the destination, or adds the columns that it lacks, and needs it to answer.
    `cores` are those that the tasks are cut for. `refusals` are those of looking at the source: all are reported together."""
    refusals = refusals or Refusals(request.source_table)
    if request.new_parts:
        from calve.export.increment import check_options  # few exports need it

        with refusals.among():
            check_options(request)
    with refusals.among():
        layout = lay_out(source, request, choices)
    refusals.raise_all()
    table, unreachable = _look(destination, layout, request, prepare=prepare)
    target, fit, earlier, notes = created(layout), None, list[Earlier](), layout.notes
    added = dict[
        str, int
    ]()  # of partitions whose new parts alone are exported: the block that they are above
    if table is not None:
        table, match = _matched(destination, table, layout, request, prepare=prepare)
        target = fitted(table, match)
        notes += match.notes
        wanted = key_plans(request, source.identity, source.partitions, table.uuid, source.parts)
        few = request.allow_overlap and not request.new_parts  # others may be damaged
        exports = of_partitions(table.released_exports() if few else table.exports(), wanted)
        earlier = look_up(table, wanted, exports)
        if request.new_parts:
            wanted, earlier, added = _new_parts(request, source, table.uuid, wanted, earlier)
        # A released key itself is held back below, and stops no other partition.
        known = {one.partition for one in earlier if one.export.released}
        others_wanted = [key for key in wanted if key.partition not in known]
        refuse_released(exports, request.source_table, others_wanted)
        refuse_unchained(exports, request.source_table, wanted)
        if not request.allow_overlap:
            refuse_overlap(exports, request.source_table, wanted)
        fit = Fit(
            columns=match.columns, destination=_described(destination, table, match, source), keys=wanted
        )
    held_back = tuple(one for one in earlier if one.is_held_back(request))
    others = tuple(one for one in earlier if one not in held_back)
    unchanged, replaced = ((), others) if request.force else (others, ())
    skipped = {one.partition for one in (*held_back, *unchanged)}
    parts = tuple(
        part
        for part in source.parts
        if part.partition_id not in skipped and part.min_block > added.get(part.partition_id, -1)
    )
    return Survey(
        request=request,
        source=source,
        target=target,
        fit=fit and replace(fit, keys=tuple(key for key in fit.keys if key.partition not in skipped)),
        chosen=tuple(
            replace(one, rows=sum(part.rows for part in parts if part.partition_id == one.id))  # type: ignore[type-var]
            if one.id in added
            else one
            for one in source.partitions
            if one.id not in skipped
        ),
        parts=parts,
        tasks=partition_slices(
            parts,
            task_bytes_mb=limits.task_bytes_mb,
            cores=cores,
            columns=len(target.columns),
            file_mb=limits.file_mb,
            whole=request.final,
            split=source.splits_parts,
        ),
        unchanged=unchanged,
        changed=held_back,
        replaced=replaced,
        notes=notes + source.notes + _merging_note(source.engine, request),
        unreachable=unreachable,
    )


def _new_parts(
    request: ExportRequest,
    source: SourceView[P],
    uuid: str,
    wanted: Sequence[KeyPlan],
    earlier: Sequence[Earlier],
) -> tuple[tuple[KeyPlan, ...], list[Earlier], dict[str, int]]:
    """Partitions that were exported and have changed since: the key of what is new in each, or the reason why that
    cannot be told. Others are as without --new-parts."""
    from calve.export.increment import find_increment  # few exports need it

    changed = {one.partition: one for one in earlier if not one.unchanged and not one.export.missing}
    keys, held_back, tops = [], [one for one in earlier if one.partition not in changed], dict[str, int]()
    for key in wanted:
        if (one := changed.get(key.partition)) is None:
            keys.append(key)
            continue
        parts = [part for part in source.parts if part.partition_id == key.partition]
        found = find_increment(request, key, one, parts, identity=source.identity, uuid=uuid)
        if isinstance(found, RefusedError):
            held_back.append(replace(one, obstacle=found))
            keys.append(key)
        else:
            keys.append(found.key)
            tops[key.partition] = found.top
    return tuple(keys), held_back, tops


def merges_rows(engine: str) -> bool:
    """Whether merges of that engine combine rows."""
    return any(name in engine for name in _MERGING)


def _merging_note(engine: str, request: ExportRequest) -> tuple[str, ...]:
    if request.final or not merges_rows(engine):
        return ()
    return (
        f"{engine}: rows that a later merge would combine are exported as they are;"
        " --final exports the merged view",
    )


def _look(
    destination: Destination, layout: Layout, request: ExportRequest, *, prepare: bool
) -> tuple[FoundTable | None, UnavailableError | None]:
    try:
        found = destination.find()
    except UnavailableError as error:
        if prepare:
            raise
        # Accepted all the same: planning looks again, and an outage is no reason to refuse (L3).
        return None, error
    if found is None and not request.create:
        raise NotFoundError(
            f"{request.destination} does not exist",
            code="no_such_table",
            hint="omit --no-create to create it",
        )
    if found is None and prepare:
        found = destination.create(layout.schema, layout.spec, layout.sort_order)
    return found, None


def _matched(
    destination: Destination, table: FoundTable, layout: Layout, request: ExportRequest, *, prepare: bool
) -> tuple[FoundTable, Match]:
    renames = pending_renames(table.schema, request.renames, layout.mapping)
    match = _match(table, layout, request, renames)
    notes = (
        *match.notes,
        *(f"column {old} of the table is renamed to {new}" for old, new in renames.items()),
    )
    if prepare or not destination.evolves:
        if renames:
            table = destination.rename_columns(table, renames)
        if match.lacking:
            table = destination.add_columns(table, [(column.name, column.type) for column in match.lacking])
        if match.widened:
            table = destination.widen_columns(table, match.widened)
        if renames or match.lacking or match.widened:
            match = _match(table, layout, request, {})
    return table, replace(match, notes=notes)


def _match(table: FoundTable, layout: Layout, request: ExportRequest, renames: Mapping[str, str]) -> Match:
    """How the layout fits a table that exists; refuses, with every reason, what does not."""
    refusals = Refusals(request.source_table)
    with refusals.among():
        _refuse_other_partitioning(table, request)
    match = match_schema(layout.mapping, with_renames(table.schema, renames), evolve=request.evolve)
    with refusals.among():
        raise_refusals(request.source_table, match.refusals)
    refusals.raise_all()
    return match


def _refuse_other_partitioning(table: FoundTable, request: ExportRequest) -> None:
    if request.partition_by and parse_partition_by(request.partition_by, table.schema) != table.spec:
        raise RefusedError(
            f"table {request.destination} exists and is not partitioned by {request.partition_by!r}",
            code="other_partitioning",
            hint="omit --partition-by: the files follow the table's own spec",
        )


def _described(
    destination: Destination, table: FoundTable, match: Match, source: SourceView[P]
) -> DestinationPlan:
    """The destination as the plan keeps it, with the SQL of its partition values."""
    names = {column.source: column.name for column in match.columns}
    return replace(
        destination.describe(table),
        spec=plan_spec(table.spec, match.schema, match.columns),
        sorted=destination.tells_sort_order
        and is_sorted_by(source.sorting_key, source_types(source), names, match.schema, table.sort_order),
    )


# What a hash of a plan is made of, in its order: each has digits of its own, so that a refusal can name what differs.
_ASPECTS = {"the destination": 12, "its columns": 12, "the options": 12, "the rows at the source": 20}
_PLAN = "p1-"
_NOT_HASHED = frozenset({"plan_hash", "unsigned", "mutations", "create", "evolve", "new_parts"})


def plan_hash(found: Survey[P], partitions: Collection[str] | None = None, *, as_new: bool = False) -> str:
    """Of what an export writes: of the chosen partitions, or of these. Rows are known by the content of their
    partitions, which a plain merge keeps; names of parts, tasks and limits are no part of it. `as_new`: as if the
    destination did not exist, although another process of the same plan has made it."""
    ids = {one.id for one in found.chosen} if partitions is None else set(partitions)
    request, target = found.request.within(sorted(ids)), found.target
    names = {field.field_id: field.name for field in target.schema.fields}
    types = {field.name: str(field.field_type) for field in target.schema.fields}
    uuid = found.fit.destination.uuid if found.fit and not as_new else ""
    columns = [
        (
            one.name,
            one.source,
            one.source_type,
            _plain(types.get(one.name, one.type)),
            one.required,
            one.lossy,
        )
        for one in target.columns
    ]
    ordered = {"exclude": sorted(request.exclude), "include": sorted(request.include)}
    options = {
        one.name: getattr(request, one.name) for one in fields(ExportOptions) if one.name not in _NOT_HASHED
    } | ({"new_parts": True} if request.new_parts else {})  # hashes of before it was there stay
    said: tuple[Any, ...] = (
        [
            request.destination,
            uuid,
            [(one.name, names.get(one.source_id), str(one.transform)) for one in target.spec.fields],
            [(names.get(one.source_id), str(one.transform)) for one in target.sort_order.fields],
        ],
        columns,
        [options | ordered, sorted(request.parts)],
        [
            found.source.identity,
            sorted((one.id, _rows(one, request)) for one in found.source.partitions if one.id in ids),
            sorted(one.partition for one in found.replaced if one.partition in ids),
        ],
    )
    pieces = zip(said, _ASPECTS.values(), strict=True)
    return _PLAN + "".join(_digest(text)[:digits] for text, digits in pieces)


def check_agreed(found: Survey[P], agreed: str, partitions: Collection[str] | None = None) -> None:
    """RefusedError (code `plan_changed`) if what was agreed to is not what would be done now."""
    now = plan_hash(found, partitions)
    as_new = plan_hash(found, partitions, as_new=True)
    if agreed in (now, as_new):
        return
    differing = min((_differing(agreed, one) for one in (now, as_new)), key=len)
    nothing = not found.chosen and partitions is None
    what = "nothing of it is left to export" if nothing else f"different now: {', '.join(differing)}"
    raise RefusedError(
        f"{found.request.source_table}: this is not the plan that was approved; {what}",
        code="plan_changed",
        hint="look at the plan as it is now (--dry-run), and start that one; nothing was written",
    )


def _differing(agreed: str, now: str) -> list[str]:
    if len(agreed) != len(now) or not agreed.startswith(_PLAN):
        return ["it is not a hash that this version of Calve makes"]
    found, start = [], len(_PLAN)
    for name, digits in _ASPECTS.items():
        if agreed[start : start + digits] != now[start : start + digits]:
            found.append(name)
        start += digits
    return found


def _rows(one: KeyedPartition, request: ExportRequest) -> str:
    """What a partition holds, without the marks of its parts, which a merge changes."""
    return ((one.named or "parts") if request.parts else one.content).partition("+")[0]


def _plain(type: str) -> str:
    """A type without the ids of its fields, which a catalog gives anew."""
    return re.sub(r"([<,])\d+:", r"\1", type.replace(" ", ""))


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, default=dict)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
