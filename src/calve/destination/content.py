"""Content ids compared: whether a partition still is what was exported.

A content id says by block numbers, mutations and rows what a partition holds (`calve.clickhouse.parts.content`
makes it). Where the block numbers of a table can begin again it carries the marks of the parts too,
`c1-<hash>+<marks>`: a reload that repeats the numbers then shows by its parts. A plain merge keeps the
id and changes the marks, in ways that only a merge can; so ids are compared here, and not by `==`.

Another selection of the same partition may hold the same rows: doubled unless refused (D8).
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from calve.destination.outcome import EarlierExport
from calve.destination.plan import KeyPlan
from calve.model.errors import RefusedError
from calve.model.record import loads

_MARKED = "+"
_DIGEST = "*"
_OF_FILES = ("f", "s")  # how a hash was made: here, or by the server, of all files
MOST_MARKS = 16  # of more parts a digest is kept: marks are stored with every export
_HASH_LENGTH = 12


@dataclass(frozen=True, kw_only=True)
class PartMark:
    """One part, as far as it tells whether it is the one that was there before."""

    min_block: int
    max_block: int
    level: int
    mutation: int
    rows: int  # physical
    hash: str  # of its files, opened by a letter for how it was made; "" where it is not known

    @property
    def place(self) -> tuple[int, int, int, int]:
        """What its name says: equal for one and the same part, and for one that repeats its numbers."""
        return self.min_block, self.max_block, self.level, self.mutation

    def __str__(self) -> str:
        return "-".join(map(str, (*self.place, self.rows, self.hash[: _HASH_LENGTH + 1])))

    @classmethod
    def parse(cls, text: str) -> Self:
        low, high, level, mutation, rows, found = text.split("-")
        return cls(
            min_block=int(low),
            max_block=int(high),
            level=int(level),
            mutation=int(mutation),
            rows=int(rows),
            hash=found,
        )

    def covers(self, other: "PartMark") -> bool:
        return self.min_block <= other.min_block and other.max_block <= self.max_block

    def is_not(self, other: "PartMark") -> bool:
        """Whether a part of the same place surely is another: hashes of two kinds say nothing."""
        known = self.hash[:1] == other.hash[:1] != ""
        return self.rows != other.rows or (known and self.hash != other.hash)


def marked(content: str, parts: Iterable[PartMark]) -> str:
    """A content id with the marks of the partition's parts."""
    found = sorted(parts, key=lambda part: part.place)
    if not found:
        return content
    if len(found) <= MOST_MARKS:
        return f"{content}{_MARKED}{','.join(map(str, found))}"
    kinds = "".join(sorted({part.hash[:1] for part in found}))
    places = _digest(str(part.place) for part in found)
    return f"{content}{_MARKED}{_DIGEST}{len(found)}-{kinds}-{places}-{_digest(map(str, found))}"


def unchanged(then: str, now: str) -> bool:
    """Whether the partition of the id `now` holds the rows of the id `then`, as far as anybody can tell."""
    before, _, marks_before = then.partition(_MARKED)
    after, _, marks_after = now.partition(_MARKED)
    if _same_files(marks_before, marks_after):
        return True  # under other numbers: detached and attached again
    if before != after:
        return False
    if not marks_before or not marks_after:
        return True  # one of them comes from where numbers never begin again, or from an older version
    if marks_before.startswith(_DIGEST):
        return _digests_agree(marks_before, marks_after)
    if marks_after.startswith(_DIGEST):
        return False  # parts became more: no merge does that
    return _merged_from(_parse(marks_before), _parse(marks_after))


def merged_since(then: str, now: str) -> bool:
    """Of an unchanged partition: whether it is so by its numbers and counts alone, its parts being others."""
    marks_before, marks_after = then.partition(_MARKED)[2], now.partition(_MARKED)[2]
    return bool(marks_before and marks_after) and then != now and not _same_files(marks_before, marks_after)


def parts_gone(then: str, now: str) -> bool:
    """Whether blocks of the id `then` are in no part of the id `now`: dropped, or emptied by a mutation.
    Only marks tell, where each part has one."""
    marks_before, marks_after = then.partition(_MARKED)[2], now.partition(_MARKED)[2]
    if not marks_before or not marks_after or _DIGEST in (marks_before[0], marks_after[0]):
        return False
    if _same_files(marks_before, marks_after):
        return False
    after = _parse(marks_after)
    return any(not any(part.covers(one) for part in after) for one in _parse(marks_before))


def blocks_kept(then: str, now: str) -> bool:
    """Whether every block of the id `then` is known to be in a part of the id `now`. Only marks of each part tell."""
    marks_before, marks_after = then.partition(_MARKED)[2], now.partition(_MARKED)[2]
    if not marks_before or not marks_after or _DIGEST in (marks_before[0], marks_after[0]):
        return False
    return not parts_gone(then, now)


