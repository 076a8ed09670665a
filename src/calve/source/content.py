"""The content id of a partition: the same as long as its rows are the same.

Over the lowest and highest block number, the last mutation and the rows that a reader sees.
A plain merge keeps all four: it joins block ranges, carries the mutation on, and drops only
rows that were deleted already. An insert raises the highest block, a mutation (a lightweight
delete is one) has a new number, a dropped part takes its rows along. Block *ranges* are not
used: blocks of one table are numbered across partitions, so a merge also covers numbers that
never were in this one.

What it cannot see: in a table that is not replicated, block numbers begin again once the
highest blocks were dropped and the server restarted; a reload with exactly as many rows then
looks unchanged. Engines whose merges combine rows (Replacing, Summing …) change their
content with a merge, and so does this id.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

_VERSION = "c1"
_PARTS_VERSION = "p1"


@dataclass(frozen=True, kw_only=True)
class Extent:
    """What one part, or a partition as a whole, adds to the content."""

    min_block: int
    max_block: int
    mutation: int
    rows: int  # that a reader sees: lightweight-deleted ones do not count


def whole(extents: Iterable[Extent]) -> Extent:
    """The extent of all of them together. At least one."""
    parts = list(extents)
    return Extent(
        min_block=min(part.min_block for part in parts),
        max_block=max(part.max_block for part in parts),
        mutation=max(part.mutation for part in parts),
        rows=sum(part.rows for part in parts),
    )


def parts_content(hashes: Iterable[str]) -> str:
    """The content of parts that a person named, from the hashes of their files: the name alone does
    not tell, since a table that was emptied and opened anew numbers its parts from 1 again (P17)."""
    return f"{_PARTS_VERSION}-{hashlib.sha256(':'.join(sorted(hashes)).encode()).hexdigest()[:24]}"


def content_id(extents: Iterable[Extent]) -> str:
    """The content id of a partition with these parts."""
    extent = whole(extents)
    text = f"{_VERSION}:{extent.min_block}:{extent.max_block}:{extent.mutation}:{extent.rows}"
    return f"{_VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"
