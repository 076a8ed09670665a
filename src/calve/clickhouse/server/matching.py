"""Which part of the source each part of a clone is: a clone numbers its blocks anew, and only the
source's own numbers tell whether a partition changed since an export."""

from collections import Counter
from collections.abc import Sequence

from calve.clickhouse.server.parts import ListedPart
from calve.clickhouse.tables import TableInfo
from calve.model.errors import TemporaryError


def matched(
    table: TableInfo, before: Sequence[ListedPart], after: Sequence[ListedPart], cloned: Sequence[ListedPart]
) -> list[tuple[ListedPart, ListedPart]]:
    """Each part of the clone with its origin. A merge meanwhile is seen by the parts it left inactive;
    what cannot be told apart is tried again under a new name."""
    if not any(part.hash for part in cloned) and _active(before) != _active(after):
        raise _moving(table)
    candidates: dict[tuple[object, ...], dict[str, ListedPart]] = {}
    for part in (*before, *after):
        candidates.setdefault(_likeness(part), {})[part.name] = part
    pairs = []
    for part in cloned:
        alike = candidates.get(_likeness(part))
        if not alike:
            raise _moving(table)
        # Equal parts are equal in all that matters, except for their blocks: taken in order.
        pairs.append(
            (part, alike.pop(min(alike, key=lambda name: (not alike[name].active, alike[name].min_block))))
        )
    if _active(before) == _active(after) and len(cloned) != len(_active(after)):
        raise _moving(table)
    return pairs


def _likeness(part: ListedPart) -> tuple[object, ...]:
    return part.partition_id, part.rows, part.hash or part.bytes


def _active(parts: Sequence[ListedPart]) -> Counter[str]:
    return Counter(part.name for part in parts if part.active)


def _moving(table: TableInfo) -> TemporaryError:
    return TemporaryError(
        f"table {table} changed in the moment it was pinned, so what the pin holds cannot be named",
        code="altered_meanwhile",
        hint="it is tried again by itself; a partition that never rests is better exported once it does",
    )
