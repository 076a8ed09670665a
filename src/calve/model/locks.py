"""When two locks meet: the same name, or a name and a piece of it, or two pieces that overlap.

A piece is a range of numbers, both ends included, of what its name stands for: of a partition, the
blocks of a part. So two parts of one partition are worked on side by side, while the whole partition
meets each of them. All is in the name: what stores and compares locks needs no other column.
"""

import re
from collections import defaultdict
from collections.abc import Iterable

from calve.model.process import ProcessId

_PIECE = re.compile(r"([0-9a-f]{32})#(\d+)-(\d+)")
MARK = "#"  # in the name of every piece, and hardly in another


def piece_of(whole: str, first: int, last: int) -> str:
    """The lock on a piece of `whole`, which is a hash of 32 digits."""
    name = f"{whole}{MARK}{first}-{last}"
    assert _PIECE.fullmatch(name), name
    return name


def whole_of(name: str) -> str:
    """What a lock is a piece of; itself, if it is none."""
    piece = _PIECE.fullmatch(name)
    return piece[1] if piece else name


def meet(one: str, other: str) -> bool:
    """Whether the two may not be held at the same time."""
    mine, theirs = _PIECE.fullmatch(one), _PIECE.fullmatch(other)
    if mine is None or theirs is None:
        return whole_of(one) == whole_of(other)
    return mine[1] == theirs[1] and int(mine[2]) <= int(theirs[3]) and int(theirs[2]) <= int(mine[3])


def first_conflict(
    wanted: Iterable[tuple[str, ProcessId]], held: Iterable[tuple[str, ProcessId]]
) -> tuple[str, ProcessId] | None:
    """A held lock, and its holder, that meets one which another process wants. Wanted locks meet each
    other too; a process meets none of its own."""
    known = _by_whole(held)
    for name, process_id in wanted:
        others = known[whole_of(name)]
        for other, holder in others:
            if holder != process_id and meet(name, other):
                return other, holder
        others.append((name, process_id))
    return None


def _by_whole(
    held: Iterable[tuple[str, ProcessId]],
) -> defaultdict[str, list[tuple[str, ProcessId]]]:
    found: defaultdict[str, list[tuple[str, ProcessId]]] = defaultdict(list)
    for name, holder in held:
        found[whole_of(name)].append((name, holder))
    return found
