"""New parts of a partition that was exported before: which they are, and whether they can be told from the old ones.

What was exported, with its increments, covers the blocks up to `top`. A part above it is new, a part across it mixes old and
new rows. The invariant: an increment has no row that was exported before, and misses none that came since. So the old
parts must still be what was exported, nothing may have been merged across the border, and what cannot be told is refused.

An increment has a key of its own: the process of the whole export and a number. Whoever publishes that number first wins.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from calve.clickhouse.parts.content import Extent, content_id
from calve.destination.content import PartMark, increment_selection, marks_of, unchanged
from calve.destination.names import PARQUET
from calve.destination.outcome import EarlierExport
from calve.destination.plan import KeyPlan, PartPlan
from calve.export.request import Earlier, ExportRequest, key_hash, key_text
from calve.model.errors import RefusedError, UsageError


@dataclass(frozen=True, kw_only=True)
class Increment:
    """What is new of a partition: parts above `top`."""

    key: KeyPlan
    top: int


def check_options(request: ExportRequest) -> None:
    """UsageError for what cannot be combined with --new-parts."""
    others = {
        "--force": request.force,
        "--part": bool(request.parts),
        "--where": bool(request.where),
        "--final": request.final,
        "--from-backup": bool(request.from_backup),
        "a lossy --cast": bool(request.selection),
    }
    given = next((name for name, value in others.items() if value), "")
    if given:
        raise UsageError(
            f"--new-parts adds to a whole partition, and {given} exports something else of it",
            code="new_parts",
            hint=f"omit {given} or --new-parts",
        )
    if request.address.form == PARQUET:
        raise UsageError(
            "--new-parts needs an Iceberg table: a folder of Parquet files has no atomic commit over several exports",
            code="new_parts",
            hint="omit --new-parts, or export to a table of a catalog",
        )


def find_increment(
    request: ExportRequest,
    key: KeyPlan,
    earlier: Earlier,
    parts: Sequence[PartPlan],
    *,
    identity: str,
    uuid: str,
) -> Increment | RefusedError:
    """`key` is that of the whole partition as it is now, `parts` are all of its parts."""
    export = earlier.export
    top = export.top or max((mark.max_block for mark in marks_of(export.content) or ()), default=0)
    marks = [
        mark for mark in _marks(key, parts) if mark.max_block <= top or mark.rows
    ]  # new and empty: nothing
    new = [mark for mark in marks if mark.min_block > top]
    old = [mark for mark in marks if mark.max_block <= top]
    why = _obstacle(export, key, old, new, mixed=len(old) + len(new) < len(marks), top=top)
    if why is not None:
        code, said = why
        return RefusedError(
            f"{request.source_table}: new parts of partition {key.partition} cannot be exported: {said}",
            code=code,
            hint=_HINTS[code] if not export.released else "export the rows into another table",
        )
    selection = increment_selection(export.process_id, len(export.increments) + 1)
    text = key_text(identity=identity, partition=key.partition, selection=selection, uuid=uuid)
    return Increment(
        top=top,
        key=KeyPlan(
            partition=key.partition,
            hash=key_hash(text),
            content=key.content,
            text=text,
            rows=sum(mark.rows for mark in new),
            top=max(mark.max_block for mark in new),
        ),
    )


_HINTS = {
    "blocks_unknown": "--force exports the partition again; later parts can then be exported as new ones",
    "mixed_merge": "--force replaces what was exported with what is there now",
    "parts_came_back": "compare with the destination before you use --force",
    "rows_gone": "compare with the destination before you use --force: rows that were exported changed or are gone",
}


def _obstacle(
    export: EarlierExport,
    key: KeyPlan,
    old: Sequence[PartMark],
    new: Sequence[PartMark],
    *,
    mixed: bool,
    top: int,
) -> tuple[str, str] | None:
    """Code and reason; None where every row is surely old or new."""
    if not top:
        return "blocks_unknown", "the export does not say which blocks it covers"
    if mixed:
        return "mixed_merge", f"a merge put rows from before and after block {top} into one part"
    exported = [mark for text in export.contents for mark in marks_of(text) or ()]
    if (export.increments or (export,))[-1].released:  # what was added after a release is in the table
        if any(mark.rows for mark in old):  # a MOVE leaves parts without rows in their place
            return "parts_came_back", "parts that were released are in the table again"
        if not _comparable(export.contents, new):
            return "blocks_unknown", "it was released, and its parts have no hashes to compare new ones with"
    elif not _is_as_exported(export, key, old, new):
        return "rows_gone", "the parts that were exported are not as they were"
    hashes = {mark.hash for mark in exported if mark.hash[1:]}
    if any(mark.hash in hashes for mark in new):
        return "parts_came_back", "a part that was exported is there again under a new number"
    if not new or any(mark.mutation for mark in new):
        return "rows_gone", "a mutation changed its parts"
    return None


def _is_as_exported(
    export: EarlierExport, key: KeyPlan, old: Sequence[PartMark], new: Sequence[PartMark]
) -> bool:
    if not old:
        return False
    extent = Extent(
        min_block=min(mark.min_block for mark in old),
        max_block=max(mark.max_block for mark in old),
        mutation=max(mark.mutation for mark in old),
        rows=key.rows
        - sum(mark.rows for mark in new),  # nothing was deleted from new ones: they have no mutation
    )
    return unchanged(export.content, content_id([extent], old if _has_marks(key.content) else ()))


def _comparable(contents: Sequence[str], new: Sequence[PartMark]) -> bool:
    """Whether every part that was exported, and every new one, has a hash of one kind."""
    known = [marks_of(text) for text in contents]
    if not all(known):
        return False
    hashes = [mark.hash for marks in known for mark in marks or ()] + [mark.hash for mark in new]
    return all(text[1:] for text in hashes) and len({text[:1] for text in hashes}) == 1


def _has_marks(content: str) -> bool:
    """Whether block numbers of the table can begin again, so that contents carry marks."""
    return "+" in content


def _marks(key: KeyPlan, parts: Sequence[PartPlan]) -> Sequence[PartMark]:
    """Of each part; without hashes where the content does not list them."""
    listed = marks_of(key.content)
    if listed is not None:
        return listed
    return [
        PartMark(
            min_block=part.min_block,
            max_block=part.max_block,
            level=part.level,
            mutation=0 if part.data_version == part.min_block else part.data_version,
            rows=part.rows,
            hash="",
        )
        for part in parts
    ]