def marks_of(content: str) -> list[PartMark] | None:
    """Of each part of a content id; None where it does not list them."""
    marks = content.partition(_MARKED)[2]
    return None if not marks or marks.startswith(_DIGEST) else _parse(marks)


def _same_files(before: str, after: str) -> bool:
    """Whether the parts are the very same, whatever their names: for each part of before there is one with equal
    rows and files, and no other. Only hashes of the files tell; when a part was written, and its size, do not."""
    if not before or not after or _DIGEST in (before[0], after[0]):
        return False
    files = [sorted((part.hash, part.rows) for part in _parse(marks)) for marks in (before, after)]
    return files[0] == files[1] and all(hash[:1] in _OF_FILES and hash[1:] for hash, _ in files[0])


def _parse(marks: str) -> list[PartMark]:
    return [PartMark.parse(text) for text in marks.split(",")]


def _digests_agree(before: str, after: str) -> bool:
    """Parts of the very same places must be the same parts; where places differ there were merges."""
    count, kinds, places, whole = before.removeprefix(_DIGEST).split("-")
    if not after.startswith(_DIGEST):
        return True
    count_now, kinds_now, places_now, whole_now = after.removeprefix(_DIGEST).split("-")
    if places != places_now:
        return int(count_now) <= int(count)
    return kinds != kinds_now or whole == whole_now


def _merged_from(before: Sequence[PartMark], after: Sequence[PartMark]) -> bool:
    """Whether each part is one of before, or can be a merge of some of them, and none is left over."""
    left = list(before)
    for part in after:
        sources = [one for one in left if part.covers(one)]
        left = [one for one in left if one not in sources]
        if not _comes_from(part, sources):
            return False
    return all(part.mutation > 0 for part in left)  # a part whose rows are all deleted is taken away


def _comes_from(part: PartMark, sources: Sequence[PartMark]) -> bool:
    same = [one for one in sources if one.place == part.place]
    if same:
        return len(sources) == 1 and not part.is_not(same[0])
    if not sources or part.level <= max(one.level for one in sources):
        return False  # a merge's level is above those of its sources: this one was made anew
    rows = sum(one.rows for one in sources)
    # Only rows that a mutation or a lightweight delete, which is one, deleted may be left out.
    return part.rows == rows or (part.rows < rows and part.mutation > 0)


def _digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


_PART = re.compile(r"[^_]+_(\d+)_(\d+)_\d+(?:_\d+)?")


def input_of(key: KeyPlan) -> tuple[str, str, str]:
    """Source identity, partition and selection. A key of an old plan, without its readable text, says only its
    partition. The destination's uuid, which comes last, is no part of the input."""
    if not key.text:
        return "", key.partition, ""
    return loads(tuple[str, str, str, str], key.text, f"the key of partition {key.partition}")[:3]


def refuse_overlap(exports: Iterable[EarlierExport], source_table: str, wanted: Sequence[KeyPlan]) -> None:
    """`exports` are all that the destination remembers. A key of an old plan, without its readable text,
    is not compared."""
    asked = [input_of(key) for key in wanted if key.text]
    # By input: a table may remember as many exports as it has partitions.
    known: dict[tuple[str, ...], list[EarlierExport]] = {(one[0], one[1]): [] for one in asked}
    for export in exports:
        if (found := known.get(export.input[:2])) is not None:
            found.append(export)
    for identity, partition, selection in asked:
        for export in known[identity, partition]:
            other = export.input[2]
            if other == selection or _is_chained(selection, other, known[identity, partition]):
                continue
            if not disjoint(selection, other):
                raise RefusedError(
                    f"partition {partition} of {source_table} was exported before with another selection"
                    f" ({other or 'all of it'}) by process {export.process_id}: rows could be there twice",
                    code="overlap",
                    hint="export the whole partition into another table, or give --allow-overlap",
                )


_INCREMENT, _AFTER = "increment", "after"
Input = tuple[str, str]  # source identity and partition


def increment_selection(after: str, number: int) -> str:
    """Of the new parts of a partition that process `after` exported whole: the number-th to be added."""
    return json.dumps({_AFTER: after, _INCREMENT: number}, sort_keys=True)


def increment_of(selection: str) -> tuple[str, int] | None:
    """The process that exported the whole, and the number; None for any other selection."""
    chosen = json.loads(selection) if _INCREMENT in selection else {}
    found = chosen.get(_INCREMENT)
    return (str(chosen.get(_AFTER)), found) if isinstance(found, int) else None


def increments_by_input(exports: Iterable[EarlierExport]) -> dict[Input, list[EarlierExport]]:
    found: dict[Input, list[EarlierExport]] = {}
    for one in exports:
        if increment_of(one.input[2]) is not None:
            found.setdefault(one.input[:2], []).append(one)
    return found


def with_increments(
    whole: EarlierExport, input: Input, increments: Mapping[Input, Sequence[EarlierExport]]
) -> EarlierExport:
    """The export of a whole partition as it stands with what was added to it since."""
    mine = [one for one in increments.get(input, ()) if _number(one, whole.process_id)]
    if not mine:
        return whole
    mine.sort(key=lambda one: _number(one, whole.process_id))
    return replace(
        whole,
        content=mine[-1].content,
        own_content=whole.content,
        rows=whole.rows + sum(one.rows for one in mine),
        top=mine[-1].top,
        increments=tuple(mine),
        released=next((one.released for one in (whole, *mine) if one.released), ""),
    )


def _number(export: EarlierExport, after: str) -> int:
    """0 where it is no increment of that process's export."""
    found = increment_of(export.input[2])
    return found[1] if found is not None and found[0] == after else 0


def _is_chained(selection: str, other: str, exports: Sequence[EarlierExport]) -> bool:
    """Whether one is an increment of the other, or both are of the same whole: they share no row. A whole that is not
    there any more says nothing about what was added to it."""
    wholes = {one.process_id for one in exports if not one.input[2]}
    mine, theirs = increment_of(selection), increment_of(other)
    chained = [one[0] in wholes for one in (mine, theirs) if one is not None]
    return (
        bool(chained)
        and all(chained)
        and all(one is not None or not text for one, text in ((mine, selection), (theirs, other)))
    )


def refuse_unchained(exports: Sequence[EarlierExport], source_table: str, wanted: Sequence[KeyPlan]) -> None:
    """An increment fits only what it was planned for: the same whole export, and exactly the increments before it. No
    option changes that."""
    for key in wanted:
        identity, partition, selection = input_of(key)
        found = increment_of(selection)
        if found is None:
            continue
        after, number = found
        mine = [one for one in exports if one.input[:2] == (identity, partition)]
        wholes = [one.process_id for one in mine if not one.input[2]]
        before = sorted(at for one in mine if (at := _number(one, after)))
        if wholes != [after] or before != list(range(1, number)):
            raise RefusedError(
                f"partition {partition} of {source_table} was exported again, or more of it was, after these new parts"
                " were planned; nothing was published",
                code="changed_since",
                hint="repeat the command: it looks for what is new now",
            )


def of_partitions(exports: Iterable[EarlierExport], wanted: Sequence[KeyPlan]) -> list[EarlierExport]:
    """Those that the refusals below compare: a table may remember 100,000 others."""
    partitions = {key.partition for key in wanted}
    return [one for one in exports if one.released or one.input[1] in partitions]


def refuse_released(exports: Iterable[EarlierExport], source_table: str, wanted: Sequence[KeyPlan]) -> None:
    """Nothing replaces, or repeats in part, what was released: it may be the only copy. No option changes
    that. A mark that does not say what it was exported from stands for every partition."""
    hashes = {key.hash for key in wanted}
    inputs = [input_of(key) for key in wanted if key.text]
    # What is added to a released partition replaces nothing of it, and repeats nothing: `refuse_unchained`.
    asked = {(one[0], one[1]) for one in inputs if increment_of(one[2]) is None}
    added = {(one[0], one[1]) for one in inputs} - asked
    for export in exports:
        whole = not export.input[2] or increment_of(export.input[2]) is not None
        part = export.input[:2] in added and not whole
        met = export.key_hash in hashes or export.input[:2] in asked or part or not any(export.input)
        if export.released and hashes and met:
            raise released(source_table, export)


def released(source_table: str, export: EarlierExport) -> RefusedError:
    partition = export.input[1] or "of unknown name"
    return RefusedError(
        f"partition {partition} of {source_table}, exported by process {export.process_id}, was released by"
        f" process {export.released}: the table may hold the only copy of its rows, so nothing replaces them",
        code="released",
        hint="add rows that came later with --new-parts: nothing is replaced",
    )


def block_ranges(selection: str) -> list[tuple[int, int]] | None:
    """First and last block of each part that is named; None where rows of any block may be meant."""
    chosen = json.loads(selection) if selection else {}
    names = [_PART.fullmatch(name) for name in chosen.get("parts", ())]
    if not names or chosen.get("final"):
        return None
    ranges = [(int(name[1]), int(name[2])) for name in names if name is not None]
    # A name of a table of old syntax has dates there, which end before they begin.
    if len(ranges) < len(names) or any(first > last for first, last in ranges):
        return None
    return ranges


def disjoint(one: str, other: str) -> bool:
    mine, theirs = block_ranges(one), block_ranges(other)
    if mine is None or theirs is None:
        return False
    return all(last < begin or end < first for first, last in mine for begin, end in theirs)
